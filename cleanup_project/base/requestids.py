"""Each request has a number, which its answer, its log lines and the audit record all carry."""

from collections.abc import Callable
from typing import Final
from uuid import uuid4

from django.http import HttpRequest, HttpResponse

HEADER: Final = "X-Request-ID"
META: Final = "HTTP_X_REQUEST_ID"


def numbered(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware, the first of all. What a client sends under this name is not believed: it goes into the audit record."""

    def middleware(request: HttpRequest) -> HttpResponse:
        request.META[META] = str(uuid4())
        response = get_response(request)
        response[HEADER] = request.META[META]
        return response

    return middleware


def of(request: HttpRequest) -> str:
    return str(request.META[META])
