"""One manifest beside another of its policy: how many items only one of them names, how many differ, and which."""

import json
from collections.abc import Iterator
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.verbpages import VerbPages, person
from ledger import compare, downloads
from ledger.exceptions import LedgerError
from ledger.models import CleanupRun, ManifestComparison, ManifestDifference, ManifestItem

PER_PAGE: Final = 100
OFFERED: Final = 50  # runs to choose from
KINDS: Final = {"changed": "changed", "here": "only_here", "there": "only_there"}


class ChoiceForm(forms.Form):
    other = forms.ModelChoiceField(CleanupRun.objects.none(), label="Compare with", empty_label=None)
    kind = forms.ChoiceField(required=False, choices=[(kind, kind) for kind in KINDS])
    after = forms.IntegerField(required=False, min_value=0, max_value=compare.LISTED)

    def __init__(self, pages: VerbPages[CleanupRun], request: HttpRequest, run: CleanupRun) -> None:
        chosen = request.POST if request.method == "POST" else request.GET
        first = compare.default(run) or compare.candidates(run).first()
        super().__init__({"other": first.pk if first else None, **chosen.dict()})
        mine = pages.get_queryset(request).filter(pk__in=compare.candidates(run).values("pk")[:OFFERED])
        self.fields["other"].queryset = mine.order_by("-id")  # type: ignore[attr-defined]
        self.fields["other"].label_from_instance = named  # type: ignore[attr-defined]


def named(run: Any) -> str:
    return f"{run} ({run.get_mode_display()}, {run.get_state_display()})"


def urls(pages: VerbPages[CleanupRun]) -> list[URLPattern]:
    return [pages.verb_url("compare", lambda request, object_id: page(pages, request, object_id))]


def page(pages: VerbPages[CleanupRun], request: HttpRequest, object_id: int) -> HttpResponse:
    run = pages.wanted(request, str(object_id))
    if not downloads.may_download(request.user):
        raise PermissionDenied
    form = ChoiceForm(pages, request, run)
    other: CleanupRun | None = form.cleaned_data["other"] if form.is_valid() else None
    address = reverse("admin:ledger_cleanuprun_compare", args=[run.pk])
    if request.method == "POST" and other is not None:
        try:
            compare.ask(run=run, other=other, by=person(request))
        except LedgerError as refusal:
            messages.error(request, str(refusal))
        return HttpResponseRedirect(f"{address}?{urlencode({'other': other.pk})}")
    made = ManifestComparison.objects.filter(run=run, other=other).first() if other else None
    context: dict[str, Any] = {
        **pages.admin_site.each_context(request),
        "title": "Compare with another manifest",
        "subtitle": display.visible(str(run)),
        "opts": pages.opts,
        "original": run,
        "run": run,
        "form": form,
        "other": other,
        "made": made,
        "listed": compare.LISTED,
    }
    if made is not None and made.finished_at is not None:
        context |= result(made, form.cleaned_data["kind"], form.cleaned_data["after"] or 0, address)
    return TemplateResponse(request, "admin/ledger/cleanuprun/compare.html", context)


def result(made: ManifestComparison, kind: str, after: int, address: str) -> dict[str, Any]:
    """The numbers, and a page of one kind of difference: that which was asked for, or the first of which there are any."""
    numbers = {name: getattr(made, column) for name, column in KINDS.items()}
    kind = kind or next((name for name, number in numbers.items() if number), "changed")
    rows = list(made.differences.filter(kind=kind, ordinal__gt=after).order_by("ordinal")[: PER_PAGE + 1])
    shown = rows[:PER_PAGE]
    there = f"{address}?other={made.other_id}&kind="
    return {
        "kind": kind,
        "kinds": [
            (words, numbers[name], there + name, name == kind)
            for name, words in (("changed", "changed"), ("here", "only here"), ("there", "only there"))
        ],
        "changes": [(name.replace("_", " "), number) for name, number in made.changes.items() if number],
        "table": table(kind, shown),
        "shown": len(shown),
        "left": numbers[kind] - after - len(shown),
        "onward": f"{there}{kind}&after={shown[-1].ordinal}" if len(rows) > PER_PAGE else "",
        "cut": numbers[kind] > compare.LISTED,
    }


def table(kind: str, rows: list[ManifestDifference]) -> SafeString:
    wanted = {pk for row in rows for pk in (row.item_id, row.other_item_id) if pk is not None}
    items = ManifestItem.objects.in_bulk(wanted)
    headings = (
        "Item",
        "Key",
        "Size",
        "Eligible since",
        *(("What differs: there → here",) if kind == "changed" else ()),
    )
    return display.table(headings, (cells(row, items) for row in rows))


def cells(row: ManifestDifference, items: dict[int, ManifestItem]) -> Iterator[Any]:
    item = items[row.item_id or row.other_item_id or 0]
    original = json.loads(item.line)["targets"][0]
    yield display.link(item)
    yield display.exact(original["key"])
    yield display.size(item.bytes)
    yield display.moment(item.eligible_since)
    if row.kind == ManifestDifference.Kind.CHANGED:
        found = compare.differences(item.line, items[row.other_item_id or 0].line)
        yield format_html('<ul class="plain">{}</ul>', format_html_join("", "<li>{}: {} <b>→</b> {}</li>", said(found)))


def said(found: Iterator[tuple[str, str, str]]) -> Iterator[tuple[str, str, str]]:
    """`found` from there to here, as it came about."""
    for what, here, there in found:
        yield what, display.visible(there), display.visible(here)
