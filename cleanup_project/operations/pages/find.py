"""The command box: from a key to the page of what it names."""

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from cleanup_project.base import display, tenancy
from cleanup_project.base.verbpages import person
from cleanup_project.operations.pages import shell
from ledger.models import CleanupCommand


def page(request: HttpRequest) -> HttpResponse:
    if not (request.user.has_perm("ledger.view_cleanupcommand") or request.user.has_perm("base.read_everything")):
        raise PermissionDenied
    key = request.GET.get("q", "")
    commands = tenancy.scoped(CleanupCommand.objects.all(), person(request), "tenant__code")
    command = commands.filter(key=key).first() if key and "\x00" not in key else None
    if command is not None:
        return HttpResponseRedirect(display.change_url(command))
    if key:
        messages.warning(request, f"No command has the key {display.visible(key)}.")
    return shell.page(request, "operations/find.html", "Find a command", {"key": key})
