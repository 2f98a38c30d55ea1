"""Dispatch heeds an endpoint's health, its options and its subscriptions, against real receivers and with its own clock."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection

from cleanup_project.base import clock
from cleanup_project.base.models import User
from tests.webhooks.http import Request, receiver
from tests.webhooks.world import TYPE, assets, enabled_without_ping, endpoint, make_due, notice, sql, states, tell
from webhooks import claiming, dispatch, endpoints, health, limits, retry, sender
from webhooks.dispatch import Dispatched
from webhooks.models import Delivery, DeliveryAttempt, DetailedBody, Endpoint, OutboxEvent

pytestmark = pytest.mark.django_db


def run(**options: Any) -> Dispatched:
    return dispatch.dispatch(**{"threads": 4, **options})


def redelivery(delivery: Delivery, by: User) -> Delivery:
    made: Delivery = Delivery.objects.create(
        event=delivery.event, endpoint=delivery.endpoint, tenant=delivery.tenant, round=delivery.round + 1,
        requested_by=by, lane=None, sequence=delivery.sequence, due_at=clock.now(),
    )  # fmt: skip
    make_due()
    return made


def test_every_part_of_an_answer_is_recorded(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sender.Answer(
        503, "transient", "It answered 503.", b"\x00\xffbusy", 20, 90.0, {"retry-after": "90", "server": "nginx"}, 70_000,
        True, "192.0.2.7", True, True, 1, 2, 3, 14,
    )  # fmt: skip
    monkeypatch.setattr(sender, "send", lambda *_: whole)
    made, _ = endpoint(operator)
    tell(notice("a", "1"))
    assert run() == Dispatched(sent=1, retried=1)
    attempt = DeliveryAttempt.objects.get()
    kept = (
        "status", "failure_class", "error", "milliseconds", "headers", "bytes_read", "truncated", "peer", "reused", "resent",
        "dns_ms", "connect_ms", "tls_ms", "first_byte_ms",
    )  # fmt: skip
    assert {name: getattr(attempt, name) for name in kept} == {name: getattr(whole, name) for name in kept}
    assert bytes(attempt.response) == whole.response
    assert attempt.key_ids == list(made.secrets.values_list("pk", flat=True))


@pytest.mark.parametrize("acknowledges", [True, False])
def test_a_409_is_an_acknowledgement_where_the_endpoint_says_so(acknowledges: bool, operator: User) -> None:
    with receiver(lambda request: 409) as inbox:
        endpoint(operator, inbox.url)
        sql("UPDATE webhooks_endpoint SET duplicate_is_success = %s", acknowledges)
        tell(notice("a", "1"))
        assert run() == (Dispatched(sent=1, delivered=1) if acknowledges else Dispatched(sent=1, retried=1))
    delivery = Delivery.objects.get()
    expected = ("delivered", "delivered_duplicate") if acknowledges else ("pending", "conflict")
    assert (delivery.state, delivery.last_class, delivery.last_status) == (*expected, 409)
    assert (OutboxEvent.objects.get().settled_at is not None) is acknowledges


def test_object_keys_go_to_those_who_asked_for_them(operator: User) -> None:
    with receiver() as inbox:
        endpoint(operator, f"{inbox.url}/plain", name="plain")
        asking, _ = endpoint(operator, f"{inbox.url}/keys", name="keys")
        sql("UPDATE webhooks_endpoint SET include_keys = true WHERE id = %s", asking.pk)
        tell(notice("a", "1"), notice("b", "2"))
        event = OutboxEvent.objects.get(subject="a")
        DetailedBody.objects.create(event=event, body=b'{"keys":[]}', body_sha256=sha256(b'{"keys":[]}').digest())
        assert run().delivered == 4
    bodies = {(request.path, request.id): request.body for request in inbox.requests}
    plain = {each.event_id: bytes(each.body) for each in OutboxEvent.objects.all()}
    for each, body in plain.items():
        assert bodies["/hook/plain", each] == body
    assert bodies["/hook/keys", event.event_id] == b'{"keys":[]}'
    other = OutboxEvent.objects.get(subject="b").event_id
    assert bodies["/hook/keys", other] == plain[other]


def test_what_was_written_before_somebody_asked_for_object_keys_comes_without_them(operator: User) -> None:
    """And with the bytes of its first attempt: the same id never stands for two bodies."""
    made, _ = endpoint(operator)
    tell(notice("a", "1"))
    event = OutboxEvent.objects.get()
    DetailedBody.objects.create(event=event, body=b'{"keys":[]}', body_sha256=sha256(b'{"keys":[]}').digest())
    sql("UPDATE webhooks_endpoint SET include_keys = true")
    assert [each.sending.body for each in claiming.claim_from(made.pk, 1)] == [bytes(event.body)]


def test_a_type_that_is_not_subscribed_to_any_more_is_passed_over(operator: User) -> None:
    with receiver() as inbox:
        made, _ = endpoint(operator, inbox.url)
        tell(notice("a", "1", type="hold.placed"), notice("b", "2"), notice("c", "3"))
        sql("UPDATE webhooks_endpoint SET event_types = '{media.deleted,run.closed}'")
        assert run() == Dispatched(sent=2, delivered=2)
        assert states() == {"pending": 1, "delivered": 2}
        # Unless a person asks for this very one.
        passed_over = Delivery.objects.get(state="pending")
        sql("UPDATE webhooks_delivery SET state = 'dead', finished_at = now() WHERE id = %s", passed_over.pk)
        redelivery(passed_over, operator)
        assert run() == Dispatched(sent=1, delivered=1)
    assert made.deliveries.filter(round=1, state="delivered").count() == 1


def test_a_redelivery_neither_waits_for_its_lane_nor_is_waited_for(operator: User) -> None:
    def answer(request: Request) -> int:
        return 500 if json.loads(request.body)["sequence"] == 2 else 204

    with receiver(answer) as inbox:
        endpoint(operator, inbox.url)
        tell(notice("a", "1"), notice("a", "2"), notice("a", "3"))
        assert run() == Dispatched(sent=2, delivered=1, retried=1)
        first = Delivery.objects.get(sequence=1)
        redelivery(first, operator)
        assert run() == Dispatched(sent=2, delivered=1, retried=1)
        redelivery(Delivery.objects.get(sequence=1, round=1), operator)
        assert run() == Dispatched(sent=2, delivered=1, retried=1)
    assert [request.id for request in inbox.requests].count(first.event.event_id) == 3
    assert Delivery.objects.get(sequence=3).due_at is None  # it still stands behind the second
    again = Delivery.objects.get(sequence=1, round=2)
    assert (again.state, again.lane_id, again.attempts) == ("delivered", None, 1)


def test_redeliveries_and_heads_go_out_in_the_order_in_which_they_became_due(operator: User) -> None:
    made, _ = endpoint(operator)
    tell(notice("a", "1"), notice("b", "2"))
    again = redelivery(Delivery.objects.get(lane__subject="a"), operator)
    sql("UPDATE webhooks_delivery SET due_at = now() - interval '1 minute' WHERE id = %s", again.pk)
    claimed = claiming.claim_from(made.pk, 2)
    assert claimed[0].sending.delivery_id == again.pk


def test_who_has_waited_longest_comes_first(operator: User) -> None:
    made = [endpoint(operator, name=f"e{number}")[0] for number in range(3)]
    tell(notice("a", "1"))
    for minutes, each in enumerate(made):
        sql(
            "UPDATE webhooks_delivery SET due_at = now() - %s * interval '1 min' WHERE endpoint_id = %s",
            minutes,
            each.pk,
        )
    assert dispatch.due_endpoints() == [each.pk for each in reversed(made)]


# A dead endpoint.


@pytest.mark.bulk
def test_a_dead_endpoint_with_ten_thousand_due_costs_one_probe_an_interval_and_the_others_go_on(
    operator: User,
) -> None:
    with receiver() as inbox:
        dead, _ = endpoint(operator, "http://127.0.0.1:1/", name="dead", event_types=["quarantine.entered"])
        endpoint(operator, inbox.url, name="well", event_types=["media.deleted"])
        for start in range(0, 10_000, 5000):
            tell(
                *(
                    notice(f"lost-{number}", f"lost-{number}", type="quarantine.entered")
                    for number in range(start, start + 5000)
                )
            )
        tell(*assets(100))
        done = run()
        assert done.delivered == 100
        assert done.retried <= 5 + limits.IN_FLIGHT  # what was in flight when its circuit opened
        for step in range(2, 6):
            made_due = DeliveryAttempt.objects.filter(endpoint=dead).count()
            tell(*(notice(f"more-{step}-{number}", f"more-{step}-{number}") for number in range(10)))
            assert run() == Dispatched(sent=10, delivered=10)
            sql("UPDATE webhooks_endpoint SET open_until = now() WHERE id = %s", dead.pk)
            assert run() == Dispatched(sent=1, retried=1)
            assert run() == Dispatched()
            assert DeliveryAttempt.objects.filter(endpoint=dead).count() == made_due + 1
            assert Endpoint.objects.get(pk=dead.pk).circuit_step == step
    assert len(inbox.requests) == 140
    assert DeliveryAttempt.objects.filter(is_probe=True).count() == 4


def test_a_dead_endpoint_that_comes_back_gets_everything_in_order(operator: User) -> None:
    ill = [True]
    with receiver(lambda request: 503 if ill[0] else 204) as inbox:
        endpoint(operator, inbox.url)
        tell(*assets(3, events=3))
        for _ in range(6):
            run()
            make_due()
        assert Endpoint.objects.get().circuit_step > 0
        ill.clear()
        ill.append(False)
        inbox.requests.clear()
        make_due()
        assert run().delivered == 1 + 8
    order = [json.loads(request.body) for request in inbox.requests]
    for subject in {event["subject"] for event in order}:
        assert [event["sequence"] for event in order if event["subject"] == subject] == [1, 2, 3]


@pytest.mark.django_db(transaction=True)
def test_a_pause_that_ends_soon_is_waited_for_and_not_cut_short(
    operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "SOON", 8.0)
    monkeypatch.setattr(retry, "DELAYS", (0,) * 15)
    send = sender.send

    def asking(*arguments: Any) -> sender.Answer:
        answer = send(*arguments)
        return replace(answer, retry_after=1.5) if answer.status == 429 else answer

    monkeypatch.setattr(sender, "send", asking)
    with receiver(lambda request: 429 if len(inbox.requests) == 1 else 204) as inbox:
        endpoint(operator, inbox.url)
        tell(notice("a", "1"))
        assert run() == Dispatched(sent=2, delivered=1, retried=1)
    first, second = DeliveryAttempt.objects.order_by("id")
    assert first.finished_at is not None
    assert second.started_at - first.finished_at >= timedelta(seconds=1.5)


# Catching up.


def held(operator: User, url: str, count: int) -> Endpoint:
    made, _ = endpoint(operator, url, event_types=[TYPE])
    endpoints.disable(endpoint=made, by=operator, reason="Moving house.")
    tell(*assets(count))
    enabled_without_ping(made)
    sql("UPDATE webhooks_endpoint SET resumed_at = now()")
    return made


@pytest.mark.django_db(transaction=True)
def test_what_was_held_goes_out_in_order_at_five_a_second(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "SOON", 8.0)
    with receiver() as inbox:
        held(operator, inbox.url, 12)
        assert run() == Dispatched(sent=12, delivered=12)
    started = list(DeliveryAttempt.objects.order_by("started_at", "id").values_list("started_at", flat=True))
    assert all(later - earlier > timedelta(seconds=1) for earlier, later in zip(started, started[5:], strict=False))
    sent = list(DeliveryAttempt.objects.order_by("started_at", "id").values_list("delivery_id", flat=True))
    assert all(earlier < later for earlier, later in pairwise(sent))
    # What came afterwards is not held back any more.
    tell(*(notice(f"later-{number}", f"later-{number}") for number in range(20)))
    made = Endpoint.objects.get()
    assert 1 <= (taken := len(claiming.claim_from(made.pk, 20))) <= 5
    assert Endpoint.objects.get().resumed_at is None
    assert len(claiming.claim_from(made.pk, 20)) == 20 - taken


@pytest.mark.django_db(transaction=True)
def test_whoever_catches_up_stays_slow_while_something_held_is_left(operator: User) -> None:
    made = held(operator, "https://receiver.example/", 8)
    assert len(claiming.claim_from(made.pk, 20)) == 5
    assert claiming.claim_from(made.pk, 20) == []
    assert Endpoint.objects.get().resumed_at is not None
    assert dispatch.due_endpoints() == [made.pk]


# The clock.


@contextmanager
def database_clock(step: timedelta) -> Iterator[None]:
    """The database's clock, set by so much: its functions are found in a schema before its own."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA stepped")
        for name in ("now", "statement_timestamp", "clock_timestamp"):
            cursor.execute(
                f"CREATE FUNCTION stepped.{name}() RETURNS timestamptz LANGUAGE sql STABLE "
                f"AS $$ SELECT pg_catalog.{name}() + interval '{step.total_seconds()} s' $$"
            )
        cursor.execute("SET LOCAL search_path = stepped, pg_catalog, public")
        yield
        cursor.execute("SET LOCAL search_path = public")


