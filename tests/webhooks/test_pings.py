"""A ping: signed, in the envelope, on record before it is sent, and never an event of a lane."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import rfc8785
from django.db import IntegrityError, connection, transaction

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from tests.webhooks.http import Answer, receiver
from tests.webhooks.world import endpoint, sql
from webhooks import endpoints, failures, outbox, pings, secrets, sender
from webhooks.exceptions import WebhooksError
from webhooks.models import Delivery, Endpoint, Lane, OutboxEvent, Ping

pytestmark = pytest.mark.django_db


def test_it_is_a_signed_envelope_that_belongs_to_no_lane(operator: User) -> None:
    with receiver() as inbox:
        made, secret = endpoint(operator, inbox.url + "?token=hidden", enabled=False, name="Archiv Süd")
        sent = pings.ping(endpoint=made, by=operator)
    (request,) = inbox.requests
    assert request.is_signed_by(secret)
    assert request.path == "/hook?token=hidden"
    body = json.loads(request.body)
    assert request.body == rfc8785.dumps(body)
    assert re.fullmatch("evt_[a-z2-7]{40}", request.id)
    assert body.pop("timestamp").endswith("Z")
    assert body == {
        "id": sent.event_id,
        "type": "endpoint.ping",
        "schema_version": 1,
        "subject": f"endpoint:{made.pk}",
        "sequence": 0,
        "data": {"endpoint": "Archiv Süd"},
    }
    assert request.id == sent.event_id == outbox.event_id("endpoint.ping", f"endpoint:{made.pk}", str(sent.pk))
    assert (OutboxEvent.objects.count(), Delivery.objects.count(), Lane.objects.count()) == (0, 0, 0)
    assert (sent.status, sent.failure_class, sent.error, sent.sent_by) == (204, "", "", operator)
    assert sent.key_ids == [made.secrets.get().pk]
    assert "hidden" not in sent.url
    made.refresh_from_db()
    assert made.disabled_reason == endpoints.UNCONFIRMED, "a ping alone enables nothing"


def test_each_has_an_id_of_its_own(operator: User) -> None:
    with receiver() as inbox:
        made, _ = endpoint(operator, inbox.url)
        ids = {pings.ping(endpoint=made, by=operator).event_id for _ in range(3)}
    assert ids == {request.id for request in inbox.requests}
    assert len(ids) == 3


def test_it_is_on_record_before_it_is_sent_and_finished_once(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, Any]] = []

    def post(*_: Any) -> sender.Answer:
        seen.extend(Ping.objects.values_list("pk", "finished_at"))
        raise RuntimeError("killed")

    made, _ = endpoint(operator)
    monkeypatch.setattr(sender, "send", post)
    with pytest.raises(RuntimeError, match="killed"):
        pings.ping(endpoint=made, by=operator)
    left = Ping.objects.get()
    assert seen == [(left.pk, None)]
    assert AuditEvent.objects.get(action="endpoint.pinged").after == {"event_id": left.event_id, "url": left.url}
    pings.finish(left, sender.Answer(204, "", "", b"", 5))
    pings.finish(left, sender.Answer(500, "transient", "late", b"", 9))
    left.refresh_from_db()
    assert left.status == 204
    with pytest.raises(IntegrityError, match="can only be finished"), transaction.atomic():
        sql("UPDATE webhooks_ping SET status = 500")


def test_nothing_is_sent_inside_a_transaction(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = endpoint(operator)
    within: list[bool] = []
    depth = len(connection.savepoint_ids)

    def post(*_: Any) -> sender.Answer:
        within.append(len(connection.savepoint_ids) > depth)
        return sender.Answer(204, "", "", b"", 5)

    monkeypatch.setattr(sender, "send", post)
    pings.ping(endpoint=made, by=operator)
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        pings.ping(endpoint=made, by=operator)
    assert within == [False]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda request: 404, "status 404, not found): The endpoint answered 404. Correct the path"),
        (lambda request: 401, "status 401, auth): The endpoint answered 401. Let the receiver judge by the signature"),
        (lambda request: 500, "status 500, transient): The endpoint answered 500. Look at the receiver's log"),
        (lambda request: 409, "status 409, conflict"),
        (lambda request: b"HTTP/1.1 302 Found\r\nlocation: /ok\r\ncontent-length: 0\r\n\r\n", "redirects to"),
        (lambda request: b"", "(network)"),
    ],
)
def test_what_came_of_it_is_told_with_what_to_do(answer: Answer, told: str, operator: User) -> None:
    with receiver(answer) as inbox:
        made, _ = endpoint(operator, inbox.url)
        sent = pings.ping(endpoint=made, by=operator)
        assert len(inbox.requests) == 1
    assert told in pings.words(classified(sent))
    assert not pings.is_acknowledged(sent)


def classified(sent: Ping) -> Ping:
    """Where the sender tells no more than `status`, by the table of classes."""
    if sent.failure_class == "status":
        assert sent.status is not None
        sent.failure_class = failures.of_status(sent.status)
    return sent


def test_a_success_is_told_with_its_time(operator: User) -> None:
    assert pings.words(Ping(status=202, milliseconds=1234)) == "The ping was answered with 202 after 1,234 ms."


def test_a_disabled_endpoint_is_pinged_and_a_retired_one_is_not(operator: User) -> None:
    with receiver() as inbox:
        made, _ = endpoint(operator, inbox.url)
        endpoints.disable(endpoint=made, by=operator, reason="Moving house.")
        assert pings.ping(endpoint=made, by=operator).status == 204
        endpoints.retire(endpoint=made, by=operator, reason="Gone.")
        with pytest.raises(WebhooksError, match="retired for ever"):
            pings.ping(endpoint=made, by=operator)
        assert len(inbox.requests) == 1


def test_a_ping_needs_a_secret_that_signs(operator: User, settings: Any) -> None:
    made, _ = endpoint(operator)
    settings.SECRET_KEY = "lost"
    with pytest.raises(WebhooksError, match="ENCRYPTION_KEYS"):
        pings.ping(endpoint=made, by=operator)
    secrets.revoke_all(made)
    with pytest.raises(WebhooksError, match="rotate its secret first"):
        pings.ping(endpoint=made, by=operator)
    assert not Ping.objects.exists()


@pytest.mark.parametrize("role", sorted(set(roles.MATRIX) - {roles.OPERATOR, roles.COMPLIANCE}))
def test_who_may_not_manage_endpoints_sends_none(role: str, operator: User, person: Callable[..., User]) -> None:
    made, _ = endpoint(operator)
    with pytest.raises(WebhooksError, match="may not manage endpoints"):
        pings.ping(endpoint=made, by=person("someone", role))
    assert not Ping.objects.exists()
    assert Endpoint.objects.get().disabled_at is None
