"""The dashboard: how old what waits is, how long things take, and what needs a person.

Below its frame it is one fragment, which the page asks for anew. It holds nothing of the person who looks but what they may
view and their tenants, so it is made once for all who see the same, and kept for a few seconds.
"""

from hashlib import sha256
from typing import Any, Final

from django.core.cache import caches
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from cleanup_project.base import clock, display, rollups
from cleanup_project.base.models import User
from cleanup_project.base.verbpages import person
from cleanup_project.operations.pages import distributions, shell
from cleanup_project.operations.pages.tiles import Looking, tiles
from cleanup_project.operations.watch.deadlines import DEADLINES, Deadline

KEPT: Final = 5  # seconds
SPAN: Final = "24h"
# Whoever may view these sees an application's figures.
VIEWS: Final = {
    "base": "base.view_heartbeat",
    "retention": "retention.view_stopswitch",
    "ledger": "ledger.view_cleanupcommand",
    "webhooks": "webhooks.view_delivery",
}


def page(request: HttpRequest) -> HttpResponse:
    """`?span=` is one of `rollups.SPANS`; `?live=no` stands still until somebody asks."""
    span = request.GET.get("span", SPAN)
    if span not in rollups.SPANS:
        span = SPAN
    shown = figures(person(request), span)
    if request.headers.get("HX-Request") == "true":
        response = HttpResponse(shown)
    else:
        spans = [(code, each.words, code == span) for code, each in rollups.SPANS.items()]
        context = {"figures": shown, "span": span, "spans": spans, "live": request.GET.get("live") != "no"}
        response = shell.page(request, "operations/dashboard.html", "Dashboard", context)
    response.headers["Vary"] = "HX-Request, Cookie"
    return response


def figures(user: User, span: str) -> SafeString:
    """The fragment for this person: made anew where the one that is kept is older than KEPT seconds."""
    sees = frozenset(
        app for app, right in VIEWS.items() if user.has_perm(right) or user.has_perm("base.read_everything")
    )
    codes = sorted(user.tenants)
    scope = sha256(repr((span, sorted(sees), codes)).encode()).hexdigest()
    kept: str | None = caches["process"].get(f"dashboard-{scope}")
    if kept is None:
        kept = render_to_string("operations/dashboard_figures.html", gathered(Looking(sees, codes, clock.now()), span))
        caches["process"].set(f"dashboard-{scope}", kept, KEPT)
    return SafeString(kept)


def told(deadline: Deadline) -> dict[str, str]:
    """A deadline in words."""
    watch = display.duration(deadline.watch) if deadline.watch else "the first"
    overdue = display.duration(deadline.overdue) if deadline.overdue is not None else "never"
    return {"watch": watch, "overdue": overdue, "because": deadline.because}


def gathered(looking: Looking, span: str) -> dict[str, Any]:
    chosen = rollups.SPANS[span]
    return {
        "now": looking.now,
        "words": chosen.words,
        "step": chosen.seconds,
        "length": int(chosen.length.total_seconds()),
        "tiles": list(tiles(looking)),
        "deadlines": [(name, told(each)) for name, each in DEADLINES.items()],
        "lags": list(distributions.lags(looking, chosen)),
        "bars": list(distributions.bars(looking, chosen)),
        "runs": distributions.runs(looking),
        "endpoints": distributions.endpoints(looking),
        "sees": looking.sees,
        "counted_until": distributions.counted_until(),
        "error": round(100 * rollups.ERROR),
    }
