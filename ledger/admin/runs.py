"""Runs in the admin: their list, the page of each, and what people decide about it."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path

from cleanup_project.base import tenancy
from cleanup_project.base.modeladmin import ReadOnlyAdmin
from ledger import downloads
from ledger.admin import certificates, comparisons, reviews, runpage, runverbs
from ledger.admin.runlist import Columns, RunChangeList
from ledger.models import CleanupRun
from retention.models import RetentionPolicy


@admin.register(CleanupRun)
class CleanupRunAdmin(Columns, runverbs.RunDecisions, ReadOnlyAdmin[CleanupRun]):
    tenant_path = "tenant__code"
    none_yet = "No run yet: the schedule of each policy opens them."
    list_display = ("key", "state_cell", "policy_cell", "items_cell", "approval_cell", "outcomes_cell")
    list_select_related = ("policy", "opened_by", "authorised_by")
    list_filter = ("state", "mode")
    list_per_page = 50
    lookups = frozenset({"policy"})
    ordering = ("-id",)
    exact_search = ("key",)
    search_help_text = "A run key or a policy code, exactly."
    fields = ("key",)  # its page is a template of its own

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RunChangeList]:
        return RunChangeList

    def search_exactly(self, queryset: QuerySet[CleanupRun], term: str) -> QuerySet[CleanupRun]:
        named = list(RetentionPolicy.objects.filter(code=term).values_list("pk", flat=True))
        return queryset.filter(Q(key=term) | Q(policy__in=named))

    def narrowed(self, request: HttpRequest) -> str | None:
        number = request.GET.get("policy", "")
        mine = tenancy.scoped(RetentionPolicy.objects.all(), request.user, "tenant__code")
        policy = mine.filter(pk=int(number)).first() if number.isdecimal() and len(number) < 19 else None
        return f"Policy {policy}" if policy else None

    def get_urls(self) -> list[Any]:
        download = path(
            "<int:run_id>/manifest.<str:form>",
            self.admin_site.admin_view(downloads.manifest),
            name="ledger_cleanuprun_manifest",
        )
        return [
            download,
            self.verb_url("live", self.live_view),
            *self.decision_urls(),
            *reviews.urls(self),
            *certificates.urls(self),
            *comparisons.urls(self),
            *super().get_urls(),
        ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[CleanupRun]:
        return super().get_queryset(request).select_related("policy", "tenant", "opened_by", "authorised_by")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        run = self.get_object(request, unquote(object_id))
        if run is None or not self.has_view_permission(request, run):
            return super().change_view(request, object_id, form_url, extra_context)
        decisions = [*runverbs.decisions(request, run), *reviews.tools(request, run)]
        shown = runpage.page(request, run) | {"decisions": decisions, "title": "Run"}
        return super().change_view(request, object_id, form_url, shown | (extra_context or {}))

    def live_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """The part of the page that asks again by itself. In another state all of the page is another."""
        run = self.wanted(request, str(object_id))
        response = TemplateResponse(request, "admin/ledger/cleanuprun/live.html", runpage.live(run))
        if request.GET.get("state") != run.state:
            response.headers["HX-Refresh"] = "true"
        return response
