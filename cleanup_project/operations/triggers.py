"""Triggers from outside: any cron may stand in for the schedule, and any push queue for the broker's messages.

Who rings is known by a secret of `TRIGGER_SECRETS`: by a signature as Standard Webhooks has it, or by the secret itself as a
bearer token, for schedulers that cannot sign. A bell says where to look and nothing else: the ledger decides what there is to
do and workers do it, so that one rung twice, late or never changes time alone.
"""

import hmac
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import structlog
from django.conf import settings
from django.core.cache import cache
from django.db import OperationalError
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.dateparse import parse_datetime
from django.views.decorators.csrf import csrf_exempt

from cleanup_project.base import clock, queue
from cleanup_project.operations.api import problems
from cleanup_project.operations.api.problems import Problem
from ledger.models import CleanupRun
from retention.models import Bucket
from webhooks import receiver

LARGEST_BODY: Final = 4096
MOST_A_MINUTE: Final = 300
EARLY: Final = timedelta(minutes=5)
REMEMBERED: Final = 3600  # seconds for which the same bell is known again
LARGEST_NUMBER: Final = 2**63 - 1
BUSY: Final = "The database did not answer, so it is not known whether this rang. Ring again: twice changes nothing."
SCHEDULE_TIME: Final = (
    "X-CloudScheduler-ScheduleTime"  # Cloud Scheduler sends the same body each time, and the slot here
)

log = structlog.get_logger(__name__)


class Bell(NamedTuple):
    """`about`: the model of the row that its argument names; none: it takes no argument."""

    task: str
    about: type[Model] | None = None


BELLS: Final = {
    "sweep": Bell("ledger.tasks.sweep"),
    "drain": Bell("ledger.tasks.drain", Bucket),
    "dispatch": Bell("webhooks.tasks.dispatch"),
    "freeze": Bell("ledger.tasks.freeze", CleanupRun),
    "publish": Bell("ledger.tasks.publish", CleanupRun),
}


class Heard(NamedTuple):
    """What an authenticated request says, its id where it was signed, and the time that its scheduler put beside it."""

    said: dict[str, Any]
    id: str
    scheduled: str | None


Ring = Callable[[Heard], dict[str, Any]]


def trigger(ring: Ring) -> Callable[[HttpRequest], HttpResponse]:
    """The view of a trigger, behind the edge of the API: it takes no cookie, so there is nothing for a forged form to use."""

    @csrf_exempt
    def view(request: HttpRequest) -> HttpResponse:
        try:
            told = ring(heard(request))
        except Problem as problem:
            why = str(problem.__cause__ or problem)  # of what is not authenticated, the log alone says more
            log.warning("trigger refused", path=request.path, problem=problem.kind, reason=why)
            return problems.answer(request, problem)
        except OperationalError as error:
            log.error("trigger not rung", path=request.path, reason=str(error))
            return problems.answer(request, Problem("busy", BUSY, headers={"Retry-After": str(problems.RETRY_SECONDS)}))
        log.info("trigger", path=request.path, **told)
        return JsonResponse(told, status=202)

    return view


def heard(request: HttpRequest) -> Heard:
    """Raises Problem."""
    if not settings.TRIGGER_SECRETS:
        raise Problem("not-found", "There is no such address.")
    if request.method != "POST":
        raise Problem("method-not-allowed", "Send a POST.", headers={"Allow": "POST"})
    length = request.META.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > LARGEST_BODY:
        raise Problem("too-large", f"Send at most {LARGEST_BODY:,} bytes.")
    id = authenticate(request)
    within_rate()
    try:
        said = json.loads(request.body or b"{}")
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Problem("invalid", 'Send a JSON object, for example {"scheduled_for": "2026-11-30T10:00:00Z"}.')
    return Heard(said, id, request.headers.get(SCHEDULE_TIME))


