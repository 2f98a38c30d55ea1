"""The dashboard: how old what waits is, how long things take, and what needs a person."""

from django.http import HttpRequest, HttpResponse

from cleanup_project.operations.pages import shell


def page(request: HttpRequest) -> HttpResponse:
    return shell.page(request, "operations/dashboard.html", "Dashboard", {})
