"""Manifests in the admin: parts, their items, and the items of which no command was made."""

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from cleanup_project.base import display, tenancy
from cleanup_project.base.modeladmin import LargeChangeList, ReadOnlyAdmin, Tool, list_url
from ledger.admin import reviews
from ledger.models import CleanupRun, ItemDisposition, ManifestItem, ManifestPart, SkippedItem
from ledger.runs import OPEN_TO_REVIEW
from ledger.states import RunState
from retention.models import ObjectVersion, PolicyRevision

LISTED_AT_MOST = 200
OVERDUE = (30, 90, 365)  # days, to choose from


def named_run(request: HttpRequest) -> CleanupRun | None:
    """The run that a list is narrowed to."""
    number = request.GET.get("run", "")
    runs = tenancy.scoped(CleanupRun.objects.all(), request.user, "tenant__code")
    return runs.filter(pk=int(number)).first() if number.isdecimal() and len(number) < 19 else None


def of_run(request: HttpRequest) -> str | None:
    """Which run a list is narrowed to, in words."""
    run = named_run(request)
    return f"Run {run}" if run else None


@admin.register(ManifestPart)
class ManifestPartAdmin(ReadOnlyAdmin[ManifestPart]):
    tenant_path = "run__tenant__code"
    list_display = (
        "key", "item_count", "target_count", "bytes", "held", "not_enforced", "read", "frozen_at",
        "digest_shown",
    )  # fmt: skip
    lookups = frozenset({"run"})
    exact_search = ("key",)
    search_help_text = "A part key, exactly."

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("run_id", "number") if "run" in request.GET else ("-id",)

    def narrowed(self, request: HttpRequest) -> str | None:
        return of_run(request)

    @admin.display(description="digest")
    def digest_shown(self, obj: ManifestPart) -> SafeString:
        return display.abbreviated(obj.digest)

    def tools(self, request: HttpRequest, obj: ManifestPart) -> Iterable[Tool]:
        last = obj.cursor["ordinal"]
        first = last - obj.item_count + 1
        query = f"?run={obj.run_id}&ordinal__gte={first}&ordinal__lte={last}"
        yield Tool("Items", list_url(ManifestItem, query))


class ItemChangeList(LargeChangeList):
    def get_results(self, request: HttpRequest) -> None:
        """What reviewers took out, for the whole page in one query."""
        super().get_results(request)
        self.result_list: list[Any] = list(self.result_list)
        near = ItemDisposition.objects.filter(
            run__in={item.run_id for item in self.result_list},
            ordinal__in={item.ordinal for item in self.result_list},
        )
        found = {(each.run_id, each.ordinal): each for each in near.select_related("by")}
        for item in self.result_list:
            item.disposed = found.get((item.run_id, item.ordinal))


class OverdueFilter(admin.SimpleListFilter):
    """Of one run, whose instant it counts from; through the index item_by_since, the longest overdue first."""

    title = "overdue"
    parameter_name = "overdue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(days), f"more than {days} days") for days in OVERDUE] if named_run(request) else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        before = overdue_before(request)
        return queryset.filter(eligible_since__lt=before) if before else queryset


def overdue_before(request: HttpRequest) -> datetime | None:
    run, days = named_run(request), request.GET.get("overdue", "")
    return run.as_of - timedelta(days=int(days)) if run and days.isdecimal() and int(days) in OVERDUE else None


