"""Webhooks in the admin: endpoints by their verbs, the secret once, everything else to read."""

from collections.abc import Callable

import pytest
from django.test import Client

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from tests.web import quick_pages, url  # noqa: F401
from tests.webhooks.http import receiver
from tests.webhooks.world import endpoint, notice, tell
from webhooks import dispatch, signing
from webhooks.models import Delivery, DeliveryAttempt, Endpoint, EndpointSecret, OutboxEvent

pytestmark = pytest.mark.django_db
MODELS = (Endpoint, OutboxEvent, Delivery, DeliveryAttempt)
FIELDS = {
    "tenant": "acme",
    "name": "Archive",
    "url": "https://example.org/hook",
    "event_types": "media.deleted, quarantine.entered",
}


@pytest.fixture
def at_work(operator: User, client: Client) -> User:
    client.force_login(operator)
    return operator


@pytest.fixture
def sent(operator: User) -> OutboxEvent:
    """One event of two, refused by its endpoint with hostile bytes."""
    hostile = b"HTTP/1.1 400 Bad\r\n\r\n\x00\xff\x1b[31m<script>alert(1)</script>"
    with receiver(lambda request: hostile) as inbox:
        endpoint(operator, inbox.url)
        tell(notice("a", "key:1"), notice("a", "key:2"))
        dispatch.dispatch(threads=1)
    return OutboxEvent.objects.get(sequence=1)


def test_an_operator_adds_an_endpoint_and_sees_its_secret_once(at_work: User, client: Client) -> None:
    assert client.get(url(Endpoint, "add")).status_code == 200
    answer = client.post(url(Endpoint, "add"), FIELDS)
    made = Endpoint.objects.get()
    secret = answer.context["secret"]
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    assert secret in answer.content.decode()
    assert (made.event_types, made.created_by) == (["media.deleted", "quarantine.entered"], at_work)
    assert len(signing.parse_secret(secret)) == 32
    assert secret.encode() not in bytes(EndpointSecret.objects.get().key_encrypted)
    assert "sessionid" not in answer.cookies
    assert "messages" not in answer.cookies
    assert secret not in client.get(url(Endpoint, "change", made.pk)).content.decode()
    assert AuditEvent.objects.get(action="endpoint.created").actor == at_work
    assert secret not in str(AuditEvent.objects.get(action="endpoint.created").after)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("url", "https://user:password@example.org/", "without user name"),
        ("url", "", "required"),
        ("event_types", "*, media.deleted", "leave the others out"),
        ("event_types", "", "required"),
        ("tenant", "Acme!", "lower-case"),
    ],
)
def test_a_refused_endpoint_comes_back_as_it_was(
    field: str, value: str, words: str, at_work: User, client: Client
) -> None:
    shown = client.post(url(Endpoint, "add"), FIELDS | {field: value}).content.decode()
    assert words in shown
    assert "Archive" in shown
    assert not Endpoint.objects.exists()


def test_a_name_is_taken_once(at_work: User, client: Client) -> None:
    client.post(url(Endpoint, "add"), FIELDS)
    assert "already exists" in client.post(url(Endpoint, "add"), FIELDS).content.decode()


def test_an_endpoint_is_disabled_with_a_reason_and_enabled_again(at_work: User, client: Client) -> None:
    made, _ = endpoint(at_work)
    disable, enable = (url(Endpoint, verb, made.pk) for verb in ("disable", "enable"))
    page = client.get(url(Endpoint, "change", made.pk)).content.decode()
    assert (disable in page, enable in page) == (True, False)
    assert "is not disabled" in client.post(enable, {}).content.decode()
    assert "This field is required." in client.post(disable, {"reason": " "}).content.decode()
    assert client.get(disable).status_code == 200
    assert client.post(disable, {"reason": "Moving house."}).status_code == 302
    made.refresh_from_db()
    assert made.disabled_reason == "Moving house."
    assert "is disabled already" in client.post(disable, {"reason": "Again."}).content.decode()
    assert "Moving house." in client.get(enable).content.decode()
    made.refresh_from_db()
    assert made.disabled_at is not None
    assert client.post(enable, {}).status_code == 302
    made.refresh_from_db()
    assert (made.disabled_at, made.disabled_reason) == (None, "")
    actions = list(AuditEvent.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["endpoint.created", "endpoint.disabled", "endpoint.enabled"]


@pytest.mark.parametrize(
    ("role", "reads", "decides"),
    [
        (roles.OPERATOR, 200, 200),
        (roles.COMPLIANCE, 200, 200),
        (roles.AUDITOR, 200, 403),
        (roles.RETENTION_MANAGER, 403, 403),
        (roles.ADMINISTRATOR, 403, 403),
    ],
)
def test_who_reads_and_who_decides(
    role: str, reads: int, decides: int, sent: OutboxEvent, person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("someone", role))
    for model in MODELS:
        assert client.get(url(model, "changelist")).status_code == reads, model
        row = model.objects.order_by("id")[0]
        assert client.get(url(model, "change", row.pk)).status_code == reads, model
        assert client.post(url(model, "delete", row.pk), {"post": "yes"}).status_code == 403, model
    made = Endpoint.objects.get()
    assert client.get(url(Endpoint, "add")).status_code == decides
    assert client.get(url(Endpoint, "disable", made.pk)).status_code == decides
    assert client.get(url(Endpoint, "enable", made.pk)).status_code == decides


def test_search_is_exact_by_event_id_and_command_key(sent: OutboxEvent, at_work: User, client: Client) -> None:
    for model in (OutboxEvent, Delivery, DeliveryAttempt):
        for term, found in (
            (sent.event_id, 1),
            ("key:1", 1),
            ("key:", 0),
            (sent.event_id[:-1], 0),
            (f" {sent.event_id}", 0),
        ):
            rows = client.get(url(model, "changelist"), {"q": term}).context["cl"].result_list
            assert len(rows) == found, (model, term)


def test_what_a_receiver_answered_is_shown_and_does_nothing(sent: OutboxEvent, at_work: User, client: Client) -> None:
    shown = client.get(url(DeliveryAttempt, "change", DeliveryAttempt.objects.get().pk)).content.decode()
    assert "<script>alert" not in shown
    assert "\\x00\\\\xff\\x1b[31m&lt;script&gt;alert(1)" in shown


def test_an_event_shows_its_body_and_its_deliveries(sent: OutboxEvent, at_work: User, client: Client) -> None:
    shown = client.get(url(OutboxEvent, "change", sent.pk)).content.decode()
    assert "&quot;note&quot;:&quot;Grüße&quot;" in shown
    assert "The endpoint answered 400." in shown
    head, behind = Delivery.objects.order_by("sequence")
    assert url(Delivery, "change", head.pk) in shown
    assert "after an earlier event" in client.get(url(Delivery, "change", behind.pk)).content.decode()
    page = client.get(url(Delivery, "change", head.pk)).content.decode()
    assert url(DeliveryAttempt, "change", DeliveryAttempt.objects.get().pk) in page


def test_deliveries_are_filtered_by_state(sent: OutboxEvent, at_work: User, client: Client) -> None:
    page = url(Delivery, "changelist")
    assert len(client.get(page, {"state__exact": "pending"}).context["cl"].result_list) == 2
    assert len(client.get(page, {"state__exact": "dead"}).context["cl"].result_list) == 0
