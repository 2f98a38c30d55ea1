"""Columns that say how much each hold and each policy of a list reaches, counted for the rows of a page together."""

from typing import Any, Final

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import LargeChangeList
from retention import extents
from retention.extents import Number

BOUNDED: Final = (
    f"Counted as the page was made, among at most {extents.AT_MOST:,} rows of the catalogue for each line, fewer on a long "
    "page: “at least” says that there may be more."
)
HELD: Final = f"Present versions and delete markers that the hold covers, and their bytes. {BOUNDED}"
COVERED: Final = f"Present originals that the policy governs, whatever others say of them. {BOUNDED}"
DUE: Final = (
    "Of what is covered, that whose retention ends within {} days or has ended, without what a scan has found under a hold. "
    "Other policies, generations to keep and decisions about single objects do not count here, nor what waits for events: a "
    "dry run heeds them. "
    f"{BOUNDED} “Not counted”: none was among them. “-”: no date is known, or nothing is ever due."
)


class HoldChangeList(LargeChangeList):
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list: list[Any] = list(self.result_list)
        around = extents.of_holds(self.result_list)
        for hold in self.result_list:
            hold.extent = around.get(hold.pk)


class PolicyChangeList(LargeChangeList):
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list: list[Any] = list(self.result_list)
        around = extents.of_policies({each.pk: each.published for each in self.result_list if not each.erasure})
        for policy in self.result_list:
            policy.extent = around.get(policy.pk)


def worded(number: Number) -> str:
    if number.whole:
        return display.number(number.value)
    return f"at least {number.value:,}" if number.value else "not counted"


class HoldColumns:
    """Mixin of the admin class of holds."""

    @admin.display(description=display.helped("Held", HELD))
    def held(self, obj: Any) -> SafeString | str:
        if obj.extent is None:
            return display.NOTHING
        versions = obj.extent.versions
        if not versions.whole and not versions.value:
            return worded(versions)
        return display.lines(worded(versions), display.size(obj.extent.bytes))


class PolicyColumns:
    """Mixin of the admin class of policies."""

    @admin.display(description=display.helped("Covered", COVERED))
    def covered(self, obj: Any) -> str:
        return display.NOTHING if obj.extent is None else worded(obj.extent.versions)

    @admin.display(description=display.helped("Due in 30\N{NO-BREAK SPACE}days", DUE.format(30)))
    def due_soon(self, obj: Any) -> str:
        return due(obj, 0)

    @admin.display(description=display.helped("Due in 90\N{NO-BREAK SPACE}days", DUE.format(90)))
    def due_later(self, obj: Any) -> str:
        return due(obj, 1)


def due(policy: Any, place: int) -> str:
    if policy.extent is None or not policy.extent.due:
        return display.NOTHING
    return worded(policy.extent.due[place])
