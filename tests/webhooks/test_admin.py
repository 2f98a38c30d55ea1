"""Webhooks in the admin: endpoints by their verbs, the secret once, everything else to read."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from tests.web import quick_pages, url  # noqa: F401
from tests.webhooks.http import receiver
from tests.webhooks.world import assets, endpoint, notice, sql, tell
from webhooks import dispatch, endpoints, secrets, signing, traffic
from webhooks.admin import endpointwords
from webhooks.endpoints import UNCONFIRMED
from webhooks.models import Delivery, DeliveryAttempt, Endpoint, EndpointSecret, OutboxEvent, Ping

pytestmark = pytest.mark.django_db
MODELS = (Endpoint, OutboxEvent, Delivery, DeliveryAttempt)
FIELDS = {
    "tenant": "acme",
    "name": "Archive",
    "url": "https://example.org/hook",
    "event_types": ["media.deleted", "run.closed"],
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
    assert (made.event_types, made.created_by) == (["media.deleted", "run.closed"], at_work)
    assert made.disabled_reason == UNCONFIRMED
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
        ("event_types", ["*", "media.deleted"], "leave the others out"),
        ("event_types", "media.lost", "Select a valid choice"),
        ("event_types", "", "required"),
        ("tenant", "Acme!", "lower-case"),
        ("include_keys", "on", "State a reason for telling object keys"),
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


def test_an_endpoint_is_disabled_with_a_reason_and_enabled_again_by_a_ping(at_work: User, client: Client) -> None:
    with receiver(lambda request: 204 if len(inbox.requests) > 1 else 503) as inbox:
        made, _ = endpoint(at_work, inbox.url)
        disable, enable = (url(Endpoint, verb, made.pk) for verb in ("disable", "enable"))
        page = shown(client, made)
        assert (disable in page, enable in page) == (True, False)
        assert "is not disabled" in client.post(enable, {}).content.decode()
        assert "This field is required." in client.post(disable, {"reason": " "}).content.decode()
        assert client.get(disable).status_code == 200
        assert client.post(disable, {"reason": "Moving house."}).status_code == 302
        made.refresh_from_db()
        assert made.disabled_reason == "Moving house."
        assert "is disabled already" in client.post(disable, {"reason": "Again."}).content.decode()
        assert "Moving house." in client.get(enable).content.decode()
        assert inbox.requests == []
        refused = client.post(enable, {}).content.decode()
        assert "Nothing was enabled. The ping was not acknowledged (status 503" in refused
        made.refresh_from_db()
        assert made.disabled_at is not None
        answer = client.post(enable, {}, follow=True)
        assert "is enabled. The ping was answered with 204" in answer.content.decode()
    made.refresh_from_db()
    assert (made.disabled_at, made.disabled_reason) == (None, "")
    actions = list(AuditEvent.objects.order_by("id").values_list("action", flat=True))
    assert actions == [f"endpoint.{act}" for act in ("created", "disabled", "pinged", "pinged", "enabled")]


def shown(client: Client, made: Endpoint) -> str:
    return client.get(url(Endpoint, "change", made.pk)).content.decode()


def test_a_ping_alone_is_told_and_what_it_was_answered_is_shown_and_does_nothing(at_work: User, client: Client) -> None:
    hostile = b"HTTP/1.1 400 Bad\r\n\r\n\x00\xff\x1b[31m<script>alert(1)</script>"
    with receiver(lambda request: hostile if len(inbox.requests) > 1 else 204) as inbox:
        made, _ = endpoint(at_work, inbox.url)
        ping = url(Endpoint, "ping", made.pk)
        assert client.get(ping).status_code == 200
        assert "The ping was answered with 204" in client.post(ping, {}, follow=True).content.decode()
        assert "The ping was not acknowledged (status 400" in client.post(ping, {}).content.decode()
        assert len(inbox.requests) == 2
    page = shown(client, made)
    assert "<script>alert" not in page
    assert "\\x00\\\\xff\\x1b[31m&lt;script&gt;alert(1)" in page


def test_a_person_changes_only_what_that_person_changed(at_work: User, client: Client) -> None:
    """Somebody else gave the endpoint another URL while this one looked at the form."""
    made, _ = endpoint(at_work, event_types=["media.deleted", "run.closed"])
    form = client.get(url(Endpoint, "edit", made.pk)).context["adminform"].form
    posted: dict[str, object] = {"reason": "Renamed.", "name": "Index"}
    for name in ("name", "url"):
        posted |= {f"initial-{name}": form[name].value(), name: posted.get(name, form[name].value())}
    posted |= {"initial-event_types": form["event_types"].value(), "event_types": ["media.deleted", "run.closed"]}
    posted |= {"initial-include_keys": "False", "initial-duplicate_is_success": "False", "duplicate_is_success": "on"}
    Endpoint.objects.update(url="https://elsewhere.example/hook")
    assert client.post(url(Endpoint, "edit", made.pk), posted).status_code == 302
    told = AuditEvent.objects.get(action="endpoint.changed")
    assert told.after == {"name": "Index", "duplicate_is_success": True}
    made.refresh_from_db()
    assert (made.url, made.event_types) == ("https://elsewhere.example/hook", ["media.deleted", "run.closed"])
    again = client.post(url(Endpoint, "edit", made.pk), posted | {"name": "", "initial-name": "Index"})
    assert "This field is required." in again.content.decode()


def test_a_secret_is_rotated_once_shown_once_and_the_old_one_revoked(at_work: User, client: Client) -> None:
    made, old = endpoint(at_work)
    rotate, revoke = url(Endpoint, "rotate", made.pk), url(Endpoint, "revoke", made.pk)
    form = client.get(rotate).context["adminform"].form
    values = {"newest": form["newest"].value(), "overlap": 24, "reason": "Yearly."}
    assert "less than or equal to 168" in client.post(rotate, values | {"overlap": 169}).content.decode()
    answer = client.post(rotate, values)
    secret = answer.context["secret"]
    assert secret != old
    assert secret in answer.content.decode()
    assert "no-store" in answer["Cache-Control"]
    assert "messages" not in answer.cookies
    assert "rotated or revoked meanwhile" in client.post(rotate, values).content.decode()
    assert made.secrets.live().count() == 2
    page = shown(client, made)
    assert secret not in page
    assert page.count("yes, first") == page.count("yes, also") == 1
    newest, oldest = made.secrets.live()
    assert f"secret {oldest.pk}, made" in client.get(revoke).content.decode()
    refused = client.post(revoke, {"secret": newest.pk, "reason": "Leaked."}).content.decode()
    assert "nothing would sign for good" in refused
    assert client.post(revoke, {"secret": oldest.pk, "reason": "Leaked."}).status_code == 302
    assert "Select a valid choice" in client.post(revoke, {"secret": oldest.pk, "reason": "Again."}).content.decode()
    assert list(made.secrets.live()) == [newest]


def test_an_endpoint_is_retired_by_who_types_its_name(at_work: User, client: Client) -> None:
    made, _ = endpoint(at_work)
    tell(notice("a", "1"))
    retire = url(Endpoint, "retire", made.pk)
    for typed in ("archive", "Archive2", ""):
        assert client.post(retire, {"typed": typed, "reason": "Gone."}).status_code == 200
    assert client.get(retire).status_code == 200
    made.refresh_from_db()
    assert made.retired_at is None
    assert client.post(retire, {"typed": "Archive", "reason": "Gone."}).status_code == 302
    page = shown(client, made)
    assert "retired" in page
    assert not any(url(Endpoint, verb, made.pk) in page for verb in VERBS)
    assert Delivery.objects.get().state == "cancelled"


def test_health_is_told_in_words(at_work: User, client: Client) -> None:
    made, _ = endpoint(at_work)
    assert "Nothing is wrong that its answers have shown." in shown(client, made)
    sql(
        "UPDATE webhooks_endpoint SET failing_since = '2020-01-01Z', circuit_step = 2, concurrency = 4, resumed_at = now(), "
        "open_until = '2020-01-02Z', paused_until = now() + interval '1 h'"
    )
    page = shown(client, made)
    for words in (
        "No success since", "2020-01-01 00:00:00 UTC", "Will be disabled at", "for the 2. time in a row",
        "a probe is due since", "Paused until", "It is sent 4 at once instead of 32", "It was enabled not long ago",
    ):  # fmt: skip
        assert words in page
    listed = client.get(url(Endpoint, "changelist")).content.decode()
    assert "circuit open" in listed
    sql("UPDATE webhooks_endpoint SET open_until = now() + interval '1 h'")
    assert "the next probe goes out at" in shown(client, made)
    sql("UPDATE webhooks_endpoint SET circuit_step = 0, open_until = NULL")
    assert ">paused<" in client.get(url(Endpoint, "changelist")).content.decode()
    sql("UPDATE webhooks_endpoint SET paused_until = NULL")
    assert ">failing<" in client.get(url(Endpoint, "changelist")).content.decode()
    made.refresh_from_db()
    endpoints.disable(endpoint=made, by=at_work, reason="Moving house.")
    page = shown(client, made)
    assert "Will be disabled" not in page
    assert "Moving house." in page


def test_what_goes_on_is_read_at_once_for_all_endpoints(operator: User, client: Client) -> None:
    client.force_login(operator)
    first, _ = endpoint(operator, name="Archive 0")
    shown(client, first)  # whatever is read once for all pages
    counts = []
    for number in range(1, 4):
        made, _ = endpoint(operator, name=f"Archive {number}")
        tell(*[notice(f"a{number}", f"{number}:{event}") for event in range(3)])
        attempts(made, ["", "transient", ""])
        for _ in range(2):
            Ping.objects.create(endpoint=made, event_id=f"evt_{Ping.objects.count()}", sent_by=operator, url=made.url)
        if number > 1:
            secrets.rotate(endpoint=made, by=operator, reason="R")
        with CaptureQueriesContext(connection) as listing:
            page = client.get(url(Endpoint, "changelist"))
        with CaptureQueriesContext(connection) as item:
            client.get(url(Endpoint, "change", made.pk))
        counts.append((len(listing), len(item)))
    assert len(set(counts)) == 1, counts
    found = page.context["cl"].result_list[1]._traffic
    assert (found.pending, found.oldest_due is not None) == (9, True)
    assert found.failed < found.succeeded


def attempts(made: Endpoint, classes: list[str]) -> None:
    delivery = Delivery.objects.filter(endpoint=made).earliest("pk")
    for token, failure_class in enumerate(classes, 1):
        sql(
            "INSERT INTO webhooks_deliveryattempt (delivery_id, endpoint_id, number, token, is_probe, started_at, "
            "finished_at, url, key_ids, peer, status, failure_class, error, milliseconds) VALUES "
            "(%s, %s, %s, %s, false, now(), now() + %s * interval '1 s', 'https://x', '{}', '', 200, %s, '', 5)",
            delivery.pk, made.pk, token, token, token, failure_class,
        )  # fmt: skip


def test_pending_deliveries_are_counted_up_to_a_limit(
    operator: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "COUNTED", 2)
    monkeypatch.setattr(endpointwords, "COUNTED", 2)
    made, _ = endpoint(operator)
    tell(*assets(2))
    assert traffic.traffic([made.pk])[made.pk].pending == 2
    tell(*assets(2, events=2)[2:])
    assert traffic.traffic([made.pk])[made.pk].pending == 3
    client.force_login(operator)
    assert "more than 2" in shown(client, made)


VERBS = ("ping", "enable", "disable", "edit", "rotate", "revoke", "retire")


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
    before, records = Endpoint.objects.values().get(), AuditEvent.objects.count()
    assert client.get(url(Endpoint, "add")).status_code == decides
    assert client.post(url(Endpoint, "add"), {}).status_code == decides
    for verb in VERBS:
        assert client.get(url(Endpoint, verb, made.pk)).status_code == decides, verb
    for verb in set(VERBS) - ({"ping"} if decides == 200 else set()):
        assert client.post(url(Endpoint, verb, made.pk), {}).status_code == decides, verb
    assert (Endpoint.objects.values().get(), AuditEvent.objects.count()) == (before, records)
    offered = client.get(url(Endpoint, "change", made.pk)).content.decode()
    assert (url(Endpoint, "disable", made.pk) in offered) == (decides == 200)


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
