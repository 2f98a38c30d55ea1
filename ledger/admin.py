"""Runs and their manifests in the admin: read, downloaded, and a run cancelled with a reason."""

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Model, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool, list_url
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from ledger import downloads, runs
from ledger.exceptions import LedgerError
from ledger.models import CleanupRun, ManifestItem, ManifestPart, ScheduleSlot
from ledger.states import RUN_ENDED, RUN_MEANING, RunState
from retention.models import Bucket, ObjectVersion, PolicyRevision, RetentionPolicy

LISTED_AT_MOST = 200
KINDS = {
    RunState.NEEDS_APPROVAL: "waiting",
    RunState.COOLING_OFF: "waiting",
    RunState.PAUSED: "waiting",
    RunState.TRIPPED: "overdue",
    RunState.CLOSED: "ended",
    RunState.CANCELLED: "ended",
}
# What one page of the list adds up over a run's parts, and in which words.
TALLIES = {
    "read": "object versions looked at",
    "item_count": "items",
    "target_count": "targets",
    "held": "eligible, left out because a hold covers them",
    "not_enforced": "eligible, left out because enforcement is off there",
}


@admin.register(CleanupRun)
class CleanupRunAdmin(VerbPages[CleanupRun], ReadOnlyAdmin[CleanupRun]):
    list_display = (
        "key", "state_pill", "mode", "policy", "as_of", "item_count", "target_count", "bytes", "opened_by",
    )  # fmt: skip
    list_select_related = ("policy", "opened_by")
    list_filter = ("state", "mode")
    ordering = ("-id",)
    exact_search = ("key",)
    search_help_text = "A run key or a policy code, exactly."
    refusals = (LedgerError,)
    empty_words = {"opened_by": "the system", "scheduled_for": "by hand"}
    fieldsets = (
        (None, {"fields": ("key", "state_pill", "mode", "policy", "tenant", "as_of", "scheduled_for")}),
        ("Manifest", {"fields": ("manifest_root", "sealed_at", "bytes", "tallies")}),
        ("Read in this order", {"fields": ("stream_table",)}),
        ("People and times", {"fields": ("opened_by", "opened_at", "idempotency_key", "ended_at", "end_reason")}),
    )

    def search_exactly(self, queryset: QuerySet[CleanupRun], term: str) -> QuerySet[CleanupRun]:
        named = list(RetentionPolicy.objects.filter(code=term).values_list("pk", flat=True))
        return queryset.filter(Q(key=term) | Q(policy__in=named))

    def get_urls(self) -> list[Any]:
        download = path(
            "<int:run_id>/manifest.<str:form>",
            self.admin_site.admin_view(downloads.manifest),
            name="ledger_cleanuprun_manifest",
        )
        return [download, self.verb_url("cancel", self.cancel_view), *super().get_urls()]

    def tools(self, request: HttpRequest, obj: CleanupRun) -> Iterable[Tool]:
        yield Tool("Parts", list_url(ManifestPart, f"?run={obj.pk}"))
        yield Tool("Items", list_url(ManifestItem, f"?run={obj.pk}"))
        if obj.sealed_at and downloads.may_download(request.user):
            for form, label in (("csv", "Download CSV"), ("jsonl", "Download JSONL")):
                yield Tool(label, reverse("admin:ledger_cleanuprun_manifest", args=[obj.pk, form]))
        if may_cancel(request) and RunState(obj.state) not in RUN_ENDED:
            yield Tool("Cancel", reverse("admin:ledger_cleanuprun_cancel", args=[obj.pk]))

    def cancel_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not may_cancel(request):
            raise PermissionDenied
        form = forms.modelform_factory(CleanupRun, form=ReasonForm, fields=())(request.POST or None, instance=obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            run = runs.cancel(run=obj, by=person(request), reason=values["reason"])
            return run, f"Run {run} cancelled."

        return self.verb_page(
            request,
            form,
            act,
            title="Cancel a run",
            button="Cancel the run",
            fieldsets=[*self.get_fieldsets(request, obj), ("Your decision", {"fields": ("reason",)})],
            readonly=self.get_readonly_fields(request, obj),
            about="A cancelled run never goes on. Its manifest stays, and a later run may find the same objects again.",
            obj=obj,
        )

    @admin.display(description="state")
    def state_pill(self, obj: CleanupRun) -> SafeString:
        state = RunState(obj.state)
        pill = display.pill(obj.get_state_display(), KINDS.get(state, "plain"))
        return format_html('<span title="{}">{}</span>', RUN_MEANING[state], pill)

    @admin.display(description="tallies over its parts")
    def tallies(self, obj: CleanupRun) -> SafeString:
        sums = obj.parts.aggregate(parts=Count("pk"), **{name: Sum(name) for name in TALLIES})
        rows = [("parts", sums["parts"]), *((words, sums[name] or 0) for name, words in TALLIES.items())]
        return display.table((), ((words, display.number(count)) for words, count in rows))

    @admin.display(description="streams")
    def stream_table(self, obj: CleanupRun) -> SafeString:
        shown = obj.streams[:LISTED_AT_MOST]
        buckets = dict(Bucket.objects.filter(pk__in={each["bucket_id"] for each in shown}).values_list("pk", "name"))
        wanted = {each["revision_id"] for each in shown}
        revisions = {each.pk: each for each in PolicyRevision.objects.filter(pk__in=wanted).select_related("policy")}
        rows = [
            (
                display.link(revisions[each["revision_id"]]),
                buckets.get(each["bucket_id"]),
                display.exact(each["prefix"]) if each["prefix"] else "the whole bucket",
                display.exact(each["retention_class"]) if each["retention_class"] else "unclassified",
                "delete markers" if each["markers"] else "objects",
                "key" if each["by_key"] else "date",
            )
            for each in shown
        ]
        table = display.table(("Revision", "Bucket", "Prefix", "Class", "What", "In the order of"), rows)
        return display.cut(table, len(obj.streams) - len(shown), "streams")


def may_cancel(request: HttpRequest) -> bool:
    return request.user.has_perm("base.approve_run") or request.user.has_perm("base.operate")


def of_run(request: HttpRequest) -> str | None:
    """Which run a list is narrowed to, in words."""
    number = request.GET.get("run", "")
    run = CleanupRun.objects.filter(pk=int(number)).first() if number.isdecimal() else None
    return f"Run {run}" if run else None


@admin.register(ManifestPart)
class ManifestPartAdmin(ReadOnlyAdmin[ManifestPart]):
    list_display = (
        "key", "item_count", "target_count", "bytes", "held", "not_enforced", "read", "frozen_at", "digest",
    )  # fmt: skip
    lookups = frozenset({"run"})
    exact_search = ("key",)
    search_help_text = "A part key, exactly."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("run_id", "number") if "run" in request.GET else ("-id",)

    def narrowed(self, request: HttpRequest) -> str | None:
        return of_run(request)

    def tools(self, request: HttpRequest, obj: ManifestPart) -> Iterable[Tool]:
        last = obj.cursor["ordinal"]
        first = last - obj.item_count + 1
        query = f"?run={obj.run_id}&ordinal__gte={first}&ordinal__lte={last}"
        yield Tool("Items", list_url(ManifestItem, query))


@admin.register(ManifestItem)
class ManifestItemAdmin(ReadOnlyAdmin[ManifestItem]):
    list_display = ("command_key", "eligible_since", "overdue", "reason", "target_count", "bytes")
    list_select_related = ("run",)
    lookups = frozenset({"run", "ordinal__gte", "ordinal__lte"})
    exact_search = ("command_key",)
    search_help_text = "A command key, exactly."
    fieldsets = (
        (None, {"fields": ("command_key", "run", "part", "ordinal", "revision", "object_version")}),
        ("Why", {"fields": ("eligible_since", "overdue", "facts")}),
        ("Targets", {"fields": ("target_count", "bytes", "targets")}),
        ("Evidence", {"fields": ("digest", "digest_check", "line")}),
    )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("run_id", "ordinal") if "run" in request.GET else ("-id",)

    def narrowed(self, request: HttpRequest) -> str | None:
        return of_run(request)

    @admin.display(description="overdue")
    def overdue(self, obj: ManifestItem) -> str:
        """From the end of its retention to the instant at which the run judged it."""
        return display.count(range((obj.run.as_of - obj.eligible_since).days), "day")

    @admin.display(description="why")
    def reason(self, obj: ManifestItem) -> str:
        item = json.loads(obj.line)
        why = item["why"]
        trigger = PolicyRevision.Trigger(why["trigger"]).label
        return f"{item['policy']}/{item['revision']}: {trigger} {why['trigger_at'][:10]} + {why['period']}"

    @admin.display(description="facts")
    def facts(self, obj: ManifestItem) -> SafeString:
        why = json.loads(obj.line)["why"]
        return display.table((), ((name.replace("_", " "), said(value)) for name, value in why.items()))

    @admin.display(description="targets")
    def targets(self, obj: ManifestItem) -> SafeString:
        targets = json.loads(obj.line)["targets"]
        rows = (
            (
                target["role"].replace("_", " "),
                target["bucket"],
                display.exact(target["key"]),
                display.exact(target["version_id"]),
                display.size(target["size"]),
                target["stored_at"],
                target["etag"],
            )
            for target in targets[:LISTED_AT_MOST]
        )
        table = display.table(("Role", "Bucket", "Key", "Version id", "Size", "Stored at", "ETag"), rows)
        return display.cut(table, len(targets) - LISTED_AT_MOST, "targets")

    @admin.display(description="object version")
    def object_version(self, obj: ManifestItem) -> SafeString:
        url = reverse("admin:retention_objectversion_change", args=[obj.object_version_id])
        row = ObjectVersion.objects.filter(pk=obj.object_version_id).first()
        return format_html('<a href="{}">{}</a>', url, display.exact(str(row)) if row else obj.object_version_id)

    @admin.display(description="check")
    def digest_check(self, obj: ManifestItem) -> SafeString:
        same = sha256(obj.line.encode()).digest() == bytes(obj.digest)
        return display.pill("is the SHA-256 of the line") if same else display.pill("differs from the line", "overdue")


def said(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@admin.register(ScheduleSlot)
class ScheduleSlotAdmin(ReadOnlyAdmin[ScheduleSlot]):
    list_display = ("scheduled_for", "policy", "outcome", "run", "reason", "noticed_at")
    list_select_related = ("policy", "run")
    ordering = ("-id",)
    exact_search = ("policy",)
    search_help_text = "A policy code, exactly."
    empty_words = {"run": "none", "reason": "as asked"}

    def search_exactly(self, queryset: QuerySet[ScheduleSlot], term: str) -> QuerySet[ScheduleSlot]:
        return queryset.filter(policy__code=term)
