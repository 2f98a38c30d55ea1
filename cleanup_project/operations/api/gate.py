"""Who comes in to an operation: a token with its scope, within its rate, with a body that can be read."""

import json
from collections.abc import Sequence
from typing import Any, Final

from allauth.account.adapter import get_adapter
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from ninja.parser import Parser

from cleanup_project.base import apirates, apitokens, canonical
from cleanup_project.base.apitokens import SCOPES
from cleanup_project.base.models import ApiToken
from cleanup_project.operations.api.problems import Problem

JSON: Final = "application/json"
JSON_BYTES: Final = 1 << 20


class Needs:
    """What an operation needs, stated beside it: `@router.get("/runs", auth=Needs("runs:read"))`.

    `media`: the media types of its body; `at_most`: bytes of it, above which `instead` says what to do. `query`: the names
    of its parameters, which `site` fills in; another name would narrow nothing and look as if it did.
    """

    def __init__(
        self, scope: str, *, media: Sequence[str] = (JSON,), at_most: int = JSON_BYTES, instead: str = ""
    ) -> None:
        assert scope in SCOPES, f"there is no scope {scope}"
        self.scope = scope
        self.media = tuple(media)
        self.at_most = at_most
        self.instead = instead
        self.query = frozenset[str]()

    def __call__(self, request: HttpRequest) -> ApiToken:
        token = apitokens.authenticate(request.headers.get("Authorization"), address(request))
        request.user = token.account
        self.within_rate(request, token)
        if not token.allows(self.scope):
            raise Problem(
                "scope-missing",
                f"This needs the scope {self.scope}, which the token does not have.",
                headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{self.scope}"'},
            )
        self.readable(request)
        return token

    def within_rate(self, request: HttpRequest, token: ApiToken) -> None:
        use = apirates.count(token, writing=request.method != "GET")
        request.rate = use  # type: ignore[attr-defined]  # `edge` tells it in the answer's headers
        if use.left < 0:
            raise Problem(
                "too-many-requests",
                f"This token may send {use.limit} such requests a minute. Wait {use.seconds} seconds.",
                headers={"Retry-After": str(use.seconds)},
            )

    def readable(self, request: HttpRequest) -> None:
        unknown = sorted(set(request.GET) - self.query)
        if unknown:
            words = f"There is no such parameter; known: {', '.join(sorted(self.query)) or 'none'}."
            raise Problem(
                "invalid", f"Unknown parameters: {', '.join(unknown)}.", errors={name: [words] for name in unknown}
            )
        if "\x00" in request.path_info or any("\x00" in each for each in request.GET.values()):
            raise Problem("invalid", "Nothing here is called by a name with NUL in it: leave it out.")
        if request.method == "GET":
            return
        if request.content_type not in self.media:
            raise Problem("unsupported-media-type", headers={"Accept-Post": ", ".join(self.media)})
        if length(request) > self.at_most:
            raise Problem("too-large", f"At most {self.at_most:,} bytes are taken at once. {self.instead}".strip())


def address(request: HttpRequest) -> str | None:
    """Where the request came from; None where no server or proxy says so, which is no reason to refuse a token."""
    try:
        found: str = get_adapter().get_client_ip(request)
    except PermissionDenied:
        return None
    return found


def length(request: HttpRequest) -> int:
    """Of the body, in bytes, as it was announced. Raises Problem where that is no number."""
    announced = request.META.get("CONTENT_LENGTH") or "0"
    if not (announced.isascii() and announced.isdigit()):
        raise Problem("malformed", "Content-Length must be a whole number of bytes.")
    return int(announced)


class Strict(Parser):
    """JSON without what readers disagree about (a name twice, NaN) and what PostgreSQL cannot keep (NUL, surrogates)."""

    def parse_body(self, request: HttpRequest) -> Any:
        found = json.loads(request.body, object_pairs_hook=named_once, parse_constant=no_number)
        check(found, "it")
        return found


def named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object names a member twice")
    return found


def no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def check(value: Any, place: str) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            check(name, f"a name in {place}")
            check(inner, name)
    elif isinstance(value, list):
        for inner in value:
            check(inner, place)
    elif isinstance(value, str):
        canonical.check_text(value, place)
