"""What the database refuses, whoever asks."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from cleanup_project.base.models import User
from tests.webhooks.world import endpoint, notice, sql, tell
from webhooks import dispatch
from webhooks.models import Delivery, DeliveryAttempt, Endpoint, OutboxEvent

pytestmark = pytest.mark.django_db


@pytest.fixture
def started(operator: User) -> None:
    """One event, its delivery under lease, and an attempt that has begun."""
    made, _ = endpoint(operator)
    tell(notice("a", "1"))
    assert len(dispatch.claim_from(made.pk, 1)) == 1


def refused(statement: str, *parameters: Any) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        sql(statement, *parameters)


@pytest.mark.parametrize(
    "change",
    [
        "type = 'x'",
        "sequence = 9",
        "schema_version = 2",
        "body = 'x', body_sha256 = sha256('x')",
        "name = 'x'",
        "lane_id = 0",
    ],
)
def test_an_event_cannot_be_changed(change: str, started: None) -> None:
    refused(f"UPDATE webhooks_outboxevent SET {change}")
    refused(f"UPDATE webhooks_outboxevent SET settled_at = now(), {change}")


def test_an_event_is_settled_once(started: None) -> None:
    sql("UPDATE webhooks_outboxevent SET settled_at = now()")
    refused("UPDATE webhooks_outboxevent SET settled_at = now() + interval '1 s'")
    refused("UPDATE webhooks_outboxevent SET settled_at = NULL")


def test_a_body_is_what_its_digest_says_and_within_its_limit(started: None) -> None:
    columns = "tenant, type, subject, name, occurrence, command_key, lane_id, sequence, schema_version, emitted_at"
    copy = (
        f"INSERT INTO webhooks_outboxevent (event_id, body, body_sha256, {columns}) "
        f"SELECT %s, {{}}, {columns} FROM webhooks_outboxevent"
    )
    refused(copy.format("'x', sha256('y')"), "one")
    long = "repeat('x', 65537)::bytea"
    refused(copy.format(f"{long}, sha256({long})"), "two")
    sql(copy.format("'x', sha256('x')"), "three")


@pytest.mark.django_db(transaction=True)  # TRUNCATE waits for checks that a test's own transaction would still owe
def test_nothing_is_removed(started: None) -> None:
    for table in ("outboxevent", "delivery", "deliveryattempt"):
        refused(f"DELETE FROM webhooks_{table}")
        refused(f"TRUNCATE webhooks_{table} CASCADE")
        with transaction.atomic():
            sql("SET LOCAL session_replication_role = replica")
            refused(f"DELETE FROM webhooks_{table}")


@pytest.mark.parametrize(
    "change", ["endpoint_id = 0", "sequence = 9", "lane_id = 0", "lease_token = 0", "tenant = 'x'"]
)
def test_what_a_delivery_is_cannot_be_changed(change: str, started: None) -> None:
    refused(f"UPDATE webhooks_delivery SET {change}")


@pytest.mark.parametrize("state", ["delivered", "dead"])
def test_a_delivery_ends_once(state: str, started: None) -> None:
    refused("UPDATE webhooks_delivery SET state = %s", state)
    refused("UPDATE webhooks_delivery SET state = 'cancelled', finished_at = now()")
    sql("UPDATE webhooks_delivery SET state = %s, finished_at = now()", state)
    refused("UPDATE webhooks_delivery SET state = 'pending', finished_at = NULL")
    refused("UPDATE webhooks_delivery SET attempts = attempts + 1")


def test_an_attempt_is_finished_once(started: None) -> None:
    refused("UPDATE webhooks_deliveryattempt SET url = 'https://elsewhere.example/'")
    refused("UPDATE webhooks_deliveryattempt SET status = 204")
    refused("UPDATE webhooks_deliveryattempt SET finished_at = now(), milliseconds = 1, token = 7")
    sql("UPDATE webhooks_deliveryattempt SET finished_at = now(), milliseconds = 1, status = 204")
    refused("UPDATE webhooks_deliveryattempt SET status = 500")
    refused("UPDATE webhooks_deliveryattempt SET finished_at = NULL, milliseconds = NULL, status = NULL")


@pytest.mark.parametrize(
    "url",
    [
        "", "example.org", "ftp://example.org/", "https://", "https:///x", "https://user@example.org/", "https://a:b@example.org/",
        "https://example.org/#part", "https://example.org/a b", "https://exämple.org/", "https://example.org\\@evil.example/",
        "https://example.org/\n", "javascript:alert(1)", "HTTPS://example.org/", "https://example.org/ü",
    ],
)  # fmt: skip
def test_form_and_database_refuse_the_same_urls(url: str, operator: User) -> None:
    with pytest.raises(ValidationError) as found:
        endpoint(operator, url)
    assert "url" in found.value.message_dict
    made, _ = endpoint(operator)
    refused("UPDATE webhooks_endpoint SET url = %s WHERE id = %s", url, made.pk)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org",
        "https://example.org:8443/a/b?c=d&e=%20",
        "https://[2001:db8::1]/x",
        "http://127.0.0.1:80/~x",
    ],
)
def test_form_and_database_take_the_same_urls(url: str, operator: User) -> None:
    endpoint(operator, url)


def test_plain_http_needs_the_deployment_to_allow_it(operator: User, settings: Any) -> None:
    settings.WEBHOOK_ALLOW_HTTP = False
    with pytest.raises(ValidationError, match="Use https"):
        endpoint(operator, "http://example.org/")


@pytest.mark.parametrize(
    "types", [[], ["*", "media.deleted"], ["Media"], ["media deleted"], [""], ["media."], ["media.burnt"]]
)
def test_event_types_are_named_and_an_empty_list_means_nothing(types: list[str], operator: User) -> None:
    with pytest.raises(ValidationError) as found:
        endpoint(operator, event_types=types)
    assert "event_types" in found.value.message_dict


def test_the_database_knows_the_rules_of_event_types(operator: User) -> None:
    endpoint(operator)
    refused("UPDATE webhooks_endpoint SET event_types = '{}'")
    refused("UPDATE webhooks_endpoint SET event_types = '{*,media.deleted}'")
    refused("UPDATE webhooks_endpoint SET disabled_at = now()")


def test_a_delivery_that_waits_behind_another_reads_as_never_due(operator: User) -> None:
    endpoint(operator)
    tell(notice("a", "1"), notice("a", "2"))
    head, behind = Delivery.objects.order_by("sequence")
    assert (head.due_at is None, behind.due_at) == (False, None)
    assert [str(row) for row in (head.event, head.endpoint)] == [head.event.event_id, "acme: Archive"]
    assert (OutboxEvent.objects.count(), Endpoint.objects.count(), DeliveryAttempt.objects.count()) == (2, 1, 0)
