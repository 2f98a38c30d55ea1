"""Receipts in the admin: found by what narrows them, the document and its proofs, and the clear names while they are kept."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import clock, display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import VerbPages, person
from ledger import exports
from ledger.admin.exports import export_view, recent_view
from ledger.admin.receiptfilters import SELECTED, ReceiptFilter
from ledger.models import CleanupCommand, Receipt, ReceiptLocator
from ledger.proofs import Proof, proofs
from ledger.states import CommandState
from webhooks.models import OutboxEvent

LISTED_AT_MOST: Final = 200
FOUND_AT_MOST: Final = 1000  # receipts that carry one name
KINDS: Final = {"deleted": "plain", "by_absence": "waiting", "already_absent": "ended"}
FORGOTTEN: Final = (
    "Forgotten when their retention ended. Whoever knows a name can still prove it by its commitment below."
)
COMMITTED: Final = (
    "A commitment is HMAC-SHA256 under the tenant's salt over bucket, NUL, key, NUL, version id. Whoever knows these names, "
    "and is given the salt, computes it again and so proves that this receipt speaks of that object version; nobody can read "
    "a name out of it. docs/receipts.md has the lines of Python."
)


@admin.register(Receipt)
class ReceiptAdmin(VerbPages[Receipt], ReadOnlyAdmin[Receipt]):
    tenant_path = "tenant__code"
    none_yet = "No receipt yet: each command whose object versions are all confirmed gone leaves one."
    list_display = ("gone_at", "outcome_pill", "key_shown", "bytes", "authorised", "digest_shown", "notice")
    list_select_related = ("run",)
    list_filter = (ReceiptFilter,)
    lookups = frozenset(SELECTED)
    ordering = ("-issued_at", "-id")
    exact_search = ("command_key",)
    search_help_text = "An object key, a command key or the SHA-256 of a receipt, exactly."
    fieldsets = (
        (None, {"fields": ("command_key", "outcome_pill", "issued_at", "bytes", "tenant", "bucket")}),
        ("What is gone", {"fields": ("names",)}),
        ("On whose authority", {"fields": ("revision_title", "authority", "why", "run", "approval", "worker")}),
        ("Who was told", {"fields": ("notice", "event")}),
        ("Digest", {"fields": ("digest", "digest_check")}),
        ("Commitments", {"fields": ("commitments",)}),
        ("Document", {"fields": ("indented", "canonical")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Receipt]:
        first = ReceiptLocator.objects.filter(receipt=OuterRef("command_id"), ordinal=1)
        command = CleanupCommand.objects.filter(pk=OuterRef("command_id"))
        return super().get_queryset(request).annotate(
            first_key=Subquery(first.values("key")[:1]),
            first_version=Subquery(first.values("version_id")[:1]),
            command_state=Subquery(command.values("state")[:1]),
        )  # fmt: skip

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("export/", view(export_view), name="ledger_receipt_export"),
            path("export/recent/", view(recent_view), name="ledger_receipt_recent_exports"),
            path("<int:object_id>/receipt.json", view(self.file_view), name="ledger_receipt_document"),
            self.verb_url("verify", self.verify_view),
            *super().get_urls(),
        ]

    def search_exactly(self, queryset: QuerySet[Receipt], term: str) -> QuerySet[Receipt]:
        named = ReceiptLocator.objects.filter(key=term)
        found = Q(command_key=term) | Q(command_id__in=list(named.values_list("receipt", flat=True)[:FOUND_AT_MOST]))
        return queryset.filter(found | Q(digest=digest)) if (digest := as_digest(term)) else queryset.filter(found)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Receipt], search_term: str
    ) -> tuple[QuerySet[Receipt], bool]:
        found, doubled = super().get_search_results(request, queryset, search_term)
        if search_term and found.order_by().values("pk")[:FOUND_AT_MOST].count() == FOUND_AT_MOST:
            words = f"{FOUND_AT_MOST:,} receipts or more carry this name, and this list holds no more of them: search for the"
            messages.warning(request, f"{words} command key or the digest.")
        return found, doubled

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        chosen = request.GET.copy()
        for name in set(chosen) - set(SELECTED):
            del chosen[name]
        address = f"{reverse('admin:ledger_receipt_export')}?{chosen.urlencode()}"
        may = request.user.has_perm(exports.RIGHT)
        return super().changelist_view(request, {"export_url": address if may else ""} | (extra_context or {}))

    def tools(self, request: HttpRequest, obj: Receipt) -> Iterable[Tool]:
        yield Tool("Verify", reverse("admin:ledger_receipt_verify", args=[obj.pk]))
        yield Tool("Command", display.change_url(CleanupCommand(pk=obj.command_id)))
        yield Tool("Run", display.change_url(obj.run))
        if request.user.has_perm(exports.RIGHT):
            yield Tool("Document as a file", reverse("admin:ledger_receipt_document", args=[obj.pk]))

    def verify_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """What can be compared is compared anew each time that this is opened."""
        obj = self.wanted(request, str(object_id))
        context = {
            **self.admin_site.each_context(request),
            "title": "Verify a receipt",
            "subtitle": display.visible(str(obj)),
            "opts": self.opts,
            "original": obj,
            "now": clock.now(),
            "proofs": [(each, proof_pill(each)) for each in proofs(obj)],
        }
        return TemplateResponse(request, "admin/ledger/receipt/verify.html", context)

    def file_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """The canonical bytes, which the digest is over; on record, as every export."""
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm(exports.RIGHT):
            raise PermissionDenied
        exports.hand_out(obj, by=person(request))
        name = f"receipt-{obj.pk}.json"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-SHA256": bytes(obj.digest).hex()}
        return HttpResponse(bytes(obj.body), content_type="application/json", headers=headers)

    @admin.display(description="confirmed gone")
    def gone_at(self, obj: Receipt) -> SafeString:
        return display.moment(obj.issued_at)

    @admin.display(description="outcome")
    def outcome_pill(self, obj: Receipt) -> SafeString:
        return display.pill(obj.get_outcome_display().lower(), KINDS[obj.outcome])

    @admin.display(description="key and version id, or commitment")
    def key_shown(self, obj: Any) -> SafeString:
        """Of the original; how many more targets there are."""
        more = f"and {obj.target_count - 1:,} more" if obj.target_count > 1 else ""
        if obj.first_key is not None:
            return display.lines(display.exact(obj.first_key), display.exact(obj.first_version), more)
        commitment = display.abbreviated(obj.document["targets"][0]["commitment"])
        return display.lines(format_html('<span class="quiet">forgotten</span> {}', commitment), more)

    @admin.display(description="run; policy revision, approver")
    def authorised(self, obj: Receipt) -> SafeString:
        return display.lines(display.link(obj.run), f"{self.revision(obj)}, {self.approver(obj)}")

    def revision(self, obj: Receipt) -> str:
        policy = obj.document["policy"]
        return f"{policy['code']}/{policy['revision']}"

    def approver(self, obj: Receipt) -> str:
        return obj.document["approval"]["by"] or "standing"

    @admin.display(description="digest")
    def digest_shown(self, obj: Receipt) -> SafeString:
        return display.abbreviated(bytes(obj.digest).hex())

    @admin.display(description="notice")
    def notice(self, obj: Any) -> SafeString | str:
        """Whether everybody has acknowledged it whom it was owed to."""
        if obj.command_state is None:
            return "no command on record"
        if obj.command_state == CommandState.NOTIFIED:
            return display.pill("delivered", "ended")
        return display.pill("not delivered yet", "waiting")

    @admin.display(description="event")
    def event(self, obj: Receipt) -> SafeString | str:
        found = OutboxEvent.objects.filter(event_id=obj.event_id).first()
        return display.link(found) if found else f"{obj.event_id}, which is no longer on record"

    @admin.display(description="policy revision")
    def revision_title(self, obj: Receipt) -> str:
        return f"{self.revision(obj)}: {obj.document['policy']['title']}"

    @admin.display(description="authority")
    def authority(self, obj: Receipt) -> str:
        return str(obj.document["authority"])

    @admin.display(description="why it was eligible")
    def why(self, obj: Receipt) -> SafeString:
        said = ((name.replace("_", " "), in_words(value)) for name, value in obj.document["why"].items())
        return display.table((), said)

    @admin.display(description="approval")
    def approval(self, obj: Receipt) -> str:
        said = obj.document["approval"]
        who = f"{said['by']} approved it" if said["by"] else "A standing authorisation"
        return f"{who}, {said['at']}: {said['words']}"

    @admin.display(description="carried out by")
    def worker(self, obj: Receipt) -> str:
        said = obj.document
        tries = display.counted(said["attempts"], "attempt")
        return f"{said['worker']}, {said['tool']}, after {tries}. {said['method']}. {said['copies']}"

    @admin.display(description="check")
    def digest_check(self, obj: Receipt) -> SafeString:
        same = sha256(bytes(obj.body)).digest() == bytes(obj.digest)
        return display.pill("is the SHA-256 of the receipt") if same else display.pill("differs", "overdue")

    @admin.display(description="object versions")
    def names(self, obj: Receipt) -> SafeString | str:
        """Kept apart from the receipt, and not as long."""
        found = list(obj.locators.order_by("ordinal")[:LISTED_AT_MOST])
        if not found:
            return FORGOTTEN
        targets = obj.document["targets"]
        rows = (
            (
                targets[place]["role"].replace("_", " "), each.bucket, display.exact(each.key),
                display.exact(each.version_id), display.size(targets[place]["size"]), *seen(targets[place]),
            )
            for place, each in enumerate(found)
        )  # fmt: skip
        headings = ("Role", "Bucket", "Key", "Version id", "Size", "Was there", "Seen gone")
        return display.cut(display.table(headings, rows), obj.target_count - len(found), "targets")

    @admin.display(description="of its targets")
    def commitments(self, obj: Receipt) -> SafeString:
        targets = obj.document["targets"]
        listed = display.bullets(display.exact(each["commitment"]) for each in targets[:LISTED_AT_MOST])
        told = display.cut(listed, len(targets) - LISTED_AT_MOST, "targets")
        return format_html('{}<p class="quiet">{}</p>', told, COMMITTED)

    @admin.display(description="indented")
    def indented(self, obj: Receipt) -> SafeString:
        """Indented for reading; the digest is over its canonical bytes, without white space."""
        return display.structure(obj.document)

    @admin.display(description="canonical bytes")
    def canonical(self, obj: Receipt) -> SafeString:
        text = bytes(obj.body).decode()
        return format_html("<details><summary>{:,} bytes</summary>{}</details>", len(obj.body), display.exact(text))


def in_words(value: Any) -> str:
    return (", ".join(map(str, value)) if isinstance(value, list) else str(value)) or "none"


def as_digest(term: str) -> bytes | None:
    """What a SHA-256 in hexadecimal stands for, however it was copied."""
    try:
        found = bytes.fromhex(term.strip())
    except ValueError:
        return None
    return found if len(found) == 32 else None


def seen(target: dict[str, Any]) -> tuple[str, str]:
    """The looks before and after."""
    return tuple(  # type: ignore[return-value]
        ", ".join(str(target[look][part]) for part in ("at", "method") if target[look].get(part)) or display.NOTHING
        for look in ("before", "after")
    )


def proof_pill(proof: Proof) -> SafeString:
    if proof.holds is None:
        return display.pill("not checked", "ended")
    return display.pill("holds") if proof.holds else display.pill("does not hold", "overdue")
