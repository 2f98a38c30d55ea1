"""`bench ledger`: commands a second from claim to receipt, with a store that answers at once.

The baseline writes the same rows into the same tables with plain batched SQL: no lease tokens that are compared, no holds
that are looked at, no control row, no evidence. Both take turns, each after a checkpoint; then two of either run side by
side, each in a process of its own, as workers do.
"""

import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, cast

from django.db import ProgrammingError, connection, connections

from cleanup_project.base.models import User
from cleanup_project.operations.bench import Result, peak_memory_mb, scratch_database, world
from cleanup_project.operations.bench.floor import floor
from ledger import claim, keeping, manifest, outcomes, pace, publish, runs
from ledger import drain as draining
from ledger import settle as settling
from ledger.drain import Drained
from ledger.execute import Job
from ledger.models import CleanupCommand, CleanupRun, Receipt
from retention import control, enforcement
from retention.models import Bucket, Tenant
from retention.storage import BucketRef, DeleteOutcome, Inspection, ObjectStore, Presence, VersionRef
from webhooks.models import Delivery, Endpoint

PROCESSES: Final = 2  # side by side
OLD: Final = "now() - interval '60 days' - n * interval '1 s'"

# What is timed, in its order; indented: a part of the one before. The numbers are those of the protocol's rules.
STEPS: Final[dict[str, tuple[Any, str]]] = {
    "turn": (claim, "next_turn"),
    "reserve the rate": (pace, "reserve"),
    "claim, with its commit": (claim, "claim"),
    "  holds, enforcement, older versions": (claim, "check"),
    "  judged again": (keeping, "kept"),
    "execute": (draining, "execute"),
    "  request rows, committed": (Job, "commit_requests"),
    "  control reads (claims' own too)": (control, "read"),
    "settle, with its commit": (draining, "settle"),
    "  lock versions": (settling, "lock_versions"),
    "  lock commands by token": (outcomes, "lock"),
    "  attempts, targets, commands, catalogue": (settling, "write_gone"),
    "  make receipts and notices, meanwhile": (settling, "make"),
    "  events and deliveries": (settling, "emit"),
    "  copy receipts": (settling, "write_receipts"),
    "  tallies": (outcomes, "tally"),
}


class Instant:
    """A store that does at once whatever it is asked; of the port, what a drain calls."""

    def inspect(
        self, bucket: BucketRef, refs: Collection[VersionRef], *, deadline_seconds: float = 60.0
    ) -> dict[VersionRef, Inspection]:
        gone = Inspection(Presence.GONE, request_id="instant", detail="not listed")
        return dict.fromkeys(refs, gone)

    def delete_versions(
        self,
        bucket: BucketRef,
        refs: Collection[VersionRef],
        *,
        deadline_seconds: float,
        proceed: Callable[[], bool] = lambda: True,
    ) -> dict[VersionRef, DeleteOutcome]:
        if not proceed():
            raise RuntimeError("nothing stops a benchmark")
        return dict.fromkeys(refs, DeleteOutcome.acknowledge("instant"))


def run(*, commands: int = 20_000, rounds: int = 3) -> Result:
    """`value` and `ratio` compare the medians of one drain and one loop, each over `commands` commands a round."""
    alone = [(f"plain-{each}", f"drained-{each}") for each in range(rounds)]
    together = ("plain-together", "drained-together")
    with scratch_database():
        tenant, buckets = build(commands, [name for pair in (*alone, together) for name in pair])
        draining.keep_what_is_loaded()  # as a worker has, before its first command
        spent: Counter[str] = Counter()
        before = peak_memory_mb()
        measured = list[tuple[float, float]]()
        for plain, drained in alone:
            loop = rate(commands, partial(floor, tenant.pk, buckets[plain]))
            with steps_timed(spent):
                measured.append((loop, rate(commands, partial(drain_all, buckets[drained], commands))))
        grown = peak_memory_mb() - before
        loops, drains = (
            rate(commands, partial(side_by_side, act))
            for act in (partial(floor, tenant.pk, buckets[together[0]]), partial(drain_some, buckets[together[1]]))
        )
        receipts = Receipt.objects.count()
        if receipts != commands * len(buckets) or Delivery.objects.count() != receipts:
            raise RuntimeError(f"{receipts} receipts of {commands * len(buckets)} commands")
    baseline, value = (statistics.median(each) for each in zip(*measured, strict=True))
    return Result(
        name="ledger",
        value=round(value),
        unit="commands/s",
        baseline="the same rows written by plain batched SQL",
        baseline_value=round(baseline),
        ratio=round(value / baseline, 3),
        details={
            "commands": commands,
            "rounds": [{"plain": round(theirs), "ours": round(own)} for theirs, own in measured],
            "side_by_side": {
                "processes": PROCESSES,
                "plain": round(loops),
                "ours": round(drains),
                "ratio": round(drains / loops, 3),
            },
            "milliseconds_per_1000": {name: round(spent[name] / 1000 / commands / rounds, 2) for name in STEPS},
            "peak_memory_growth_mb": round(grown, 1),
        },
    )


