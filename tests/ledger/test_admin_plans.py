"""Admin pages over large tables: however many rows there are, a page reads a bounded number of them."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cleanup_project.base import roles
from cleanup_project.base.models import User
from cleanup_project.base.paginator import EXACT_UP_TO
from ledger.models import CleanupRun, ManifestItem, ManifestPart
from retention.models import Bucket, ObjectVersion, PolicyRevision, Tenant
from tests import world
from tests.web import quick_pages, url  # noqa: F401

pytestmark = [pytest.mark.bulk, pytest.mark.django_db]

ROWS = 100_000
# A page and its lookahead; the capped count and the deepest page read up to the cap, once, or beside each of the two runs.
BOUND = 2 * EXACT_UP_TO + 201


@pytest.fixture
def large(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> CleanupRun:
    """A catalogue and a manifest of `ROWS` each, half of the items in an earlier run."""
    world.version(bucket, tenant, "seed", asset="seed")
    revision = world.published(tenant, bucket, author=manager, publisher=second_manager, code="clips")
    earlier, run = world.sealed_run(revision), world.sealed_run(revision)
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO retention_objectversion (bucket_id, key, version_id, incarnation, etag, size, stored_at,
                storage_class, is_latest, is_delete_marker, tenant_id, asset, series, retention_class, role, original_key,
                original_version_id, standalone, source, first_observed_at, observed_at, gone_reason)
            SELECT %s, 'clips/' || lpad(n::text, 9, '0'), 'v1', '', 'e', 1, now(), '', true, false, %s, n::text, n::text,
                '', 'original', '', '', true, 'listing', now(), now(), '' FROM generate_series(1, %s) n
            """,
            [bucket.pk, tenant.pk, ROWS],
        )
        for each, key in ((earlier, "a"), (run, "b")):
            part = ManifestPart.objects.get(run=each)
            cursor.execute(
                """
                INSERT INTO ledger_manifestitem (part_id, run_id, ordinal, command_key, revision_id, object_version_id,
                    eligible_since, target_count, bytes, line, digest)
                SELECT i.part_id, i.run_id, n + 1, %s || n, i.revision_id, n, i.eligible_since, 1, 1, i.line, i.digest
                FROM ledger_manifestitem i, generate_series(1, %s) n WHERE i.part_id = %s AND i.ordinal = 1
                """,
                [f"{key}:", ROWS // 2, part.pk],
            )
        cursor.execute("ANALYZE")
    return run


@pytest.fixture
def auditor(person: Callable[..., User], client: Client) -> User:
    user = person("auditor", roles.AUDITOR)
    client.force_login(user)
    return user


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def rows_read(sql: str) -> int:
    """The most rows that any step of the executed plan looked at."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT json) {sql}")
        found = cursor.fetchone()[0]
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return max(
        int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes(plan)
    )


def explained(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}")
        return "\n".join([sql, *(row[0] for row in cursor.fetchall())])


def queries_of(client: Client, address: str, query: dict[str, Any] | None = None) -> list[str]:
    """The statements that a page runs, each of which read a bounded number of rows."""
    with CaptureQueriesContext(connection) as captured:
        response = client.get(address, query)
    assert response.status_code == 200
    statements = [each["sql"] for each in captured if each["sql"].startswith("SELECT") and " FROM " in each["sql"]]
    for statement in statements:
        assert rows_read(statement) <= BOUND, explained(statement)
    return statements


def test_lists_and_pages_read_a_bounded_number_of_rows(
    large: CleanupRun, bucket: Bucket, auditor: User, client: Client
) -> None:
    objects, items, parts = (url(model, "changelist") for model in (ObjectVersion, ManifestItem, ManifestPart))
    last = EXACT_UP_TO // 100
    for address, query in (
        (objects, {}),
        (objects, {"p": last}),
        (objects, {"bucket": bucket.pk, "p": last}),
        (objects, {"q": "clips/000000777"}),
        (objects, {"q": "missing"}),
        (items, {}),
        (items, {"p": last}),
        (items, {"run": large.pk, "p": last}),
        (items, {"run": large.pk, "ordinal__gte": 40_000, "ordinal__lte": 40_999}),
        (items, {"run": large.pk, "overdue": 30, "p": last}),
        (items, {"q": "b:777"}),
        (items, {"q": "b:777", "run": large.pk}),
        (items, {"q": "missing"}),
        (parts, {"run": large.pk}),
        (url(CleanupRun, "changelist"), {}),
        (url(CleanupRun, "change", large.pk), {}),
        (url(CleanupRun, "compare", large.pk), {}),
    ):
        queries_of(client, address, query)
    row = ObjectVersion.objects.with_key("clips/000000777").get()
    queries_of(client, url(ObjectVersion, "change", row.pk))
    item = ManifestItem.objects.get(command_key="b:777")
    queries_of(client, url(ManifestItem, "change", item.pk))


def test_the_list_says_about_how_many_and_ends(large: CleanupRun, auditor: User, client: Client) -> None:
    page = url(ObjectVersion, "changelist")
    response = client.get(page)
    changelist = response.context["cl"]
    assert changelist.paginator.is_estimate
    assert ROWS * 0.8 < changelist.result_count < ROWS * 1.2
    assert len(changelist.result_list) == 100
    assert "about " in response.content.decode()
    assert "The list ends after 10,000 rows" in response.content.decode()
    assert not changelist.can_show_all

    beyond = client.get(page, {"p": 1_500})
    assert beyond.context["cl"].page_num == EXACT_UP_TO // 100
    assert "narrow them by search or filter" in beyond.content.decode()
    assert len(client.get(page, {"all": ""}).context["cl"].result_list) == 100


def test_a_wrong_low_estimate_loads_no_table(large: CleanupRun, auditor: User, client: Client) -> None:
    """Django's list takes everything where the count is not above one page."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pg_class SET reltuples = 1, relpages = 1 WHERE relname = 'retention_objectversion'")
        cursor.execute("DELETE FROM pg_statistic WHERE starelid = 'retention_objectversion'::regclass")
    changelist = client.get(url(ObjectVersion, "changelist")).context["cl"]
    assert changelist.result_count > EXACT_UP_TO
    assert len(changelist.result_list) == 100


def test_the_number_of_queries_does_not_depend_on_the_number_of_rows(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, auditor: User, client: Client
) -> None:
    def counts() -> list[int]:
        models = (ObjectVersion, ManifestItem, CleanupRun, ManifestPart, PolicyRevision)
        return [len(queries_of(client, url(model, "changelist"))) for model in models]

    def grow(names: str) -> None:
        for name in names:
            world.version(bucket, tenant, name, asset=name)
            world.sealed_run(world.published(tenant, bucket, author=manager, publisher=second_manager))

    grow("a")
    few = counts()
    grow("bcdef")
    assert counts() == few
