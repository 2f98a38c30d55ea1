"""`bench sync`: how much slower is recording a bucket than merely listing it?

Both read the same bucket of the same server through the same port, in turns. The listing alone is what any program
pays; the sync adds rules, one transaction a page, and the end of a sync.
"""

from statistics import median
from time import perf_counter
from typing import Final

from cleanup_project.operations import servers
from cleanup_project.operations.bench import Result, scratch_database
from retention import buckets
from retention.models import Bucket, KeyRule
from retention.sources.listing import sync
from retention.storage import BucketRef, ObjectStore, store_for

ROUNDS: Final = 3


def run(*, versions: int = 5000) -> Result:
    """Measure a first sync and its repetitions, in versions a second, against bare listings."""
    with scratch_database(), servers.credentials(), servers.any_store() as (server, endpoint_url):
        servers.fill(endpoint_url, "bench", [f"originals/{number // 2:08d}.mp4" for number in range(versions)])
        bucket = Bucket.objects.create(name="bench", endpoint_url=endpoint_url, addressing_style=Bucket.Addressing.PATH)
        KeyRule.objects.create(bucket=bucket, position=1, pattern="originals/{asset}.mp4", retention_class="video")
        return measure(bucket, server, versions)


def measure(bucket: Bucket, server: str, versions: int) -> Result:
    """`value` is the first sync, which inserts every row; the baseline is the median of the listings."""
    place = buckets.ref(bucket)
    store = store_for(place)
    listings, syncs = list[float](), list[float]()
    for _ in range(ROUNDS):
        started = perf_counter()
        listed = list_all(store, place)
        listings.append(listed / (perf_counter() - started))
        started = perf_counter()
        recorded = sync(bucket, store=store).versions
        syncs.append(recorded / (perf_counter() - started))
        if listed != versions or recorded != versions:
            raise RuntimeError(f"{versions} versions were stored, {listed} listed, {recorded} recorded")
    baseline = median(listings)
    return Result(
        name="sync",
        value=round(syncs[0]),
        unit="versions/s",
        baseline="the same bucket listed through the same port, nothing recorded",
        baseline_value=round(baseline),
        ratio=round(syncs[0] / baseline, 3),
        details={
            "server": server,
            "versions": versions,
            "listings": [round(rate) for rate in listings],
            "syncs": [round(rate) for rate in syncs],
            "repeated": round(median(syncs[1:])),
        },
    )


def list_all(store: ObjectStore, place: BucketRef) -> int:
    """How many versions plain paging shows."""
    count, key, version_id = 0, None, None
    while True:
        page = store.list_versions(place, key_marker=key, version_id_marker=version_id)
        count += len(page.versions)
        key, version_id = page.next_key_marker, page.next_version_id_marker
        if key is None:
            return count
