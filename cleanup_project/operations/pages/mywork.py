"""My work: what waits for a decision that this person may take, the soonest due first; and what they asked others for."""

from collections.abc import Iterable
from datetime import datetime

from django.http import HttpRequest, HttpResponse

from cleanup_project.base import clock, waiting
from cleanup_project.base.verbpages import person
from cleanup_project.base.waiting import Waiting
from cleanup_project.operations.pages import shell


def page(request: HttpRequest) -> HttpResponse:
    user, now = person(request), clock.now()
    context = {
        "now": now,
        "waiting": dated(waiting.waiting(user), now),
        "asked": dated(waiting.asked_for(user), now),
        "listed": waiting.LISTED,
    }
    return shell.page(request, "operations/mywork.html", "My work", context)


def dated(found: Iterable[Waiting], now: datetime) -> list[tuple[Waiting, datetime]]:
    """Each kind, and since when an item of it must have waited to be late now."""
    return [(each, now - each.kind.within) for each in found]
