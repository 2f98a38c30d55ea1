"""What machines ask: `/livez`, `/readyz`, `/metrics`. It stands first: they have no session, and call us by an address.

`/livez`: the process answers; nothing else is touched. `/readyz`: it can serve; with `?workers`, and the work goes on.
`/metrics`: for who shows METRICS_TOKEN; without that setting it is not there, whoever asks.
"""

import hmac
from collections.abc import Callable, Mapping
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from cleanup_project.operations.watch import exposition, readiness

Answer = Callable[[HttpRequest], HttpResponse]


def door(get_response: Answer) -> Answer:
    """Middleware."""

    def middleware(request: HttpRequest) -> HttpResponse:
        answer = ANSWERS.get(request.path_info)
        if answer is None:
            return get_response(request)
        response = answer(request) if request.method in ("GET", "HEAD") else plain("Ask with GET.\n", 405)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response

    return middleware


def plain(text: str, status: int = 200) -> HttpResponse:
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")


def livez(request: HttpRequest) -> HttpResponse:
    return plain("alive\n")


def readyz(request: HttpRequest) -> HttpResponse:
    """A line for each check. Only what is asked for decides the status: 200, or 503."""
    found = readiness.findings()
    asked = [each for each in found if each.subject in readiness.SERVES or "workers" in request.GET]
    ready = all(each.fine for each in asked)
    lines = [f"{'ok' if each.fine else 'fault'} {each.subject}: {each.words}" for each in found]
    return plain("\n".join(["ready" if ready else "not ready", *lines, ""]), 200 if ready else 503)


def metrics(request: HttpRequest) -> HttpResponse:
    if not settings.METRICS_TOKEN:
        return plain("Not found.\n", 404)
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(shown.strip().encode(), settings.METRICS_TOKEN.encode()):
        refused = plain("Show METRICS_TOKEN: Authorization: Bearer, and the token.\n", 401)
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused
    return HttpResponse(exposition.text(), content_type=exposition.CONTENT_TYPE)


ANSWERS: Final[Mapping[str, Answer]] = {"/livez": livez, "/readyz": readyz, "/metrics": metrics}
