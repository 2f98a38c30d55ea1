"""Manifests in the admin: parts, their items, and the items of which no command was made."""

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display, tenancy
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool, list_url
from ledger.admin import reviews
from ledger.models import CleanupRun, ItemDisposition, ManifestItem, ManifestPart, SkippedItem
from retention.models import ObjectVersion, PolicyRevision

LISTED_AT_MOST = 200


def of_run(request: HttpRequest) -> str | None:
    """Which run a list is narrowed to, in words."""
    number = request.GET.get("run", "")
    runs = tenancy.scoped(CleanupRun.objects.all(), request.user, "tenant__code")
    run = runs.filter(pk=int(number)).first() if number.isdecimal() else None
    return f"Run {run}" if run else None


@admin.register(ManifestPart)
class ManifestPartAdmin(ReadOnlyAdmin[ManifestPart]):
    tenant_path = "run__tenant__code"
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
    tenant_path = "run__tenant__code"
    list_display = ("command_key", "eligible_since", "overdue", "reason", "target_count", "bytes")
    list_select_related = ("run",)
    lookups = frozenset({"run", "ordinal__gte", "ordinal__lte"})
    exact_search = ("command_key",)
    search_help_text = "A command key, exactly."
    fieldsets = (
        (None, {"fields": ("command_key", "run", "part", "ordinal", "revision", "object_version", "disposition")}),
        ("Why", {"fields": ("eligible_since", "overdue", "facts")}),
        ("Targets", {"fields": ("target_count", "bytes", "targets")}),
        ("Evidence", {"fields": ("digest", "digest_check", "line")}),
    )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("run_id", "ordinal") if "run" in request.GET else ("-id",)

    def narrowed(self, request: HttpRequest) -> str | None:
        return of_run(request)

    def tools(self, request: HttpRequest, obj: ManifestItem) -> Iterable[Tool]:
        yield from reviews.tools(request, obj.run, item=obj)

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
