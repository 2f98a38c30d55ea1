"""What attempts show of an endpoint: its circuit, its pace, whether it is to be disabled. Sole writer of these columns.

Everything is judged from finished attempts under the endpoint's lock, not from counters: whoever comes late, or twice,
judges the same. The time is the database's.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import connection, transaction
from django.db.models import F, Q
from django.db.models.functions import Greatest, Now

from cleanup_project.base import alarms, audit, clock, sqlfiles
from cleanup_project.base.models import Alarm, AuditEvent
from webhooks import outbox
from webhooks.failures import FAILURES, NAMES, RULES, SENDER_ERROR, SUCCESSES, Health
from webhooks.limits import IN_FLIGHT, LEASE
from webhooks.models import DeliveryAttempt, Endpoint

log = structlog.get_logger(__name__)

ANSWERS: Final = 200  # the newest, from which health is judged
OPENS_AFTER: Final = 5  # failures one after another
WINDOW: Final = 20  # or half of so many answers, once there are enough within the time
WINDOW_TIME: Final = timedelta(minutes=10)
ENOUGH: Final = 10
STEPS: Final = (30, 60, 300, 900, 3600)  # seconds that the circuit stays open, time after time
JITTER: Final = 0.15
CUT_EVERY: Final = timedelta(seconds=1)

# What stands for the whole endpoint: five such answers in a row, and it is left alone for a while.
REFUSALS: Final = {"gone": timedelta(minutes=5), "blocked": timedelta(minutes=30)}
GONE_APART: Final = timedelta(minutes=5)
BLOCKED_CHECKS: Final = 3
BLOCKED_APART: Final = timedelta(hours=1)
FAILING_FOR: Final = timedelta(hours=120)
FAILED_ATTEMPTS: Final = 20
FAILED_DELIVERIES: Final = 10
WARN_AFTER: Final = tuple(timedelta(hours=hours) for hours in (72, 24, 1))

JUDGED: Final = ("failing_since", "circuit_step", "open_until", "concurrency", "concurrency_cut_at")
FAILING: Final = "webhooks.failing"
DISABLED: Final = "webhooks.disabled"
BLOCKED: Final = "webhooks.blocked"
SENDER: Final = "webhooks.sender"
ABOUT_AN_ENDPOINT: Final = (FAILING, DISABLED, BLOCKED)
QUIET: Final = timedelta(minutes=3)  # without a fault of our own, before its alarm is over


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer that has been recorded; `pause` is how long the endpoint is to be left alone, in seconds.

    `is_unwell`: when it was claimed, the endpoint was failing, or slower than it could be.
    """

    endpoint_id: int
    failure_class: str
    is_probe: bool = False
    is_unwell: bool = True
    pause: float | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """One finished attempt."""

    failure_class: str
    at: datetime
    delivery_id: int
    is_probe: bool
    status: int | None
    error: str

    @property
    def health(self) -> Health:
        return RULES[self.failure_class].health


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why an endpoint is disabled: a rule's code, and words."""

    rule: str
    reason: str


def note(heard: Sequence[Heard]) -> None:
    """Draw conclusions from answers that have just been recorded, in one short transaction for each endpoint concerned.

    Where all is well and was well when it was claimed, nothing is looked at. What began to fail meanwhile is found by the
    next answer, or by the review.
    """
    of = defaultdict[int, list[Heard]](list)
    for each in heard:
        of[each.endpoint_id].append(each)
    concerned = {each.endpoint_id for each in heard if each.is_unwell or each.failure_class not in SUCCESSES}
    for endpoint_id in sorted(concerned):
        weigh(endpoint_id, of[endpoint_id])


def review() -> int:
    """Judge anew every endpoint that is failing, since time alone brings warnings and the end; returns how many."""
    failing = Endpoint.objects.enabled().exclude(failing_since=None).order_by("pk")
    found = list(failing.values_list("pk", flat=True))
    for endpoint_id in found:
        weigh(endpoint_id, [])
    Alarm.objects.open().filter(kind=SENDER, noticed_at__lt=Now() - QUIET).update(cleared_at=Now())
    return len(found)


