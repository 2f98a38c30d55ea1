"""Dispatch against a real HTTP receiver: what is sent, what is kept, what is tried again, and in which order."""

import json
import os
import random
import time
from collections import defaultdict
from typing import Any

import pytest
import structlog
from django.db import OperationalError

from cleanup_project.base.models import User
from tests.webhooks.http import Request, receiver
from tests.webhooks.world import (
    assets,
    enabled_without_ping,
    endpoint,
    expire_leases,
    make_due,
    notice,
    sql,
    states,
    tell,
)
from webhooks import dispatch, endpoints, limits, retry, sender, sweep
from webhooks.dispatch import Dispatched
from webhooks.models import BODY_LIMIT, Delivery, DeliveryAttempt, Endpoint, OutboxEvent
from webhooks.receiver import Refused
from webhooks.sender import Answer

pytestmark = pytest.mark.django_db


def run(**options: Any) -> Dispatched:
    return dispatch.dispatch(**{"threads": 4, **options})


def swept(**found: int) -> dict[str, int]:
    return {
        "promoted": 0,
        "cancelled": 0,
        "settled": 0,
        "failing_endpoints": 0,
        "late_endpoints": 0,
        "dispatching": 0,
    } | found


def test_what_is_sent_is_what_is_stored_and_what_is_signed(operator: User) -> None:
    with receiver() as inbox:
        _, secret = endpoint(operator, inbox.url + "?token=xyz")
        (emitted,) = tell(notice("Grüße", "1", data={"text": "𝄞" * 15_000}))
        assert run() == Dispatched(sent=1, delivered=1)
    event, (request,) = OutboxEvent.objects.get(), inbox.requests
    assert BODY_LIMIT * 0.9 < len(request.body) <= BODY_LIMIT
    assert request.body == bytes(event.body)
    assert request.is_signed_by(secret)
    attempt = DeliveryAttempt.objects.get()
    delivery = attempt.delivery
    assert {
        name: value for name, value in request.headers.items() if name not in {"webhook-timestamp", "webhook-signature"}
    } == {
        "host": inbox.url.split("/")[2],
        "accept": "*/*",
        "content-type": "application/json",
        "content-length": str(len(request.body)),
        "user-agent": "cleanup-webhooks/1",
        "accept-encoding": "identity",
        "webhook-id": emitted.event_id,
        "x-cleanup-delivery-id": str(delivery.pk),
        "x-cleanup-attempt-id": str(attempt.pk),
        "x-cleanup-attempt-number": "1",
    }
    assert request.path == "/hook?token=xyz"
    assert attempt.url == inbox.url + "?..."
    assert (attempt.number, attempt.status, attempt.failure_class, attempt.error) == (1, 204, "", "")
    assert attempt.finished_at is not None
    assert (delivery.state, delivery.attempts, delivery.last_status, delivery.lease_until) == (
        "delivered",
        1,
        204,
        None,
    )
    assert event.settled_at is not None


