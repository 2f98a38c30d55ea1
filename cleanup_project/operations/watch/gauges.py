"""What is so now, as metrics: the same reads as the dashboard's, of all tenants together, each in bounded time."""

import math
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from django.db.models import Count, Max, Min

from cleanup_project.base import clock, heartbeats, queue, rollups
from cleanup_project.base.models import Alarm, Heartbeat, RollupMark
from cleanup_project.operations.watch import snapshots, telling
from cleanup_project.operations.watch.deadlines import OVERDUE
from cleanup_project.operations.watch.samples import Sample
from ledger import rollups as of_ledger_rollups
from ledger import schedule
from ledger import vitals as of_ledger
from ledger.models import CleanupRun
from ledger.states import RUN_OPEN, RunState
from retention import vitals as of_retention
from webhooks import metrics
from webhooks import vitals as of_webhooks

ENDPOINTS: Final = 100  # in trouble, named by their number


def age(since: datetime | None, now: datetime) -> float:
    """In seconds; 0 where nothing waits."""
    return max((now - since).total_seconds(), 0.0) if since else 0.0


def ledger(now: datetime) -> Iterator[Sample]:
    eligible, due = of_ledger.eligible(), of_ledger.due()
    _number, approvals = of_ledger.approvals()
    yield Sample("cleanup_oldest_eligible_age_seconds", age(eligible.since if eligible else None, now))
    yield Sample("cleanup_queue_age_seconds", age(due.since if due else None, now))
    yield Sample("cleanup_approval_oldest_age_seconds", age(approvals, now))
    opened = dict(CleanupRun.objects.open().order_by().values_list("state").annotate(Count("pk")))
    for state in sorted(RUN_OPEN):
        yield Sample("cleanup_runs_open", opened.get(state, 0), {"state": state})


def backlog(now: datetime) -> Iterator[Sample]:
    """How much there is: what is counted takes the longer the more it is, and may be given up without the ages."""
    yield Sample("cleanup_objects_past_deadline", of_ledger.past(OVERDUE["oldest-eligible"]))
    yield Sample("cleanup_run_items_remaining", of_ledger.remaining())
    for each in of_ledger.quarantined():
        yield Sample("cleanup_quarantine_entries", each.number, {"class": each.failure_class})


def quarantine(now: datetime) -> Iterator[Sample]:
    for each in of_ledger.quarantined(counted=0):
        yield Sample("cleanup_quarantine_oldest_age_seconds", age(each.since, now), {"class": each.failure_class})


def schedules(now: datetime) -> Iterator[Sample]:
    late, last = schedule.unanswered(), of_ledger.last_scan()
    missed, _newest = of_ledger.missed()
    scanning = CleanupRun.objects.filter(state=RunState.SCANNING).aggregate(at=Min("opened_at"))["at"]
    yield Sample("cleanup_schedule_overdue_seconds", age(late.since if late else None, now))
    yield Sample("cleanup_schedule_missed_slots", missed)
    yield Sample("cleanup_scan_oldest_age_seconds", age(scanning, now))
    if last is not None:
        yield Sample("cleanup_last_scan_age_seconds", age(last.at, now))


def catalogue(now: datetime) -> Iterator[Sample]:
    oldest = of_retention.oldest_listing()
    if oldest is not None:
        yield Sample("cleanup_catalogue_age_seconds", age(oldest.at, now) if oldest.at else math.inf)
        yield Sample("cleanup_catalogue_age_limit_seconds", timedelta(hours=oldest.limit).total_seconds())


def stops(now: datetime) -> Iterator[Sample]:
    times = list(of_retention.switches().values_list("pressed_at", flat=True))
    yield Sample("cleanup_stop_switches", len(times))
    yield Sample("cleanup_stop_oldest_age_seconds", age(min(times, default=None), now))


def workers(now: datetime) -> Iterator[Sample]:
    for each in heartbeats.served(queue.all_keys()):
        yield Sample("cleanup_worker_clusters", each.clusters, {"queue": each.queue})
        if each.seen_at is not None:
            yield Sample("cleanup_worker_seen_age_seconds", age(each.seen_at, now), {"queue": each.queue})
    again = Heartbeat.objects.filter(restarts__gt=0).aggregate(at=Max("started_at"))["at"]
    yield Sample("cleanup_worker_restart_age_seconds", age(again, now) if again else math.inf)
    ticked = Heartbeat.objects.aggregate(at=Max("last_tick_at"))["at"]
    if ticked is not None:
        yield Sample("cleanup_last_tick_age_seconds", age(ticked, now))


def database(now: datetime) -> Iterator[Sample]:
    oldest = snapshots.oldest()
    if oldest.seen:
        yield Sample("cleanup_oldest_snapshot_age_seconds", age(oldest.since, now))


def alarms(now: datetime) -> Iterator[Sample]:
    for kind, number in Alarm.objects.open().order_by("kind").values_list("kind").annotate(Count("pk")):
        yield Sample("cleanup_alarms_open", number, {"kind": kind})
    yield Sample("cleanup_alarms_untold", telling.untold())


def deliveries(now: datetime) -> Iterator[Sample]:
    """How many there are, as `backlog`."""
    return of_dispatch(metrics.deliveries(), metrics.endpoints())


def attempts(now: datetime) -> Iterator[Sample]:
    """What was sent in the last hour, and how long it took: the more it was, the longer it takes."""
    return of_dispatch(metrics.attempts(), metrics.times(), metrics.latencies())


def of_dispatch(*found: Iterable[metrics.Sample]) -> Iterator[Sample]:
    for name, labels, number in chain(*found):
        # Prometheus keeps `quantile` for summaries, which these are not.
        told = {"rank" if label == "quantile" else label: value for label, value in labels.items()}
        yield Sample(f"cleanup_{name}", number, told)


def webhooks(now: datetime) -> Iterator[Sample]:
    yield from of_dispatch(metrics.ages())
    owed = of_webhooks.owed()
    yield Sample("cleanup_webhook_oldest_undelivered_age_seconds", age(owed.since if owed else None, now))
    troubled = of_webhooks.troubled().order_by("pk").values_list("pk", "failing_since", "disabled_at")
    for pk, failing, disabled in troubled[:ENDPOINTS]:
        labels = {"endpoint": str(pk)}
        yield Sample("cleanup_webhook_endpoint_trouble_age_seconds", age(disabled or failing, now), labels)


def lately(now: datetime) -> Iterator[Sample]:
    for each in rollups.percentiles(of_ledger_rollups.DELETION, rollups.SPANS["1h"])[:1]:
        for rank, value in (("0.5", each.p50), ("0.95", each.p95), ("0.99", each.p99), ("1", each.greatest)):
            yield Sample("cleanup_deletion_lag_seconds_last_hour", value, {"rank": rank})


def measuring(now: datetime) -> Iterator[Sample]:
    for code, overdue in OVERDUE.items():
        yield Sample("cleanup_deadline_seconds", overdue.total_seconds(), {"deadline": code})
    counted = RollupMark.objects.aggregate(at=Min("counted_until"))["at"]
    if counted is not None:
        yield Sample("cleanup_rollups_counted_age_seconds", age(counted, now))
    before = time.time()
    ours = clock.now().timestamp()
    yield Sample("cleanup_clock_skew_seconds", (before + time.time()) / 2 - ours)
