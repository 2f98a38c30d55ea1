"""My work: what waits for a decision that this person may take, the oldest first."""

from django.http import HttpRequest, HttpResponse

from cleanup_project.base import waiting
from cleanup_project.base.verbpages import person
from cleanup_project.operations.pages import shell


def page(request: HttpRequest) -> HttpResponse:
    found = sorted(waiting.waiting(person(request)), key=lambda each: each.since)
    return shell.page(request, "operations/mywork.html", "My work", {"waiting": found})
