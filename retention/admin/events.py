"""Retention events: posted after a look at what they would start, and withdrawn."""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, offered, person
from retention import events
from retention.admin.scope import ScopeColumns, ScopeForm, scope_fields
from retention.exceptions import RetentionError
from retention.models import RetentionEvent

RIGHT = "base.post_event"


class EventForm(ScopeForm):
    class Meta:
        model = RetentionEvent
        fields = (
            "tenant", "event_type", "occurred_at", "reason", "reference", "bucket_ids", "prefixes", "retention_classes",
        )  # fmt: skip
        field_classes = {"occurred_at": forms.SplitDateTimeField}
        widgets = {"occurred_at": AdminSplitDateTime, "reason": forms.Textarea(attrs={"rows": 3, "cols": 80})}

    fieldsets = (
        (None, {"fields": ("event_type", "occurred_at", "reason", "reference")}),
        ("Scope", {"fields": ("tenant", "bucket_ids", "prefixes", "retention_classes")}),
    )


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return [("standing", "posted"), ("withdrawn", "withdrawn")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(withdrawn_at__isnull=self.value() == "standing") if self.value() else queryset


@admin.register(RetentionEvent)
class RetentionEventAdmin(ScopeColumns, VerbPages[RetentionEvent], ReadOnlyAdmin[RetentionEvent]):
    tenant_path = "tenant__code"
    none_yet = "No event was posted: what waits for one is kept."
    list_display = ("__str__", "reference", "tenant", "occurred_at", "started", "posted_by", "posted_at", "state")
    list_select_related = ("tenant", "posted_by")
    list_filter = (StateFilter,)
    ordering = ("-id",)
    exact_search = ("event_type",)
    search_help_text = "A type of event, exactly."
    refusals = (RetentionError,)
    empty_words = {"withdrawn_at": "it stands"}
    fieldsets = (
        (None, {"fields": ("event_type", "occurred_at", "reason", "reference", "state")}),
        ("Scope", {"fields": ("tenant", "buckets", "covered_prefixes", "classes")}),
        ("Posted", {"fields": ("posted_by", "posted_at", "started")}),
        ("Withdrawn", {"fields": ("withdrawn_by", "withdrawn_at", "withdrawn_reason")}),
    )

    @admin.display(description="started, when posted")
    def started(self, obj: RetentionEvent) -> SafeString:
        more = "" if obj.counted_all else "at least "
        versions = display.counted(obj.started_versions, "version")
        return format_html("{}{}, {}", more, versions, display.size(obj.started_bytes))

    @admin.display(description="state")
    def state(self, obj: RetentionEvent) -> SafeString:
        return display.pill("withdrawn", "ended") if obj.withdrawn_at else display.pill("posted")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(RIGHT)

    def get_urls(self) -> list[Any]:
        return [self.verb_url("withdraw", self.withdraw_view), *super().get_urls()]

    def tools(self, request: HttpRequest, obj: RetentionEvent) -> Iterable[Tool]:
        if request.user.has_perm(RIGHT) and obj.withdrawn_at is None:
            yield Tool("Withdraw", reverse("admin:retention_retentionevent_withdraw", args=[obj.pk]))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """The form, then what it would start, then the event: only exactly what was looked at is posted."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = offered(EventForm(request.POST or None), request)
        if request.method == "POST" and form.is_valid():
            looked_at = fingerprint(form.cleaned_data)
            if request.POST.get("looked_at") != looked_at:
                return self.preview_page(request, form, looked_at)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            event = events.post(by=person(request), **scope_fields(values))
            started = display.counted(event.started_versions, "object version")
            return event, f"Posted. It started the clock of {started}."

        return self.verb_page(
            request,
            form,
            act,
            title="Post a retention event",
            button="See what it would start",
            fieldsets=EventForm.fieldsets,
            about="Nothing is posted yet: first you see what it would start.",
        )

    def preview_page(self, request: HttpRequest, form: EventForm, looked_at: str) -> HttpResponse:
        seen = events.preview(form.instance)
        more = "" if seen.counted_all else "at least "
        facts = (
            ("Policies", ", ".join(seen.policies) or "none"),
            ("Versions", f"{more}{seen.versions:,}"),
            ("Bytes", display.size(seen.bytes)),
            ("Some of them", display.bullets(map(display.link, seen.samples)) if seen.samples else "none"),
        )
        context = {
            "button": "Post event",
            "about": f"{seen.words} Nothing is posted yet.",
            "looked_at": looked_at,
            "facts": display.table((), facts),
        }
        template = "admin/retention/retentionevent/preview.html"
        return self.form_page(request, form, template, context, "Post a retention event", EventForm.fieldsets)

    def withdraw_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm(RIGHT):
            raise PermissionDenied

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            event = events.withdraw(event=obj, by=person(request), reason=values["reason"])
            return event, (
                "Withdrawn. Workers judge again before they send anything; a request that was sent by now may still be "
                "executed."
            )

        names = (
            "event_type",
            "occurred_at",
            "tenant",
            "buckets",
            "covered_prefixes",
            "classes",
            "posted_by",
            "started",
        )
        shown = [self.presented(name) for name in names]
        return self.verb_page(
            request,
            forms.modelform_factory(RetentionEvent, form=ReasonForm, fields=())(request.POST or None, instance=obj),
            act,
            title="Withdraw a retention event",
            button="Withdraw",
            fieldsets=[(None, {"fields": shown}), ("Your decision", {"fields": ("reason",)})],
            readonly=shown,
            about="As if it had not happened. Possible until something that it covers has been destroyed.",
            obj=obj,
        )


def fingerprint(values: Mapping[str, Any]) -> str:
    """Of what was typed, so that what is confirmed is what was looked at."""
    return sha256(json.dumps(values, default=str, sort_keys=True).encode()).hexdigest()
