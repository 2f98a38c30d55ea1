"""Urgent erasure in the admin: file a list, and decide about one."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from ledger import erasure
from ledger.exceptions import LedgerError
from ledger.models import ErasureRequest
from retention.models import ObjectVersion, Tenant

SHOWN = 100
LARGEST_FILE = 64 * 1024 * 1024  # bytes
LONG_TEXT = {"rows": 3, "cols": 80}
ABOUT = {
    "Approve": "A run erases them at once, before everything else that is due. What is destroyed does not come back.",
    "Deny": "Nothing is erased by it. Whoever asked may file another request.",
}


class FilingForm(forms.Form):
    tenant = forms.ModelChoiceField(Tenant.objects.all())
    reference = forms.CharField(max_length=200, help_text="The case, letter or ticket that demands it.")
    authority = forms.CharField(widget=forms.Textarea(attrs=LONG_TEXT), help_text="The law or order that demands it.")
    reason = forms.CharField(widget=forms.Textarea(attrs=LONG_TEXT), help_text="Kept for ever.")
    list = forms.FileField(
        label="List",
        help_text="CSV with a header, or JSONL (by its name): bucket, key and perhaps version_id; or asset.",
    )
    leave_out_unknown = forms.BooleanField(
        required=False,
        label="Leave out lines that name nothing present",
        help_text="They stay on record with the request. Otherwise such a line refuses the whole list.",
    )

    def clean_list(self) -> Any:
        uploaded = self.cleaned_data["list"]
        if uploaded.size > LARGEST_FILE:
            raise forms.ValidationError("The list is larger than 64 MiB: file it in several requests.")
        return uploaded


class ApprovalForm(ReasonForm):
    versions = forms.IntegerField(
        label="Object versions", help_text="Type how many the request names, as you read it above."
    )


@admin.register(ErasureRequest)
class ErasureRequestAdmin(VerbPages[ErasureRequest], ReadOnlyAdmin[ErasureRequest]):
    tenant_path = "tenant__code"
    none_yet = "Nobody has filed one."
    lookups = frozenset({"approved__isnull"})
    list_display = (
        "reference", "tenant", "state", "version_count", "bytes", "requested_by", "requested_at", "decided_by",
    )  # fmt: skip
    list_select_related = ("tenant", "requested_by", "decided_by")
    ordering = ("-id",)
    exact_search = ("reference",)  # requests are few: no index
    search_help_text = "A reference, exactly."
    refusals = (LedgerError,)
    empty_words = {
        "run": "none yet",
        "decided_by": "nobody yet",
        "decided_at": "not yet",
        "decision_reason": "none yet",
    }
    fieldsets = (
        (None, {"fields": ("reference", "tenant", "state", "authority", "stated_reason")}),
        ("What it names", {"fields": ("version_count", "bytes", "named", "lines", "unknown", "file_digest")}),
        ("What became of it", {"fields": ("run", "outcome")}),
        ("People", {"fields": ("requested_by", "requested_at", "decided_by", "decided_at", "decision_reason")}),
    )

    @admin.display(description="state")
    def state(self, obj: ErasureRequest) -> SafeString:
        if obj.approved is None:
            return display.pill("waits for a decision", "waiting")
        return display.pill("approved") if obj.approved else display.pill("denied", "ended")

    @admin.display(description="reason")
    def stated_reason(self, obj: ErasureRequest) -> str:
        """By another name than the decision's own, which stands on the same page."""
        return obj.reason

    @admin.display(description="object versions named")
    def named(self, obj: ErasureRequest) -> SafeString:
        ids = list(obj.targets.order_by("ordinal").values_list("object_version_id", flat=True)[:SHOWN])
        rows = ObjectVersion.objects.select_related("bucket").in_bulk(ids)
        table = display.table(
            ("Key", "Version", "Bucket", "Size", "Stored at"),
            (
                (
                    display.link(rows[pk]),
                    display.exact(rows[pk].version_id),
                    rows[pk].bucket,
                    display.size(rows[pk].size),
                    display.moment(rows[pk].stored_at),
                )
                for pk in ids
            ),
        )
        return display.cut(table, obj.version_count - len(ids), "object versions")

    @admin.display(description="lines left out")
    def unknown(self, obj: ErasureRequest) -> SafeString | str:
        if not obj.left_out:
            return "none"
        told = [f"line {each['line']}: {display.visible(each['name'])}" for each in obj.left_out[:SHOWN]]
        return display.cut(display.bullets(told), len(obj.left_out) - SHOWN, "lines")

    @admin.display(description="of what it names")
    def outcome(self, obj: ErasureRequest) -> SafeString | str:
        if obj.run is None or obj.run.sealed_at is None:
            return display.NOTHING
        return display.bullets(f"{number:,} {words}" for words, number in erasure.outcome(obj).items())

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(f"base.{erasure.RIGHT}")

    def get_urls(self) -> list[Any]:
        verbs = [self.verb_url("approve", self.approve_view), self.verb_url("deny", self.deny_view)]
        return [*verbs, *super().get_urls()]

    def tools(self, request: HttpRequest, obj: ErasureRequest) -> Iterable[Tool]:
        if obj.approved is None and obj.requested_by_id != request.user.pk and self.has_add_permission(request):
            yield Tool("Approve", reverse("admin:ledger_erasurerequest_approve", args=[obj.pk]))
            yield Tool("Deny", reverse("admin:ledger_erasurerequest_deny", args=[obj.pk]))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = FilingForm(request.POST or None, request.FILES or None)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            uploaded = values.pop("list")
            form = "jsonl" if uploaded.name.endswith((".jsonl", ".ndjson")) else "csv"
            filed = erasure.file(by=person(request), data=uploaded.read(), form=form, **values)
            named = display.counted(filed.version_count, "object version")
            return filed, f"Filed: {named}. A second person decides; nothing is erased yet."

        return self.verb_page(
            request,
            form,
            act,
            title="File an urgent erasure",
            button="File request",
            fieldsets=[
                (None, {"fields": ("tenant", "reference", "authority", "reason")}),
                ("What is to be erased", {"fields": ("list", "leave_out_unknown")}),
            ],
            about="Erases exactly what the list names, whatever its retention. Legal holds and enforcement still stand "
            "in its way. A second person decides.",
        )

    def approve_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.decided(request, object_id)
        form = forms.modelform_factory(ErasureRequest, form=ApprovalForm, fields=())(request.POST or None, instance=obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            reason, versions = values["reason"], values["versions"]
            run = erasure.approve(request=obj, by=person(request), reason=reason, versions=versions)
            return run, f"Approved: run {run} erases it, before everything else that is due."

        return self.decision(request, obj, form, act, "Approve", ("versions", "reason"))

    def deny_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.decided(request, object_id)
        form = forms.modelform_factory(ErasureRequest, form=ReasonForm, fields=())(request.POST or None, instance=obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            denied = erasure.deny(request=obj, by=person(request), reason=values["reason"])
            return denied, f"Request {denied} is denied: nothing is erased by it."

        return self.decision(request, obj, form, act, "Deny", ("reason",))

    def decided(self, request: HttpRequest, object_id: int) -> ErasureRequest:
        obj = self.wanted(request, str(object_id))
        if not self.has_add_permission(request):
            raise PermissionDenied
        return obj

    def decision(
        self, request: HttpRequest, obj: ErasureRequest, form: Any, act: Any, verb: str, fields: tuple[str, ...]
    ) -> HttpResponse:
        return self.verb_page(
            request,
            form,
            act,
            title=f"{verb} an urgent erasure",
            button=verb,
            fieldsets=[*self.get_fieldsets(request, obj), ("Your decision", {"fields": fields})],
            readonly=self.get_readonly_fields(request, obj),
            about=f"It names {display.counted(obj.version_count, 'object version')}, {display.human_size(obj.bytes)}. "
            f"{ABOUT[verb]}",
            obj=obj,
            deciding=True,
        )
