"""Exports of receipts in the admin: asked for on one page, sent at once or made into files, and every one on record."""

from collections.abc import Iterable
from typing import Any, Final
from uuid import uuid4

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.template.response import TemplateResponse
from django.urls import path
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from cleanup_project.base import clock, display, streams, tenancy
from cleanup_project.base.modeladmin import ReadOnlyAdmin
from cleanup_project.base.models import User
from cleanup_project.base.paginator import CappedPaginator
from cleanup_project.base.verbpages import person
from ledger import exportcheck, exportfiles, exports
from ledger.admin.receiptfilters import SelectionForm
from ledger.exceptions import LedgerError
from ledger.models import Receipt, ReceiptExport

SHOWN: Final = 10
PILLS: Final = {"running": "plain", "done": "ended", "aborted": "waiting", "failed": "overdue"}
WAYS: Final = {"sent": "sent at once", "files": "files", "command": "on the command line"}
CSV: Final = "text/csv; charset=utf-8"


class ExportForm(SelectionForm):
    """What to export, in which form, and how it is handed over."""

    form = forms.ChoiceField(
        choices=ReceiptExport.Form.choices, initial=ReceiptExport.Form.PEOPLE, widget=forms.RadioSelect
    )
    way = forms.ChoiceField(
        label="How",
        choices=[
            (ReceiptExport.Way.SENT, f"send it now, up to {exports.PART_ROWS:,} receipts"),
            (ReceiptExport.Way.FILES, f"make files, kept for {exports.KEPT_FOR.days} days"),
        ],
        initial=ReceiptExport.Way.SENT,
        widget=forms.RadioSelect,
    )
    token = forms.UUIDField(widget=forms.HiddenInput)

    @property
    def order(self) -> exports.Order:
        return exports.Order(self.selection, self.cleaned_data["form"], self.cleaned_data["token"])


def export_view(request: HttpRequest) -> HttpResponseBase:
    """The page: prefilled from the list's address, counted; a POST exports, or with `_count` counts what is filled in."""
    by = person(request)
    if not by.has_perm(exports.RIGHT):
        raise PermissionDenied
    status, headers = 200, dict[str, str]()
    if request.method == "POST":
        form = ExportForm(request.POST, user=by)
        if "_count" not in request.POST and form.is_valid():
            try:
                return handed_over(form, by)
            except LedgerError as refusal:
                form.add_error(refusal.field if refusal.field in form.fields else None, str(refusal))
            except streams.Busy as busy:
                form.add_error(None, str(busy))
                status, headers = 429, streams.retry_after()
        # Whether or not its token has made an export, what is filled in now may be another one.
        form.data = {**request.POST.dict(), "token": str(uuid4())}
    else:
        given = {name: value for name, value in request.GET.items() if name in SelectionForm.base_fields}
        form = ExportForm({**defaults(), **given}, user=by)
    shown = page(request, form, by)
    return TemplateResponse(request, "admin/ledger/receipt/export.html", shown, status=status, headers=headers)


def defaults() -> dict[str, str]:
    return {"form": ReceiptExport.Form.PEOPLE, "way": ReceiptExport.Way.SENT, "token": str(uuid4())}


def page(request: HttpRequest, form: ExportForm, by: User) -> dict[str, Any]:
    rows = tenancy.scoped(form.narrow(Receipt.objects.all()), by, "tenant__code")
    counted = CappedPaginator(rows, exports.PART_ROWS)
    return {
        **admin.site.each_context(request),
        "title": "Export receipts",
        "opts": Receipt._meta,
        "form": form,
        "number": counted.count,
        "is_estimate": counted.is_estimate,
        "is_wrong": form.is_wrong,
        "part_rows": exports.PART_ROWS,
        **recent(by),
    }


def recent(by: User) -> dict[str, Any]:
    found = ReceiptExport.objects.seen_with(by.tenants).select_related("requested_by")[:SHOWN]
    return {"exports": [(each, progress(each), state_pill(each)) for each in found], "now": clock.now()}


@require_GET
def recent_view(request: HttpRequest) -> HttpResponse:
    """The list on the export page by itself, which that page fetches again and again."""
    by = person(request)
    if not by.has_perm(exports.RIGHT):
        raise PermissionDenied
    return TemplateResponse(request, "admin/ledger/receipt/exports.html", recent(by))


def handed_over(form: ExportForm, by: User) -> HttpResponseBase:
    if form.cleaned_data["way"] == ReceiptExport.Way.FILES:
        return HttpResponseRedirect(display.change_url(exports.request_files(form.order, by=by)))
    export, content = exports.send(form.order, by=by)
    if content is None:
        return HttpResponseRedirect(display.change_url(export))
    name = f"export-{export.pk}-part-00001.csv"
    return StreamingHttpResponse(
        content, content_type=CSV, headers={"Content-Disposition": f'attachment; filename="{name}"'}
    )


def progress(export: ReceiptExport) -> SafeString:
    words = f"{export.rows:,} of about {max(export.expected, export.rows):,}"
    if export.state != ReceiptExport.State.RUNNING:
        return format_html("{}", f"{export.rows:,}")
    return format_html(
        '<progress max="{}" value="{}" aria-label="{}"></progress> {}',
        max(export.expected, 1),
        export.rows,
        words,
        words,
    )


