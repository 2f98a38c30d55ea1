"""The schedule in the admin: what each policy's slots were answered with, beside what is expected of it."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display, tenancy
from cleanup_project.base.modeladmin import ReadOnlyAdmin
from ledger import schedule
from ledger.models import ScheduleSlot
from ledger.schedule import Outlook
from retention.models import RetentionPolicy

SHOWN = 200  # policies
Outcome = ScheduleSlot.Outcome
KINDS = {
    Outcome.OPENED: "plain",
    Outcome.MISSED: "overdue",
    Outcome.OVERLAP: "waiting",
    Outcome.REFUSED: "waiting",
}
HEADINGS = ("Policy", "Schedule, UTC", "When slots were missed", "Last answered", "Next", "In the last 30 days")


@admin.register(ScheduleSlot)
class ScheduleSlotAdmin(ReadOnlyAdmin[ScheduleSlot]):
    tenant_path = "policy__tenant__code"
    none_yet = "No slot has come yet: the worker notices them by the schedule of each policy."
    list_display = ("scheduled_for", "policy", "outcome_pill", "run", "reason", "noticed")
    list_select_related = ("policy", "run")
    list_filter = ("outcome",)
    lookups = frozenset({"scheduled_for__gte"})
    ordering = ("-id",)
    exact_search = ("policy",)
    search_help_text = "A policy code, exactly."
    empty_words = {"run": "none", "reason": "as asked"}

    def search_exactly(self, queryset: QuerySet[ScheduleSlot], term: str) -> QuerySet[ScheduleSlot]:
        return queryset.filter(policy__code=term)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        policies = tenancy.scoped(RetentionPolicy.objects.filter(erasure=False), request.user, "tenant__code")
        term = request.GET.get("q", "")
        if term and "\x00" not in term:
            policies = policies.filter(code=term)
        found = schedule.outlook(policies, SHOWN)
        told = {"expected": display.table(HEADINGS, map(cells, found)) if found else ""}
        return super().changelist_view(request, told | (extra_context or {}))

    @admin.display(description="answer")
    def outcome_pill(self, obj: ScheduleSlot) -> SafeString:
        return display.pill(obj.get_outcome_display(), KINDS[Outcome(obj.outcome)])

    @admin.display(description="noticed")
    def noticed(self, obj: ScheduleSlot) -> SafeString | str:
        """Late where it was noticed after the grace that a slot has."""
        late = obj.noticed_at - obj.scheduled_for
        moment = display.moment(obj.noticed_at)
        if late <= schedule.GRACE:
            return moment
        return format_html('{}<div class="quiet">{} late</div>', moment, str(late).split(".")[0])


def cells(each: Outlook) -> Iterator[Any]:
    policy = each.policy
    yield display.link(policy)
    yield display.exact(policy.schedule)
    yield policy.get_missed_slots_display()
    yield display.moment(each.last) if each.last else "never"
    yield following(each)
    told = [f"{number:,} {Outcome(outcome).label.lower()}" for outcome, number in sorted(each.answers.items())]
    yield ", ".join(told) or "none came"


def following(each: Outlook) -> SafeString | str:
    if each.next is None:
        return "none: nothing of it has come into force"
    if each.policy.suspended_at is not None:
        return format_html("{} {}", display.pill("suspended: refused", "waiting"), display.moment(each.next))
    if each.overdue:
        return format_html("{} {}", display.pill("a slot is unanswered", "overdue"), display.moment(each.next))
    return display.moment(each.next)
