"""Review of a sealed manifest: items are exempted or extended, one by one or all that match a filter."""

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from ledger import dispositions
from ledger.dispositions import Chosen
from ledger.models import CleanupRun, ItemDisposition, ManifestItem
from ledger.runs import OPEN_TO_REVIEW
from ledger.states import RunState
from retention.models import Bucket, PolicyRevision

FILTER = ("bucket", "prefix", ("since_from", "since_to"), "revision")
ABOUT = {
    "exempt": "These items are kept by this run and by later ones. What was approved already must be approved anew.",
    "extend": "These items are kept until the new end; then a run may find them again. What was approved already must be "
    "approved anew.",
}


class ReviewForm(ReasonForm):
    """Which items, and why. With an item in the address there is nothing else to choose."""

    instance: CleanupRun

    item = forms.IntegerField(required=False, widget=forms.HiddenInput)
    bucket = forms.ModelChoiceField(Bucket.objects.none(), required=False, help_text="Of the original.")
    prefix = forms.CharField(  # type: ignore[assignment]
        required=False,
        strip=False,
        help_text="The beginning of the original's key, exactly.",
        widget=forms.TextInput(attrs={"size": 80, "spellcheck": "false", "class": "exact"}),
    )
    revision = forms.ModelChoiceField(PolicyRevision.objects.none(), required=False)
    since_from = forms.SplitDateTimeField(
        label="Eligible since, from", required=False, widget=AdminSplitDateTime, help_text="UTC, inclusive."
    )
    since_to = forms.SplitDateTimeField(
        label="Eligible since, before", required=False, widget=AdminSplitDateTime, help_text="UTC, exclusive."
    )

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        streams = self.instance.streams
        named = {"bucket": Bucket.objects.filter(pk__in={each.get("bucket_id") for each in streams})}
        revisions = PolicyRevision.objects.filter(pk__in={each["revision_id"] for each in streams})
        for name, rows in (named | {"revision": revisions.select_related("policy")}).items():
            self.fields[name].queryset = rows  # type: ignore[attr-defined]

    def chosen(self) -> Chosen:
        values = self.cleaned_data
        if values["item"]:
            return Chosen(items=(values["item"],))
        return Chosen(
            bucket_id=values["bucket"].pk if values["bucket"] else None,
            prefix=values["prefix"],
            revision_id=values["revision"].pk if values["revision"] else None,
            since_from=values["since_from"],
            since_to=values["since_to"],
        )


class ExtendForm(ReviewForm):
    until = forms.SplitDateTimeField(label="Keep until", widget=AdminSplitDateTime, help_text="UTC.")


FORMS = {"exempt": ReviewForm, "extend": ExtendForm}


def may_review(request: HttpRequest, run: CleanupRun) -> bool:
    return request.user.has_perm("base.approve_run")


def tools(request: HttpRequest, run: CleanupRun, item: ManifestItem | None = None) -> Iterator[Tool]:
    if RunState(run.state) not in OPEN_TO_REVIEW or not may_review(request, run):
        return
    if item and ItemDisposition.objects.filter(run=run, ordinal=item.ordinal).exists():
        return
    for verb in FORMS:
        address = reverse(f"admin:ledger_cleanuprun_{verb}", args=[run.pk])
        words = verb.capitalize() if item else f"{verb.capitalize()} items"
        yield Tool(words, f"{address}?item={item.pk}" if item else address)


def urls(pages: VerbPages[CleanupRun]) -> list[URLPattern]:
    def view(verb: str) -> Any:
        return lambda request, object_id: review(pages, request, object_id, verb)

    return [pages.verb_url(verb, view(verb)) for verb in FORMS]


def review(pages: VerbPages[CleanupRun], request: HttpRequest, object_id: int, verb: str) -> HttpResponse:
    run = pages.wanted(request, str(object_id))
    if not may_review(request, run):
        raise PermissionDenied
    item = named_item(request, run)
    made: Any = forms.modelform_factory(CleanupRun, form=FORMS[verb], fields=())
    form = made(request.POST or None, instance=run, initial={"item": item.pk if item else None})

    def act(values: dict[str, Any]) -> tuple[Model, str]:
        until = {"until": values["until"]} if verb == "extend" else {}
        call = getattr(dispositions, verb)
        number = call(run=run, chosen=form.chosen(), by=person(request), reason=values["reason"], **until)
        return run, f"{number:,} {'item' if number == 1 else 'items'} {'exempted' if verb == 'exempt' else 'extended'}."

    which = ("item",) if item else FILTER
    end = ("until",) if verb == "extend" else ()
    about = (
        f"Item {item.ordinal}, {item}. {ABOUT[verb]}" if item else f"{ABOUT[verb]} Everything that you name must match."
    )
    return pages.verb_page(
        request,
        form,
        act,
        title=f"{verb.capitalize()} items of a run",
        button=verb.capitalize(),
        fieldsets=[("Items", {"fields": which}), ("Your decision", {"fields": (*end, "reason")})],
        about=about,
        obj=run,
        deciding=item is None,
    )


def named_item(request: HttpRequest, run: CleanupRun) -> ManifestItem | None:
    number = str(request.POST.get("item") or request.GET.get("item") or "")
    return ManifestItem.objects.filter(run=run, pk=int(number)).first() if number.isdecimal() else None


def told(disposition: ItemDisposition) -> SafeString | str:
    words = disposition.get_kind_display()
    return format_html("{} until {}", words, display.moment(disposition.until)) if disposition.until else words


@admin.register(ItemDisposition)
class ItemDispositionAdmin(ReadOnlyAdmin[ItemDisposition]):
    tenant_path = "run__tenant__code"
    none_yet = "No item of a run was exempted or extended."
    list_display = ("item", "run", "kind", "until", "reason", "by", "at")
    list_select_related = ("item", "run", "by")
    lookups = frozenset({"run"})
    empty_words = {"until": "for good"}

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("run_id", "ordinal") if "run" in request.GET else ("-id",)
