"""What was in flight when a legal hold was placed, and how each of it ended."""

from collections.abc import Iterable

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from ledger.models import HoldReport

LISTED_AT_MOST = 200


@admin.register(HoldReport)
class HoldReportAdmin(ReadOnlyAdmin[HoldReport]):
    list_display = ("hold_named", "reported_at", "in_flight", "marked_at")
    list_select_related = ("hold",)
    ordering = ("-hold_id",)
    empty_words = {"marked_at": "not yet"}
    fieldsets = (
        (None, {"fields": ("hold", "reported_at", "in_flight", "marked_at")}),
        ("Might still be executed", {"fields": ("commands",)}),
    )

    def tools(self, request: HttpRequest, obj: HoldReport) -> Iterable[Tool]:
        yield Tool("Hold", display.change_url(obj.hold))

    @admin.display(description="hold")
    def hold_named(self, obj: HoldReport) -> str:
        return display.visible(str(obj.hold))

    @admin.display(description="commands")
    def commands(self, obj: HoldReport) -> SafeString | str:
        found = obj.commands.select_related("command").order_by("ended_at", "id")[:LISTED_AT_MOST]
        rows = (
            (
                display.link(each.command),
                each.token,
                each.ended_as.replace("_", " ") or display.pill("not known yet", "waiting"),
                display.moment(each.ended_at) if each.ended_at else display.NOTHING,
            )
            for each in found
        )
        table = display.table(("Command", "Token", "Ended as", "Known since"), rows)
        return display.cut(table, obj.in_flight - len(found), "commands") if found else "none"
