"""What has happened since the installation first counted, as counters and histograms, out of the rollups' totals."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from cleanup_project.base import rollups
from cleanup_project.operations.watch.families import FAMILIES
from cleanup_project.operations.watch.samples import Sample
from ledger import failures as of_deletion
from ledger import rollups as of_ledger
from ledger.models import Attempt, CleanupCommand, CleanupRun, DeadLetter, Decision
from webhooks import failures as of_delivery
from webhooks import rollups as of_webhooks

SOURCES: Final = (*of_ledger.SOURCES, *of_webhooks.SOURCES)
# Ends of buckets of ours, each about twice as far as the one before: from a millisecond to more than a year.
BOUNDS: Final = tuple(range(0, 264, 8))


class Counter(NamedTuple):
    """`known`: labels that are told from the first on, so that the first of them is seen to come."""

    metric: str
    known: tuple[str, ...] = ("",)


COUNTERS: Final[Mapping[str, Counter]] = {
    "cleanup_candidates_total": Counter(of_ledger.CANDIDATES, tuple(CleanupRun.Mode.values)),
    "cleanup_commands_published_total": Counter(of_ledger.PUBLISHED),
    "cleanup_commands_completed_total": Counter(of_ledger.DELETION, tuple(CleanupCommand.Outcome.values)),
    "cleanup_delete_attempts_total": Counter(
        of_ledger.ATTEMPTS,
        (*of_deletion.RULES, *(each for each in Attempt.Outcome.values if each not in ("failed", "ambiguous"))),
    ),
    "cleanup_quarantined_total": Counter(of_ledger.QUARANTINED, tuple(of_deletion.RULES)),
    "cleanup_quarantine_resolved_total": Counter(of_ledger.RESOLVED, tuple(DeadLetter.Resolution.values)),
    "cleanup_replays_succeeded_total": Counter(of_ledger.REPLAY_SUCCESS, tuple(Decision.Kind.values)),
    "cleanup_webhook_attempts_total": Counter(
        of_webhooks.ATTEMPTS, tuple(each or "delivered" for each in of_delivery.RULES)
    ),
    "cleanup_webhook_redeliveries_total": Counter(of_webhooks.REDELIVERY),
}
HISTOGRAMS: Final[Mapping[str, str]] = {
    "cleanup_deletion_lag_seconds": of_ledger.DELETION,
    "cleanup_run_drain_seconds": of_ledger.DRAIN,
    "cleanup_webhook_first_send_lag_seconds": of_webhooks.FIRST_SEND,
    "cleanup_webhook_acknowledgement_lag_seconds": of_webhooks.ACKNOWLEDGEMENT,
}


def counted(now: datetime) -> Iterator[Sample]:
    totals = rollups.totals(SOURCES)
    for name, counter in COUNTERS.items():
        yield from counts(name, counter, totals[counter.metric].items())
    for name, metric in HISTOGRAMS.items():
        yield from histogram(name, totals[metric].items())


def counts(name: str, counter: Counter, totals: Iterable[tuple[tuple[str, int], int]]) -> Iterator[Sample]:
    found = dict.fromkeys(counter.known, 0)
    for (label, _bucket), number in totals:
        found[label] = found.get(label, 0) + number
    for label, number in sorted(found.items()):
        yield Sample(name, number, dict(zip(FAMILIES[name].labels, [label], strict=False)))


def histogram(name: str, totals: Iterable[tuple[tuple[str, int], int]]) -> Iterator[Sample]:
    """Bounds are ends of our own buckets, so that what lies below each is exact; the sum is made of middles."""
    timed = [(bucket, number) for (_label, bucket), number in totals if bucket >= 0]
    for bound in BOUNDS:
        below = sum(number for bucket, number in timed if bucket <= bound)
        yield Sample(name, below, {"le": f"{rollups.end_of(bound):.6g}"}, "_bucket")
    whole = sum(number for _bucket, number in timed)
    yield Sample(name, whole, {"le": "+Inf"}, "_bucket")
    yield Sample(name, whole, {}, "_count")
    yield Sample(name, sum(number * rollups.middle_of(bucket) for bucket, number in timed), {}, "_sum")
