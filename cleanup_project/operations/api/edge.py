"""The edge of the API and of triggers: no page, redirection or cookie answers what is under /api/ or /triggers/."""

from collections.abc import Callable
from typing import Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from cleanup_project.operations.api import problems
from cleanup_project.operations.api.problems import Problem

PREFIXES: Final = ("/api/", "/triggers/")


def edge(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware, before all but the one that numbers requests."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if not f"{request.path_info}/".startswith(PREFIXES):
            return get_response(request)
        # Whoever opens the documents in a browser has a session; here it opens nothing, and is not even looked at.
        request.META.pop("HTTP_COOKIE", None)
        problem = refused(request)
        response = problems.answer(request, problem) if problem else as_problem(request, get_response(request))
        response.cookies.clear()
        response.setdefault("Cache-Control", "no-store")
        if (use := getattr(request, "rate", None)) is not None:
            response["RateLimit-Policy"] = f'"token";q={use.limit};w=60'
            response["RateLimit"] = f'"token";r={max(use.left, 0)};t={use.seconds}'
        return response

    return middleware


def refused(request: HttpRequest) -> Problem | None:
    """What need not be looked at any further."""
    if settings.SECURE_SSL_REDIRECT and not request.is_secure():
        return Problem("https-required")
    if "HTTP_TRANSFER_ENCODING" in request.META:
        return Problem("length-required")
    return None


def as_problem(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """What the framework answered by itself: no such method, a host that is not ours, an error of the server."""
    if response.status_code < 300 or response.headers.get("Content-Type") == problems.MEDIA_TYPE:
        return response
    kind = problems.BY_STATUS.get(response.status_code, "malformed")
    kept = {name: response[name] for name in ("Allow",) if name in response}
    return problems.answer(request, Problem(kind, headers=kept))


@csrf_exempt  # whatever is sent here, the answer is that nothing is here
def nothing_here(request: HttpRequest) -> HttpResponse:
    return problems.answer(
        request, Problem("not-found", f"There is no such address. {problems.DOCS} lists those that there are.")
    )