def authenticate(request: HttpRequest) -> str:
    """The id of a signed request, or nothing for one with a bearer token. Raises Problem: one answer, whatever was wrong."""
    secrets: list[str] = settings.TRIGGER_SECRETS
    try:
        if "webhook-signature" in request.headers:
            return receiver.verify(secrets, request.headers, request.body, now=time.time()).id
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        matches = [hmac.compare_digest(given.strip().encode(), secret.encode()) for secret in secrets]
        if scheme.lower() == "bearer" and any(matches):
            return ""
        raise receiver.Refused("no secret fits")
    except receiver.Refused as refused:
        raise Problem(
            "unauthenticated",
            "Sign the request with a secret of TRIGGER_SECRETS, no more than five minutes ago by this host's clock, or send "
            "that secret as a bearer token (docs/triggers.md).",
            headers={"WWW-Authenticate": "Bearer"},
        ) from refused


def within_rate() -> None:
    """For all triggers together, by the minute; counted only for who knows a secret, so that others cost no write.

    About so many: what two processes count at once may be counted as one.
    """
    second = int(time.time())
    key = f"triggers:{second // 60}"
    cache.add(key, 0, timeout=120)
    try:
        number = cache.incr(key)
    except ValueError:  # culled meanwhile
        return
    if number > MOST_A_MINUTE:
        words = f"More than {MOST_A_MINUTE} triggers within a minute: one does."
        raise Problem("too-many-requests", words, headers={"Retry-After": str(60 - second % 60)})


def tick(heard: Heard) -> dict[str, Any]:
    """Ring for the tick: every slot that is due is answered once, whoever rings and however often."""
    slot = slot_of(heard)
    now = clock.now()
    if slot > now + EARLY:
        raise Problem("invalid", f"{slot.isoformat()} is more than five minutes ahead; it is {now.isoformat()} here.")
    # A slot that is not due yet is not remembered: rung again when it is, it must be answered.
    remember = f"trigger:tick:{slot.timestamp():.0f}" if slot <= now else ""
    return once(remember, queue.TICK) | {"scheduled_for": slot.isoformat()}


def slot_of(heard: Heard) -> datetime:
    given: Any = heard.said.get("scheduled_for", heard.scheduled)
    try:
        slot = parse_datetime(given)
        if slot is not None and slot.tzinfo is not None and heard.said.keys() <= {"scheduled_for"}:
            return slot.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        pass
    raise Problem("invalid", 'Send {"scheduled_for": "2026-11-30T10:00:00Z"}: the time of the slot, with its zone.')


def wake(heard: Heard) -> dict[str, Any]:
    """Ring one bell. A copy of a signed request is known by its id and by what it rings."""
    bell, argument = bell_of(heard.said)
    remember = f"trigger:wake:{bell.task}:{argument}:{heard.id}" if heard.id else ""
    return once(remember, bell.task, argument) | {"task": bell.task}


def bell_of(said: dict[str, Any]) -> tuple[Bell, int | None]:
    name, argument = said.get("task"), said.get("argument")
    bell = BELLS.get(name) if isinstance(name, str) else None
    if bell is None or set(said) - {"task", "argument"}:
        raise Problem("invalid", f'Send {{"task": …, "argument": …}} with one of these tasks: {", ".join(BELLS)}.')
    if bell.about is None:
        if argument is not None:
            raise Problem("invalid", f"{name} takes no argument.")
        return bell, None
    kind = bell.about._meta.verbose_name
    if type(argument) is not int or not 0 < argument <= LARGEST_NUMBER:
        raise Problem("invalid", f"{name} takes the number of a {kind} as its argument.")
    if not bell.about._default_manager.filter(pk=argument).exists():
        raise Problem("invalid", f"There is no {kind} {argument}.")
    return bell, argument


def once(remember: str, task: str, argument: int | None = None) -> dict[str, Any]:
    """Ring, unless the same was rung a short while ago. Remembered only after it rang: a copy too many costs a look."""
    if remember and cache.get(remember):
        return {"did": "already"}
    queue.wake(task, argument)
    if remember:
        cache.set(remember, True, timeout=REMEMBERED)
    return {"did": "rung"}