@admin.register(ManifestItem)
class ManifestItemAdmin(ReadOnlyAdmin[ManifestItem]):
    tenant_path = "run__tenant__code"
    list_display = ("ordinal", "object_cell", "size_cell", "reason", "since_cell", "review_cell")
    list_select_related = ("run",)
    list_filter = (OverdueFilter,)
    lookups = frozenset({"run", "ordinal__gte", "ordinal__lte"})
    actions = ("exempt_selected", "extend_selected")
    exact_search = ("command_key",)
    search_help_text = "A command key, exactly."
    fieldsets = (
        (None, {"fields": ("command_key", "run", "part", "ordinal", "revision", "object_version", "disposition")}),
        ("Why", {"fields": ("eligible_since", "overdue", "facts")}),
        ("Targets", {"fields": ("target_count", "bytes", "targets")}),
        ("Evidence", {"fields": ("digest", "digest_check", "line")}),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ItemChangeList]:
        return ItemChangeList

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        if overdue_before(request):
            return ("run_id", "eligible_since", "ordinal")
        return ("run_id", "ordinal") if "run" in request.GET else ("-id",)

    def narrowed(self, request: HttpRequest) -> str | None:
        return of_run(request)

    def has_review_permission(self, request: HttpRequest) -> bool:
        run = named_run(request)
        return run is not None and RunState(run.state) in OPEN_TO_REVIEW and reviews.may_review(request)

    @admin.action(description="Exempt the selected", permissions=["review"])
    def exempt_selected(self, request: HttpRequest, queryset: QuerySet[ManifestItem]) -> HttpResponse | None:
        return self.to_review(request, queryset, "exempt")

    @admin.action(description="Extend the selected", permissions=["review"])
    def extend_selected(self, request: HttpRequest, queryset: QuerySet[ManifestItem]) -> HttpResponse | None:
        return self.to_review(request, queryset, "extend")

    def to_review(self, request: HttpRequest, queryset: QuerySet[ManifestItem], verb: str) -> HttpResponse | None:
        """To the page that counts and confirms: for what is ticked, or for all that the filter matches."""
        run = named_run(request)
        if run is None:
            raise PermissionDenied
        address = reverse(f"admin:ledger_cleanuprun_{verb}", args=[run.pk])
        ids = [str(pk) for pk in queryset.values_list("pk", flat=True)[: reviews.TICKED + 1]]
        if len(ids) <= reviews.TICKED:
            return HttpResponseRedirect(f"{address}?{urlencode({'items': ','.join(ids)})}")
        before = overdue_before(request)
        if before is None:
            messages.error(
                request, f"Tick at most {reviews.TICKED}, or choose by filter. To keep everything, cancel the run."
            )
            return None
        # To the second: what became eligible within it is left to another choice.
        named = {"since_to_0": f"{before:%Y-%m-%d}", "since_to_1": f"{before:%H:%M:%S}"}
        return HttpResponseRedirect(f"{address}?{urlencode(named)}")

    def tools(self, request: HttpRequest, obj: ManifestItem) -> Iterable[Tool]:
        yield from reviews.tools(request, obj.run, item=obj)

    @admin.display(description="object")
    def object_cell(self, obj: ManifestItem) -> SafeString:
        original = json.loads(obj.line)["targets"][0]
        key, version = display.exact(original["key"]), display.exact(original["version_id"])
        return format_html('{}<div class="quiet">{} in {}</div>', key, version, original["bucket"])

    @admin.display(description="size")
    def size_cell(self, obj: ManifestItem) -> SafeString | str:
        along = obj.target_count - 1
        size = display.size(obj.bytes)
        return (
            format_html('{}<div class="quiet">with {}</div>', size, display.counted(along, "derivative"))
            if along
            else size
        )

    @admin.display(description="eligible since")
    def since_cell(self, obj: ManifestItem) -> SafeString:
        return format_html(
            '{}<div class="quiet">{} overdue</div>', display.moment(obj.eligible_since), self.overdue(obj)
        )

    @admin.display(description="review")
    def review_cell(self, obj: Any) -> SafeString | str:
        if obj.disposed is None:
            return display.NOTHING
        return format_html('{}<div class="quiet">by {}</div>', reviews.told(obj.disposed), obj.disposed.by)

    @admin.display(description="review")
    def disposition(self, obj: ManifestItem) -> SafeString | str:
        """What a reviewer decided before the run was authorised."""
        found = ItemDisposition.objects.filter(run=obj.run_id, ordinal=obj.ordinal).first()
        return format_html("{}: {}", display.link(found), reviews.told(found)) if found else "goes with its run"

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


@admin.register(SkippedItem)
class SkippedItemAdmin(ReadOnlyAdmin[SkippedItem]):
    tenant_path = "run__tenant__code"
    list_display = ("command_key", "run", "reason", "at")
    list_select_related = ("run",)
    lookups = frozenset({"run"})
    ordering = ("-id",)
    exact_search = ("command_key",)
    search_help_text = "A command key, exactly."

    def narrowed(self, request: HttpRequest) -> str | None:
        return of_run(request)