def weigh(endpoint_id: int, heard: Sequence[Heard]) -> None:
    with transaction.atomic(durable=True):
        endpoint = Endpoint.objects.select_for_update(no_key=True).get(pk=endpoint_id)
        if endpoint.disabled_at is not None:
            return
        # A later statement than the lock: what others recorded before they let go of it is seen.
        past, now = newest(endpoint_id), clock.now()
        was_failing, before = endpoint.failing_since is not None, judged(endpoint)
        endpoint.failing_since = failing_since(endpoint.failing_since, past)
        endpoint.circuit_step, endpoint.open_until = circuit(endpoint, heard, past, now)
        endpoint.concurrency, endpoint.concurrency_cut_at = pace(endpoint, heard, now)
        if judged(endpoint) != before:
            endpoint.save(update_fields=JUDGED)
        leave_alone(endpoint_id, heard, past)
        if was_failing and endpoint.failing_since is None:
            alarms.clear(FAILING, endpoint)
        verdict = verdict_on(endpoint, past, now)
        if verdict is not None:
            disable(endpoint, verdict, now)
        elif endpoint.failing_since is not None:
            warn(endpoint, endpoint.failing_since, past, now)


def judged(endpoint: Endpoint) -> list[object]:
    return [getattr(endpoint, name) for name in JUDGED]


def newest(endpoint_id: int) -> list[Past]:
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "answers.sql"), {"endpoint": endpoint_id, "limit": ANSWERS})
        return [Past(*row) for row in cursor.fetchall()]


def failing_since(known: datetime | None, past: Sequence[Past]) -> datetime | None:
    """The first failure after the last success; `known` counts where the last success is further back than `past`."""
    succeeded = next((each.at for each in past if each.health is Health.SUCCESS), None)
    failed = [each.at for each in past if each.health is Health.FAILURE and (succeeded is None or each.at > succeeded)]
    if succeeded is None and known is not None:
        failed.append(known)
    return min(failed, default=None)


def circuit(
    endpoint: Endpoint, heard: Sequence[Heard], past: Sequence[Past], now: datetime
) -> tuple[int, datetime | None]:
    """The circuit's step, and until when it is open. Open, it listens to its probe alone: the rest was sent before."""
    step = endpoint.circuit_step
    if step == 0:
        failed = any(each.failure_class in FAILURES for each in heard)
        return (1, now + interval(1)) if failed and is_down(past, now) else (0, None)
    probe = next((each for each in heard if each.is_probe), None)
    if probe is None:
        return step, endpoint.open_until
    if probe.failure_class in FAILURES:
        return step + 1, now + interval(step + 1)
    if probe.failure_class in ("blocked", SENDER_ERROR):  # nothing reached it
        return step, now + interval(step)
    return 0, None


def interval(step: int) -> timedelta:
    seconds = STEPS[min(step, len(STEPS)) - 1]
    return timedelta(seconds=seconds * (1 + JITTER * random.random()))  # noqa: S311 - spreads load, guards nothing


def is_down(past: Sequence[Past], now: datetime) -> bool:
    """Whether enough has failed since the circuit was last closed."""
    seen = []
    for each in past:
        if each.health is not Health.NONE:
            seen.append(each)
        if (each.is_probe and each.health is not Health.FAILURE) or len(seen) == WINDOW:
            break
    if len(seen) >= OPENS_AFTER and all(each.health is Health.FAILURE for each in seen[:OPENS_AFTER]):
        return True
    recent = [each for each in seen if each.at > now - WINDOW_TIME]
    return len(recent) >= ENOUGH and 2 * sum(each.health is Health.FAILURE for each in recent) >= len(recent)