@pytest.mark.parametrize("step", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_clock_that_is_set_between_claim_and_record_loses_and_doubles_nothing(
    step: timedelta, operator: User
) -> None:
    made, _ = endpoint(operator)
    tell(notice("a", "1"), notice("b", "2"), notice("a", "3"))
    failed, fine = claiming.claim_from(made.pk, 2)
    refused = sender.Answer(500, "transient", "It answered 500.", b"", 5)
    accepted = sender.Answer(204, "", "", b"", 5)
    with database_clock(step):
        assert abs(clock.now() - connection_now() - step) < timedelta(seconds=1)
        total = Dispatched()
        dispatch.record([(failed, refused), (fine, accepted)], total)
        assert (total.retried, total.delivered, total.lost) == (1, 1, 0)
        retried = Delivery.objects.get(sequence=1, state="pending")
        assert timedelta(seconds=4) < retried.due_at - clock.now() < timedelta(seconds=6)
        assert claiming.claim_from(made.pk, 5) == []
        health.review()
    assert DeliveryAttempt.objects.filter(finished_at=None).count() == 0
    make_due()
    (again,) = claiming.claim_from(made.pk, 5)
    assert again.sending.event_id == failed.sending.event_id


def connection_now() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_catalog.statement_timestamp()")
        return cursor.fetchone()[0]


@pytest.mark.parametrize("days", [-10, 10])
def test_a_host_whose_clock_is_wrong_signs_with_the_databases_time(
    days: int, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    with receiver() as inbox:
        endpoint(operator, inbox.url)
        tell(notice("a", "1"))
        monkeypatch.setattr(time, "time", lambda: right() + days * 86_400)
        assert run() == Dispatched(sent=1, delivered=1)
        monkeypatch.setattr(time, "time", right)
    assert abs(int(inbox.requests[0].headers["webhook-timestamp"]) - clock.now().timestamp()) < 60
    attempt = DeliveryAttempt.objects.get()
    assert attempt.finished_at is not None
    assert timedelta() <= clock.now() - attempt.started_at < timedelta(minutes=1)


def test_only_the_length_of_a_dispatch_is_measured_by_the_host(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """A monotonic clock that jumps ends the dispatch, or begins it anew; no time of a delivery comes from it."""
    tick = time.monotonic
    made, _ = endpoint(operator)
    tell(*assets(3))
    (before,) = claiming.claim_from(made.pk, 1)
    monkeypatch.setattr(time, "monotonic", lambda: tick() + 1_000_000)
    (after,) = claiming.claim_from(made.pk, 1)
    monkeypatch.setattr(time, "monotonic", tick)
    assert abs(before.clock - after.clock - 1_000_000) < 60
    leases = Delivery.objects.exclude(lease_until=None).values_list("lease_until", flat=True)
    assert all(limits.LEASE - 60 < (each - clock.now()).total_seconds() <= limits.LEASE for each in leases)
