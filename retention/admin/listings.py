"""Lists that no index knows, as pages beside the catalogue's own: unscheduled, and past maximum."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.html import format_html

from cleanup_project.base import display, vault
from cleanup_project.base.modeladmin import RecordAdmin
from cleanup_project.base.models import User
from cleanup_project.base.verbpages import offered, person
from retention import listings
from retention.eligibility import WORDS
from retention.listings import Turn
from retention.models import Bucket, ObjectVersion, Tenant

NOT_OURS = "This address is not one that this page gave out. Look again from the beginning of the bucket."
HEADINGS = ("Key", "Version", "Size", "Stored at", "Class", "Tenant")


class UnscheduledForm(forms.Form):
    bucket = forms.ModelChoiceField(Bucket.objects.order_by("name"))
    tenant = forms.ModelChoiceField(
        Tenant.objects.all(), required=False, empty_label="every tenant, and objects of none"
    )
    resume = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean_resume(self) -> str | None:
        """Where the page's own link goes on, or nothing. It is sealed: the last key that was read may be anybody's."""
        sealed = self.cleaned_data["resume"]
        try:
            return vault.unseal(sealed.encode()).decode() if sealed else None
        except vault.VaultError:
            raise ValidationError(NOT_OURS) from None


class PastMaximumForm(UnscheduledForm):
    tenant = forms.ModelChoiceField(Tenant.objects.all())


class Listings(RecordAdmin[ObjectVersion]):
    """Mixin of the catalogue's admin."""

    def get_urls(self) -> list[Any]:
        own = [
            path("unscheduled/", self.admin_site.admin_view(self.unscheduled_view), name="retention_unscheduled"),
            path("past-maximum/", self.admin_site.admin_view(self.past_maximum_view), name="retention_past_maximum"),
        ]
        return own + super().get_urls()

    def unscheduled_view(self, request: HttpRequest) -> HttpResponse:
        def look(asked: dict[str, Any]) -> Turn:
            return listings.unscheduled(asked["bucket"], asked["tenant"], asked["resume"])

        about = (
            "Objects that are in the bucket and that no policy in force covers: they are never destroyed. Delete markers "
            "and derivatives, which go with their originals, are not listed."
        )
        return self.listing(request, UnscheduledForm, look, "Unscheduled", about, (), lambda line: ())

    def past_maximum_view(self, request: HttpRequest) -> HttpResponse:
        def look(asked: dict[str, Any]) -> Turn:
            return listings.past_maximum(asked["bucket"], asked["tenant"], asked["resume"])

        def more(line: listings.Line) -> tuple[Any, ...]:
            assert line.verdict.since is not None
            assert line.due is not None
            return display.moment(line.verdict.since), display.moment(line.due), WORDS[line.verdict.reason]

        about = (
            "Objects that are still in the bucket although the revision that governs them says that they should have been "
            "gone by now, held ones included."
        )
        headings = ("Retention ended", "Gone by", "What keeps it")
        return self.listing(request, PastMaximumForm, look, "Past maximum", about, headings, more)

    def listing(
        self,
        request: HttpRequest,
        form: type[UnscheduledForm],
        look: Callable[[dict[str, Any]], Turn],
        title: str,
        about: str,
        headings: tuple[str, ...],
        more: Callable[[listings.Line], tuple[Any, ...]],
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        asked = offered(form(request.GET or None), request)
        asked.fields["tenant"].required |= bool(person(request).tenants)
        turn = look(asked.cleaned_data) if asked.is_valid() else None
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "about": about,
            "form": asked,
            "turn": turn,
            "found": display.table((*HEADINGS, *headings), rows(turn, more)) if turn and turn.lines else "",
            "words": words(turn, person(request)) if turn else "",
            "onward": onward(request, turn) if turn else "",
        }
        return TemplateResponse(request, "admin/retention/objectversion/listing.html", context)


def rows(turn: Turn, more: Callable[[listings.Line], tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for line in turn.lines:
        version = line.version
        yield (
            format_html('<a href="{}">{}</a>', display.change_url(version), display.exact(version.key)),
            display.exact(version.version_id),
            display.size(version.size),
            display.moment(version.stored_at),
            display.exact(version.retention_class) if version.retention_class else "unclassified",
            version.tenant or "none",
            *more(line),
        )


def words(turn: Turn, user: User) -> str:
    """What was found, and how much that says. How many were read counts those of every tenant."""
    among = "" if user.tenants else f" among {display.counted(turn.read, 'version')} read"
    found = f"{len(turn.lines):,} found{among}."
    if turn.resume is None:
        return f"{found} That was the last of the bucket."
    if len(turn.lines) >= listings.FOUND:
        return f"The first {found} More may follow."
    return f"{found} The bucket is larger: this turn ended after {listings.SECONDS:g} seconds."


def onward(request: HttpRequest, turn: Turn) -> str:
    if turn.resume is None:
        return ""
    asked = {name: request.GET.get(name, "") for name in ("bucket", "tenant")}
    return "?" + urlencode(asked | {"resume": vault.seal(turn.resume.encode()).decode()})
