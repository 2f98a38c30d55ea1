"""The hold register as of a time, as a page and as CSV."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import clock, display, streams
from cleanup_project.base.canonical import instant
from cleanup_project.base.verbpages import person
from retention import register
from retention.exceptions import RetentionError
from retention.models import LegalHold

LISTED_AT_MOST: Final = 500
HEADINGS = ("Hold", "Tenant", "State", "Placed", "By", "Custodian", "Released", "Requested by", "Approved by")


class AsOfForm(forms.Form):
    as_of = forms.DateTimeField(
        label="As of (UTC)",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S"),
        help_text="A date without a time means its first moment.",
    )


def register_view(request: HttpRequest) -> HttpResponseBase:
    """GET alone: `as_of` (now, if it is not given), and `format=csv` for the file."""
    by = person(request)
    if not register.may_view(by):
        raise PermissionDenied
    as_of: datetime | None = clock.now()
    form = AsOfForm(initial={"as_of": as_of})
    if "as_of" in request.GET:
        form = AsOfForm(request.GET)
        as_of = form.cleaned_data["as_of"] if form.is_valid() else None
    entries: list[register.Entry] | None = None
    if as_of is not None:
        try:
            if request.GET.get("format") == "csv":
                at = as_of
                return csv_response(at, streams.send(lambda: register.export(at, by=by)))
            entries = register.register(as_of, by=by)
        except streams.Busy as busy:
            return streams.refused(busy)
        except RetentionError as refusal:
            form.add_error("as_of", str(refusal))
    context = {
        **admin.site.each_context(request),
        "title": "Hold register",
        "opts": LegalHold._meta,
        "form": form,
        "as_of": instant(as_of) if as_of else "",
        "moment": display.moment(as_of) if as_of else "",
        "number": None if entries is None else len(entries),
        "table": None if entries is None else table(entries),
    }
    return TemplateResponse(request, "admin/retention/legalhold/register.html", context)


def csv_response(as_of: datetime, content: Iterator[bytes]) -> StreamingHttpResponse:
    name = f"holds_{as_of:%Y-%m-%dT%H%M%SZ}.csv"
    return StreamingHttpResponse(
        content,
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def table(entries: list[register.Entry]) -> SafeString:
    rows = (row(entry) for entry in entries[:LISTED_AT_MOST])
    return display.cut(display.table(HEADINGS, rows), len(entries) - LISTED_AT_MOST, "holds: the file has them all")


def row(entry: register.Entry) -> tuple[Any, ...]:
    hold, release = entry.hold, entry.release
    asked = release or entry.requested
    return (
        format_html('<span class="folded">{}</span>', display.link(hold)),
        hold.tenant,
        display.pill(entry.state, "ended" if release else "plain"),
        display.moment(hold.placed_at),
        hold.placed_by,
        hold.custodian or display.NOTHING,
        display.moment(release.decided_at) if release and release.decided_at else display.NOTHING,
        asked.requested_by if asked else display.NOTHING,
        release.decided_by if release else display.NOTHING,
    )
