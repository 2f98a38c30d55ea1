"""Sending again: the same id and bytes in a row of its own, one at a time, neither behind a lane nor in its way."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django_q.models import OrmQ

from cleanup_project.base import clock, jobs, jobwork, sqlfiles
from cleanup_project.base.models import AuditEvent, BulkJob, User
from ledger import claim, closing
from ledger.models import CleanupCommand
from tests.ledger.acting import build
from tests.ledger.threads import Beside, somebody_waits, until
from tests.webhooks.http import Request, receiver
from tests.webhooks.world import endpoint, notice, sql, states, tell
from webhooks import cancel, dispatch, endpoints, lanes, metrics, redelivery, settlement
from webhooks.exceptions import WebhooksError
from webhooks.models import Delivery, Endpoint, OutboxEvent
from webhooks.redelivery import Chosen

pytestmark = pytest.mark.django_db
WHY = "The receiver is repaired."


def die(*deliveries: Delivery, failure: str = "transient") -> None:
    sql(
        "UPDATE webhooks_delivery SET state = 'dead', finished_at = now(), last_class = %s, attempts = 15 "
        "WHERE id = ANY(%s)",
        failure,
        [each.pk for each in deliveries],
    )


def deliver(*deliveries: Delivery) -> None:
    sql(
        "UPDATE webhooks_delivery SET state = 'delivered', finished_at = now() WHERE id = ANY(%s)",
        [each.pk for each in deliveries],
    )


def wait_an_hour(*deliveries: Delivery) -> None:
    sql(
        "UPDATE webhooks_delivery SET due_at = now() + interval '1 h' WHERE id = ANY(%s)",
        [each.pk for each in deliveries],
    )


def disable(made: Endpoint) -> None:
    Endpoint.objects.filter(pk=made.pk).update(disabled_at=Now(), disabled_reason="Moving house.")


def enable(made: Endpoint) -> None:
    Endpoint.objects.filter(pk=made.pk).update(disabled_at=None, disabled_reason="")


def owed(*subjects: str, kind: str = "media.deleted") -> list[Delivery]:
    """One event for each subject, and its first delivery."""
    number = OutboxEvent.objects.count()
    told = tell(*[notice(each, f"{each}:{number + at}", type=kind) for at, each in enumerate(subjects)])
    return list(Delivery.objects.filter(event__in=[each.id for each in told]).order_by("id"))


def again(row: Delivery, by: User) -> Delivery:
    return redelivery.redeliver(delivery=row, by=by, reason=WHY)[0]


def outcomes(by: User, *deliveries: Delivery) -> list[str]:
    told = redelivery.carry_out([each.pk for each in deliveries], by, WHY)
    return [told[each.pk].code for each in deliveries]


def rung() -> list[str]:
    return [message.func() for message in OrmQ.objects.order_by("id")]


def test_a_dead_delivery_is_sent_again_under_its_id_as_often_as_one_asks(operator: User) -> None:
    with receiver() as inbox:
        endpoint(operator, inbox.url)
        (row,) = owed("a")
        die(row)
        event = OutboxEvent.objects.get()
        for number in (1, 2):
            made = again(row, operator)
            assert (made.round, made.lane_id, made.requested_by, made.attempts) == (number, None, operator, 0)
            assert (made.event_id, made.endpoint_id, made.sequence, made.tenant) == (
                row.event_id, row.endpoint_id, row.sequence, row.tenant,
            )  # fmt: skip
            assert dispatch.dispatch(threads=1).delivered == 1
            event.refresh_from_db()
            assert event.settled_at is not None
    assert [each.id for each in inbox.requests] == [event.event_id] * 2
    assert {each.body for each in inbox.requests} == {bytes(event.body)}
    assert states() == {"dead": 1, "delivered": 2}
    told = AuditEvent.objects.filter(action="delivery.redelivered")
    assert [(each.actor, each.reason, each.subject_id) for each in told] == [(operator, WHY, str(row.pk))] * 2


def test_what_waits_for_a_person_is_what_was_given_up_last_and_can_still_be_sent(operator: User) -> None:
    def waiting() -> float:
        return sum(value for name, _, value in metrics.snapshot() if name == "webhook_dead")

    made, _ = endpoint(operator)
    first, second = owed("a", "b")
    die(first, second)
    assert waiting() == 2
    sent = again(first, operator)
    assert waiting() == 1
    die(sent)
    assert waiting() == 2
    endpoints.retire(endpoint=made, by=operator, reason="Nobody listens there.")
    assert waiting() == 0


def test_a_delivered_one_is_sent_again(operator: User) -> None:
    endpoint(operator)
    (row,) = owed("a")
    deliver(row)
    assert again(row, operator).round == 1
    assert rung() == ["webhooks.tasks.dispatch"]


def test_it_neither_waits_for_its_lane_nor_holds_it_up(operator: User) -> None:
    event_ids = list[str]()

    def answer(request: Request) -> int:
        return 500 if request.id == event_ids[0] else 204

    with receiver(answer) as inbox:
        endpoint(operator, inbox.url)
        first, second, third = (owed("a")[0] for _ in range(3))
        event_ids += [OutboxEvent.objects.get(pk=each.event_id).event_id for each in (first, second, third)]
        die(first)
        sql("UPDATE webhooks_delivery SET due_at = now() + interval '1 h' WHERE id = %s", second.pk)
        made = again(first, operator)
        assert dispatch.dispatch(threads=1).retried == 1  # the redelivery alone was due
        sql("UPDATE webhooks_delivery SET due_at = now() WHERE id = %s", second.pk)
        assert dispatch.dispatch(threads=1).delivered == 2
    made.refresh_from_db()
    assert (made.state, made.attempts) == ("pending", 1)
    assert [each.id for each in inbox.requests] == event_ids


def test_no_lane_is_locked_for_it_beside_those_of_others(operator: User) -> None:
    endpoint(operator)
    (row,) = owed("a")
    lanes.lock([None, row.lane_id, None])


def test_one_is_on_its_way_at_a_time(operator: User) -> None:
    endpoint(operator)
    (row,) = owed("a")
    die(row)
    made = again(row, operator)
    with pytest.raises(WebhooksError, match="on its way already"):
        again(row, operator)
    with pytest.raises(WebhooksError, match="due already"):
        again(made, operator)
    assert Delivery.objects.count() == 2
    die(made)
    assert outcomes(operator, row, made) == [redelivery.SENT_AGAIN, redelivery.ON_ITS_WAY]
    assert sorted(Delivery.objects.values_list("round", flat=True)) == [0, 1, 2]


def test_what_is_pending_is_sent_sooner_and_what_stands_behind_it_waits(operator: User) -> None:
    endpoint(operator)
    head, behind = owed("a")[0], owed("a")[0]
    (other,) = owed("b")
    wait_an_hour(head)
    sql("UPDATE webhooks_delivery SET lease_until = now() + interval '1 min', lease_token = 1 WHERE id = %s", other.pk)
    told = redelivery.carry_out([head.pk, behind.pk, other.pk], operator, WHY)
    assert [told[each.pk].code for each in (head, behind, other)] == ["brought_forward", "waits", "on_its_way"]
    assert "behind an earlier event" in told[behind.pk].words
    assert "being sent right now" in told[other.pk].words
    head.refresh_from_db()
    behind.refresh_from_db()
    assert head.due_at is not None
    assert head.due_at <= clock.now()
    assert (behind.due_at, Delivery.objects.count()) == (None, 3)
    assert again_refused(behind, operator) == "It waits behind an earlier event of its subject."


def again_refused(row: Delivery, by: User) -> str:
    with pytest.raises(WebhooksError) as refusal:
        again(row, by)
    return str(refusal.value)


def test_a_redelivery_in_backoff_is_sent_sooner_too(operator: User) -> None:
    endpoint(operator)
    (row,) = owed("a")
    die(row)
    made = again(row, operator)
    wait_an_hour(made)
    assert outcomes(operator, made) == ["brought_forward"]
    assert "on its way already" in again_refused(row, operator)


def test_at_a_disabled_endpoint_it_is_held_like_everything_else(operator: User) -> None:
    with receiver() as inbox:
        made, _ = endpoint(operator, inbox.url)
        dead, pending = owed("a", "b")
        die(dead)
        wait_an_hour(pending)
        disable(made)
        told = redelivery.carry_out([dead.pk, pending.pk], operator, WHY)
        assert {each.code for each in told.values()} == {redelivery.HELD}
        assert all("Moving house." in each.words for each in told.values())
        assert rung() == []
        assert dispatch.dispatch(threads=1).sent == 0
        enable(made)
        assert dispatch.dispatch(threads=1).delivered == 2


def test_what_is_owed_to_nobody_is_refused(operator: User) -> None:
    made, _ = endpoint(operator)
    cancelled, dead = owed("a", "b")
    sql(
        "UPDATE webhooks_delivery SET state = 'cancelled', finished_at = now(), cancel_reason = 'Unsubscribed.' "
        "WHERE id = %s",
        cancelled.pk,
    )
    die(dead)
    assert again_refused(cancelled, operator) == "It was cancelled: Unsubscribed."
    disable(made)
    Endpoint.objects.update(retired_at=Now())
    assert "retired" in again_refused(dead, operator)
    missing = Delivery(pk=10**9)
    assert outcomes(operator, cancelled, dead, missing) == ["retired", "retired", "unknown"]
    assert (Delivery.objects.count(), AuditEvent.objects.filter(action="delivery.redelivered").count()) == (2, 0)


def test_it_takes_the_right_and_a_reason(operator: User, manager: User) -> None:
    endpoint(operator)
    (row,) = owed("a")
    die(row)
    with pytest.raises(WebhooksError, match="may not redeliver"):
        again(row, manager)
    with pytest.raises(WebhooksError, match="State a reason"):
        redelivery.redeliver(delivery=row, by=operator, reason=" ")
    with pytest.raises(jobs.JobRefused, match="needs the right"):
        redelivery.redeliver_all(chosen=Chosen(state="dead"), expected=1, token=uuid4(), by=manager, reason=WHY)
    assert Delivery.objects.count() == 1


def ids(chosen: Chosen) -> set[int]:
    return set(chosen.rows().values_list("pk", flat=True))


def test_all_that_match_are_the_last_rounds_that_fulfil_everything_named(operator: User) -> None:
    one, _ = endpoint(operator, event_types=["media.deleted"])
    two, _ = endpoint(operator, name="two", event_types=["quarantine.entered"])
    dead, timeout, sent, waiting = owed("a", "b", "c", "d")
    held, other = owed("a", "b", kind="quarantine.entered")
    die(dead, other)
    die(timeout, failure="timeout_ambiguous")
    deliver(sent)
    disable(two)
    for chosen, found in (
        (Chosen(state="dead"), {dead, timeout, other}),
        (Chosen(state="delivered"), {sent}),
        (Chosen(state="held"), {held}),
        (Chosen(state="pending"), {waiting, held}),
        (Chosen(state="dead", endpoint_id=one.pk), {dead, timeout}),
        (Chosen(state="dead", event_type="quarantine.entered"), {other}),
        (Chosen(state="dead", failure_class="timeout_ambiguous"), {timeout}),
        (Chosen(state="dead", endpoint_id=two.pk, failure_class="timeout_ambiguous"), set()),
        (Chosen(ids=(dead.pk, sent.pk)), {dead, sent}),
    ):
        assert ids(chosen) == {each.pk for each in found}, chosen
    emitted = OutboxEvent.objects.get(pk=timeout.event_id).emitted_at
    span = {"since": emitted, "until": emitted + timedelta(microseconds=1)}
    assert ids(Chosen(state="dead", **span)) == {dead.pk, timeout.pk}
    assert ids(Chosen(state="dead", until=emitted)) == set()
    made = again(dead, operator)
    assert ids(Chosen(state="dead", endpoint_id=one.pk)) == {timeout.pk}
    die(made)
    assert ids(Chosen(state="dead", endpoint_id=one.pk)) == {timeout.pk, made.pk}
    for nothing in (Chosen(), Chosen(endpoint_id=one.pk), Chosen(state="cancelled")):
        with pytest.raises(WebhooksError, match="Choose which deliveries"):
            nothing.rows()


def test_what_is_chosen_is_told_in_words(operator: User) -> None:
    made, _ = endpoint(operator)
    moment = clock.now().replace(year=2026, month=1, day=2, hour=3, minute=4, second=5, microsecond=0)
    chosen = Chosen(
        state="dead",
        endpoint_id=made.pk,
        event_type="quarantine.entered",
        failure_class="gone",
        since=moment,
        until=moment,
    )
    assert chosen.words() == (
        "dead deliveries, to acme: Archive, of quarantine.entered, that failed last as gone, emitted from "
        "2026-01-02T03:04:05.000000Z, emitted before 2026-01-02T03:04:05.000000Z"
    )
    assert Chosen(ids=(1,)).words() == "chosen one by one"


def test_they_are_counted_by_endpoint_and_state_up_to_one_jobs_worth(
    operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = endpoint(operator)
    two, _ = endpoint(operator, name="two")
    rows = owed("a", "b", "c")
    die(*rows[:3])
    deliver(rows[3])
    chosen = Chosen(ids=tuple(each.pk for each in rows))
    counted = redelivery.count(chosen, by=operator)
    assert sorted(counted.by_place, key=lambda each: (each[0].pk, each[1])) == [
        (one, "dead", 2), (one, "pending", 1), (two, "dead", 1), (two, "delivered", 1), (two, "pending", 1),
    ]  # fmt: skip
    assert (counted.total, counted.whole) == (6, True)
    monkeypatch.setattr(jobs, "MOST", 4)
    assert not redelivery.count(chosen, by=operator).whole


def test_a_job_sends_all_that_were_chosen_and_says_what_became_of_each(operator: User) -> None:
    with receiver() as inbox:
        endpoint(operator, inbox.url)
        rows = owed(*[f"s{number}" for number in range(12)])
        die(*rows[:10])
        wait_an_hour(*rows[10:])
        job = redelivery.redeliver_all(
            chosen=Chosen(state="dead"), expected=10, token=uuid4(), by=operator, reason=WHY, rate=1000
        )
        again(rows[3], operator)  # somebody was quicker
        assert jobwork.work_slice(job.pk, budget_seconds=60)
        assert dispatch.dispatch(threads=2).delivered == 10
    job.refresh_from_db()
    assert (job.state, job.outcomes) == ("done", {redelivery.SENT_AGAIN: 9, redelivery.ON_ITS_WAY: 1})
    assert sorted(each.id for each in inbox.requests) == sorted(
        OutboxEvent.objects.exclude(settled_at=None).values_list("event_id", flat=True)
    )
    assert "webhooks.tasks.dispatch" in rung()
    assert set(Delivery.objects.filter(round=1).values_list("requested_by", flat=True)) == {operator.pk}
    assert job.items.get(subject_id=rows[0].pk).detail.startswith("Redelivery 1, delivery ")


@pytest.mark.django_db(transaction=True)
def test_two_people_at_once_make_one_redelivery(operator: User) -> None:
    endpoint(operator)
    (row,) = owed("a")
    die(row)
    for _ in range(5):
        before = Delivery.objects.count()

        def attempt() -> bool:
            try:
                again(row, operator)
            except WebhooksError:
                return False
            return True

        both = [Beside(attempt) for _ in range(3)]
        assert sorted(each.answer() for each in both) == [False, False, True]
        assert Delivery.objects.count() == before + 1
        die(*Delivery.objects.filter(state="pending"))


def test_the_rounds_order_and_locks_are_read_from_indexes(operator: User) -> None:
    endpoint(operator)
    rows = owed(*[f"s{number}" for number in range(500)])
    sql("ANALYZE")
    parameters = {"ids": [each.pk for each in rows[:20]]}
    with connection.cursor() as cursor:
        sql("SET LOCAL enable_seqscan = off")
        for name in ("redelivery_lock.sql", "redelivery_facts.sql"):
            cursor.execute(f"EXPLAIN {sqlfiles.read(redelivery.__file__, name)}", parameters)
            plan = "\n".join(line for (line,) in cursor)
            assert "Seq Scan on webhooks_delivery" not in plan, plan


def test_a_dead_notice_that_arrives_at_last_makes_its_command_notified(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "CLAIM_SECONDS", 3600)
    world = build()
    world.subscribe()
    world.put("clips/a")
    world.run()
    world.drain()
    command = CleanupCommand.objects.get()
    row = Delivery.objects.get(event__command_key=command.key, event__type="media.deleted")
    with receiver() as inbox:
        Endpoint.objects.update(url=inbox.url)
        die(row)
        closing.notify()
        command.refresh_from_db()
        assert command.state == "deleted"
        again(row, world.people["operator"])
        dispatch.dispatch(threads=1)
    closing.notify()
    command.refresh_from_db()
    assert (command.state, len(inbox.requests) >= 1) == ("notified", True)


@pytest.mark.bulk
def test_a_hundred_thousand_are_frozen_and_counted(operator: User) -> None:
    endpoint(operator)
    tell(notice("seed", "seed"))
    many(100_000)
    counted = redelivery.count(Chosen(state="dead"), by=operator)
    assert (counted.total, counted.whole) == (100_000, True)
    job = redelivery.redeliver_all(
        chosen=Chosen(state="dead"), expected=100_000, token=uuid4(), by=operator, reason=WHY, rate=1000
    )
    assert (job.total, job.items.count()) == (100_000, 100_000)
    assert BulkJob.objects.count() == 1


def many(number: int) -> None:
    """Dead deliveries of as many events more, copied from the first."""
    sql(
        """
        WITH event AS (
            INSERT INTO webhooks_outboxevent (event_id, tenant, type, subject, name, occurrence, command_key, lane_id,
                sequence, schema_version, body, body_sha256, emitted_at, settled_at)
            SELECT 'evt_copy_' || last.id + n, tenant, type, subject, name || last.id + n, occurrence, command_key, lane_id,
                last.id + n, schema_version, body, body_sha256, emitted_at, settled_at
            FROM (SELECT * FROM webhooks_outboxevent ORDER BY id LIMIT 1) first,
                (SELECT max(id) AS id FROM webhooks_outboxevent) last, generate_series(1, %s) n
            RETURNING id, sequence
        )
        INSERT INTO webhooks_delivery (event_id, endpoint_id, tenant, round, lane_id, sequence, state, due_at, attempts,
            lease_token, last_class, last_error, cancel_reason, finished_at)
        SELECT e.id, d.endpoint_id, d.tenant, 0, d.lane_id, e.sequence, 'dead', now(), 15, 15, 'transient', '', '', now()
        FROM event e, (SELECT * FROM webhooks_delivery ORDER BY id LIMIT 1) d
        """,
        number,
    )


def test_a_dead_delivery_of_an_endpoint_that_is_retired_is_not_owed_any_more(operator: User) -> None:
    made, _ = endpoint(operator)
    (row,) = owed("a")
    die(row)
    assert settlement.settle([row.event_id]) == 0
    endpoints.retire(endpoint=made, by=operator, reason="Sold.")
    assert settlement.settle([row.event_id]) == 1


def test_what_a_person_asked_for_is_sent_although_its_type_was_given_up(operator: User) -> None:
    made, _ = endpoint(operator, event_types=["media.deleted", "run.closed"])
    (row,) = owed("a", kind="run.closed")
    die(row)
    Endpoint.objects.update(event_types=["media.deleted"])
    sent_again = again(row, operator)
    assert cancel.unowed(made.pk) == 0
    assert [each.sending.delivery_id for each in dispatch.claim_from(made.pk, 5)] == [sent_again.pk]


def alone(ids: list[int], by: User) -> dict[int, jobs.Outcome]:
    with transaction.atomic():
        return redelivery.carry_out(ids, by, WHY)


@pytest.mark.django_db(transaction=True)
def test_the_lanes_of_what_is_pending_are_locked_first(operator: User) -> None:
    """As whoever records does: each would have what the other one waits for."""
    endpoint(operator)
    (row,) = owed("a")
    wait_an_hour(row)
    with transaction.atomic():
        lanes.lock([row.lane_id])
        job = Beside(alone, [row.pk], operator)
        until(somebody_waits)
        sql("SELECT FROM webhooks_delivery WHERE id = %s FOR NO KEY UPDATE NOWAIT", row.pk)
        assert job.goes_on
    assert job.answer()[row.pk].code == "brought_forward"
