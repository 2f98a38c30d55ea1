"""After a hold is placed: what may still be executed although it is in force, and the commands that waited are held.

The hold is in force before any of this (`retention.holds.place`); a claim that began earlier may have missed it.
"""

import time
from typing import Final

import structlog
from django.db import OperationalError, connection, transaction
from django.db.models import Count, Q
from django.db.models.functions import Now
from psycopg.errors import LockNotAvailable

from cleanup_project.base import audit, clock, limits, sqlfiles, tenancy
from cleanup_project.base.models import User
from cleanup_project.base.paginator import limited
from ledger.exceptions import LedgerError, NotPermitted
from ledger.models import HoldReport, InFlight
from retention import holds
from retention.models import LegalHold

CHUNK: Final = 1000
COUNTED_AT_MOST: Final = 10_000
COUNT_MS: Final = 2_000
REST: Final = 4  # how long marking rests for each second of its work
BARRIER_SECONDS: Final = 2  # how long one try for the barrier makes later claims queue behind it

log = structlog.get_logger(__name__)


def placed(hold_id: int) -> HoldReport:
    """Report what is in flight, and hold what waits; may be called again wherever it stopped."""
    made = report(hold_id)
    if made.marked_at is None:
        mark(made)
    ended()
    return made


def report(hold_id: int, *, patience_seconds: float = limits.DRAIN_BUDGET) -> HoldReport:
    """The hold's report; written, if there is none, once every claim that may have missed the hold has ended.

    Raises OperationalError where the barrier is not granted in so many seconds: the sweep asks again.
    """
    until = time.monotonic() + patience_seconds
    while True:
        try:
            return report_behind_barrier(hold_id)
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable) or time.monotonic() >= until:
                raise
            log.info("the barrier of a hold waits for claims", hold=hold_id)


def report_behind_barrier(hold_id: int) -> HoldReport:
    tenant_id = LegalHold.objects.values_list("tenant_id", flat=True).get(pk=hold_id)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{BARRIER_SECONDS}s"])
        # Claims hold this lock, shared, from before they look for holds until they commit.
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [holds.LOCK_CLASS, tenant_id])
        made = HoldReport.objects.filter(pk=hold_id).first()
        if made is not None:
            return made
        cursor.execute(sqlfiles.read(__file__, "hold_in_flight.sql"), {"hold": hold_id})
        under_way = cursor.fetchall()
        now = clock.now()
        made = HoldReport.objects.create(hold_id=hold_id, reported_at=now, in_flight=len(under_way))
        InFlight.objects.bulk_create(
            [InFlight(report=made, command_id=pk, token=token, reported_at=now) for pk, token in under_way], CHUNK
        )
    log.info("hold reported", hold=hold_id, in_flight=made.in_flight)
    return made


def waiting(hold_id: int) -> list[int]:
    """The commands that a hold covers and nobody has, by id."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "hold_covers.sql"), {"hold": hold_id})
        return [row[0] for row in cursor.fetchall()]


def mark(made: HoldReport, *, budget_seconds: float = limits.DRAIN_BUDGET) -> int:
    """Hold the covered commands that nobody has, in chunks; returns how many. The others are found by their claim.

    The hold is in force already, so this gives way to drains: it rests four times as long as it works, which leaves them
    nine tenths of their pace. What is left after so many seconds, the sweep has gone on with.
    """
    until = time.monotonic() + budget_seconds
    found = waiting(made.hold_id)
    marked = 0
    for start in range(0, len(found), CHUNK):
        began = time.monotonic()
        if began >= until:
            return marked
        with transaction.atomic(), connection.cursor() as cursor:
            ids = found[start : start + CHUNK]
            cursor.execute(sqlfiles.read(__file__, "hold_waiting.sql"), {"hold": made.hold_id, "ids": ids})
            marked += cursor.fetchone()[0]
        time.sleep(REST * (time.monotonic() - began))
    HoldReport.objects.filter(pk=made.pk, marked_at=None).update(marked_at=Now())
    log.info("commands held", hold=made.hold_id, commands=marked)
    return marked


def ended() -> int:
    """Close what was in flight and is settled by now; returns how many."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "in_flight_ended.sql"))
        closed: int = cursor.rowcount
        return closed


def is_for(user: User, report: HoldReport) -> bool:
    """Whoever placed the hold reads its report; of one that a program placed, whoever might have."""
    placed = report.hold.placed_by
    if placed.is_program:
        return not user.is_program and user.has_perm("base.place_hold")
    return placed == user


def acknowledge(*, report: HoldReport, by: User) -> HoldReport:
    """Whoever the report is for has read how all that was in flight ended. Raises NotPermitted, LedgerError."""
    tenancy.permit(by, report.hold, NotPermitted)
    if not is_for(by, report):
        raise NotPermitted(f"The report is for {report.hold.placed_by}, who placed the hold.")
    with transaction.atomic():
        if report.commands.filter(ended_at=None).exists():
            raise LedgerError("Not all that was in flight has ended: acknowledge the report when it has.")
        if not HoldReport.objects.filter(pk=report.pk, acknowledged_at=None).update(acknowledged_at=Now()):
            raise LedgerError("The report is acknowledged already.")
        audit.record(action="hold.report_acknowledged", subject=report.hold, by=by, after={"in_flight": told(report)})
    report.refresh_from_db()
    return report


def told(report: HoldReport) -> str:
    """The report in one line: how much was in flight, and how it ended."""
    if not report.in_flight:
        return "Nothing was in flight."
    counted = report.commands.values_list("ended_as").annotate(number=Count("pk")).order_by("ended_as")
    ends = ", ".join(f"{number:,} {outcome.replace('_', ' ') or 'not known yet'}" for outcome, number in counted)
    return f"{report.in_flight:,} in flight: {ends}."


def unreported() -> list[int]:
    """Holds in force whose report, or whose marking, is still to come."""
    waiting = LegalHold.objects.in_force().filter(Q(report=None) | Q(report__marked_at=None))
    return list(waiting.order_by("pk").values_list("pk", flat=True))


def would_cover(hold: LegalHold) -> tuple[int, int]:
    """(waiting, under way): commands that a hold which is not placed yet would cover; of more than COUNTED_AT_MOST, a part.

    Raises OperationalError where they are too many to count within COUNT_MS.
    """
    with transaction.atomic(), limited(COUNT_MS), connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "scope_covers.sql"),
            {
                "tenant": hold.tenant_id,
                "buckets": hold.bucket_ids,
                "prefixes": hold.prefixes,
                "classes": hold.retention_classes,
                "stored_from": hold.stored_from,
                "stored_to": hold.stored_to,
                "limit": COUNTED_AT_MOST + 1,
            },
        )
        waiting, under_way = cursor.fetchone()
        return waiting, under_way
