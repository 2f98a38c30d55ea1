"""Quarantine with many entries: however many there are, its pages read a bounded number of them, by their indexes."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.db.models import Min
from django.test import Client
from django.urls import reverse

from cleanup_project.base import roles, sqlfiles
from cleanup_project.base.models import User
from ledger import causes, vitals
from ledger.models import DeadLetter
from tests.ledger.acting import Acting, build
from tests.ledger.parking import parked
from tests.ledger.test_admin_plans import queries_of
from tests.web import quick_pages, url  # noqa: F401
from tests.webhooks.world import sql

pytestmark = [pytest.mark.bulk, pytest.mark.django_db]
ROWS = 45_000
RESOLVED = 25_000  # of them


@pytest.fixture
def large() -> Acting:
    """Copies of one entry: a thousand keys a folder, every third class another one, the first ones resolved."""
    world = build()
    (entry,) = parked(world, "seed")
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO ledger_cleanupcommand (key, tenant_id, bucket_id, policy_id, revision_id, asset, run_id, item_id,
                target_count, bytes, eligible_since, priority, state)
            SELECT 'acme:' || n || ':v:originals/1', tenant_id, bucket_id, policy_id, revision_id, n, run_id, item_id, 1, 1,
                eligible_since, 2, 'ready' FROM ledger_cleanupcommand, generate_series(1, %s) n WHERE id = %s
            """,
            [ROWS, entry.command_id],
        )
        cursor.execute(
            """
            INSERT INTO ledger_deadletter (command_id, cycle, tenant_id, bucket_id, run_id, policy_id, key, version_id,
                failure_class, storage_code, attempts, first_failed_at, first_error, last_error, next_action, entered_at,
                resolved_at, resolution)
            SELECT c.id, 0, d.tenant_id, d.bucket_id, d.run_id, d.policy_id,
                'clips/' || lpad((c.id - d.command_id) / 1000 || '', 3, '0') || '/' || c.id, 'v',
                CASE WHEN c.id %% 3 = 0 THEN 'transient' ELSE 'permission' END, 'AccessDenied', 1, now(), 'No.', 'No.', '',
                now() - interval '1 d', r.at, CASE WHEN r.at IS NULL THEN '' ELSE 'adopted' END
            FROM ledger_deadletter d JOIN ledger_cleanupcommand c ON c.id > d.command_id
            CROSS JOIN LATERAL (SELECT CASE WHEN c.id - d.command_id <= %s THEN now() END AS at) r WHERE d.id = %s
            """,
            [RESOLVED, entry.pk],
        )
        cursor.execute("ANALYZE")
    return world


def test_the_pages_of_quarantine_read_a_bounded_number_of_rows(
    large: Acting, person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("reader", roles.COMPLIANCE))
    middle = DeadLetter.objects.filter(resolved_at=None).order_by("pk").values_list("pk", flat=True)[10_000]
    run = DeadLetter.objects.values_list("run", flat=True).first()
    for query in (
        {},
        {"after": middle},
        {"before": middle},
        {"class": "permission"},
        {"class": "transient", "code": "AccessDenied", "bucket": large.bucket.pk, "after": middle},
        {"prefix": "clips/050/"},
        {"prefix": "missing"},
        {"tenant": large.tenant.pk},
        {"run": run},
        {"run": "missing"},
        {"q": "missing"},
        {"entries": "resolved"},
    ):
        queries_of(client, url(DeadLetter, "changelist"), query)
    queries_of(client, url(DeadLetter, "change", middle), {"_changelist_filters": "class=permission"})


def test_causes_are_found_from_one_to_the_next(large: Acting) -> None:
    groups = causes.groups().each
    assert [(group.failure_class, group.whole) for group in groups] == [("permission", False), ("transient", True)]
    parameters: dict[str, Any] = {"cap": causes.COUNTED_AT_MOST, "most": causes.CAUSES_AT_MOST, "late": 1}
    for tenants in (None, [large.tenant.pk]):
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN " + sqlfiles.read(causes.__file__, "causes.sql"), parameters | {"tenants": tenants})
            plan = "\n".join(row[0] for row in cursor.fetchall())
        assert plan.count("quarantine_causes") >= 2  # the first cause, and each that follows
        assert "Seq Scan on ledger_deadletter" not in plan


def test_the_oldest_of_each_class_is_found_by_its_index(large: Acting) -> None:
    sql(
        "UPDATE ledger_deadletter SET entered_at = now() - interval '3 d' WHERE id = (SELECT max(id) FROM ledger_deadletter)"
    )
    with connection.cursor() as cursor:
        statement = sqlfiles.read(vitals.__file__, "vital_quarantine.sql")
        cursor.execute(f"EXPLAIN {statement}", {"codes": [], "counted": vitals.QUARANTINE_COUNTED})
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert plan.count("quarantine_waiting") >= 2  # the first class, and each that follows
    assert "Seq Scan on ledger_deadletter" not in plan
    found = {each.failure_class: each for each in vitals.quarantined()}
    waiting = DeadLetter.objects.filter(resolved_at=None)
    for failure_class, oldest in waiting.order_by().values_list("failure_class").annotate(Min("entered_at")):
        assert found.pop(failure_class)[1:] == (
            oldest, min(waiting.filter(failure_class=failure_class).count(), vitals.QUARANTINE_COUNTED)
        )  # fmt: skip
    assert found == {}
    assert vitals.quarantined_since([large.tenant.code]) == waiting.aggregate(at=Min("entered_at"))["at"]
    assert vitals.quarantined_since(["elsewhere"]) is None


def test_all_of_a_cause_is_counted_by_its_index(large: Acting, client: Client) -> None:
    client.force_login(large.people["compliance"])
    page = client.get(reverse("admin:ledger_deadletter_close_many"), {"class": "transient"})
    matching = DeadLetter.objects.filter(resolved_at=None, failure_class="transient").count()
    assert f"Close without retry: {matching:,} entries" in page.content.decode()
