"""Review of a sealed manifest: items are exempted or extended, one by one, as ticked, or all that match a filter."""

from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display, jobs
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.signin import proof
from cleanup_project.base.verbpages import Fieldsets, ReasonForm, VerbPages, person
from ledger import dispositions, reviewing
from ledger.dispositions import Chosen, Kind, Review
from ledger.exceptions import LedgerError
from ledger.models import CleanupRun, ItemDisposition, ManifestItem
from ledger.runs import OPEN_TO_REVIEW
from ledger.states import RunState
from retention.models import Bucket, PolicyRevision

FILTER: Final = ("bucket", "prefix", ("since_from", "since_to"), "revision")
TYPED_ABOVE: Final = 50  # items; for more, their number is typed
TICKED: Final = 200  # a page of the list
KEPT: Final = ("reason", "typed")  # what was typed stays, where the form is shown again
ABOUT: Final = {
    "exempt": "These items are kept by this run and by later ones. What was approved already must be approved anew.",
    "extend": "These items are kept until the new end; then a run may find them again. What was approved already must be "
    "approved anew.",
}


def when(label: str) -> AdminSplitDateTime:
    """Date and time, each named for who cannot see that they stand together."""
    return AdminSplitDateTime(attrs={"aria-label": f"{label} (date, time)"})


class ReviewForm(ReasonForm):
    """Which items, and why. With an item in the address there is nothing else to choose; `items` were ticked in a list.

    `counted`, `expected` and `token` are of the page that the person saw.
    """

    instance: CleanupRun

    item = forms.IntegerField(required=False, widget=forms.HiddenInput)
    items = forms.RegexField(r"\A[0-9]{1,18}(,[0-9]{1,18})*\Z", required=False, widget=forms.HiddenInput)
    bucket = forms.ModelChoiceField(Bucket.objects.none(), required=False, help_text="Of the original.")
    prefix = forms.CharField(  # type: ignore[assignment]
        required=False,
        strip=False,
        help_text="The beginning of the original's key, exactly.",
        widget=forms.TextInput(attrs={"size": 60, "spellcheck": "false", "class": "exact"}),
    )
    revision = forms.ModelChoiceField(PolicyRevision.objects.none(), required=False)
    since_from = forms.SplitDateTimeField(
        label="Eligible since, from", required=False, widget=when("Eligible since, from"), help_text="UTC, inclusive."
    )
    since_to = forms.SplitDateTimeField(
        label="Eligible since, before",
        required=False,
        widget=when("Eligible since, before"),
        help_text="UTC, exclusive.",
    )
    typed = forms.IntegerField(label="Their number", required=False)
    counted = forms.CharField(required=False, widget=forms.HiddenInput)
    expected = forms.IntegerField(required=False, widget=forms.HiddenInput)
    token = forms.UUIDField(required=False, widget=forms.HiddenInput)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        streams = self.instance.streams
        named = {"bucket": Bucket.objects.filter(pk__in={each.get("bucket_id") for each in streams})}
        revisions = PolicyRevision.objects.filter(pk__in={each["revision_id"] for each in streams})
        for name, rows in (named | {"revision": revisions.select_related("policy")}).items():
            self.fields[name].queryset = rows  # type: ignore[attr-defined]

    def chosen(self) -> Chosen:
        """What is named, as far as it is valid."""
        values = self.cleaned_data
        if values.get("item"):
            return Chosen(items=(values["item"],))
        if values.get("items"):
            return Chosen(items=tuple(int(each) for each in values["items"].split(",")[:TICKED]))
        bucket, revision = values.get("bucket"), values.get("revision")
        return Chosen(
            bucket_id=bucket.pk if bucket else None,
            prefix=values.get("prefix", ""),
            revision_id=revision.pk if revision else None,
            since_from=values.get("since_from"),
            since_to=values.get("since_to"),
        )

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        if self.errors or values.get("item"):
            return values
        expected = values.get("expected") or 0
        if not values.get("token") or not expected or reviewing.words(self.chosen()) != values.get("counted"):
            raise forms.ValidationError("What is chosen was not counted as it is now: look at the count first.")
        if expected > TYPED_ABOVE and values.get("typed") != expected:
            self.add_error("typed", f"Type {expected}, the number of items that you confirm.")
        return values


class ExtendForm(ReviewForm):
    until = forms.SplitDateTimeField(label="Keep until", widget=when("Keep until"), help_text="UTC.")


FORMS: Final = {"exempt": ReviewForm, "extend": ExtendForm}


def may_review(request: HttpRequest) -> bool:
    return request.user.has_perm(reviewing.RIGHT)