def test_nothing_of_this_machine_goes_along(operator: User, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert "HTTP_PROXY" in os.environ
    cookie = b"HTTP/1.1 204 No Content\r\nSet-Cookie: a=b\r\n\r\n"
    with receiver(lambda request: cookie) as inbox:
        endpoint(operator, inbox.url)
        tell(*assets(1, events=3))
        assert run().delivered == 3
    assert len(inbox.requests) == 3
    for request in inbox.requests:
        assert not {"authorization", "cookie", "proxy-authorization"} & set(request.headers)


def test_a_retry_has_the_same_id_and_body_and_a_new_signature(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver(lambda request: 204 if len(inbox.requests) > 1 else 503) as inbox:
        _, secret = endpoint(operator, inbox.url)
        tell(notice("a", "1"))
        assert run() == Dispatched(sent=1, retried=1)
        delivery = Delivery.objects.get()
        assert (delivery.state, delivery.attempts, delivery.last_status, delivery.last_class) == (
            "pending",
            1,
            503,
            "transient",
        )
        assert OutboxEvent.objects.get().settled_at is None
        assert run() == Dispatched()  # not before its time
        make_due()
        time.sleep(1.1)  # signatures hold whole seconds
        assert run() == Dispatched(sent=1, delivered=1)
    first, second = inbox.requests
    assert (first.id, first.body) == (second.id, second.body)
    for header in ("webhook-timestamp", "webhook-signature", "x-cleanup-attempt-id", "x-cleanup-attempt-number"):
        assert first.headers[header] != second.headers[header]
    assert second.is_signed_by(secret)
    assert list(DeliveryAttempt.objects.order_by("number").values_list("status", flat=True)) == [503, 204]


def test_the_wait_grows_and_ends_after_fifteen_attempts(operator: User) -> None:
    with receiver(lambda request: 500) as inbox:
        endpoint(operator, inbox.url)
        tell(notice("a", "1"), notice("a", "2"))
        for attempt in range(1, 16):
            make_due()
            outcome = run()
            delivery = Delivery.objects.order_by("sequence")[0]
            if attempt < 15:
                assert outcome == Dispatched(sent=1, retried=1)
                waits = (delivery.due_at - DeliveryAttempt.objects.order_by("-id")[0].finished_at).total_seconds()
                assert 0.85 * retry.DELAYS[attempt] <= waits <= 1.15 * retry.DELAYS[attempt]
        assert outcome == Dispatched(sent=1, dead=1)
        # Dead, it leaves its lane to the next one, which is the next probe.
        make_due()
        assert run() == Dispatched(sent=1, retried=1)
    assert (delivery.state, delivery.attempts) == ("dead", 15)
    assert delivery.finished_at is not None
    assert OutboxEvent.objects.get(pk=delivery.event_id).settled_at is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int, operator: User) -> None:
    with receiver() as target:
        moved = f"HTTP/1.1 {status} Moved\r\nLocation: {target.url}\r\nContent-Length: 0\r\n\r\n".encode()
        with receiver(lambda request: moved) as inbox:
            endpoint(operator, inbox.url)
            tell(notice("a", "1"))
            assert run() == Dispatched(sent=1, retried=1)
    assert (len(inbox.requests), target.requests) == (1, [])
    assert DeliveryAttempt.objects.get().status == status


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nnonsense",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000,
    ],
)
def test_a_2xx_counts_even_where_its_body_is_broken(answer: bytes, operator: User) -> None:
    with receiver(lambda request: answer) as inbox:
        endpoint(operator, inbox.url)
        tell(notice("a", "1"))
        assert run() == Dispatched(sent=1, delivered=1)
    assert len(bytes(DeliveryAttempt.objects.get().response)) <= 4096
    assert len(inbox.requests) == 1


def test_an_answer_is_kept_as_its_bytes(operator: User) -> None:
    hostile = b"\x00\xff\x1b[31m<script>"
    with receiver(lambda request: b"HTTP/1.1 400 Bad\r\n\r\n" + hostile) as inbox:
        endpoint(operator, inbox.url)
        tell(notice("a", "1"))
        run()
    assert bytes(DeliveryAttempt.objects.get().response) == hostile


@pytest.mark.parametrize(
    ("url", "failure"),
    [
        ("http://127.0.0.1:1/", "network"),
        ("https://127.0.0.1:1/", "network"),
        ("http://[::1/", "blocked"),
        ("http://127.0.0.1:99999/", "blocked"),
    ],
)
def test_no_answer_is_an_answer_too(url: str, failure: str, operator: User) -> None:
    endpoint(operator, url)
    tell(notice("a", "1"))
    assert run() == Dispatched(sent=1, retried=1)
    attempt = DeliveryAttempt.objects.get()
    assert (attempt.status, attempt.failure_class) == (None, failure)
    assert attempt.error


def test_a_connection_that_is_closed_without_an_answer_is_tried_again(operator: User) -> None:
    with receiver(lambda request: b"") as inbox:
        endpoint(operator, inbox.url)
        tell(notice("a", "1"))
        assert run() == Dispatched(sent=1, retried=1)
    assert (DeliveryAttempt.objects.get().failure_class, len(inbox.requests)) == ("network", 1)


def test_plain_http_is_not_sent_once_the_deployment_forbids_it(operator: User, settings: Any) -> None:
    with receiver() as inbox:
        endpoint(operator, inbox.url)
        tell(notice("a", "1"))
        settings.WEBHOOK_ALLOW_HTTP = False
        run()
    assert inbox.requests == []
    assert DeliveryAttempt.objects.get().failure_class == "blocked"


def test_a_lane_is_delivered_in_order_and_another_one_does_not_wait_for_it(operator: User) -> None:
    def answer(request: Request) -> int:
        return 500 if json.loads(request.body)["subject"] == "asset-0" else 204

    with receiver(answer) as inbox:
        endpoint(operator, inbox.url)
        tell(*assets(3, events=4))
        assert run() == Dispatched(sent=9, delivered=8, retried=1)
    order = defaultdict[str, list[int]](list)
    for request in inbox.requests:
        event = json.loads(request.body)
        order[event["subject"]].append(event["sequence"])
    assert order == {"asset-0": [1], "asset-1": [1, 2, 3, 4], "asset-2": [1, 2, 3, 4]}


