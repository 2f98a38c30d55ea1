"""Receipts at a size: whatever narrows the list, and whatever an export continues after, an index leads there."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from cleanup_project.base import clock, roles
from cleanup_project.base.models import User
from cleanup_project.base.paginator import EXACT_UP_TO
from cleanup_project.operations.api import cursors
from ledger import copying, exports
from ledger.models import CleanupRun, Receipt, ReceiptExportPart
from retention.models import Bucket, Tenant
from tests import world
from tests.ledger.test_admin_plans import BOUND, nodes, queries_of, rows_read
from tests.web import quick_pages, url  # noqa: F401

pytestmark = [pytest.mark.bulk, pytest.mark.django_db]

ROWS = 100_000
TOGETHER = 1000  # receipts of one settlement, and so of one time


@pytest.fixture
def many(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> Receipt:
    """`ROWS` receipts over a hundred settlements; a small tenant, bucket, policy, run and outcome have the oldest of them."""
    small = (Tenant.objects.create(code="small", name="Small"), Bucket.objects.create(name="small"))
    runs = list[CleanupRun]()
    for whose, place in ((tenant, bucket), small):
        world.version(place, whose, "seed", asset="seed")
        revision = world.published(whose, place, author=manager, publisher=second_manager, code=f"policy-{whose.code}")
        runs.append(world.sealed_run(revision))
    begun = clock.now() - timedelta(days=2)
    with connection.cursor() as cursor:
        for run, place, first, last, outcome in (
            (runs[1], small[1], 1, 500, "by_absence"), (runs[0], bucket, 501, ROWS, "deleted"),
        ):  # fmt: skip
            cursor.execute(
                """
                INSERT INTO ledger_receipt (command_id, command_key, tenant_id, run_id, policy_id, bucket_id, outcome,
                    event_id, target_count, bytes, body, digest, issued_at)
                SELECT n, 'k:' || n || ':v:p-1', %(tenant)s, %(run)s, %(policy)s, %(bucket)s, %(outcome)s, 'evt_' || n, 1, 1,
                    body, sha256(body), %(begun)s + (n / %(together)s) * interval '1 minute'
                FROM (SELECT n, convert_to('{"targets":[{"commitment":"' || n
                    || '"}],"policy":{"code":"p","revision":1},"approval":{"by":null}}', 'UTF8') AS body
                    FROM generate_series(%(first)s, %(last)s) n) made
                """,
                {
                    "tenant": run.tenant_id, "run": run.pk, "policy": run.policy_id, "bucket": place.pk,
                    "outcome": outcome, "first": first, "last": last, "begun": begun, "together": TOGETHER,
                },
            )  # fmt: skip
        cursor.execute(
            "INSERT INTO ledger_receiptlocator (command_id, ordinal, bucket, key, version_id) "
            "SELECT command_id, 1, 'media', 'clips/' || command_id, 'v' || command_id FROM ledger_receipt"
        )
        cursor.execute("ANALYZE")
    return Receipt.objects.order_by("pk")[ROWS // 2]


@pytest.fixture
def auditor(person: Callable[..., User], client: Client) -> User:
    user = person("auditor", roles.AUDITOR)
    client.force_login(user)
    return user


def test_lists_read_a_bounded_number_of_rows_however_they_are_narrowed(
    many: Receipt, auditor: User, client: Client
) -> None:
    page = url(Receipt, "changelist")
    small = CleanupRun.objects.get(tenant__code="small")
    middle = {"issued_from": str(many.issued_at), "issued_before": str(many.issued_at + timedelta(minutes=3))}
    for query in (
        {},
        {"p": EXACT_UP_TO // 100},
        {"tenant": "acme"},
        {"tenant": "small"},
        {"bucket": "small"},
        {"policy": "policy-small"},
        {"policy": "policy-acme", "outcome": "deleted", "p": 50},
        {"run": small.pk},
        {"outcome": "by_absence"},
        middle,
        middle | {"policy": "policy-acme", "bucket": "media"},
        {"issued_before": str(many.issued_at - timedelta(minutes=40)), "bucket": "media"},
        {"q": "clips/777"},
        {"q": "v777"},
        {"q": "k:777:v:p-1"},
        {"q": bytes(many.digest).hex()},
        {"q": "missing"},
    ):
        queries_of(client, page, query)


def test_the_export_page_reads_a_bounded_number_of_rows(many: Receipt, auditor: User, client: Client) -> None:
    for query in ({}, {"policy": "policy-acme"}, {"tenant": "small"}):
        queries_of(client, reverse("admin:ledger_receipt_export"), query)


@pytest.mark.parametrize("narrowed", [(), ("policy",), ("tenant",), ("bucket",)])
def test_a_part_goes_on_where_the_last_one_ended(narrowed: tuple[str, ...], many: Receipt) -> None:
    """Without sorting what is left, or reading what was exported: the second million costs what the first did."""
    found = Receipt.objects.all()
    for name in narrowed:
        found = found.filter(**{name: getattr(many, f"{name}_id")})
    part = ReceiptExportPart(last_issued_at=many.issued_at, last_receipt=many.pk)
    query, parameters = copying.statement(exports.after(found, part), exact=False, limit=1000)
    selected = query.removeprefix("COPY (").removesuffix(") TO STDOUT WITH (FORMAT csv, HEADER true)")
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT json) {selected}", parameters)
        plan = cursor.fetchone()[0][0]["Plan"]
    read = max(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"] for node in nodes(plan)
    )
    assert read <= 1000 + 3 * TOGETHER < BOUND


@pytest.mark.parametrize("narrowed", [(), ("policy",), ("tenant",)])
def test_a_page_of_the_api_reads_its_own_rows_wherever_it_begins(narrowed: tuple[str, ...], many: Receipt) -> None:
    order = ("-issued_at", "-pk")
    rows = Receipt.objects.filter(**{name: getattr(many, f"{name}_id") for name in narrowed})
    with CaptureQueriesContext(connection) as captured:
        found = list(rows.filter(cursors.beyond(order, (many.issued_at, many.pk))).order_by(*order)[:201])
    assert (found[0].pk, len(found)) == (many.pk - 1, 201)
    assert rows_read(captured[0]["sql"]) <= 201 + 3 * TOGETHER < BOUND
