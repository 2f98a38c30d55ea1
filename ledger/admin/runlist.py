"""The list of runs: how each one stands, in a constant number of queries for a page of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib import admin
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import clock, display
from cleanup_project.base.display import lines
from cleanup_project.base.modeladmin import LargeChangeList
from ledger import runs, standing
from ledger.models import CleanupRun
from ledger.standing import LeftOut, Progress
from ledger.states import RUN_MEANING, RunState
from retention.models import PolicyRevision

KINDS = {
    RunState.NEEDS_APPROVAL: "waiting",
    RunState.COOLING_OFF: "waiting",
    RunState.PAUSED: "waiting",
    RunState.TRIPPED: "overdue",
    RunState.CLOSED: "ended",
    RunState.CANCELLED: "ended",
}


class Facts(NamedTuple):
    """What stands around a run's own row."""

    progress: Progress
    left_out: LeftOut
    revisions: list[PolicyRevision]
    opens: datetime | None  # the window that a draining run waits for


def facts(rows: Sequence[CleanupRun]) -> dict[int, Facts]:
    """Of each of these runs, by its id."""
    named = {stream["revision_id"] for run in rows for stream in run.streams}
    found = PolicyRevision.objects.select_related("policy").in_bulk(named)
    used = {
        run.pk: [found[pk] for pk in sorted({stream["revision_id"] for stream in run.streams})] for run in rows
    }  # fmt: skip
    come, left, now = standing.progress(rows), standing.left_out(rows), clock.now()
    return {
        run.pk: Facts(
            come[run.pk],
            left.get(run.pk, LeftOut()),
            used[run.pk],
            runs.first_opening(used[run.pk], now) if run.state == RunState.DRAINING else None,
        )
        for run in rows
    }


class RunChangeList(LargeChangeList):
    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list: list[Any] = list(self.result_list)
        around = facts(self.result_list)
        for run in self.result_list:
            run.facts = around[run.pk]


def state_pill(run: CleanupRun) -> SafeString:
    state = RunState(run.state)
    pill = display.pill(run.get_state_display(), KINDS.get(state, "plain"))
    return format_html('<span title="{}">{}</span>', RUN_MEANING[state], pill)


def begins(run: CleanupRun, opens: datetime | None) -> SafeString | str:
    """When it goes on, where that is a matter of time; or when it ended."""
    if run.state == RunState.COOLING_OFF and run.cooling_until:
        return format_html("starts {}", display.moment(run.cooling_until))
    if opens is not None:
        return format_html("waits for its window {}", display.moment(opens))
    return format_html("ended {}", display.moment(run.ended_at)) if run.ended_at else ""


class Columns:
    """Mixin of the admin class: several facts to a cell, so that no column is too wide to be read."""

    @admin.display(description="state")
    def state_cell(self, obj: Any) -> SafeString:
        return lines(state_pill(obj), begins(obj, obj.facts.opens))

    @admin.display(description="policy and mode")
    def policy_cell(self, obj: Any) -> SafeString:
        names = ", ".join(map(str, obj.facts.revisions)) or str(obj.policy)
        return lines(names, obj.get_mode_display(), format_html("as of {}", display.moment(obj.as_of)))

    @admin.display(description="items")
    def items_cell(self, obj: Any) -> SafeString:
        found: LeftOut = obj.facts.left_out
        whole = (
            f"{display.counted(obj.target_count, 'version')}, {display.human_size(obj.bytes)}" if obj.sealed_at else ""
        )
        return lines(
            to_destroy(obj),
            display.counted(obj.item_count if obj.sealed_at else found.items, "candidate"),
            f"{found.held:,} on hold" if found.held else "",
            f"{found.not_enforced:,} not enforced" if found.not_enforced else "",
            f"{obj.exempt_count:,} exempt" if obj.exempt_count else "",
            whole,
        )

    @admin.display(description="approval")
    def approval_cell(self, obj: Any) -> SafeString | str:
        opened = f"opened by {obj.opened_by or 'the system'}"
        if obj.authorised_at is None:
            return lines("none yet" if obj.ended_at is None else "none", opened)
        who = str(obj.authorised_by) if obj.authorised_by else "standing"
        return lines(who, display.moment(obj.authorised_at), opened)

    @admin.display(description="outcomes")
    def outcomes_cell(self, obj: Any) -> SafeString | str:
        come: Progress = obj.facts.progress
        if obj.mode == CleanupRun.Mode.DRY_RUN or not obj.published_parts:
            return display.NOTHING
        told = [f"{number:,} {words}" for words, number in come.grouped().items()]
        return lines(bar(come), *(told or ["none yet"]))


def to_destroy(run: CleanupRun) -> str:
    if run.sealed_at is None or not run.remaining_root:
        return "being counted"
    return f"{run.remaining_count or 0:,} to destroy"


def bar(come: Progress) -> SafeString:
    words = f"{come.done:,} of {come.total:,}"
    return format_html(
        '<progress max="{}" value="{}" aria-label="{} have an outcome"></progress> {}',
        max(come.total, 1), come.done, words, words,
    )  # fmt: skip
