"""Legal holds."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin
from cleanup_project.base.verbpages import VerbPages, person
from retention import holds
from retention.admin.scope import ScopeColumns, ScopeForm, scope_fields
from retention.exceptions import RetentionError
from retention.models import HoldPrefix, LegalHold

LONG_TEXT = {"rows": 3, "cols": 80}


class HoldForm(ScopeForm):
    class Meta:
        model = LegalHold
        fields = (
            "tenant", "matter", "title", "authority", "reason", "custodian", "bucket_ids", "prefixes", "retention_classes",
            "stored_from", "stored_to",
        )  # fmt: skip
        field_classes = {"stored_from": forms.SplitDateTimeField, "stored_to": forms.SplitDateTimeField}
        widgets = {
            "stored_from": AdminSplitDateTime,
            "stored_to": AdminSplitDateTime,
            "authority": forms.Textarea(attrs=LONG_TEXT),
            "reason": forms.Textarea(attrs=LONG_TEXT),
        }

    fieldsets = (
        (None, {"fields": ("matter", "title", "authority", "reason", "custodian")}),
        ("Scope", {"fields": ("tenant", "bucket_ids", "prefixes", "retention_classes")}),
        ("Objects stored between (UTC)", {"fields": ("stored_from", "stored_to")}),
    )


@admin.register(LegalHold)
class LegalHoldAdmin(ScopeColumns, VerbPages[LegalHold], ReadOnlyAdmin[LegalHold]):
    list_display = ("matter", "title", "custodian", "tenant", "covered", "placed_by", "placed_at", "state")
    list_select_related = ("tenant", "placed_by")
    ordering = ("-id",)
    exact_search = ("matter",)  # holds are few: no index
    search_help_text = "A matter, exactly."
    refusals = (RetentionError,)
    empty_words = {"stored_from": "the beginning", "stored_to": "without end"}
    fieldsets = (
        (None, {"fields": ("matter", "title", "authority", "reason", "custodian", "state")}),
        ("Scope", {"fields": ("tenant", "buckets", "covered_prefixes", "classes")}),
        ("Objects stored between", {"fields": ("stored_from", "stored_to")}),
        ("People", {"fields": ("placed_by", "placed_at", "released_at")}),
    )

    @admin.display(description="scope")
    def covered(self, obj: LegalHold) -> str:
        """In short: the page of the hold lists it."""
        return f"{display.count(obj.bucket_ids, 'bucket')}, {display.count(obj.prefixes, 'prefix', 'prefixes')}"

    @admin.display(description="state")
    def state(self, obj: LegalHold) -> SafeString:
        return display.pill("released", "ended") if obj.released_at else display.pill("in force")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.place_hold")

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = HoldForm(request.POST or None)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            hold = holds.place(by=person(request), **scope_fields(values))
            return hold, f"Hold {hold} is in force. Nothing that it covers is destroyed until it is released."

        return self.verb_page(
            request,
            form,
            act,
            title="Place a legal hold",
            button="Place hold",
            fieldsets=HoldForm.fieldsets,
            about="In force at once, for present and for later objects. Its release takes two people.",
        )


@admin.register(HoldPrefix)
class HoldPrefixAdmin(ReadOnlyAdmin[HoldPrefix]):
    """The lookup table of holds, for whoever checks it."""

    list_display = ("prefix", "bucket", "hold")
    list_select_related = ("bucket", "hold")
    ordering = ("bucket_id", "prefix", "hold_id")
    empty_words = {"prefix": "the whole bucket"}
