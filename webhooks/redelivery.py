"""Sending again, because a person asked for it: the same event, so the same id and the same bytes, in a later round.

A redelivery is a row of its own in no lane: it neither waits for what is due of its subject nor holds it up. One at a time
is on its way for an event and an endpoint. What is pending anyway gets no second row, but is sent sooner.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models import OuterRef, QuerySet, Subquery

from cleanup_project.base import audit, jobs, paginator, queue, sqlfiles, tenancy
from cleanup_project.base.canonical import instant
from cleanup_project.base.jobs import Outcome
from cleanup_project.base.models import BulkJob, User
from webhooks import lanes
from webhooks.exceptions import WebhooksError
from webhooks.models import Delivery, Endpoint

KIND: Final = "redelivery"
RIGHT: Final = "base.operate"
COUNT_BUDGET_MS: Final = 5000
State = Delivery.State

# Outcomes; those in REFUSED left everything as it was.
SENT_AGAIN: Final = "sent_again"
BROUGHT_FORWARD: Final = "brought_forward"
HELD: Final = "held"
ON_ITS_WAY: Final = "on_its_way"
WAITS: Final = "waits"
RETIRED: Final = "retired"
NOT_OWED: Final = "not_owed"
UNKNOWN: Final = "unknown"
REFUSED: Final = frozenset({ON_ITS_WAY, WAITS, RETIRED, NOT_OWED, UNKNOWN})

# What may be chosen; held is pending at an endpoint that is disabled.
STATES: Final = ("dead", "delivered", "held", "pending")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Deliveries by their ids, or the last round of each event at each endpoint that fulfils everything named here.

    `since` and `until` bound when the event was emitted, half open.
    """

    ids: Sequence[int] = ()
    state: str = ""
    endpoint_id: int | None = None
    event_type: str = ""
    failure_class: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def rows(self) -> QuerySet[Delivery]:
        """Raises WebhooksError where neither ids nor a state is named: nothing named never means everything."""
        if self.ids:
            return Delivery.objects.filter(pk__in=self.ids)
        if self.state not in STATES:
            raise WebhooksError("Choose which deliveries: dead, delivered, held or pending ones.")
        later = Delivery.objects.filter(
            event=OuterRef("event"), endpoint=OuterRef("endpoint"), round__gt=OuterRef("round")
        )
        state = State.PENDING if self.state == HELD else self.state
        # Ordered, it probes the index for each row; NOT EXISTS becomes a join, which took minutes where statistics were old.
        probe = Subquery(later.order_by("round").values("pk")[:1])
        rows = Delivery.objects.alias(later=probe).filter(later=None, state=state)
        if self.state == HELD:
            rows = rows.filter(endpoint__disabled_at__isnull=False)
        named = {
            "endpoint": self.endpoint_id,
            "event__type": self.event_type,
            "last_class": self.failure_class,
            "event__emitted_at__gte": self.since,
            "event__emitted_at__lt": self.until,
        }
        return rows.filter(**{name: value for name, value in named.items() if value not in (None, "")})

    def words(self) -> str:
        """What is chosen, for the record and for people."""
        if self.ids:
            return "chosen one by one"
        told = [f"{self.state} deliveries"]
        if self.endpoint_id is not None:
            told.append(f"to {Endpoint.objects.get(pk=self.endpoint_id)}")
        if self.event_type:
            told.append(f"of {self.event_type}")
        if self.failure_class:
            told.append(f"that failed last as {self.failure_class}")
        if self.since:
            told.append(f"emitted from {instant(self.since)}")
        if self.until:
            told.append(f"emitted before {instant(self.until)}")
        return ", ".join(told)


class Counted(NamedTuple):
    """How many deliveries are chosen, by (endpoint, state); `whole` where none was left uncounted."""

    by_place: list[tuple[Endpoint, str, int]]
    total: int
    whole: bool


def count(chosen: Chosen, *, by: User) -> Counted:
    """Count what is chosen of this person's tenants, up to one job's worth. Raises WebhooksError where nothing is named."""
    rows = tenancy.scoped(chosen.rows(), by, "tenant")
    sql, parameters = rows.order_by().values_list("endpoint_id", "state").query.sql_with_params()
    with transaction.atomic(), paginator.limited(COUNT_BUDGET_MS), connection.cursor() as cursor:
        cursor.execute(
            f"SELECT endpoint_id, state, count(*) FROM ({sql} LIMIT %s) AS chosen (endpoint_id, state) "  # noqa: S608
            "GROUP BY endpoint_id, state ORDER BY endpoint_id, state",
            [*parameters, jobs.MOST + 1],
        )
        found = cursor.fetchall()
    endpoints = Endpoint.objects.in_bulk([endpoint for endpoint, _, _ in found])
    total = sum(number for *_, number in found)
    return Counted([(endpoints[one], state, number) for one, state, number in found], total, total <= jobs.MOST)


def redeliver(*, delivery: Delivery, by: User, reason: str) -> tuple[Delivery, Outcome]:
    """Send one delivery again, or sooner; returns what is on its way now, and what was done.

    Raises WebhooksError where nothing was: it is on its way, or waits behind an earlier event, or is owed to nobody.
    """
    if not by.has_perm(RIGHT):
        raise WebhooksError(f"{by} may not redeliver: that needs the role Operator or Compliance.")
    tenancy.permit(by, delivery, WebhooksError)
    if not reason.strip():
        raise WebhooksError("State a reason for sending it again.")
    with transaction.atomic():
        ((outcome, row),) = send_again([delivery.pk], by).values()
        if outcome.code in REFUSED:
            raise WebhooksError(outcome.words)
        audit.record(
            action="delivery.redelivered", subject=delivery, by=by, reason=reason,
            after={"outcome": outcome.code, "delivery": row},
        )  # fmt: skip
    return Delivery.objects.select_related("event", "endpoint").get(pk=row), outcome


