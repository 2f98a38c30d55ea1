"""Legal holds."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from cleanup_project.base import clock, display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, offered, person
from retention import coverage, holds, releases
from retention.admin.extents import HoldChangeList, HoldColumns
from retention.admin.lifecycle import lifecycle_against
from retention.admin.register import register_view
from retention.admin.scope import ScopeColumns, ScopeForm, scope_fields
from retention.exceptions import RetentionError
from retention.models import HoldPrefix, LegalHold

LONG_TEXT = {"rows": 3, "cols": 80}
SCOPE = {"tenant", "bucket_ids", "prefixes", "retention_classes", "stored_from", "stored_to", "__all__"}


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


class ReleaseRequestForm(ReasonForm):
    reason = None  # type: ignore[assignment] # the page shows the hold's own
    why_release = forms.CharField(
        label="Reason for the release",
        widget=forms.Textarea(attrs=LONG_TEXT),
        help_text="Kept for ever.",
    )


@admin.register(LegalHold)
class LegalHoldAdmin(HoldColumns, ScopeColumns, VerbPages[LegalHold], ReadOnlyAdmin[LegalHold]):
    tenant_path = "tenant__code"
    none_yet = "No legal hold was ever placed."
    list_display = ("matter", "title", "custodian", "tenant", "covered", "held", "placed_by", "placed_at", "state")
    list_select_related = ("tenant", "placed_by")
    ordering = ("-id",)
    list_per_page = 50
    exact_search = ("matter",)  # holds are few: no index
    search_help_text = "A matter, exactly."
    refusals = (RetentionError,)
    empty_words = {"stored_from": "the beginning", "stored_to": "without end"}
    fieldsets: ClassVar[Any] = (
        (None, {"fields": ("matter", "title", "authority", "reason", "custodian", "state")}),
        ("Scope", {"fields": ("tenant", "buckets", "covered_prefixes", "classes")}),
        ("Objects stored between", {"fields": ("stored_from", "stored_to")}),
        ("At the store", {"fields": ("lifecycle",)}),
        ("People", {"fields": ("placed_by", "placed_at", "released_at", "release_history")}),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[HoldChangeList]:
        return HoldChangeList

    def get_urls(self) -> list[Any]:
        own: list[URLPattern] = [
            path("register/", self.admin_site.admin_view(register_view), name="retention_legalhold_register"),
            self.verb_url("release", self.release_view),
        ]
        return own + super().get_urls()

    def tools(self, request: HttpRequest, obj: LegalHold) -> Iterable[Tool]:
        if obj.released_at is not None:
            return
        asked = obj.releases.open().first()
        if asked is not None:
            yield Tool("Requested release", display.change_url(asked))
        elif request.user.has_perm("base.place_hold"):
            yield Tool("Request release", reverse("admin:retention_legalhold_release", args=[obj.pk]))

    @admin.display(description="scope")
    def covered(self, obj: LegalHold) -> str:
        """In short: the page of the hold lists it."""
        return f"{display.count(obj.bucket_ids, 'bucket')}, {display.count(obj.prefixes, 'prefix', 'prefixes')}"

    @admin.display(description="state")
    def state(self, obj: LegalHold) -> SafeString:
        return display.pill("released", "ended") if obj.released_at else display.pill("in force")

    @admin.display(description="lifecycle rules")
    def lifecycle(self, obj: LegalHold) -> SafeString | str:
        return lifecycle_against(obj)

    @admin.display(description="release requests")
    def release_history(self, obj: LegalHold) -> SafeString | str:
        asked = obj.releases.select_related("hold", "requested_by", "decided_by").order_by("-id")
        rows = (
            (
                display.moment(each.requested_at),
                each.requested_by,
                each.reason,
                each.decision or display.pill("waits for another person", "waiting"),
                each.decided_by,
                display.moment(each.decided_at) if each.decided_at else display.NOTHING,
                each.decision_reason or display.NOTHING,
                display.link(each),
            )
            for each in asked
        )
        headings = ("Requested", "By", "Reason", "Decision", "Decided by", "Decided", "Reason", "Request")
        return display.table(headings, rows) if asked else "none"

    def release_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm("base.place_hold"):
            raise PermissionDenied
        form = forms.modelform_factory(LegalHold, form=ReleaseRequestForm, fields=())(
            request.POST or None, instance=obj
        )

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            asked = releases.request(hold=obj, by=person(request), reason=values["why_release"])
            return asked, f"Requested. The hold {obj} stays in force until another person approves its release."

        return self.verb_page(
            request,
            form,
            act,
            title="Request the release of a legal hold",
            button="Request release",
            fieldsets=[*self.get_fieldsets(request, obj), ("Your request", {"fields": ("why_release",)})],
            readonly=self.get_readonly_fields(request, obj),
            about="The hold stays in force until another person has looked at what its release does, and approves it.",
            obj=obj,
        )

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.place_hold")

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = offered(HoldForm(request.POST or None), request)
        about = "In force at once, for present and for later objects. Its release takes two people."
        title, button, template = "Place a legal hold", "Place hold", "admin/retention/legalhold/place.html"
        if "_count" in request.POST:
            counted = self.counted(form)
            if request.headers.get("HX-Request"):
                return TemplateResponse(request, "admin/retention/legalhold/counted.html", {"counted": counted})
            context = {"button": button, "about": about, "counted": counted}
            return self.form_page(request, form, template, context, title, HoldForm.fieldsets)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            hold = holds.place(by=person(request), **scope_fields(values))
            return hold, f"Hold {hold} is in force. Nothing that it covers is destroyed until it is released."

        return self.verb_page(
            request,
            form,
            act,
            title=title,
            button=button,
            fieldsets=HoldForm.fieldsets,
            about=about,
            template=template,
        )

    def counted(self, form: HoldForm) -> SafeString | None:
        """What the scope covers, as soon as the scope is right, whatever else is still to be filled in."""
        if set(form.errors) & SCOPE:
            return None
        return display.table((), self.would_cover(form.instance))

    def would_cover(self, hold: LegalHold) -> Iterable[tuple[str, Any]]:
        """What a hold that is not placed yet would cover now, in words."""
        counted = coverage.count(holds.facts_of(hold))
        yield "As of", display.moment(clock.now())
        yield "Present versions", number_of(counted.versions, counted.whole)
        yield "Bytes", display.size(counted.bytes)


def number_of(number: int, whole: bool) -> str:
    return f"{number:,}" if whole else f"more than {number:,}: not all was counted"


@admin.register(HoldPrefix)
class HoldPrefixAdmin(ReadOnlyAdmin[HoldPrefix]):
    """The lookup table of holds, for whoever checks it."""

    tenant_path = "hold__tenant__code"
    list_display = ("prefix", "bucket", "hold")
    list_select_related = ("bucket", "hold")
    ordering = ("bucket_id", "prefix", "hold_id")
    empty_words = {"prefix": "the whole bucket"}