def pace(endpoint: Endpoint, heard: Sequence[Heard], now: datetime) -> tuple[int, datetime | None]:
    """How many may be in flight, and when that was last halved: at most once a second, or every worker would halve it."""
    cut_at = endpoint.concurrency_cut_at
    if any(each.failure_class == "throttled" for each in heard):
        if cut_at is None or cut_at < now - CUT_EVERY:
            return max(1, endpoint.concurrency // 2), now
    elif any(each.failure_class in SUCCESSES for each in heard):
        return min(IN_FLIGHT, endpoint.concurrency + 1), cut_at
    return endpoint.concurrency, cut_at


def leave_alone(endpoint_id: int, heard: Sequence[Heard], past: Sequence[Past]) -> None:
    """Pause the endpoint for as long as it asked for, whoever else paused it for less."""
    pause = timedelta(seconds=max((each.pause or 0 for each in heard), default=0))
    if heard and len(past) >= OPENS_AFTER and len({each.failure_class for each in past[:OPENS_AFTER]}) == 1:
        pause = max(pause, REFUSALS.get(past[0].failure_class, timedelta()))
    if pause:
        Endpoint.objects.filter(pk=endpoint_id).update(paused_until=Greatest(F("paused_until"), Now() + pause))


def verdict_on(endpoint: Endpoint, past: Sequence[Past], now: datetime) -> Verdict | None:
    """Whether the endpoint is to be disabled. One event that nobody can take is never a reason, while others get through."""
    succeeded = next((each.at for each in past if each.health is Health.SUCCESS), None)
    since = [each for each in past if succeeded is None or each.at > succeeded]
    troubled_before = {each.delivery_id for each in past if succeeded is not None and each.at <= succeeded}
    gone = [each.at for each in since if each.failure_class == "gone" and each.delivery_id not in troubled_before]
    if gone and gone[0] - gone[-1] >= GONE_APART:
        return Verdict("gone", "It answered 410 Gone, and again five minutes later. Correct its URL, or retire it.")
    blocked = [each for each in since if each.failure_class == "blocked"]
    if len(blocked) >= BLOCKED_CHECKS and blocked[0].at - blocked[-1].at >= BLOCKED_APART:
        return Verdict(
            "blocked",
            f"Its URL leads where nothing may be sent, at {len(blocked)} checks within an hour and more: {blocked[0].error} "
            "Find out why before anything else: somebody may be trying to reach your own network.",
        )
    due = disable_due_at(endpoint)
    if due is None or due > now:
        return None
    attempts, deliveries = failed_since(endpoint)
    if attempts < FAILED_ATTEMPTS or deliveries < FAILED_DELIVERIES:
        return None
    return Verdict(
        "failing",
        f"Nothing got through since {endpoint.failing_since:%Y-%m-%d %H:%M} UTC: {attempts} attempts of {deliveries} "
        f"deliveries failed. The last answer: {told(past)}",
    )


def disable_due_at(endpoint: Endpoint) -> datetime | None:
    """When the endpoint will be disabled unless it answers; None: it is not failing, or disabled already.

    Only if, by then, 20 attempts of 10 deliveries have failed; else once they have.
    """
    if endpoint.failing_since is None or endpoint.disabled_at is not None:
        return None
    return endpoint.failing_since + FAILING_FOR


def failed_since(endpoint: Endpoint) -> tuple[int, int]:
    """(attempts, distinct deliveries) that failed since the endpoint began to; enough of them, where there are many."""
    failed = DeliveryAttempt.objects.filter(
        endpoint=endpoint, finished_at__gte=endpoint.failing_since, failure_class__in=FAILURES
    )
    deliveries = list(failed.order_by("-finished_at").values_list("delivery_id", flat=True)[:10_000])
    return len(deliveries), len(set(deliveries))


def told(past: Sequence[Past]) -> str:
    last = next((each for each in past if each.health is Health.FAILURE), None)
    return f"{RULES[last.failure_class].meaning} {last.error}".strip() if last else "none."


def warn(endpoint: Endpoint, since: datetime, past: Sequence[Past], now: datetime) -> None:
    """One alarm that says anew, after an hour, a day and three days, what is so and what will be."""
    stage = next((each for each in WARN_AFTER if now - since >= each), None)
    if stage is None:
        return
    alarms.notice(
        FAILING,
        endpoint,
        f"Nothing has got through for more than {stage.total_seconds() / 3600:.0f} h, since {since:%Y-%m-%d %H:%M} UTC. "
        f"The last answer: {told(past)} Its events wait. It will be disabled at {since + FAILING_FOR:%Y-%m-%d %H:%M} UTC, "
        f"or once {FAILED_ATTEMPTS} attempts of {FAILED_DELIVERIES} deliveries have failed, if that is later.",
    )


def disable(endpoint: Endpoint, verdict: Verdict, now: datetime) -> None:
    """What the rules do; people do it in `endpoints`. Under the endpoint's lock, in the caller's transaction."""
    Endpoint.objects.filter(pk=endpoint.pk).update(
        disabled_at=Now(), disabled_by=None, disabled_reason=verdict.reason, resumed_at=None
    )
    record = audit.record(
        action="endpoint.disabled", subject=endpoint, by=None, reason=verdict.reason, after={"rule": verdict.rule}
    )
    alarms.clear(FAILING, endpoint)
    alarms.notice(
        BLOCKED if verdict.rule == "blocked" else DISABLED,
        endpoint,
        f"It was disabled by itself; its events are held. {verdict.reason}",
    )
    tell_disabled(endpoint, verdict.rule, record, now)
    log.error("endpoint was disabled", endpoint=endpoint.pk, rule=verdict.rule, reason=verdict.reason)


def tell_disabled(endpoint: Endpoint, rule: str, record: AuditEvent, now: datetime) -> None:
    """Say so to whoever subscribes to it, in the caller's transaction, after its other locks."""
    subject = f"endpoint:{endpoint.pk}"
    # No words: they may name another receiver's host.
    data = {"endpoint_id": endpoint.pk, "rule": rule}
    notice = outbox.Notice(
        type="endpoint.disabled", subject=subject, name=subject, occurrence=str(record.pk), data=data
    )
    outbox.emit(endpoint.tenant, [notice], at=now)


def reset(endpoint_id: int) -> None:
    """Begin anew, once a person has seen to it: closed, at full pace, without alarms. In the caller's transaction."""
    Endpoint.objects.filter(pk=endpoint_id).update(
        failing_since=None, circuit_step=0, open_until=None, paused_until=None, concurrency=IN_FLIGHT,
        concurrency_cut_at=None,
    )  # fmt: skip
    about = Q(kind__in=ABOUT_AN_ENDPOINT, subject_type=Endpoint._meta.label_lower, subject_id=str(endpoint_id))
    Alarm.objects.open().filter(about).update(cleared_at=Now())


def probing(endpoint_id: int) -> None:
    """A probe is on its way. Should it never come back, the next one goes when its lease has ended."""
    Endpoint.objects.filter(pk=endpoint_id).update(open_until=Now() + timedelta(seconds=LEASE))


def wait_for_us(endpoint_id: int) -> None:
    """Nothing can be sent to it for a fault of ours: look again after a while, and not at once."""
    pause = timedelta(seconds=RULES[SENDER_ERROR].pause or 0)
    Endpoint.objects.filter(pk=endpoint_id).update(paused_until=Greatest(F("paused_until"), Now() + pause))


def caught_up(endpoint_id: int) -> None:
    Endpoint.objects.filter(pk=endpoint_id).update(resumed_at=None)


def names_fail_here(answered: Iterable[tuple[int, str]]) -> bool:
    """Whether names fail at more than half of three or more endpoints within a minute: then it is our own resolver.

    `answered`: (endpoint, class) of answers that are not recorded yet. Only asked where one of them is about a name.
    """
    answered = list(answered)
    if not any(failure_class in NAMES for _, failure_class in answered):
        return False
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "names.sql"))
        last = dict(cursor.fetchall()) | dict(answered)
    failing = sum(failure_class in NAMES or failure_class == SENDER_ERROR for failure_class in last.values())
    return len(last) >= 3 and 2 * failing > len(last)


def sender_trouble(endpoint_id: int, words: str) -> None:
    """One alarm for all that our own fault stops; it is over when nothing has been heard of it for a while."""
    open_one = Alarm.objects.open().filter(kind=SENDER).first()
    subject = Endpoint.objects.get(pk=open_one.subject_id if open_one else endpoint_id)
    alarms.notice(SENDER, subject, f"Webhooks cannot be sent, and nobody is charged for it: {words}")
