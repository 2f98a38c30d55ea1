"""How old the oldest is of whatever waits in the ledger, and how much there is: each read by an index, in bounded time.

`codes` are those of tenants; none: all of them.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from cleanup_project.base import sqlfiles
from ledger.models import CleanupRun
from ledger.states import RUN_OPEN, RunState

RUNS_SHOWN: Final = 8
MISSED_WITHIN: Final = timedelta(hours=24)
PAST_COUNTED: Final = 100_000
QUARANTINE_COUNTED: Final = 10_000


class Eligible(NamedTuple):
    """What is eligible for the longest and not destroyed: a command, or a run whose part of it is not published yet."""

    command_id: int | None
    run_id: int | None
    since: datetime


class Due(NamedTuple):
    command_id: int
    since: datetime


class Waiting(NamedTuple):
    """What is open in quarantine of one failure class: since when the oldest is, and how many."""

    failure_class: str
    since: datetime
    number: int


class Scanned(NamedTuple):
    run_id: int
    at: datetime


class Going(NamedTuple):
    """An open run. `remaining` is None until it is sealed; `total`: how many runs are open."""

    id: int
    key: str
    state: str
    mode: str
    policy: str
    opened_at: datetime
    remaining: int | None
    settled: int
    dead: int
    total: int


def eligible(codes: Sequence[str] = ()) -> Eligible | None:
    """What the last scans found eligible and nobody has destroyed; what is on hold or in quarantine is told of elsewhere.

    What has become eligible since the last scan is in no manifest yet, and so not here.
    """
    found = rows("vital_eligible.sql", codes, open=sorted(RUN_OPEN))
    return Eligible(*found[0]) if found else None


def due(codes: Sequence[str] = ()) -> Due | None:
    found = rows("vital_queue.sql", codes)
    return Due(*found[0]) if found else None


def quarantined(codes: Sequence[str] = (), counted: int = QUARANTINE_COUNTED) -> list[Waiting]:
    """By failure class, all of them; their number is counted up to `counted` of each tenant and class.

    `causes` tells more of them, and of so many causes only as a page can show.
    """
    return [Waiting(*row) for row in rows("vital_quarantine.sql", codes, counted=counted)]


def quarantined_since(codes: Sequence[str] = ()) -> datetime | None:
    return min((each.since for each in quarantined(codes, counted=0)), default=None)


def runs(codes: Sequence[str] = ()) -> list[Going]:
    """The newest RUNS_SHOWN that are open."""
    return [Going(*row) for row in rows("vital_runs.sql", codes, open=sorted(RUN_OPEN), shown=RUNS_SHOWN)]


def approvals(codes: Sequence[str] = ()) -> tuple[int, datetime | None]:
    """How many runs wait for a person's approval, and since when the oldest does."""
    waiting = CleanupRun.objects.filter(state=RunState.NEEDS_APPROVAL).order_by("sealed_at")
    if codes:
        waiting = waiting.filter(tenant__code__in=codes)
    times = list(waiting.values_list("sealed_at", flat=True))  # at most one for each policy
    return len(times), times[0] if times else None


def last_scan(codes: Sequence[str] = ()) -> Scanned | None:
    """The run whose manifest was sealed last, whether or not it destroys anything."""
    sealed = CleanupRun.objects.filter(sealed_at__isnull=False).order_by("-sealed_at")
    if codes:
        sealed = sealed.filter(tenant__code__in=codes)
    return next((Scanned(pk, at) for pk, at in sealed.values_list("pk", "sealed_at")[:1] if at), None)


def remaining(codes: Sequence[str] = ()) -> int:
    """Items of sealed, enforcing runs that are open, without an outcome yet: what is left for the drains to come."""
    ((number,),) = rows("vital_remaining.sql", codes, open=sorted(RUN_OPEN))
    return int(number)


def past(older_than: timedelta, codes: Sequence[str] = ()) -> int:
    """Objects that have been eligible for longer and are still there, counted up to PAST_COUNTED of each tenant and run.

    Ready commands, and items that open runs have not published yet.
    """
    ((number,),) = rows(
        "vital_past.sql", codes, open=sorted(RUN_OPEN), seconds=older_than.total_seconds(), counted=PAST_COUNTED
    )
    return int(number)


def missed(codes: Sequence[str] = ()) -> tuple[int, datetime | None]:
    """How many slots of schedules were missed within MISSED_WITHIN, and the newest of them."""
    ((number, newest),) = rows("vital_slots.sql", codes, since=MISSED_WITHIN.total_seconds())
    return number, newest


def rows(name: str, codes: Sequence[str], **parameters: Any) -> list[tuple[Any, ...]]:
    return sqlfiles.rows(sqlfiles.read(__file__, name), {"codes": list(codes)} | parameters)