def test_a_disabled_endpoint_holds_its_deliveries_and_goes_on_where_it_was(operator: User) -> None:
    with receiver() as inbox:
        made, _ = endpoint(operator, inbox.url)
        tell(notice("a", "1"))
        endpoints.disable(endpoint=made, by=operator, reason="Moving house.")
        tell(notice("a", "2"), notice("b", "3"))
        assert run() == Dispatched()
        enabled_without_ping(made)
        assert run() == Dispatched(sent=4, delivered=4), "the three, and that it was disabled"
    assert [json.loads(request.body)["sequence"] for request in inbox.requests if b'"a"' in request.body] == [1, 2]


def test_a_changed_url_holds_for_the_next_attempt_and_is_recorded(operator: User) -> None:
    with receiver(lambda request: 500) as before, receiver() as after:
        endpoint(operator, before.url)
        tell(notice("a", "1"))
        run()
        sql("UPDATE webhooks_endpoint SET url = %s", after.url)
        make_due()
        run()
    assert (len(before.requests), len(after.requests)) == (1, 1)
    assert list(DeliveryAttempt.objects.order_by("id").values_list("url", flat=True)) == [before.url, after.url]


def test_every_live_secret_signs_and_the_newest_comes_first(operator: User) -> None:
    from cleanup_project.base import vault
    from webhooks import signing

    with receiver() as inbox:
        made, old = endpoint(operator, inbox.url)
        key = signing.new_key()
        made.secrets.create(key_encrypted=vault.seal(key))
        tell(notice("a", "1"), notice("b", "2"))
        run(threads=1)
        new = signing.secret_text(key)
        for request in inbox.requests:
            assert request.headers["webhook-signature"].count("v1,") == 2
            assert request.is_signed_by(old)
            assert request.is_signed_by(new)
        sql(
            "UPDATE webhooks_endpointsecret SET expires_at = now() WHERE id = (SELECT min(id) FROM webhooks_endpointsecret)"
        )
        tell(notice("c", "3"))
        run()
    assert inbox.requests[-1].is_signed_by(new)
    with pytest.raises(Refused):
        inbox.requests[-1].is_signed_by(old)


def test_a_secret_that_cannot_be_opened_charges_nobody(operator: User, settings: Any) -> None:
    with receiver() as inbox:
        made, _ = endpoint(operator, inbox.url)
        tell(notice("a", "1"))
        key, settings.SECRET_KEY = settings.SECRET_KEY, "lost"
        with structlog.testing.capture_logs() as logs:
            assert run() == Dispatched()
        assert [each["event"] for each in logs] == ["endpoint has a secret that cannot be opened"]
        settings.SECRET_KEY = key
        assert run() == Dispatched(), "it is looked at again after a while, and not at once"
        make_due()
        assert run() == Dispatched(sent=1, delivered=1)
    assert DeliveryAttempt.objects.filter(endpoint=made).count() == 1


