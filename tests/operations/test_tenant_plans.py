"""Lists of people who see some tenants alone: what belongs to others is not read to be left out."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.db.models import Model
from django.test import Client

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from ledger.models import CleanupCommand, CleanupRun, DeadLetter, ManifestItem, Receipt
from retention.models import ObjectVersion, Tenant
from tests.everything import first, make
from tests.ledger.test_admin_plans import BOUND, queries_of
from tests.web import quick_pages, url  # noqa: F401
from webhooks.models import Delivery, Endpoint, OutboxEvent

ROWS = 2 * BOUND
CHUNK = 5000  # rows of one statement
LARGE = (ObjectVersion, ManifestItem, CleanupCommand, Receipt, OutboxEvent, Delivery, AuditEvent)

pytestmark = [pytest.mark.bulk, pytest.mark.django_db]


def many(model: type[Model], number: int, **columns: str) -> None:
    """Copies of a row, but for these columns, whose SQL may count by `n`."""
    table = model._meta.db_table
    names = [field.column for field in model._meta.concrete_fields if not field.primary_key]
    values = ", ".join(columns.get(name, f"t.{name}") for name in names)
    pattern = first(model).pk
    with connection.cursor() as cursor:
        for start in range(0, number, CHUNK):
            cursor.execute(
                f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} t, generate_series(%s, %s) n "
                "WHERE t.id = %s",
                [start + 1, min(start + CHUNK, number), pattern],
            )


@pytest.fixture
def crowded(db: None) -> None:
    """A few rows of acme's, and after them very many of another tenant's."""
    make()
    other = Tenant.objects.create(code="other", name="Other").pk
    mine = {"tenant_id": str(other)}
    many(CleanupRun, 1, key="'other'", idempotency_key="NULL", **mine)
    run = str(CleanupRun.objects.get(key="other").pk)
    many(
        ObjectVersion, ROWS, key="'clips/' || lpad(n::text, 9, '0')", gone_at="now()", gone_reason="'vanished'", **mine
    )
    many(ManifestItem, ROWS, run_id=run, ordinal="n", command_key="'other:' || n")
    begun = {
        "state": "'ready'",
        "cycle": "0",
        "outcome": "''",
        "event_id": "''",
        "lease_token": "0",
        "claims": "0",
        "attempts": "0",
    }
    many(CleanupCommand, ROWS, key="'other:' || n", run_id=run, **begun, **mine)
    many(
        Receipt,
        ROWS,
        command_id="10000000 + n",
        command_key="'other:' || n",
        run_id=run,
        issued_at="t.issued_at + n * interval '1 ms'",
        **mine,
    )
    before = CleanupCommand.objects.filter(tenant=other).order_by("pk")[0].pk - 1
    many(DeadLetter, ROWS, command_id=f"{before} + n", **mine)
    many(Endpoint, 1, name="'other'", tenant="'other'")
    endpoint = str(Endpoint.objects.get(tenant="other").pk)
    theirs = {"tenant": "'other'"}
    many(OutboxEvent, ROWS, event_id="'evt_' || n", **theirs)
    again = {"round": "n", "lane_id": "NULL", "state": "'delivered'", "finished_at": "now()", "due_at": "now()"}
    asked_by = str(User.objects.values_list("pk", flat=True)[0])
    many(Delivery, ROWS, endpoint_id=endpoint, requested_by_id=asked_by, **again, **theirs)
    many(
        AuditEvent,
        ROWS,
        at="now() + n * interval '1 second'",
        request_id="'r' || n",
        action="'run.a' || mod(n, 50)",
        **theirs,
    )
    with connection.cursor() as cursor:
        for model in (*LARGE, DeadLetter, CleanupRun, Endpoint, Tenant):
            cursor.execute(f"ANALYZE {model._meta.db_table}")


def test_lists_read_a_bounded_number_of_rows_however_rare_ones_own_are(
    crowded: None, person: Callable[..., User], client: Client
) -> None:
    for tenants in (["acme"], ["acme", "gone"], ["acme", "other"]):
        client.force_login(person("-".join(tenants), roles.AUDITOR, tenants=tenants))
        for model in LARGE:
            queries_of(client, url(model, "changelist"))
        queries_of(client, url(DeadLetter, "changelist"))


def test_the_audit_record_answers_each_question_by_an_index(
    crowded: None, person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("auditor", roles.AUDITOR))
    address = url(AuditEvent, "changelist")
    middle = AuditEvent.objects.get(request_id=f"r{ROWS // 2}")
    since, until = f"{middle.at:%Y-%m-%dT%H:%M:%S}", f"{middle.at:%Y-%m-%dT%H:59:59}"
    for asked in (
        {},
        {"who": "manager"},
        {"who": "system"},
        {"act": "hold."},
        {"act": "run.a7"},
        {"act": "none."},
        {"item": f"{middle.subject_type}:{middle.subject_id}"},
        {"request": "r777"},
        {"since": since, "until": until},
        {"since": since, "until": until, "act": "run."},
    ):
        queries_of(client, address, asked)
