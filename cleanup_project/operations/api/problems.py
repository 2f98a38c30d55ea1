"""What the API answers where it does not do what was asked: problem details (RFC 9457), with words that say what to do."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from ninja.errors import HttpError
from ninja.errors import ValidationError as Invalid

from cleanup_project.base import requestids, streams
from cleanup_project.base.apitokens import Unauthenticated
from cleanup_project.base.jobs import JobRefused, TokenUsed
from ledger import exceptions as ledger
from retention import exceptions as retention

MEDIA_TYPE: Final = "application/problem+json"
DOCS: Final = "/api/v1/docs"
RETRY_SECONDS: Final = 5
PASSES_SECONDS: Final = 30


class Kind(NamedTuple):
    """`title`: what is wrong; `advice`: what whoever meets it can do."""

    status: int
    title: str
    advice: str


KINDS: Final = {
    "malformed": Kind(400, "The request cannot be read", "Correct the request; it was not looked at any further."),
    "unauthenticated": Kind(
        401,
        "No valid token",
        "Send the header Authorization: Bearer with a token that is neither expired nor revoked.",
    ),
    "not-permitted": Kind(
        403, "Not permitted", "The account of the token may not do this: see its tenants, and the rights of its scopes."
    ),
    "scope-missing": Kind(
        403, "The token lacks the scope", "Have an administrator make a token with the scope that is named."
    ),
    "https-required": Kind(
        403, "Sent in clear", "Use https. The token, or secret, went over the network unprotected: have it replaced."
    ),
    "not-found": Kind(404, "Not there", "There is nothing under this address that the token may see."),
    "method-not-allowed": Kind(405, "Method not allowed", "Use one of the methods in the header Allow."),
    "conflict": Kind(409, "Not possible as things are", "Nothing was changed. The detail says what stands in the way."),
    "run-open": Kind(409, "A run is still open", "Let the run that is named end, or have it cancelled."),
    "idempotency-conflict": Kind(
        409, "The key was used for another request", "Use a new Idempotency-Key for a new request."
    ),
    "length-required": Kind(411, "No length", "Send Content-Length instead of a chunked body."),
    "too-large": Kind(413, "Too large", "Send less at once. The detail names the limit, and another way."),
    "unsupported-media-type": Kind(
        415, "Not this media type", "Send one of the media types in the header Accept-Post."
    ),
    "invalid": Kind(422, "Not valid", "Correct what `errors` names, field by field, and send it again."),
    "too-many-requests": Kind(
        429, "Too many requests", "Wait as many seconds as the header Retry-After says; read fewer, larger pages."
    ),
    "internal-error": Kind(
        500, "Our fault", "Whether anything was changed is not known: look, then try again. Report the request_id."
    ),
    "busy": Kind(
        503,
        "Too busy",
        "Wait as many seconds as Retry-After says, then try again. The detail says whether to look first what was changed.",
    ),
}
# What the framework answers by itself.
BY_STATUS: Final = {kind.status: name for name, kind in reversed(KINDS.items())}


class Problem(Exception):
    """Why something is not done. `errors`: sentences by the field that they are about; `more`: extension members."""

    def __init__(
        self,
        kind: str,
        detail: str = "",
        *,
        errors: Mapping[str, Sequence[str]] | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail or KINDS[kind].advice
        self.errors = {field: list(words) for field, words in (errors or {}).items()}
        self.headers = dict(headers or {})
        self.more = more


def answer(request: HttpRequest, problem: Problem) -> HttpResponse:
    kind = KINDS[problem.kind]
    told: dict[str, Any] = {
        "type": f"{DOCS}#{problem.kind}",
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail,
        "request_id": requestids.of(request),
        **({"errors": problem.errors} if problem.errors else {}),
        **problem.more,
    }
    return HttpResponse(
        json.dumps(told, ensure_ascii=False), status=kind.status, content_type=MEDIA_TYPE, headers=problem.headers
    )


def not_found(what: str) -> Problem:
    """The same words whether it is nowhere, or another tenant's."""
    return Problem("not-found", f"There is no {what} here that this token may see.")


