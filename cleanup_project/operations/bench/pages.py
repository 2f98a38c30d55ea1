"""`bench pages`: the server's time for every page, with ten million receipts and a million commands.

A small world is made by the verbs; its pages are timed, its rows multiplied inside the database, and the pages timed again.
The baseline are the same pages over the small world: what a page costs must not depend on how much there is.
"""

import statistics
import time
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from django.contrib import admin
from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import Model
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import override_settings
from django.urls import reverse

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from cleanup_project.operations.bench import Result, peak_memory_mb, scratch_database, world
from cleanup_project.operations.bench.ledger import OLD, Instant, enforce, publish_all
from ledger import drain
from ledger.models import Attempt, CleanupCommand, DeadLetter, ManifestItem, Receipt, ReceiptLocator
from retention.models import Bucket, ObjectVersion, Tenant
from retention.storage import BucketRef, DeleteOutcome, Failure, FailureClass, ObjectStore, VersionRef
from webhooks.models import Delivery, DeliveryAttempt, Endpoint, OutboxEvent

OBJECTS: Final = 1000  # of the small world
REFUSED: Final = 10  # one in so many, which goes to quarantine
AIM_MS: Final = 100
PAGES: Final = ("my-work", "dashboard", "find")
REFUSAL: Final = Failure.of(
    FailureClass.PERMISSION, "AccessDenied", "Not authorized to perform s3:DeleteObjectVersion."
)
STEP: Final = 100_000  # between the numbers of a row and those of its copies
# What a row's copies differ by, besides their own number; `n` counts the copies, from 1.
COPIES: Final[dict[type[Model], Mapping[str, str]]] = {
    ObjectVersion: {"version_id": "version_id || n"},
    CleanupCommand: {
        "key": "key || ':' || n", "item_id": f"item_id + n * {STEP}", "published_at": "published_at - n * interval '1 s'",
    },
    ManifestItem: {"ordinal": f"ordinal + n * {STEP}", "command_key": "command_key || ':' || n"},
    Attempt: {"command_id": f"command_id + n * {STEP}"},
    DeadLetter: {"command_id": f"command_id + n * {STEP}", "entered_at": "entered_at - n * interval '1 s'"},
    Receipt: {
        "command_id": f"command_id + n * {STEP}", "command_key": "command_key || ':' || n",
        "issued_at": "issued_at - n * interval '100 s'",
    },
    ReceiptLocator: {"command_id": f"command_id + n * {STEP}"},
    OutboxEvent: {"event_id": "event_id || n", "sequence": "sequence + n", "command_key": "command_key || ':' || n"},
    Delivery: {"event_id": f"event_id + n * {STEP}", "sequence": "sequence + n"},
    DeliveryAttempt: {"delivery_id": f"delivery_id + n * {STEP}"},
    AuditEvent: {},
}  # fmt: skip

# These have a number of their own, by which receipts are divided. Of the rest every row has as many copies as every other, so
# that each copy finds the one that it refers to.
APART: Final[Mapping[type[Model], int]] = {Receipt: 1, AuditEvent: 10}


class Refusing(Instant):
    """Denies one version in `REFUSED`."""

    def delete_versions(
        self, bucket: BucketRef, refs: Collection[VersionRef], **options: Any
    ) -> dict[VersionRef, DeleteOutcome]:
        done = super().delete_versions(bucket, refs, **options)
        refused = sorted(refs, key=lambda each: each.key)[::REFUSED]
        return done | {each: DeleteOutcome.failed(REFUSAL, sent=True, request_id="refusing") for each in refused}


def run(*, receipts: int = 10_000_000, looks: int = 5) -> Result:
    """`value` is the slowest page's median; `ratio` compares all pages' times together."""
    with (
        scratch_database(),
        override_settings(ALLOWED_HOSTS=["testserver"], SECURE_SSL_REDIRECT=False, MFA_REQUIRED=False),
    ):
        client = build()
        small = times(client, looks)
        multiply(receipts)
        large = times(client, looks)
        sizes = {model._meta.label: model._default_manager.count() for model in COPIES}
    slowest = max(large, key=lambda page: large[page])
    return Result(
        name="pages",
        value=large[slowest],
        unit="ms",
        baseline="the same pages over a thousand objects, together",
        baseline_value=round(sum(small.values()), 1),
        ratio=round(sum(large.values()) / sum(small.values()), 2),
        details={
            "aim_ms": AIM_MS,
            "slowest": slowest,
            "above_aim": {page: ms for page, ms in large.items() if ms > AIM_MS},
            "rows": sizes,
            "pages_ms": large,
            "pages_ms_small": small,
            "peak_memory_mb": round(peak_memory_mb(), 1),
        },
    )