def redeliver_all(
    *, chosen: Chosen, expected: int, token: UUID, by: User, reason: str, rate: int = jobs.RATE
) -> BulkJob:
    """A bulk job that sends all of the chosen again; `expected` is how many the person saw. As `jobs.create`."""
    order = jobs.Order(chosen.rows(), chosen.words(), expected, reason, token, rate)
    return jobs.create(KIND, order, by=by)


def carry_out(ids: Sequence[int], by: User, reason: str) -> dict[int, Outcome]:
    """What a job does to its next deliveries."""
    return {each: outcome for each, (outcome, _) in send_again(ids, by).items()}


class Facts(NamedTuple):
    """A chosen delivery, as redelivery_facts.sql finds it."""

    id: int
    event: int
    endpoint: int
    state: str
    cancel_reason: str
    is_behind: bool
    is_later: bool
    is_leased: bool
    is_retired: bool
    disabled: str
    last_round: int
    is_again: bool

    @property
    def pair(self) -> tuple[int, int]:
        return self.event, self.endpoint


def send_again(ids: Sequence[int], by: User) -> dict[int, tuple[Outcome, int]]:
    """What is done about each, and the delivery that is then on its way. In the caller's transaction; locks in order."""
    waiting = Delivery.objects.filter(pk__in=ids, state=State.PENDING)
    # Before their deliveries, as whoever records or cancels: their end promotes what is chosen here.
    lanes.lock(waiting.values_list("lane_id", flat=True))
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "redelivery_lock.sql"), {"ids": list(ids)})
        # A later statement than the lock's: the rounds that were made meanwhile are seen.
        cursor.execute(sqlfiles.read(__file__, "redelivery_facts.sql"), {"ids": list(ids)})
        found = [Facts(*row) for row in cursor.fetchall()]
    told = {each: (Outcome(UNKNOWN, "There is no such delivery."), each) for each in ids}
    told |= {each.id: (refused, each.id) for each in found if (refused := refusal(each)) is not None}
    open_to = [each for each in found if refusal(each) is None]
    made = make_rounds({each.pair: each for each in open_to if each.state != State.PENDING}, by)
    sooner = [each.id for each in open_to if each.state == State.PENDING]
    bring_forward(sooner)
    # Two rounds of one pair may both be chosen: the first makes the new one.
    taken = set[tuple[int, int]]()
    for each in open_to:
        if each.pair in taken:
            told[each.id] = (
                Outcome(ON_ITS_WAY, f"It is on its way already, as delivery {made[each.pair]}."),
                made[each.pair],
            )
            continue
        taken.add(each.pair)
        told[each.id] = outcome_of(each, made.get(each.pair)), made.get(each.pair, each.id)
    if any(not each.disabled for each in open_to):
        queue.wake("webhooks.tasks.dispatch")
    return told


def refusal(each: Facts) -> Outcome | None:
    """Why nothing can be done about it, or needs to be."""
    if each.is_retired:
        return Outcome(RETIRED, "Its endpoint is retired, and is sent nothing more.")
    if each.state == State.CANCELLED:
        return Outcome(NOT_OWED, f"It was cancelled: {each.cancel_reason}")
    if each.state != State.PENDING:
        return Outcome(ON_ITS_WAY, "A redelivery of it is on its way already.") if each.is_again else None
    if each.is_behind:
        return Outcome(WAITS, "It waits behind an earlier event of its subject.")
    if each.is_leased:
        return Outcome(ON_ITS_WAY, "It is being sent right now.")
    return None if each.is_later or each.disabled else Outcome(ON_ITS_WAY, "It is due already.")


def outcome_of(each: Facts, made: int | None) -> Outcome:
    what = f"Redelivery {each.last_round + 1}, delivery {made}," if made else "It"
    if each.disabled:
        return Outcome(HELD, f"{what} is held until its endpoint is enabled: {each.disabled}")
    return Outcome(SENT_AGAIN, f"{what} is due now.") if made else Outcome(BROUGHT_FORWARD, "It is due now.")


def make_rounds(wanted: dict[tuple[int, int], Facts], by: User) -> dict[tuple[int, int], int]:
    """The next round of each (event, endpoint), due now; returns the new deliveries."""
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "redelivery.sql"),
            {
                "ids": [each.id for each in wanted.values()],
                "rounds": [each.last_round + 1 for each in wanted.values()],
                "by": by.pk,
            },
        )
        return {(event, endpoint): delivery for delivery, event, endpoint in cursor.fetchall()}


def bring_forward(ids: Sequence[int]) -> None:
    """Only what has a time is moved: the first of its lane. What waits at infinity is promoted by its predecessor's end."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE webhooks_delivery SET due_at = now() WHERE id = ANY(%s::bigint[]) "
            "AND state = 'pending' AND due_at <> 'infinity' AND due_at > now()",
            [list(ids)],
        )


jobs.register(KIND, carry_out, "Redelivery", RIGHT, Delivery, {SENT_AGAIN, BROUGHT_FORWARD, HELD}, "tenant")
