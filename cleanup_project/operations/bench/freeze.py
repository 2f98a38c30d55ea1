"""How fast a manifest is frozen, and whether the size of the catalogue around it matters."""

import time
from typing import Any

from cleanup_project.operations.bench import Result, peak_memory_mb, scratch_database, world
from ledger import manifest, runs
from ledger.models import CleanupRun
from retention.models import Bucket, RetentionPolicy, Tenant

ELIGIBLE = 80_000
SMALL = 1_000_000
REPEATS = 3


def run(*, rows: int) -> Result:
    """Freeze 80,000 eligible originals out of 1,000,000 catalogued ones, then out of `rows`, in one database."""
    with scratch_database():
        world.people()
        tenant = Tenant.objects.create(code="bench", name="Benchmark", shortening_delay_hours=0)
        bucket = Bucket.objects.create(name="bench")
        policy = world.policy(tenant, bucket, "bench", "media/").policy
        small, eligible = min(SMALL, rows), min(ELIGIBLE, rows // 2)
        world.add_originals(
            tenant, bucket, first=1, last=eligible, stored_at="now() - interval '60 days' - n * interval '1 s'"
        )
        world.add_thumbnails(bucket, each=4, last=eligible)
        recent = "now() - interval '29 days' * random()"
        world.add_originals(tenant, bucket, first=eligible + 1, last=small, stored_at=recent)
        world.settle()
        baseline = measure(policy)
        with world.filling():
            world.add_originals(tenant, bucket, first=small + 1, last=rows, stored_at=recent)
        world.settle()
        measured = measure(policy)
    return Result(
        name="freeze",
        value=round(measured["items_per_second"]),
        unit="items/s",
        baseline=f"the same items out of {small:,} catalogued versions",
        baseline_value=round(baseline["items_per_second"]),
        ratio=round(measured["seconds"] / baseline["seconds"], 3),
        details={"rows": rows, "ratio": "seconds to seconds, lower is better", "small": baseline, "large": measured},
    )


def measure(policy: RetentionPolicy) -> dict[str, Any]:
    """The median of a few dry runs: seconds, items a second, and how much the process grew."""
    times, items, memory = [], 0, peak_memory_mb()
    for _ in range(REPEATS):
        started = time.perf_counter()
        opened, _new = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
        frozen = manifest.freeze(opened)
        times.append(time.perf_counter() - started)
        items = frozen.item_count or 0
    median = sorted(times)[len(times) // 2]
    return {
        "items": items,
        "seconds": round(median, 3),
        "all_seconds": [round(each, 3) for each in times],
        "items_per_second": items / median,
        "peak_memory_growth_mb": round(peak_memory_mb() - memory, 1),
    }