def build() -> Client:
    """Commands that ended well, in quarantine or not yet, with their receipts and deliveries; signed in as compliance."""
    author, approver = world.people()
    tenant = Tenant.objects.create(code="bench", name="Benchmark", shortening_delay_hours=0)
    bucket = Bucket.objects.create(name="bench", keys_per_second=1_000_000)
    Endpoint.objects.create(
        tenant=tenant.code, name="bench", url="https://example.org/", event_types=["media.deleted"], created_by=author
    )
    world.add_originals(tenant, bucket, first=1, last=OBJECTS, stored_at=OLD, listed_at="now()")
    world.listed(bucket)
    enforce(tenant, bucket, author, approver)
    publish_all(tenant, bucket)
    drain.drain(bucket.pk, budget_seconds=3600, stores=lambda _ref: cast(ObjectStore, Refusing()))
    for delivery in Delivery.objects.all():
        DeliveryAttempt.objects.create(
            delivery=delivery, endpoint_id=delivery.endpoint_id, number=1, token=1, url="https://example.org/",
            finished_at=Now(), status=503, failure_class="server", error="503", milliseconds=20,
        )  # fmt: skip
    viewer = User.objects.create(username="bench-viewer", is_staff=True)
    viewer.groups.add(Group.objects.get(name=roles.COMPLIANCE))
    client = Client()
    client.force_login(viewer)
    return client


def multiply(receipts: int) -> None:
    """Bring receipts to this number, and what is beside them to about a tenth of it, entries of quarantine to a hundredth."""
    with connection.cursor() as cursor:
        # Nothing refers to it, and what is dropped afterwards needs no write-ahead log.
        cursor.execute(f"ALTER TABLE {Receipt._meta.db_table} SET UNLOGGED")
    for model, changes in COPIES.items():
        rows = OBJECTS if model not in APART else model._default_manager.count()
        copy(model, changes, max(1, receipts // APART.get(model, 10) // max(1, rows)))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")


def copy(model: type[Model], changes: Mapping[str, str], times_each: int) -> None:
    columns = [field.column for field in model._meta.concrete_fields if field.column]
    numbered = {"id": f"id + n * {STEP}"} | dict(changes)
    told = ", ".join(numbered.get(column, column) for column in columns)
    table = model._meta.db_table
    with world.filling(table), connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {told} FROM (SELECT * FROM {table}) AS each,"  # noqa: S608 - ours
            " generate_series(1::bigint, %s) AS n",  # of few rows there are many copies, numbered far beyond an int
            [times_each],
        )


def times(client: Client, looks: int) -> dict[str, float]:
    """Median milliseconds of each page that a person may open, by its address without numbers."""
    found = {}
    for name, address in addresses().items():
        client.get(address)  # what is made once by each process is not this page's
        took = []
        for _ in range(looks):
            began = time.perf_counter()
            response = client.get(address)
            took.append((time.perf_counter() - began) * 1000)
        if response.status_code != 200:
            raise RuntimeError(f"{address} answers {response.status_code}")
        found[name] = round(statistics.median(took), 1)
    return found


def addresses() -> dict[str, str]:
    """Pages of ours, and of every model that has rows its list, its newest item and the history of that."""
    pages = {name: reverse(name) for name in PAGES}
    for model in admin.site._registry:
        stem = f"{model._meta.app_label}_{model._meta.model_name}"
        pages[f"{stem} list"] = reverse(f"admin:{stem}_changelist")
        row = model._default_manager.order_by("pk").first()
        if row is not None:
            pages[f"{stem} item"] = reverse(f"admin:{stem}_change", args=[row.pk])
            pages[f"{stem} history"] = reverse(f"admin:{stem}_history", args=[row.pk])
    return pages
