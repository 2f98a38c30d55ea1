"""The release of legal holds: what a release would do, and the decision of a second person."""

from collections.abc import Iterable
from typing import Any, Final

from django import forms
from django.contrib import admin, messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.safestring import SafeString

from cleanup_project.base import apitokens, display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import VerbPages, person
from retention import release_impact, releases
from retention.admin.impact import impact_table
from retention.admin.scope import ScopeColumns
from retention.exceptions import RetentionError
from retention.models import HoldRelease

FIGURES_FOR: Final = 3600  # seconds for which figures may be decided on
LONG_TEXT = {"rows": 3, "cols": 80}
STATES = {"": "waiting", "approved": "ended", "denied": "plain"}
SHOWN = ("The hold", "Request", "What the release does")


class DecisionForm(forms.ModelForm[HoldRelease]):
    """`seen` carries the figures that the page shows, signed, so that exactly these are kept with the decision."""

    why = forms.CharField(label="Reason", widget=forms.Textarea(attrs=LONG_TEXT), help_text="Kept for ever.")
    seen = forms.CharField(widget=forms.HiddenInput)

    def _post_clean(self) -> None:
        pass  # the verb judges the row


class ApprovalForm(DecisionForm):
    matter = forms.CharField(strip=False, help_text="Type the matter of the hold, exactly as it stands above.")


@admin.register(HoldRelease)
class HoldReleaseAdmin(VerbPages[HoldRelease], ReadOnlyAdmin[HoldRelease]):
    tenant_path = "hold__tenant__code"
    none_yet = "Nobody has asked for the release of a hold: that begins on the page of the hold."
    list_display = ("hold", "requested_by", "requested_at", "reason", "state", "decided_by", "decided_at")
    list_select_related = ("hold", "requested_by", "decided_by")
    ordering = ("-id",)
    list_filter = ("decision",)
    lookups = frozenset({"hold"})
    refusals = (RetentionError,)
    fieldsets = (
        ("The hold", {"fields": ("hold", "about_hold")}),
        ("Request", {"fields": ("requested_by", "requested_at", "reason")}),
        ("What the release does", {"fields": ("figures",)}),
        ("Decision", {"fields": ("state", "decided_by", "decided_at", "decision_reason")}),
    )

    @admin.display(description="state")
    def state(self, obj: HoldRelease) -> SafeString:
        return display.pill(obj.decision or "waits for another person", STATES[obj.decision])

    @admin.display(description="about it")
    def about_hold(self, obj: HoldRelease) -> SafeString:
        hold, scope = obj.hold, ScopeColumns()
        return display.table(
            (),
            (
                ("Matter", hold.matter),
                ("Title", hold.title),
                ("Custodian", hold.custodian or display.NOTHING),
                ("Authority", hold.authority),
                ("Reason", hold.reason),
                ("Placed", display.moment(hold.placed_at)),
                ("By", hold.placed_by),
                ("Tenant", hold.tenant),
                ("Buckets", scope.buckets(hold)),
                ("Prefixes", scope.covered_prefixes(hold)),
                ("Classes", scope.classes(hold)),
            ),
        )

    @admin.display(description="figures")
    def figures(self, obj: HoldRelease) -> SafeString | str:
        """As whoever decided saw them; before the decision, the pages that ask for it show them."""
        return impact_table(obj.impact) if obj.impact else "shown to whoever decides"

    def get_urls(self) -> list[Any]:
        own: list[URLPattern] = [
            self.verb_url("approve", self.approve_view),
            self.verb_url("deny", self.deny_view),
        ]
        return own + super().get_urls()

    def tools(self, request: HttpRequest, obj: HoldRelease) -> Iterable[Tool]:
        yield Tool("Hold", display.change_url(obj.hold))
        if (
            not obj.decision
            and request.user.has_perm("base.approve_release")
            and not apitokens.behind(obj.requested_by, person(request))
        ):
            yield Tool("Approve", reverse("admin:retention_holdrelease_approve", args=[obj.pk]))
            yield Tool("Deny", reverse("admin:retention_holdrelease_deny", args=[obj.pk]))

    def approve_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        def act(obj: HoldRelease, values: dict[str, Any]) -> str:
            releases.approve(
                release=obj, by=person(request), reason=values["why"], matter=values["matter"], impact=obj.impact
            )
            return (
                f"Hold {obj.hold} is released. What it covered returns to its schedule; nothing is destroyed by this."
            )

        about = "The release destroys nothing: what the hold covered returns to its schedule, and passes a new run."
        return self.decision_page(request, object_id, ApprovalForm, act, "Approve", ("matter", "why", "seen"), about)

    def deny_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        def act(obj: HoldRelease, values: dict[str, Any]) -> str:
            releases.deny(release=obj, by=person(request), reason=values["why"], impact=obj.impact)
            return f"Denied. The hold {obj.hold} stays in force."

        about = "The hold stays in force. Its release may be requested again."
        return self.decision_page(request, object_id, DecisionForm, act, "Deny", ("why", "seen"), about)

    def decision_page(
        self,
        request: HttpRequest,
        object_id: int,
        form_class: type[DecisionForm],
        decide: Any,
        word: str,
        fields: tuple[str, ...],
        about: str,
    ) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm("base.approve_release"):
            raise PermissionDenied
        if obj.decision:
            messages.warning(request, f"The {obj} is {obj.decision} already.")
            return HttpResponseRedirect(display.change_url(obj))
        salt = f"hold-release:{obj.pk}:{person(request).pk}"
        seen = figures_seen(request, salt)
        if request.method == "POST" and seen is None:
            messages.error(request, "The figures are too old to decide on: here are new ones. Nothing was decided.")
            return HttpResponseRedirect(request.path)
        obj.impact = seen or release_impact.as_json(release_impact.of_release(obj.hold))
        form = forms.modelform_factory(HoldRelease, form=form_class, fields=())(
            request.POST or None, instance=obj, initial={"seen": signing.dumps(obj.impact, salt=salt)}
        )

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            return obj, decide(obj, values)

        shown = [each for each in self.get_fieldsets(request, obj) if each[0] in SHOWN]
        return self.verb_page(
            request,
            form,
            act,
            title=f"{word} the release of a legal hold",
            button=word,
            fieldsets=[*shown, ("Your decision", {"fields": fields})],
            readonly=self.get_readonly_fields(request, obj),
            about=about,
            obj=obj,
            deciding=True,
        )


def figures_seen(request: HttpRequest, salt: str) -> dict[str, Any] | None:
    """The figures that the page showed this person, as they come back with the decision; None if they are too old."""
    try:
        found: dict[str, Any] = signing.loads(request.POST.get("seen", ""), salt=salt, max_age=FIGURES_FOR)
    except signing.BadSignature:
        return None
    return found
