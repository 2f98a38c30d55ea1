"""The certificate of destruction as a page that prints, and as the bytes that its digest is over."""

import json
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.views.decorators.http import require_GET, require_http_methods

from cleanup_project.base import display
from cleanup_project.base.verbpages import VerbPages, person
from ledger import certificate
from ledger.exceptions import LedgerError
from ledger.models import Certificate, CleanupRun

# What was not destroyed, in the order and the words of the page.
NOT_DESTROYED = {
    "held": "held: a legal hold or a lock of the store covers them",
    "quarantined": "in quarantine: they failed, and wait for a person",
    "closed_without_retry": "of those, closed without retry by a person",
    "withdrawn": "withdrawn or left out: another command or a newer revision has them",
    "exempt": "exempted or extended by a reviewer before the approval",
    "on_hold_before": "eligible, and not in the manifest since a hold covered them",
    "not_enforced": "eligible, and not in the manifest since enforcement was off there",
}


def urls(pages: VerbPages[CleanupRun]) -> list[URLPattern]:
    shown = require_http_methods(["GET", "POST"])(lambda request, object_id: page(pages, request, object_id))
    file = require_GET(lambda request, object_id: download(pages, request, object_id))
    wrapped = pages.admin_site.admin_view
    return [
        pages.verb_url("certificate", shown),
        path("<int:object_id>/certificate.json", wrapped(file), name="ledger_cleanuprun_certificate_json"),
    ]


def may_issue(request: HttpRequest) -> bool:
    return request.user.has_perm(certificate.RIGHT)


def page(pages: VerbPages[CleanupRun], request: HttpRequest, object_id: int) -> HttpResponse:
    """Shown to whoever may see the run; issued by who may export receipts, since it sums them up for others."""
    run = pages.wanted(request, str(object_id))
    if request.method == "POST":
        return issued(request, run)
    found = Certificate.objects.filter(run=run).select_related("issued_by").first()
    context: dict[str, Any] = {
        **pages.admin_site.each_context(request),
        "title": "Certificate of destruction",
        "subtitle": display.visible(str(run)),
        "opts": pages.opts,
        "original": run,
        "run": run,
        "certificate": found,
        "refusal": certificate.refusal(run),
        "may_issue": may_issue(request),
    }
    if found is not None:
        told = json.loads(bytes(found.body))
        left = [(words, told["not_destroyed"][name]) for name, words in NOT_DESTROYED.items()]
        context |= {"told": told, "left": left}
    return TemplateResponse(request, "admin/ledger/cleanuprun/certificate.html", context)


def issued(request: HttpRequest, run: CleanupRun) -> HttpResponse:
    if not may_issue(request):
        raise PermissionDenied
    try:
        certificate.issue(run=run, by=person(request))
    except LedgerError as refused:
        messages.error(request, str(refused))
    return HttpResponseRedirect(reverse("admin:ledger_cleanuprun_certificate", args=[run.pk]))


def download(pages: VerbPages[CleanupRun], request: HttpRequest, object_id: int) -> HttpResponse:
    run = pages.wanted(request, str(object_id))
    if not may_issue(request):
        raise PermissionDenied
    found = Certificate.objects.filter(run=run).select_related("run").first()
    if found is None:
        raise Http404(f"No certificate of {run} was issued.")
    name = f"certificate_{run.key.replace(':', '_')}.json"
    return HttpResponse(
        certificate.download(certificate=found, by=person(request)),
        content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"', "X-SHA-256": found.digest},
    )