def tools(request: HttpRequest, run: CleanupRun, item: ManifestItem | None = None) -> Iterator[Tool]:
    if RunState(run.state) not in OPEN_TO_REVIEW or not may_review(request):
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
    if not may_review(request):
        raise PermissionDenied
    item = named_item(request, run)
    made: Any = forms.modelform_factory(CleanupRun, form=FORMS[verb], fields=())
    if item is not None:
        return one(pages, request, made(request.POST or None, instance=run, initial={"item": item.pk}), item, verb)
    posted = request.method == "POST"
    form = made(request.POST if posted else request.GET, instance=run)
    del form.fields["item"]  # it names none of the run's, and nothing else is shown without a count
    if form.is_valid() and posted and "_count" not in request.POST:
        if question := proof.ask(request, f"{verb.capitalize()} items"):
            return question
        try:
            return begin(request, run, form, verb)
        except (LedgerError, jobs.JobRefused) as refusal:
            field = getattr(refusal, "field", None)
            form.add_error(field if field in form.fields else None, str(refusal))
    return confirmation(pages, request, form, verb)


def one(pages: VerbPages[CleanupRun], request: HttpRequest, form: Any, item: ManifestItem, verb: str) -> HttpResponse:
    run = item.run

    def act(values: dict[str, Any]) -> tuple[Model, str]:
        return run, told_of(decide(request, run, form, verb), verb)

    return pages.verb_page(
        request,
        form,
        act,
        title=f"{verb.capitalize()} an item of a run",
        button=verb.capitalize(),
        fieldsets=[("Your decision", {"fields": ("item", *asked(verb))})],
        about=f"Item {item.ordinal}, {item}. {ABOUT[verb]}",
        obj=run,
    )


def decide(request: HttpRequest, run: CleanupRun, form: Any, verb: str) -> int:
    """Take the chosen out at once; returns how many they were."""
    until = {"until": form.cleaned_data["until"]} if verb == "extend" else {}
    call = getattr(dispositions, verb)
    number: int = call(run=run, chosen=form.chosen(), by=person(request), reason=form.cleaned_data["reason"], **until)
    return number


def begin(request: HttpRequest, run: CleanupRun, form: Any, verb: str) -> HttpResponse:
    """Few at once; of many, a bulk job."""
    values = form.cleaned_data
    if values["expected"] <= reviewing.AT_ONCE:
        messages.success(request, told_of(decide(request, run, form, verb), verb))
        return HttpResponseRedirect(display.change_url(run))
    decision = Review(Kind(verb), person(request), values["reason"], values.get("until"))
    said = {"expected": values["expected"], "token": values["token"]}
    job = reviewing.begin(run=run, chosen=form.chosen(), review=decision, **said)
    messages.success(request, f"{display.counted(job.total, 'item')} to be taken out of {run}: this job does it.")
    return HttpResponseRedirect(display.change_url(job))


def told_of(number: int, verb: str) -> str:
    return f"{display.counted(number, 'item')} {'exempted' if verb == 'exempt' else 'extended'}."


def confirmation(pages: VerbPages[CleanupRun], request: HttpRequest, which: Any, verb: str) -> HttpResponse:
    """The page that says how much is chosen. Without a count there is nothing to confirm."""
    run: CleanupRun = which.instance
    which.is_valid()
    chosen, total, why_not = which.chosen(), 0, ""
    if chosen.words():
        try:
            total = reviewing.count(run, chosen)
        except OperationalError:
            why_not = "Counting them takes too long: narrow what is chosen."
        if total > jobs.MOST:
            total, why_not = 0, f"More than {jobs.MOST:,} match: narrow what is chosen, and do it in several steps."
        elif not total and not why_not:
            why_not = "Nothing that remains in the run matches."
    context = {
        "button": f"{verb.capitalize()} them",
        "about": f"{ABOUT[verb]} Everything that you name must match.",
        "expected": total,
        "why_not": why_not,
        "counted": reviewing.words(chosen) if total else "",
        "at_once": total <= reviewing.AT_ONCE,
        # Counted anew it is another job, whatever came of the one before.
        "token": request.POST.get("token") if request.POST.get("token") and "_count" not in request.POST else uuid4(),
    }
    form = which
    if request.method != "POST" or "_count" in request.POST:  # nothing was decided yet, so nothing is missing
        kept = {name: value for name, value in which.data.items() if name in KEPT}
        form = type(which)(instance=run, initial={**which.cleaned_data, **kept})
    fieldsets: Fieldsets = [("Items", {"fields": ("items",) if which.cleaned_data.get("items") else FILTER})]
    if total:
        typed = ("typed",) if total > TYPED_ABOVE else ()
        fieldsets = [*fieldsets, ("Your decision", {"fields": (*typed, *asked(verb))})]
    title = f"{verb.capitalize()} items of a run"
    template = "admin/ledger/cleanuprun/review.html"
    return pages.form_page(request, form, template, context, title, fieldsets, obj=run)


def asked(verb: str) -> tuple[str, ...]:
    return ("until", "reason") if verb == "extend" else ("reason",)


def named_item(request: HttpRequest, run: CleanupRun) -> ManifestItem | None:
    """The one item that it is about: what is decided is what the form says, whatever the address does."""
    number = (request.POST if request.method == "POST" else request.GET).get("item", "")
    found = ManifestItem.objects.select_related("run").filter(run=run)
    return found.filter(pk=int(number)).first() if number.isdecimal() else None


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
