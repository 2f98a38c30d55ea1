"""`/metrics`: one look at the database, as Prometheus' text. No process counts anything of its own.

Parts are read one by one, each within its time; one that fails is left out, and `cleanup_scrape_errors` says so.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import structlog
from django.core.cache import caches
from django.db import Error, transaction
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from cleanup_project.base import clock, paginator
from cleanup_project.operations.watch import counters, gauges
from cleanup_project.operations.watch.families import FAMILIES
from cleanup_project.operations.watch.samples import Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUDGET_MS: Final = 2000  # of each statement
WITHIN: Final = 8.0  # seconds for all parts: Prometheus waits for ten
KEPT: Final = 5  # seconds: however often somebody asks
Part = Callable[[datetime], Iterable[Sample]]
# What alerts are made of comes first. The last ones count: they take the longer the more there is, and nobody else's time.
PARTS: Final[Mapping[str, Part]] = {
    "measuring": gauges.measuring,
    "ledger": gauges.ledger,
    "quarantine": gauges.quarantine,
    "schedules": gauges.schedules,
    "catalogue": gauges.catalogue,
    "stops": gauges.stops,
    "workers": gauges.workers,
    "database": gauges.database,
    "alarms": gauges.alarms,
    "webhooks": gauges.webhooks,
    "counters": counters.counted,
    "lately": gauges.lately,
    "backlog": gauges.backlog,
    "deliveries": gauges.deliveries,
    "attempts": gauges.attempts,
}
_reading: Final = threading.Lock()

log = structlog.get_logger(__name__)


def text() -> bytes:
    """Everything, as of up to KEPT seconds ago. One process reads once at a time, whoever else asks meanwhile."""
    kept: bytes | None = caches["process"].get("metrics")
    if kept is None and _reading.acquire(timeout=WITHIN):
        try:
            kept = caches["process"].get("metrics") or written(samples())
            caches["process"].set("metrics", kept, KEPT)
        finally:
            _reading.release()
    return kept or written(unread())


def written(samples: Sequence[Sample]) -> bytes:
    registry = CollectorRegistry()
    registry.register(Snapshot(samples))
    return generate_latest(registry)


class Snapshot(Collector):
    def __init__(self, samples: Sequence[Sample]) -> None:
        self.found: dict[str, list[Sample]] = {}
        for sample in samples:
            self.found.setdefault(sample.family, []).append(sample)

    def collect(self) -> Iterator[Metric]:
        for name, family in FAMILIES.items():
            metric = Metric(
                name.removesuffix("_total") if family.kind == "counter" else name, family.words, family.kind
            )
            for sample in self.found.get(name, ()):
                metric.add_sample(name + sample.suffix, dict(sample.labels), sample.value)
            yield metric


def samples() -> list[Sample]:
    until = time.monotonic() + WITHIN
    try:
        now = clock.now()
    except Error as error:  # it would fail each part in turn, after each one's time
        log.warning("metrics cannot be read", error=str(error).strip())
        return unread()
    return [sample for name, part in PARTS.items() for sample in read(name, part, now, until)]


def unread() -> list[Sample]:
    return [Sample("cleanup_scrape_errors", 1, {"part": name}) for name in PARTS]


def read(name: str, part: Part, now: datetime, until: float) -> list[Sample]:
    """All samples of the part, or none. `until`: of the monotonic clock, when nothing is begun any more."""
    found: list[Sample] = []
    try:
        with transaction.atomic(), paginator.limited(max(1, min(BUDGET_MS, int(1000 * (until - time.monotonic()))))):
            for sample in part(now):
                if time.monotonic() > until:
                    raise TimeoutError(f"all parts together took longer than {WITHIN} seconds")
                found.append(sample)
    except Exception:  # what is measured is never less known for what cannot be
        log.exception("a part of the metrics cannot be read", part=name)
        return [Sample("cleanup_scrape_errors", 1, {"part": name})]
    return [*found, Sample("cleanup_scrape_errors", 0, {"part": name})]
