"""The slots of schedules in the admin: what each one was answered with."""

from django.contrib import admin
from django.db.models import QuerySet

from cleanup_project.base.modeladmin import ReadOnlyAdmin
from ledger.models import ScheduleSlot


@admin.register(ScheduleSlot)
class ScheduleSlotAdmin(ReadOnlyAdmin[ScheduleSlot]):
    tenant_path = "policy__tenant__code"
    none_yet = "No slot has come yet: the worker notices them by the schedule of each policy."
    list_display = ("scheduled_for", "policy", "outcome", "run", "reason", "noticed_at")
    list_select_related = ("policy", "run")
    list_filter = ("outcome",)
    lookups = frozenset({"scheduled_for__gte"})
    ordering = ("-id",)
    exact_search = ("policy",)
    search_help_text = "A policy code, exactly."
    empty_words = {"run": "none", "reason": "as asked"}

    def search_exactly(self, queryset: QuerySet[ScheduleSlot], term: str) -> QuerySet[ScheduleSlot]:
        return queryset.filter(policy__code=term)
