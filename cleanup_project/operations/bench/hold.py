"""`bench hold`: how long until a hold over a million objects is in force, and what it costs a drain beside it.

The baseline places the same hold over a bucket without a single object: what a hold covers must not matter. Then a drain of
another bucket of the tenant runs, a hold is placed, and the commands that it covers are marked while the drain goes on.
"""

import statistics
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Final, cast

from django.contrib.auth.models import Group
from django.db import connection

from cleanup_project.base import roles
from cleanup_project.base.models import User
from cleanup_project.operations.bench import Result, scratch_database, world
from cleanup_project.operations.bench.ledger import OLD, Instant, enforce, publish_all
from ledger import drain, inflight
from ledger.models import CleanupCommand
from retention import holds
from retention.models import Bucket, LegalHold, Tenant
from retention.storage import BucketRef, DeleteOutcome, ObjectStore, VersionRef

SLICE: Final = 1_000_000
PLACED: Final = 5  # holds of which the median is taken
BEFORE: Final = 1 / 3  # of the drain, before the hold is placed


class Counting(Instant):
    """Notes when how many deletions were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int]] = []
        self.total = 0

    def delete_versions(
        self,
        bucket: BucketRef,
        refs: Collection[VersionRef],
        *,
        deadline_seconds: float,
        proceed: Callable[[], bool] = lambda: True,
    ) -> dict[VersionRef, DeleteOutcome]:
        done = super().delete_versions(bucket, refs, deadline_seconds=deadline_seconds, proceed=proceed)
        self.total += len(refs)
        self.asked.append((time.perf_counter(), len(refs)))
        return done

    def rate(self, start: float, end: float) -> float:
        """Deletions a second between two times."""
        return sum(number for at, number in self.asked if start < at <= end) / (end - start)


def run(*, objects: int = 1_000_000, commands: int = 50_000) -> Result:
    """`value` is milliseconds until the hold is in force; what the drain keeps of its pace stands in the details."""
    with scratch_database():
        tenant, held, drained, empty = build(objects, commands)
        person = User.objects.create(username="bench-compliance")
        person.groups.add(Group.objects.get(name=roles.COMPLIANCE))
        small = placing(tenant, empty, person)
        large = placing(tenant, held, person)
        beside = drain_beside(tenant, held, drained, person, commands)
    return Result(
        name="hold",
        value=round(large["median_ms"], 2),
        unit="ms",
        baseline="the same hold over a bucket without objects",
        baseline_value=round(small["median_ms"], 2),
        ratio=round(large["median_ms"] / small["median_ms"], 2),
        details={"objects": objects, "ratio": "ms to ms, lower is better", "placing": large, "drain": beside},
    )


def build(objects: int, commands: int) -> tuple[Tenant, Bucket, Bucket, Bucket]:
    """A bucket of `objects`, `commands` of them with a waiting command; one with twice the commands; an empty one."""
    author, approver = world.people()
    tenant = Tenant.objects.create(code="bench", name="Benchmark", shortening_delay_hours=0)
    held, drained, empty = (
        Bucket.objects.create(name=name, keys_per_second=10_000_000) for name in ("held", "drained", "empty")
    )
    world.add_originals(tenant, held, first=1, last=commands, stored_at=OLD, listed_at="now()")
    for first in range(commands + 1, objects + 1, SLICE):
        last = min(first + SLICE - 1, objects)
        world.add_originals(tenant, held, first=first, last=last, stored_at="now()", listed_at="now()")
    more = objects + 2 * commands
    world.add_originals(tenant, drained, first=objects + 1, last=more, stored_at=OLD, listed_at="now()")
    world.settle()
    for bucket in (held, drained):
        world.listed(bucket)
        enforce(tenant, bucket, author, approver)
        publish_all(tenant, bucket)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return tenant, held, drained, empty


def place(tenant: Tenant, bucket: Bucket, person: User, prefix: str = "media/") -> LegalHold:
    return holds.place(
        tenant=tenant, matter="Benchmark", title="Benchmark", authority="Benchmark", reason="Benchmark",
        buckets=[bucket], prefixes=[prefix], retention_classes=["*"], by=person,
    )  # fmt: skip


def placing(tenant: Tenant, bucket: Bucket, person: User) -> dict[str, Any]:
    times = []
    for _ in range(PLACED):
        started = time.perf_counter()
        place(tenant, bucket, person)
        times.append((time.perf_counter() - started) * 1000)
    return {"median_ms": statistics.median(times), "all_ms": [round(each, 2) for each in times]}


def drain_beside(tenant: Tenant, held: Bucket, drained: Bucket, person: User, commands: int) -> dict[str, Any]:
    """The pace of a drain before a hold is placed, and from then until the commands that it covers are marked."""
    store = Counting()
    drainer = threading.Thread(target=drain_all, args=(drained.pk, store))
    drainer.start()
    started = time.perf_counter()
    while store.total < 2 * commands * BEFORE and drainer.is_alive():
        time.sleep(0.01)
    placed_at = time.perf_counter()
    inflight.placed(place(tenant, held, person).pk)
    marked_at = time.perf_counter()
    drainer.join()
    marked = CleanupCommand.objects.filter(bucket=held, state="held").count()
    if marked != commands or store.total != 2 * commands:
        raise RuntimeError(f"{marked} of {commands} commands held, {store.total} of {2 * commands} deleted")
    before = store.rate(started, placed_at)
    during = store.rate(placed_at, min(marked_at, store.asked[-1][0]))
    return {
        "marked": marked,
        "marking_seconds": round(marked_at - placed_at, 3),
        "commands_per_second_before": round(before),
        "commands_per_second_during": round(during),
        "kept": round(during / before, 3),
    }


def drain_all(bucket_id: int, store: Counting) -> None:
    try:
        drain.drain(bucket_id, budget_seconds=3600, stores=lambda _ref: cast(ObjectStore, store))
    finally:
        connection.close()