def state_pill(export: ReceiptExport) -> SafeString:
    return display.pill(export.state, PILLS[export.state])


@admin.register(ReceiptExport)
class ReceiptExportAdmin(ReadOnlyAdmin[ReceiptExport]):
    tenant_path = ""
    none_yet = "Nothing was exported yet. Each export is put on record here before it begins."
    list_display = (
        "named", "requested_at", "requested_by", "selected", "form", "way_words", "state_shown", "progress", "bytes",
        "digest",
    )  # fmt: skip
    list_select_related = ("requested_by",)
    list_filter = ("state",)
    empty_words = {
        "requested_by": "the command line", "digest": "none yet", "finished_at": "not yet", "removed_at": "not yet",
        "expires_at": "no file is kept",
    }  # fmt: skip
    ordering = ("-id",)
    fieldsets = (
        (None, {"fields": ("named", "state_shown", "what_happened", "progress", "bytes", "form", "way_words")}),
        ("What it holds", {"fields": ("selected", "tenants", "upto", "requested_by", "requested_at", "finished_at")}),
        ("Digest and files", {"fields": ("digest", "expires_at", "removed_at")}),
    )

    def own(self, rows: QuerySet[ReceiptExport], user: User) -> QuerySet[ReceiptExport]:
        """Those that hold receipts of this person's tenants alone."""
        return rows & ReceiptExport.objects.seen_with(user.tenants)

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view
        return [
            path("<int:export_id>/part-<int:number>.csv", view(self.part_view), name="ledger_receiptexport_part"),
            path("<int:export_id>/manifest.json", view(self.manifest_view), name="ledger_receiptexport_manifest"),
            path("exportcheck.py", view(self.check_view), name="ledger_receiptexport_check"),
            *super().get_urls(),
        ]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        export: ReceiptExport = kwargs["obj"]
        may = request.user.has_perm(exports.RIGHT)
        kept = export.way == ReceiptExport.Way.FILES and export.removed_at is None
        context |= {"parts": list(export.parts.all()), "may_fetch": may, "fetched_here": may and kept}
        return super().render_change_form(request, context, *args, **kwargs)

    def found(self, request: HttpRequest, export_id: int) -> ReceiptExport:
        export = self.get_queryset(request).filter(pk=export_id).first()
        if export is None:
            raise Http404(f"There is no export {export_id}.")
        if not request.user.has_perm(exports.RIGHT):
            raise PermissionDenied
        return export

    def part_view(self, request: HttpRequest, export_id: int, number: int) -> HttpResponseBase:
        export = self.found(request, export_id)
        part = export.parts.filter(number=number).first()
        if part is None:
            raise Http404(f"{export} has no part {number}.")
        try:
            content = exportfiles.send(part, by=person(request))
        except streams.Busy as busy:
            return streams.refused(busy)
        except LedgerError as refusal:
            messages.error(request, str(refusal))
            return HttpResponseRedirect(display.change_url(export))
        headers = {"Content-Disposition": f'attachment; filename="{part.file_name}"', "Content-Length": str(part.bytes)}
        return StreamingHttpResponse(content, content_type=CSV, headers=headers)

    def manifest_view(self, request: HttpRequest, export_id: int) -> HttpResponse:
        export = self.found(request, export_id)
        if export.state != ReceiptExport.State.DONE:
            raise Http404(f"{export} is {export.state}: only what is done has a manifest.")
        return attached(exportfiles.manifest(export), "application/json", exportfiles.manifest_name(export))

    def check_view(self, request: HttpRequest) -> HttpResponse:
        """The program that checks an export, for whoever has nothing but Python."""
        with open(exportcheck.__file__, "rb") as program:
            return attached(program.read(), "text/x-python; charset=utf-8", "exportcheck.py")

    @admin.display(description="export")
    def named(self, obj: ReceiptExport) -> str:
        return str(obj)

    @admin.display(description="how")
    def way_words(self, obj: ReceiptExport) -> str:
        return WAYS[obj.way]

    @admin.display(description="state")
    def state_shown(self, obj: ReceiptExport) -> SafeString:
        return state_pill(obj)

    @admin.display(description="what stopped it")
    def what_happened(self, obj: ReceiptExport) -> str:
        return obj.trouble or "nothing"

    @admin.display(description="receipts")
    def progress(self, obj: ReceiptExport) -> SafeString:
        return progress(obj)

    @admin.display(description="selection")
    def selected(self, obj: ReceiptExport) -> str:
        return in_words(obj)


def in_words(export: ReceiptExport) -> str:
    named = (f"{name.replace('_', ' ')} {value}" for name, value in sorted(export.selection.items()))
    return ", ".join(named) or "every receipt"


def attached(content: bytes, content_type: str, name: str) -> HttpResponse:
    headers: Iterable[tuple[str, str]] = [("Content-Disposition", f'attachment; filename="{name}"')]
    return HttpResponse(content, content_type=content_type, headers=dict(headers))
