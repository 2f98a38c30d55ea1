"""`/metrics`: one look at the database, as Prometheus' text. No process counts anything of its own.

Parts are read one by one, each within its time; one that fails is left out, and `cleanup_scrape_errors` says so.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
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
KEPT: Final = 5  # seconds: however often somebody asks
Part = Callable[[datetime], Iterable[Sample]]
PARTS: Final[Mapping[str, Part]] = {
    "ledger": gauges.ledger,
    "quarantine": gauges.quarantine,
    "schedules": gauges.schedules,
    "catalogue": gauges.catalogue,
    "stops": gauges.stops,
    "workers": gauges.workers,
    "alarms": gauges.alarms,
    "webhooks": gauges.webhooks,
    "lately": gauges.lately,
    "counters": counters.counted,
    "measuring": gauges.measuring,
}

log = structlog.get_logger(__name__)


def text() -> bytes:
    """Everything, as of up to KEPT seconds ago."""
    kept: bytes | None = caches["process"].get("metrics")
    if kept is None:
        registry = CollectorRegistry()
        registry.register(Snapshot())
        kept = generate_latest(registry)
        caches["process"].set("metrics", kept, KEPT)
    return kept


class Snapshot(Collector):
    def collect(self) -> Iterator[Metric]:
        found: dict[str, list[Sample]] = {}
        for sample in samples():
            found.setdefault(sample.family, []).append(sample)
        for name, family in FAMILIES.items():
            metric = Metric(
                name.removesuffix("_total") if family.kind == "counter" else name, family.words, family.kind
            )
            for sample in found.get(name, ()):
                metric.add_sample(name + sample.suffix, dict(sample.labels), sample.value)
            yield metric


def samples() -> list[Sample]:
    try:
        now = clock.now()
    except Error as error:  # it would fail each part in turn, after each one's time
        log.warning("metrics cannot be read", error=str(error).strip())
        return [Sample("cleanup_scrape_errors", 1, {"part": name}) for name in PARTS]
    return [sample for name, part in PARTS.items() for sample in read(name, part, now)]


def read(name: str, part: Part, now: datetime) -> list[Sample]:
    """All samples of the part, or none."""
    try:
        with transaction.atomic(), paginator.limited(BUDGET_MS):
            found, failed = list(part(now)), 0
    except Exception:  # what is measured is never less known for what cannot be
        log.exception("a part of the metrics cannot be read", part=name)
        found, failed = [], 1
    return [*found, Sample("cleanup_scrape_errors", failed, {"part": name})]
