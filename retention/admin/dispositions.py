"""What people decided about single objects: a list, and the pages on which they decide."""

from collections.abc import Callable, Iterable
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
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from retention import dispositions
from retention.exceptions import RetentionError
from retention.models import Disposition, ObjectVersion

RIGHT = "base.approve_run"


class ExtendForm(ReasonForm):
    until = forms.SplitDateTimeField(label="Keep until (UTC)", widget=AdminSplitDateTime)


class ReclassifyForm(ReasonForm):
    retention_class = forms.CharField(
        label="New class", required=False, strip=False, help_text="Exactly as written; empty: unclassified."
    )


class DispositionPages(VerbPages[ObjectVersion]):
    """Mixin for the page of an object version: exempt, extend, reclassify."""

    refusals = (RetentionError,)

    def get_urls(self) -> list[Any]:
        verbs = [
            self.verb_url("exempt", self.exempt_view),
            self.verb_url("extend", self.extend_view),
            self.verb_url("reclassify", self.reclassify_view),
        ]
        return [*verbs, *super().get_urls()]

    def tools(self, request: HttpRequest, obj: ObjectVersion) -> Iterable[Tool]:
        if request.user.has_perm(RIGHT) and obj.tenant_id is not None and obj.gone_at is None:
            for verb in ("exempt", "extend", "reclassify"):
                yield Tool(verb.capitalize(), reverse(f"admin:retention_objectversion_{verb}", args=[obj.pk]))

    def exempt_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        def act(obj: ObjectVersion, values: dict[str, Any]) -> str:
            new = dispositions.exempt([obj.pk], by=person(request), reason=values["reason"])
            return "Exempt until somebody ends it." if new else "It was exempt already: nothing has changed."

        about = (
            "Nothing destroys an exempt object, or what would go together with it, until the exemption is ended. For court "
            "proceedings place a legal hold instead: its release takes two people."
        )
        return self.decision(request, object_id, ReasonForm, act, "Exempt from destruction", "Exempt", about)

    def extend_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        def act(obj: ObjectVersion, values: dict[str, Any]) -> str:
            dispositions.extend([obj.pk], until=values["until"], by=person(request), reason=values["reason"])
            return "Kept at least until then."

        about = "Not eligible before the time that you name, whatever the policies say. Of several, the latest counts."
        return self.decision(request, object_id, ExtendForm, act, "Extend its retention", "Extend", about, "until")

    def reclassify_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        def act(obj: ObjectVersion, values: dict[str, Any]) -> str:
            said = {"retention_class": values["retention_class"], "reason": values["reason"]}
            new = dispositions.reclassify([obj.pk], by=person(request), **said)
            return "It is in its new class." if new else "It was in that class already: nothing has changed."

        about = "Its class decides which policies cover it. Later listings leave it as you put it here."
        name = "retention_class"
        return self.decision(
            request, object_id, ReclassifyForm, act, "Put it into another class", "Reclassify", about, name
        )

    def decision(
        self,
        request: HttpRequest,
        object_id: int,
        form: type[ReasonForm],
        decide: Callable[[ObjectVersion, dict[str, Any]], str],
        title: str,
        button: str,
        about: str,
        *fields: str,
    ) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm(RIGHT):
            raise PermissionDenied
        made = forms.modelform_factory(ObjectVersion, form=form, fields=())
        shown = [self.presented(name) for name in ("key", "version_id", "bucket", "explanation", "decisions")]
        return self.verb_page(
            request,
            made(request.POST or None, instance=obj, initial={"retention_class": obj.retention_class}),
            lambda values: (obj, decide(obj, values)),
            title=title,
            button=button,
            fieldsets=[
                (None, {"fields": shown}),
                ("Your decision", {"fields": (*fields, "reason")}),
            ],
            readonly=shown,
            about=about,
            obj=obj,
        )


def table(obj: ObjectVersion) -> SafeString | str:
    """Everything that was ever decided about an object version, the last first."""
    rows = obj.dispositions.select_related("by", "ended_by").order_by("-pk")
    headings = ("Decision", "Says", "Reason", "By", "At", "State")
    return display.table(headings, map(table_row, rows)) if rows else "Nothing was decided about it."


def table_row(row: Disposition) -> tuple[Any, ...]:
    return (
        format_html('<a href="{}">{}</a>', display.change_url(row), row.get_kind_display()),
        said(row),
        row.reason,
        row.by,
        display.moment(row.at),
        state_pill(row),
    )


def said(row: Disposition) -> SafeString | str:
    if row.kind == Disposition.Kind.RECLASSIFY:
        named = [display.exact(name) if name else "unclassified" for name in (row.former_class, row.new_class)]
        return format_html("{} → {}", *named)
    return display.moment(row.until) if row.until else "until it is ended"


def state_pill(row: Disposition) -> SafeString:
    if row.kind == Disposition.Kind.RECLASSIFY:
        return display.pill("done", "ended")
    return display.pill("ended", "ended") if row.ended_at else display.pill("in force")


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return [("in_force", "in force"), ("ended", "ended")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "in_force":
            return queryset & Disposition.objects.in_force()
        return queryset.filter(ended_at__isnull=False) if self.value() == "ended" else queryset


@admin.register(Disposition)
class DispositionAdmin(VerbPages[Disposition], ReadOnlyAdmin[Disposition]):
    tenant_path = "tenant__code"
    none_yet = "Nothing was decided about single objects: that begins on the page of the object version."
    list_display = ("kind", "object_version", "says", "reason", "by", "at", "state")
    list_select_related = ("object_version", "by")
    list_filter = ("kind", StateFilter)
    ordering = ("-id",)
    exact_search = ("object_version",)
    search_help_text = "A whole key, exactly, blanks included."
    refusals = (RetentionError,)
    fieldsets = (
        (None, {"fields": ("object_version", "tenant", "kind", "says", "state")}),
        ("Decided", {"fields": ("by", "at", "reason")}),
        ("Ended", {"fields": ("ended_by", "ended_at", "end_reason")}),
    )

    def search_exactly(self, queryset: QuerySet[Disposition], term: str) -> QuerySet[Disposition]:
        return queryset.filter(object_version__in=ObjectVersion.objects.with_key(term))

    @admin.display(description="says")
    def says(self, obj: Disposition) -> SafeString | str:
        return said(obj)

    @admin.display(description="state")
    def state(self, obj: Disposition) -> SafeString:
        return state_pill(obj)

    def get_urls(self) -> list[Any]:
        return [self.verb_url("end", self.end_view), *super().get_urls()]

    def tools(self, request: HttpRequest, obj: Disposition) -> Iterable[Tool]:
        if request.user.has_perm(RIGHT) and obj.ended_at is None and obj.kind != Disposition.Kind.RECLASSIFY:
            yield Tool("End", reverse("admin:retention_disposition_end", args=[obj.pk]))

    def end_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm(RIGHT):
            raise PermissionDenied

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            return dispositions.end(disposition=obj, by=person(request), reason=values["reason"]), "Ended."

        shown = [self.presented(name) for name in ("object_version", "kind", "says", "by", "at")]
        return self.verb_page(
            request,
            forms.modelform_factory(Disposition, form=ReasonForm, fields=())(request.POST or None, instance=obj),
            act,
            title="End a disposition",
            button="End",
            fieldsets=[
                (None, {"fields": shown}),
                ("Your decision", {"fields": ("reason",)}),
            ],
            readonly=shown,
            about="Its object follows its policies again. What is due then goes with the next run, not at once.",
            obj=obj,
        )