def test_a_lock_that_somebody_keeps_costs_no_other_answer_its_record(
    operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _ = endpoint(operator)
    tell(*assets(7))
    claimed = dispatch.claim_from(made.pk, 7)
    stuck = claimed[4].sending.delivery_id
    record = dispatch.record

    def refusing(finished: Any, total: Dispatched) -> list[int]:
        if any(each.sending.delivery_id == stuck for each, _ in finished):
            raise OperationalError("canceling statement due to lock timeout")
        return record(finished, total)

    monkeypatch.setattr(dispatch, "record", refusing)
    total = Dispatched()
    delivered = dispatch.record_all([(each, Answer(204, "", "", b"", 1)) for each in claimed], total)
    assert (len(delivered), total.delivered, total.lost) == (6, 6, 1)
    assert Delivery.objects.get(state="pending").pk == stuck


def test_two_workers_claim_nothing_twice_and_keep_to_what_may_be_in_flight(operator: User) -> None:
    made, _ = endpoint(operator)
    tell(*assets(limits.IN_FLIGHT + 10))
    first = dispatch.claim_from(made.pk, 20)
    second = dispatch.claim_from(made.pk, 20)
    third = dispatch.claim_from(made.pk, 20)
    assert [len(each) for each in (first, second, third)] == [20, limits.IN_FLIGHT - 20, 0]
    assert len({claimed.sending.delivery_id for claimed in first + second}) == limits.IN_FLIGHT


def test_a_claim_takes_what_can_be_sent_within_the_budget(operator: User) -> None:
    with receiver() as inbox:
        endpoint(operator, inbox.url)
        tell(*assets(5))
        assert run(budget_seconds=limits.SEND - 1) == Dispatched(more=True)
        assert inbox.requests == []


def test_a_zombie_with_an_old_token_finishes_nothing(operator: User) -> None:
    made, _ = endpoint(operator)
    tell(notice("a", "1"), notice("a", "2"))
    (zombie,) = dispatch.claim_from(made.pk, 5)
    expire_leases()
    (heir,) = dispatch.claim_from(made.pk, 5)
    assert (heir.sending.event_id, heir.token) == (zombie.sending.event_id, zombie.token + 1)
    said = sender.Answer(204, sender.DELIVERED, "", b"", 5)
    total = Dispatched()
    dispatch.record([(zombie, said)], total)
    assert total == Dispatched(sent=1, lost=1)
    assert states() == {"pending": 2}
    failed = sender.Answer(None, "network", "reset", b"", 5)
    dispatch.record([(heir, failed)], total)
    assert (total.retried, Delivery.objects.get(sequence=1).attempts) == (1, 1)
    dispatch.record([(heir, said)], total)  # its COMMIT was answered by nobody, and it comes again
    open_attempts = DeliveryAttempt.objects.filter(finished_at=None)
    assert [attempt.token for attempt in open_attempts] == [zombie.token]
    assert [row.due_at is None for row in Delivery.objects.order_by("sequence")] == [False, True]


def test_an_expired_lease_alone_does_not_stop_its_owner(operator: User) -> None:
    made, _ = endpoint(operator)
    tell(notice("a", "1"))
    (claimed,) = dispatch.claim_from(made.pk, 1)
    expire_leases()
    total = Dispatched()
    dispatch.record([(claimed, sender.Answer(204, sender.DELIVERED, "", b"", 5))], total)
    assert (total.delivered, states()) == (1, {"delivered": 1})


def test_an_event_is_settled_when_its_last_delivery_is(operator: User) -> None:
    with receiver() as inbox, receiver(lambda request: 500 if len(other.requests) < 2 else 204) as other:
        endpoint(operator, inbox.url)
        endpoint(operator, other.url, name="Search")
        tell(notice("a", "1"))
        run()
        assert OutboxEvent.objects.get().settled_at is None
        make_due()
        run()
    assert OutboxEvent.objects.get().settled_at is not None


def test_the_sweep_finds_lanes_without_a_head_and_lost_settlements(operator: User) -> None:
    made, _ = endpoint(operator)
    endpoint(operator, name="Search")
    tell(*assets(3, events=2))
    assert sweep.sweep() | sweep.walk() == swept(promoted=0, settled=0, dispatching=2)
    sql("UPDATE webhooks_delivery SET state = 'delivered', finished_at = now() WHERE sequence = 1")
    assert sweep.sweep() | sweep.walk() == swept(promoted=6, settled=3, dispatching=2)
    assert sweep.sweep() | sweep.walk() == swept(promoted=0, settled=0, dispatching=2)
    assert {row.due_at is None for row in Delivery.objects.filter(state="pending")} == {False}
    ended = "state = 'cancelled', cancel_reason = 'gone', finished_at = now()"
    sql(f"UPDATE webhooks_delivery SET {ended} WHERE state = 'pending'")
    assert sweep.sweep() | sweep.walk() == swept(promoted=0, settled=3, dispatching=0)
    assert Endpoint.objects.filter(pk=made.pk).exists()


def test_the_order_holds_under_failures_that_come_at_random(operator: User) -> None:
    chance = random.Random(7)

    def answer(request: Request) -> int | bytes:
        return chance.choice([204, 204, 204, 500, b""])

    with receiver(answer) as inbox:
        endpoint(operator, inbox.url)
        tell(*assets(6, events=5))
        while "pending" in states():
            run(threads=6)
            make_due()
    seen = defaultdict[str, list[int]](list)
    for request in inbox.requests:
        event = json.loads(request.body)
        seen[event["subject"]].append(event["sequence"])
    assert len(seen) == 6
    assert all(order == sorted(order) for order in seen.values())
    assert not OutboxEvent.objects.filter(settled_at=None).exists()
