"""What was in flight when a legal hold was placed, and how each of it ended."""

from collections.abc import Iterable, Iterator
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, Q
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.safestring import SafeString

from cleanup_project.base import display, notices, tenancy
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.models import User
from cleanup_project.base.notices import Notice
from cleanup_project.base.verbpages import VerbPages, person
from ledger import inflight
from ledger.exceptions import LedgerError
from ledger.models import HoldReport

LISTED_AT_MOST = 200
NOTICED = 3


@notices.register
def unread_reports(user: User) -> Iterator[Notice]:
    """For whoever placed a hold, or might have where a program did: what was in flight, until they acknowledge its end."""
    theirs = Q(hold__placed_by=user)
    if user.has_perm("base.place_hold"):
        theirs |= Q(hold__placed_by__is_program=True)
    mine = tenancy.scoped(HoldReport.objects.unread().filter(theirs), user, HoldReportAdmin.tenant_path)
    for report in mine.select_related("hold").order_by("-pk")[:NOTICED]:
        words = f"Hold {report.hold}: {inflight.told(report)}"
        yield Notice("alarm", display.visible(words), display.change_url(report))


@admin.register(HoldReport)
class HoldReportAdmin(VerbPages[HoldReport], ReadOnlyAdmin[HoldReport]):
    tenant_path = "hold__tenant__code"
    list_display = ("hold_named", "reported_at", "in_flight", "marked_at", "acknowledged_at")
    list_select_related = ("hold",)
    ordering = ("-hold_id",)
    empty_words = {"marked_at": "not yet", "acknowledged_at": "not yet"}
    refusals = (LedgerError,)
    fieldsets = (
        (None, {"fields": ("hold", "reported_at", "in_flight", "marked_at", "acknowledged_at")}),
        ("Might still be executed", {"fields": ("commands",)}),
    )

    def tools(self, request: HttpRequest, obj: HoldReport) -> Iterable[Tool]:
        yield Tool("Hold", display.change_url(obj.hold))
        if inflight.is_for(person(request), obj) and obj.in_flight and obj.acknowledged_at is None:
            yield Tool("Acknowledge", reverse("admin:ledger_holdreport_acknowledge", args=[obj.pk]))

    def get_urls(self) -> list[Any]:
        own: list[URLPattern] = [self.verb_url("acknowledge", self.acknowledge_view)]
        return own + super().get_urls()

    def acknowledge_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not inflight.is_for(person(request), obj):
            raise PermissionDenied
        form = forms.modelform_factory(HoldReport, fields=())(
            request.POST if request.method == "POST" else None, instance=obj
        )

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            return inflight.acknowledge(report=obj, by=person(request)), "Acknowledged."

        return self.verb_page(
            request,
            form,
            act,
            title="Acknowledge what was in flight",
            button="Acknowledge",
            fieldsets=self.get_fieldsets(request, obj),
            readonly=self.get_readonly_fields(request, obj),
            about="You have read how each command that was in flight when you placed the hold has ended.",
            obj=obj,
        )

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
