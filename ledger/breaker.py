"""Circuit breakers: where too much fails, a run is tripped or a bucket stopped, until a named person has looked.

They count the rows that settlements insert (`OutcomeTally`), so that no settlement waits for another; and they count anew
after somebody has re-armed the run or lifted the bucket's switch.
"""

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from math import inf
from typing import Final

import structlog
from django.db import transaction
from django.db.models import Max, QuerySet, Sum

from cleanup_project.base import alarms, audit, clock
from ledger import notices
from ledger.models import CleanupRun, OutcomeTally
from ledger.runs import TRIPPED, used_revisions
from ledger.states import RunState
from retention import control
from retention.exceptions import RetentionError
from retention.models import Bucket, StopSwitch

BUCKET_MINIMUM: Final = 50  # outcomes within BUCKET_SPAN before a bucket is judged
BUCKET_SPAN: Final = timedelta(minutes=5)
EVERY: Final = 1.0  # seconds between two looks of one process at a bucket; what that leaves out, the sweep looks at
_judged: dict[int, float] = {}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Excess:
    """More than `percent` of at least `minimum` outcomes failed."""

    failed: int
    tried: int
    percent: int
    minimum: int

    def __str__(self) -> str:
        share = 100 * self.failed / self.tried
        return f"{self.failed:,} of {self.tried:,} outcomes failed ({share:.0f} %), more than {self.percent} %."


def judge(bucket_id: int, run_ids: Iterable[int]) -> None:
    """After a settlement in the bucket for these runs; looks again after EVERY seconds at the earliest."""
    now = time.monotonic()
    if now < _judged.get(bucket_id, -inf) + EVERY:
        return
    _judged[bucket_id] = now
    for pk in sorted(run_ids):
        judge_run(pk)
    judge_bucket(bucket_id)


def judge_all() -> int:
    """Judge every run that drains and every bucket; returns how many breakers opened."""
    draining = CleanupRun.objects.filter(state=RunState.DRAINING).order_by("pk").values_list("pk", flat=True)
    buckets = Bucket.objects.filter(breaker_percent__isnull=False).order_by("pk").values_list("pk", flat=True)
    return sum(map(judge_run, list(draining))) + sum(map(judge_bucket, list(buckets)))


def judge_run(run_id: int) -> bool:
    """Trip a draining run of which too much has failed; whether it was."""
    if excess_of_run(CleanupRun.objects.get(pk=run_id)) is None:
        return False
    with transaction.atomic():
        run = CleanupRun.objects.select_for_update(no_key=True).get(pk=run_id)
        excess = excess_of_run(run)  # again under the lock: somebody may have re-armed it meanwhile
        if excess is None:
            return False
        CleanupRun.objects.filter(pk=run.pk).update(state=RunState.TRIPPED)
        control.bump(run.tenant_id)
        audit.record(
            action="run.tripped", subject=run, by=None, reason=str(excess), before={"state": run.state},
            after={"state": RunState.TRIPPED, **asdict(excess)},
        )  # fmt: skip
        advice = "Nothing more of the run is sent. See in quarantine why, repair it, and have the run re-armed."
        alarms.notice(TRIPPED, run, f"{excess} {advice}")
        notices.tell(run.tenant_id, [notices.tripped(run, asdict(excess))])
    log.error("run tripped", run=run.key, **asdict(excess))
    return True


def excess_of_run(run: CleanupRun) -> Excess | None:
    """By the strictest of the revisions that the run carries out; None where it does not drain, or is not over."""
    if run.state != RunState.DRAINING:
        return None
    tallies = OutcomeTally.objects.filter(run=run)
    found = rate(tallies.filter(at__gt=run.rearmed_at) if run.rearmed_at else tallies)
    limits = ((each.breaker_percent, each.breaker_minimum) for each in used_revisions(run))
    return next((excess for limit in limits if (excess := over(found, *limit))), None)


def judge_bucket(bucket_id: int) -> bool:
    """Stop a bucket in which too much has failed lately, as the system; whether it was."""
    bucket = Bucket.objects.get(pk=bucket_id)
    if bucket.breaker_percent is None or StopSwitch.objects.active().filter(bucket=bucket).exists():
        return False
    tallies = OutcomeTally.objects.filter(bucket=bucket, at__gt=counted_since(bucket))
    excess = over(rate(tallies), bucket.breaker_percent, BUCKET_MINIMUM)
    if excess is None:
        return False
    minutes = BUCKET_SPAN // timedelta(minutes=1)
    reason = f"The circuit breaker: within {minutes} minutes, {excess}"
    try:
        with transaction.atomic():
            control.press(scope=StopSwitch.Scope.BUCKET, bucket=bucket, by=None, reason=reason)
            advice = "Nothing more is sent to the bucket. Repair it, and have its stop switch lifted."
            alarms.notice(control.BUCKET_TRIPPED, bucket, f"{excess} {advice}")
    except RetentionError:  # another drain, or a person, was first
        return False
    log.error("bucket stopped", bucket=bucket.name, **asdict(excess))
    return True


def counted_since(bucket: Bucket) -> datetime:
    lifted: datetime | None = StopSwitch.objects.filter(bucket=bucket).aggregate(at=Max("lifted_at"))["at"]
    begun = clock.now() - BUCKET_SPAN
    return max(begun, lifted) if lifted else begun


def rate(tallies: QuerySet[OutcomeTally]) -> tuple[int, int]:
    """(failed, tried)."""
    sums = tallies.aggregate(failed=Sum("failed"), tried=Sum("tried"))
    return sums["failed"] or 0, sums["tried"] or 0


def over(found: tuple[int, int], percent: int | None, minimum: int) -> Excess | None:
    """The excess over a limit; `percent` None: there is no limit."""
    failed, tried = found
    if percent is None or tried < minimum or 100 * failed <= percent * tried:
        return None
    return Excess(failed, tried, percent, minimum)