def build(commands: int, names: Sequence[str]) -> tuple[Tenant, dict[str, int]]:
    """Buckets, by name, with `commands` published commands each, and one endpoint that every event is owed to."""
    author, approver = world.people()
    tenant = Tenant.objects.create(code="bench", name="Benchmark", shortening_delay_hours=0)
    buckets = [Bucket.objects.create(name=name, keys_per_second=10_000_000) for name in names]
    Endpoint.objects.create(
        tenant=tenant.code, name="bench", url="https://example.org/", event_types=["media.deleted"], created_by=author
    )
    for number, bucket in enumerate(buckets):
        world.add_originals(
            tenant, bucket, first=number * commands + 1, last=(number + 1) * commands, stored_at=OLD, listed_at="now()"
        )
    world.settle()
    for bucket in buckets:
        world.listed(bucket)
        enforce(tenant, bucket, author, approver)
        publish_all(tenant, bucket)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return tenant, {bucket.name: bucket.pk for bucket in buckets}


def enforce(tenant: Tenant, bucket: Bucket, author: User, approver: User) -> None:
    asked = enforcement.request(tenant=tenant, bucket=bucket, prefix="", by=author, reason="Benchmark")
    enforcement.approve(request=asked, by=approver, reason="Benchmark")


def publish_all(tenant: Tenant, bucket: Bucket) -> None:
    """Freeze and publish everything, however many parts may be ahead."""
    revision = world.policy(tenant, bucket, f"bench-{bucket.name}", "media/", standing=True)
    opened, _new = runs.open_run(policy=revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    manifest.freeze(opened)
    ahead, publish.AHEAD = publish.AHEAD, 1_000_000
    try:
        publish.publish(opened.pk)
    finally:
        publish.AHEAD = ahead


def drain_all(bucket_id: int, commands: int) -> None:
    done = drain_some(bucket_id)
    if done.gone != commands:
        left = CleanupCommand.objects.filter(bucket_id=bucket_id, state="ready").count()
        raise RuntimeError(f"{done.gone} of {commands} commands done, {left} left: {done}")


def drain_some(bucket_id: int) -> Drained:
    store = cast(ObjectStore, Instant())
    return draining.drain(bucket_id, budget_seconds=3600, stores=lambda _ref: store)


def side_by_side(act: Callable[[], object]) -> None:
    """The same in several processes at once, forked as those of django-q2 are."""
    connections.close_all()
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=act) for _ in range(PROCESSES)]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
    ended = [each.exitcode for each in processes]
    if any(ended):
        raise RuntimeError(f"processes ended with {ended}")


def rate(commands: int, act: Callable[[], object]) -> float:
    """Commands a second. Begins after a checkpoint, where this role may have one: it would fall upon one side alone."""
    with suppress(ProgrammingError), connection.cursor() as cursor:
        cursor.execute("CHECKPOINT")
    return commands / timed(act)


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


@contextmanager
def steps_timed(spent: Counter[str]) -> Iterator[None]:
    """Add up the nanoseconds of each step of `STEPS`."""
    before = {name: getattr(owner, attribute) for name, (owner, attribute) in STEPS.items()}

    def timing(name: str) -> Callable[..., Any]:
        def measured(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter_ns()
            try:
                return before[name](*arguments, **named)
            finally:
                spent[name] += time.perf_counter_ns() - started

        return measured

    for name, (owner, attribute) in STEPS.items():
        setattr(owner, attribute, timing(name))
    try:
        yield
    finally:
        for name, (owner, attribute) in STEPS.items():
            setattr(owner, attribute, before[name])