def refusal(error: Any) -> Problem:
    """What a verb refused: about a field that was sent wrongly, or as things are."""
    if error.field:
        return Problem("invalid", str(error), errors={error.field: [str(error)]})
    return Problem("conflict", str(error))


def still_open(error: ledger.RunOverlap) -> Problem:
    more: dict[str, Any] = {"run": error.run} if error.run else {}
    return Problem("run-open", str(error), **more)


def by_field(error: ValidationError) -> Problem:
    """Of a model, by its fields."""
    found = error.message_dict if hasattr(error, "error_dict") else {"": error.messages}
    errors = {name if name not in {"", "__all__"} else "request": words for name, words in found.items()}
    return Problem("invalid", " ".join(sentence for words in errors.values() for sentence in words), errors=errors)


# Where pydantic's own words do not say what to do.
WORDS: Final = {"missing": "It is required.", "extra_forbidden": "There is no such field: leave it out."}


def by_place(error: Invalid) -> Problem:
    """Of what was sent, by where it stands: `body` members by name, parameters and headers by theirs."""
    errors = dict[str, list[str]]()
    for each in error.errors:
        _source, *place = each["loc"]
        named = ".".join(map(str, place[1:] if place[:1] == ["asked"] else place)) or "body"
        errors.setdefault(named, []).append(WORDS.get(each["type"], f"{each['msg'].removeprefix('Value error, ')}"))
    return Problem("invalid", f"Not valid: {', '.join(errors)}.", errors=errors)


def unreadable(error: HttpError) -> Problem:
    """django-ninja says that a body could not be read, and by its cause why."""
    return Problem("malformed", f"The body is not JSON as it is needed here: {error.__cause__}.")


def gave_way(request: HttpRequest, error: Any) -> HttpResponse:
    """The database did: perhaps after a first transaction of what was asked, or in the middle of a commit."""
    late = "The database did not answer in time"
    if request.method == "GET":
        words = (
            f"{late}. Try again in a few seconds; if that does not help, ask for less: a shorter time, one more filter."
        )
    else:
        words = (
            f"{late}, and whether anything was changed is not known: look. Then send it again, with the same Idempotency-Key "
            "where there is one; if that does not help, ask for less at once."
        )
    return answer(request, Problem("busy", words, headers={"Retry-After": str(RETRY_SECONDS)}))


def passes(error: Exception) -> Problem:
    """What passes by itself, and was met before anything was changed."""
    return Problem("busy", f"Nothing was changed. {error}", headers={"Retry-After": str(PASSES_SECONDS)})


def no_place(error: streams.Busy) -> Problem:
    return Problem("too-many-requests", str(error), headers=streams.retry_after())


def no_token(error: Unauthenticated) -> Problem:
    return Problem("unauthenticated", str(error), headers={"WWW-Authenticate": 'Bearer realm="cleanup"'})


TABLE: Final[dict[type[Exception], Callable[[Any], Problem]]] = {
    Problem: lambda problem: problem,
    Unauthenticated: no_token,
    Invalid: by_place,
    HttpError: unreadable,
    UnreadablePostError: lambda error: Problem("malformed", "The body ended before its length: send it again."),
    ledger.Unknown: lambda error: Problem("not-found", str(error)),
    ledger.NotPermitted: lambda error: Problem("not-permitted", str(error)),
    ledger.IdempotencyConflict: lambda error: Problem("idempotency-conflict", str(error)),
    ledger.RunOverlap: still_open,
    ledger.TryLater: passes,
    ledger.LedgerError: refusal,
    retention.NotPermitted: lambda error: Problem("not-permitted", str(error)),
    retention.TryLater: passes,
    retention.RetentionError: refusal,
    TokenUsed: lambda error: Problem("idempotency-conflict", str(error)),
    JobRefused: refusal,
    ValidationError: by_field,
    streams.Busy: no_place,
}


def handler(told: Callable[[Any], Problem]) -> Callable[[HttpRequest, Any], HttpResponse]:
    return lambda request, error: answer(request, told(error))


def unforeseen(request: HttpRequest, error: Any) -> HttpResponse:
    """Raised again, so that it is logged as everywhere; `edge` makes a problem of the page that Django answers with."""
    raise error
