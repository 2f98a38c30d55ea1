"""Record what came of attempts, under the lease's token: whoever was overtaken changes nothing."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from django.db import OperationalError, connection, transaction

from cleanup_project.base import sqlfiles
from webhooks import health, lanes, retry
from webhooks.claiming import Claimed
from webhooks.failures import DUPLICATE, NAMES, RULES, SENDER_ERROR, SUCCESSES
from webhooks.health import Heard
from webhooks.models import ERROR_LIMIT, Delivery
from webhooks.sender import Answer

log = structlog.get_logger(__name__)
State = Delivery.State


@dataclass(slots=True)
class Dispatched:
    """What one dispatch did. `lost` attempts ended under a lease that somebody else had taken over; `more`: work is left."""

    sent: int = 0
    delivered: int = 0
    retried: int = 0
    dead: int = 0
    lost: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an answer makes of its delivery; `delay` is set for a retry alone. `pause`: of its endpoint, in seconds."""

    state: str
    delay: float | None = None
    pause: float | None = None


Written = tuple[Claimed, Answer, Outcome]


def record(finished: Sequence[tuple[Claimed, Answer]], total: Dispatched) -> list[int]:
    """Write what came of attempts, and promote what stood behind those that ended; returns the events that were delivered.

    What it says of the endpoints is drawn from it afterwards, in transactions of their own: a crash in between costs the
    endpoint's next answer, or one interval of its circuit.
    """
    judged = judge(finished)
    with transaction.atomic(durable=True):
        lanes.lock(claimed.lane_id for claimed, _ in judged)
        held = lock_held([claimed for claimed, _ in judged])
        written = [
            (claimed, answer, outcome_of(claimed, answer))
            for claimed, answer in judged
            if claimed.sending.delivery_id in held
        ]
        write(written)
        ended = [claimed for claimed, _, outcome in written if outcome.state != State.PENDING]
        lanes.promote((each.endpoint_id, each.lane_id) for each in ended if held[each.sending.delivery_id])
    count = Counter(outcome.state for _, _, outcome in written)
    total.sent += len(finished)
    total.delivered += count[State.DELIVERED]
    total.retried += count[State.PENDING]
    total.dead += count[State.DEAD]
    total.lost += len(finished) - len(written)
    tell(written)
    try:
        draw_conclusions(written)
    except OperationalError as error:  # the answers are recorded; the next one, or the review, judges them
        log.warning("endpoints were not judged", error=str(error))
    return [claimed.event_row for claimed, _, outcome in written if outcome.state == State.DELIVERED]


def draw_conclusions(written: Sequence[Written]) -> None:
    own = next(((claimed, answer) for claimed, answer, _ in written if answer.failure_class == SENDER_ERROR), None)
    if own is not None:
        health.sender_trouble(own[0].endpoint_id, own[1].error)
    health.note(
        [
            Heard(claimed.endpoint_id, answer.failure_class, claimed.is_probe, claimed.is_unwell, outcome.pause)
            for claimed, answer, outcome in written
        ]
    )


def judge(finished: Sequence[tuple[Claimed, Answer]]) -> list[tuple[Claimed, Answer]]:
    """The answers as they count: a duplicate that the endpoint calls success, a resolver of our own that fails them all."""
    own_fault = health.names_fail_here((claimed.endpoint_id, answer.failure_class) for claimed, answer in finished)
    judged = list[tuple[Claimed, Answer]]()
    for claimed, answer in finished:
        if answer.status == 409 and claimed.duplicate_is_success:
            answer = replace(answer, failure_class=DUPLICATE)
        elif own_fault and answer.failure_class in NAMES:
            error = f"Names cannot be looked up here, at most endpoints: {answer.error}"
            answer = replace(answer, failure_class=SENDER_ERROR, error=error[:ERROR_LIMIT])
        judged.append((claimed, answer))
    return judged


def outcome_of(claimed: Claimed, answer: Answer) -> Outcome:
    if answer.failure_class in SUCCESSES:
        return Outcome(State.DELIVERED)
    pause = retry.pause_after(answer.failure_class, answer.status, answer.retry_after)
    chance = random.random()  # noqa: S311 - spreads load, guards nothing
    delay = retry.delay_after(answer.failure_class, claimed.attempts + 1, chance, pause)
    return Outcome(State.DEAD if delay is None else State.PENDING, delay, pause)


def lock_held(claims: Sequence[Claimed]) -> dict[int | None, bool]:
    """Lock the deliveries that are still under their claim's token; of each, whether another waits behind it.

    The token decides; an expired lease alone does not. A record that comes again, after a COMMIT whose answer was lost,
    finds the lease given back. A later statement than the lanes' lock: whatever was emitted before it is seen.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "held.sql"),
            {
                "deliveries": [claimed.sending.delivery_id for claimed in claims],
                "tokens": [claimed.token for claimed in claims],
            },
        )
        return dict(cursor.fetchall())


def write(written: Sequence[Written]) -> None:
    answers = [answer for _, answer, _ in written]
    parameters: dict[str, Any] = {
        "deliveries": [claimed.sending.delivery_id for claimed, _, _ in written],
        "attempts": [claimed.sending.attempt_id for claimed, _, _ in written],
        "states": [outcome.state for _, _, outcome in written],
        "charges": [int(RULES[answer.failure_class].charged) for answer in answers],
        "delays": [outcome.delay for _, _, outcome in written],
        "statuses": [answer.status for answer in answers],
        "classes": [answer.failure_class for answer in answers],
        "errors": [answer.error for answer in answers],
        "responses": [answer.response for answer in answers],
        "headers": [json.dumps(dict(answer.headers)) for answer in answers],
        "peers": [answer.peer for answer in answers],
        **{
            name: [getattr(answer, name) for answer in answers]
            for name in (
                "milliseconds", "bytes_read", "truncated", "reused", "resent", "dns_ms", "connect_ms", "tls_ms",
                "first_byte_ms",
            )
        },
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "record.sql"), parameters)


def tell(written: Sequence[Written]) -> None:
    for claimed, answer, outcome in written:
        if outcome.state != State.DELIVERED:
            log.warning(
                "delivery is dead" if outcome.state == State.DEAD else "delivery failed",
                event_id=claimed.sending.event_id,
                endpoint=claimed.endpoint_id,
                attempt=claimed.sending.number,
                failure=answer.failure_class,
                error=answer.error,
            )
