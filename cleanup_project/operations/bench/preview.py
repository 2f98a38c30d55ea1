"""`bench preview`: what does it cost to know a draft's impact, at once by a sample, and exactly?

The exact figures judge every version of the scope by both sides, with the statement that scans use; the baseline only counts
the same rows in one plain statement.
"""

import time
from statistics import median
from typing import Any, Final

from django.db import connection

from cleanup_project.base.models import User
from cleanup_project.operations.bench import Result, scratch_database, world
from retention import policies, preview
from retention.models import Bucket, ImpactPreview, PolicyRevision, Tenant

ESTIMATES: Final = 9
STORED: Final = "now() - interval '60 days' * random()"


def run(*, rows: int) -> Result:
    """Preview the shortening of a policy from 30 days to 20 over so many versions, and count them plainly."""
    with scratch_database():
        author, _publisher = world.people()
        tenant = Tenant.objects.create(code="bench", name="Benchmark", shortening_delay_hours=0)
        bucket = Bucket.objects.create(name="bench")
        published = world.policy(tenant, bucket, "bench", "media/")
        with world.filling():
            world.add_originals(tenant, bucket, first=1, last=rows, stored_at=STORED)
        world.settle()
        return measure(shorter(published, author), author, rows)


def shorter(published: PolicyRevision, by: User) -> PolicyRevision:
    said = {name: getattr(published, name) for name in preview.SAID}
    return policies.draft(policy=published.policy, by=by, **said | {"period_number": 20})


def measure(draft: PolicyRevision, by: User, rows: int) -> Result:
    """`value` is versions a second of the exact count, `ratio` its time to that of the plain one."""
    preview.SMALL = 0
    estimates = list[float]()
    for _ in range(ESTIMATES):
        started = time.perf_counter()
        asked = preview.request(revision=draft, by=by)
        estimates.append(time.perf_counter() - started)
    started = time.perf_counter()
    plain = plainly_counted(draft)
    baseline = time.perf_counter() - started
    started = time.perf_counter()
    preview.count_slice(asked.pk, budget_seconds=3600)
    exact = time.perf_counter() - started
    counted = ImpactPreview.objects.get(pk=asked.pk)
    if counted.figures["draft"][0][0] != plain:
        raise RuntimeError(f"{counted.figures['draft'][0][0]} counted exactly, {plain} plainly")
    return Result(
        name="preview",
        value=round(rows / exact),
        unit="versions/s",
        baseline="the same versions counted in one plain statement",
        baseline_value=round(rows / baseline),
        ratio=round(exact / baseline, 2),
        details={
            "rows": rows,
            "ratio": "seconds to seconds, lower is better",
            "exact_seconds": round(exact, 3),
            "baseline_seconds": round(baseline, 3),
            "estimate_ms": round(1000 * median(estimates), 1),
            "all_estimates_ms": [round(1000 * each, 1) for each in estimates],
            **error_of(asked, counted),
        },
    )


def error_of(asked: ImpactPreview, counted: ImpactPreview) -> dict[str, Any]:
    """How far the estimate was off, of what is eligible at once with the draft."""
    estimated, exact = asked.estimate["draft"][0][0], counted.figures["draft"][0][0]
    return {
        "sampled": asked.sampled,
        "estimated": estimated,
        "exact": exact,
        "error_percent": round(100 * abs(estimated - exact) / max(exact, 1), 1),
    }


def plainly_counted(draft: PolicyRevision) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT count(*) FILTER (WHERE stored_at <= now() - interval '20 days'), sum(size), min(stored_at)
            FROM retention_objectversion WHERE gone_at IS NULL AND standalone AND tenant_id = %s AND key ^@ 'media/'
            """,
            [draft.tenant_id],
        )
        found: int = cursor.fetchone()[0]
        return found
