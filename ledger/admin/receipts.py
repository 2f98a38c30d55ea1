"""Receipts in the admin: the document, whether it is intact, and the clear names while they are kept."""

import json
from collections.abc import Iterable
from hashlib import sha256

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from ledger.admin.manifests import of_run
from ledger.models import CleanupCommand, Receipt

LISTED_AT_MOST = 200


@admin.register(Receipt)
class ReceiptAdmin(ReadOnlyAdmin[Receipt]):
    tenant_path = "tenant__code"
    list_display = ("command_key", "outcome", "issued_at", "run", "target_count", "bytes", "digest")
    list_select_related = ("run",)
    lookups = frozenset({"run"})
    ordering = ("-id",)
    exact_search = ("command_key",)
    search_help_text = "A command key, exactly."
    fieldsets = (
        (None, {"fields": ("command_key", "outcome", "issued_at", "tenant", "run", "event_id")}),
        ("Digest", {"fields": ("digest", "digest_check")}),
        ("Clear names", {"fields": ("names",)}),
        ("Receipt", {"fields": ("document",)}),
    )

    def narrowed(self, request: HttpRequest) -> str | None:
        return of_run(request)

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("run_id", "id") if "run" in request.GET else ("-id",)

    def tools(self, request: HttpRequest, obj: Receipt) -> Iterable[Tool]:
        yield Tool("Command", display.change_url(CleanupCommand(pk=obj.command_id)))

    @admin.display(description="check")
    def digest_check(self, obj: Receipt) -> SafeString:
        same = sha256(bytes(obj.body)).digest() == bytes(obj.digest)
        return display.pill("is the SHA-256 of the receipt") if same else display.pill("differs", "overdue")

    @admin.display(description="object versions")
    def names(self, obj: Receipt) -> SafeString | str:
        """Kept apart from the receipt, and not as long."""
        committed = [each["commitment"] for each in json.loads(bytes(obj.body))["targets"]]
        found = list(obj.locators.order_by("ordinal")[:LISTED_AT_MOST])
        if not found:
            return (
                "Forgotten when their retention ended. Whoever knows a name can still prove it by its commitment below."
            )
        rows = (
            (each.bucket, display.exact(each.key), display.exact(each.version_id), display.exact(committed[place]))
            for place, each in enumerate(found)
        )
        table = display.table(("Bucket", "Key", "Version id", "Commitment"), rows)
        return display.cut(table, obj.target_count - len(found), "targets")

    @admin.display(description="document")
    def document(self, obj: Receipt) -> SafeString:
        """Indented for reading; the digest is over its canonical bytes, without white space."""
        return display.structure(json.loads(bytes(obj.body)))
