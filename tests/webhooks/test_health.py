"""An endpoint's circuit, its pace, and when it is disabled: judged from its attempts, whoever comes late."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from cleanup_project.base import clock
from cleanup_project.base.models import Alarm, AuditEvent, User
from tests.webhooks.past import HOUR, attempt, deliveries
from tests.webhooks.world import endpoint, make_due, sql
from webhooks import claiming, dispatch, health, limits
from webhooks.claiming import Claimed
from webhooks.dispatch import Dispatched
from webhooks.failures import of_status
from webhooks.health import Heard
from webhooks.models import Delivery, DeliveryAttempt, Endpoint, OutboxEvent
from webhooks.sender import Answer

pytestmark = pytest.mark.django_db


@pytest.fixture
def target(operator: User) -> Endpoint:
    made, _ = endpoint(operator)
    return made


def said(status: int | None = None, failure_class: str = "", retry_after: float | None = None) -> Answer:
    """What an endpoint answers; without a status, how no answer came about."""
    if status is not None:
        return Answer(status, of_status(status), "" if status < 300 else f"It answered {status}.", b"", 5, retry_after)
    return Answer(None, failure_class, f"{failure_class} of some kind", b"", 5)


def answer(endpoint: Endpoint, *answers: Answer) -> list[Claimed]:
    """Claim so many heads and record these answers, one after another."""
    claimed = claiming.claim_from(endpoint.pk, len(answers))
    assert len(claimed) == len(answers)
    for each, was in zip(claimed, answers, strict=True):
        dispatch.record([(each, was)], Dispatched())
    return claimed


def seconds_until(moment: Any) -> float:
    return float((moment - clock.now()).total_seconds())


def fresh(endpoint: Endpoint) -> Endpoint:
    return Endpoint.objects.get(pk=endpoint.pk)


def let_probe(endpoint: Endpoint) -> None:
    """The circuit's interval passes."""
    sql("UPDATE webhooks_endpoint SET open_until = now() WHERE id = %s AND circuit_step > 0", endpoint.pk)


def failed_for(endpoint: Endpoint, hours: float, attempts: int, of: list[int], failure_class: str = "network") -> None:
    """So many failures since then, taking turns, the latest ten minutes ago."""
    for number in range(attempts):
        ago = hours * HOUR - number * (hours * HOUR - 600) / max(1, attempts - 1)
        attempt(of[number % len(of)], failure_class, ago)


# The circuit.


def test_five_failures_one_after_another_open_the_circuit_and_four_do_not(target: Endpoint) -> None:
    deliveries(target, 8)
    answer(target, said(204), *[said(500)] * 4)
    assert (fresh(target).circuit_step, fresh(target).open_until) == (0, None)
    answer(target, said(failure_class="network"))
    opened = fresh(target)
    assert opened.circuit_step == 1
    assert 28 < seconds_until(opened.open_until) <= 30 * 1.15
    assert claiming.claim_from(target.pk, 5) == []
    assert dispatch.due_endpoints() == []


def test_half_of_the_last_twenty_open_it_once_ten_were_seen_within_ten_minutes(target: Endpoint) -> None:
    ids = deliveries(target, 3)
    for number in range(7):
        attempt(ids[0], ("", "transient")[number % 2], 500 - number)
    answer(target, said(500))
    assert fresh(target).circuit_step == 0  # four of eight
    attempt(ids[0], "", 1)
    answer(target, said(500))
    assert fresh(target).circuit_step == 1  # five of ten


def test_failures_of_long_ago_are_not_half_of_anything(target: Endpoint) -> None:
    ids = deliveries(target, 3)
    for number in range(12):
        attempt(ids[0], ("", "transient")[number % 2], 700 - number)
    answer(target, said(500))
    assert fresh(target).circuit_step == 0


@pytest.mark.parametrize("status", [400, 409, 413, 429])
def test_what_says_nothing_of_the_endpoint_neither_opens_nor_fails_it(status: int, target: Endpoint) -> None:
    deliveries(target, 9)
    answer(target, *[said(status)] * 9)
    assert (fresh(target).circuit_step, fresh(target).failing_since) == (0, None)


def test_an_open_circuit_lets_one_head_through_as_a_probe(target: Endpoint) -> None:
    deliveries(target, 10)
    answer(target, *[said(500)] * 5)
    let_probe(target)
    assert dispatch.due_endpoints() == [target.pk]
    (probe,) = claiming.claim_from(target.pk, 5)
    assert probe.is_probe
    oldest = Delivery.objects.filter(attempts=0).order_by("due_at", "id")[0]
    assert probe.sending.delivery_id == oldest.pk
    assert DeliveryAttempt.objects.get(finished_at=None).is_probe
    # Should it be lost, the next one goes when its lease has ended.
    assert claiming.claim_from(target.pk, 5) == []
    assert limits.LEASE - 5 < seconds_until(fresh(target).open_until) <= limits.LEASE
    let_probe(target)
    sql("UPDATE webhooks_delivery SET lease_until = now() - interval '1 s' WHERE lease_until IS NOT NULL")
    (again,) = claiming.claim_from(target.pk, 5)
    assert (again.sending.delivery_id, again.token) == (probe.sending.delivery_id, probe.token + 1)


def test_each_failed_probe_waits_longer_up_to_an_hour(target: Endpoint) -> None:
    deliveries(target, 12)
    answer(target, *[said(500)] * 5)
    for step, seconds in ((2, 60), (3, 300), (4, 900), (5, 3600), (6, 3600)):
        let_probe(target)
        answer(target, said(500))
        opened = fresh(target)
        assert opened.circuit_step == step
        assert seconds - 2 < seconds_until(opened.open_until) <= seconds * 1.15


def test_a_probe_that_gets_through_closes_it_and_what_failed_before_is_forgotten(target: Endpoint) -> None:
    deliveries(target, 20)
    answer(target, *[said(500)] * 5)
    since = fresh(target).failing_since
    assert since is not None
    let_probe(target)
    answer(target, said(204))
    closed = fresh(target)
    assert (closed.circuit_step, closed.open_until, closed.failing_since) == (0, None, None)
    answer(target, *[said(500)] * 4)
    assert fresh(target).circuit_step == 0
    answer(target, said(500))
    assert fresh(target).circuit_step == 1
    failed_again = fresh(target).failing_since
    assert failed_again is not None
    assert failed_again > since


@pytest.mark.parametrize("status", [400, 429])
def test_a_probe_that_is_refused_shows_that_the_endpoint_lives(status: int, target: Endpoint) -> None:
    deliveries(target, 10)
    answer(target, *[said(500)] * 5)
    let_probe(target)
    answer(target, said(status))
    assert fresh(target).circuit_step == 0
    assert fresh(target).failing_since is not None  # but nothing got through
    sql("UPDATE webhooks_endpoint SET paused_until = NULL")
    answer(target, said(500))
    assert fresh(target).circuit_step == 0  # judged from the probe on


def test_a_probe_that_was_never_sent_changes_no_step(target: Endpoint) -> None:
    deliveries(target, 10)
    answer(target, *[said(500)] * 5)
    let_probe(target)
    answer(target, said(failure_class="sender_error"))
    opened = fresh(target)
    assert opened.circuit_step == 1
    assert 28 < seconds_until(opened.open_until) <= 30 * 1.15


def test_what_was_sent_before_it_opened_does_not_move_it(target: Endpoint) -> None:
    deliveries(target, 12)
    claimed = claiming.claim_from(target.pk, 12)
    for each in claimed[:5]:
        dispatch.record([(each, said(500))], Dispatched())
    opened = fresh(target)
    for each in claimed[5:10]:
        dispatch.record([(each, said(500))], Dispatched())
    assert (fresh(target).circuit_step, fresh(target).open_until) == (1, opened.open_until)
    dispatch.record([(claimed[10], said(204))], Dispatched())
    health.review()
    assert (fresh(target).circuit_step, fresh(target).failing_since) == (1, None)


def test_whoever_notes_late_judges_as_if_in_time(target: Endpoint) -> None:
    """A failure was recorded before a success, and is noted after it."""
    ids = deliveries(target, 2)
    attempt(ids[0], "transient", 20)
    attempt(ids[1], "", 10)
    health.note([Heard(target.pk, "transient")])
    assert fresh(target).failing_since is None


def test_failing_since_is_the_first_failure_after_the_last_success(target: Endpoint) -> None:
    ids = deliveries(target, 3)
    for failure_class, ago in (("transient", 500), ("", 400), ("rejected", 350), ("transient", 300), ("auth", 200)):
        attempt(ids[0], failure_class, ago)
    health.note([Heard(target.pk, "auth")])
    since = fresh(target).failing_since
    assert since is not None
    assert 295 < -seconds_until(since) < 310
    # It stays, where the success is further back than anyone looks.
    for number in range(health.ANSWERS):
        attempt(ids[1], "network", 190 - number / 10)
    health.note([Heard(target.pk, "network")])
    assert fresh(target).failing_since == since


def test_where_all_is_well_nothing_is_looked_at(target: Endpoint, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        health.note([Heard(target.pk, "", is_unwell=False)] * 8)


# The pace.


def test_what_an_endpoint_asks_for_is_kept_by_all_its_deliveries(target: Endpoint) -> None:
    deliveries(target, 6)
    answer(target, said(503, retry_after=120))
    assert 115 < seconds_until(fresh(target).paused_until) <= 120
    due = Delivery.objects.exclude(attempts=0).get().due_at
    assert 118 < seconds_until(due) <= 120 * 1.1
    assert claiming.claim_from(target.pk, 5) == []
    assert dispatch.due_endpoints() == []


def test_the_longest_pause_counts_and_no_later_answer_shortens_it(target: Endpoint) -> None:
    deliveries(target, 6)
    claimed = claiming.claim_from(target.pk, 3)
    for each, seconds in zip(claimed, (60, 300, 5), strict=True):
        dispatch.record([(each, said(429, retry_after=seconds))], Dispatched())
    assert 290 < seconds_until(fresh(target).paused_until) <= 300


def test_too_many_requests_halve_what_may_be_in_flight_once_a_second(target: Endpoint) -> None:
    deliveries(target, limits.IN_FLIGHT + 8)
    claimed = claiming.claim_from(target.pk, 3)
    for each in claimed[:2]:
        dispatch.record([(each, said(429))], Dispatched())
    assert fresh(target).concurrency == limits.IN_FLIGHT // 2
    sql("UPDATE webhooks_endpoint SET concurrency_cut_at = now() - interval '2 s'")
    dispatch.record([(claimed[2], said(429))], Dispatched())
    assert fresh(target).concurrency == limits.IN_FLIGHT // 4
    assert fresh(target).circuit_step == 0
    sql("UPDATE webhooks_endpoint SET paused_until = NULL")
    assert len(claiming.claim_from(target.pk, limits.IN_FLIGHT)) == limits.IN_FLIGHT // 4


def test_successes_raise_it_again_one_by_one(target: Endpoint) -> None:
    deliveries(target, 6)
    sql("UPDATE webhooks_endpoint SET concurrency = %s", limits.IN_FLIGHT - 2)
    answer(target, said(204))
    assert fresh(target).concurrency == limits.IN_FLIGHT - 1
    answer(target, said(204), said(204), said(204))
    assert fresh(target).concurrency == limits.IN_FLIGHT


def test_one_in_flight_is_the_least(target: Endpoint) -> None:
    deliveries(target, 2)
    sql("UPDATE webhooks_endpoint SET concurrency = 1")
    answer(target, said(429))
    assert fresh(target).concurrency == 1


@pytest.mark.parametrize(("status", "seconds"), [(410, 300), (None, 1800)])
def test_five_refusals_in_a_row_stand_for_the_whole_endpoint(
    status: int | None, seconds: int, target: Endpoint
) -> None:
    deliveries(target, 8)
    refusal = said(status) if status else said(failure_class="blocked")
    answer(target, *[refusal] * 4)
    assert fresh(target).paused_until is None
    answer(target, refusal)
    assert seconds - 5 < seconds_until(fresh(target).paused_until) <= seconds


# Disabling.


@pytest.mark.parametrize(
    ("hours", "attempts", "distinct", "disabled"),
    [(121, 20, 10, True), (119, 40, 12, False), (121, 19, 10, False), (121, 40, 9, False), (500, 200, 1, False)],
)
def test_an_endpoint_that_fails_for_five_days_is_disabled(
    hours: float, attempts: int, distinct: int, disabled: bool, target: Endpoint
) -> None:
    failed_for(target, hours, attempts, deliveries(target, distinct))
    health.note([Heard(target.pk, "network")])
    health.review()
    found = fresh(target)
    assert (found.disabled_at is not None) is disabled
    if disabled:
        assert "20 attempts of 10 deliveries failed" in found.disabled_reason
        assert found.disabled_by is None


def test_time_alone_brings_the_end(target: Endpoint) -> None:
    """No answer comes between: the sweep judges."""
    failed_for(target, 119, 30, deliveries(target, 12))
    health.note([Heard(target.pk, "network")])
    assert fresh(target).disabled_at is None
    sql("UPDATE webhooks_endpoint SET failing_since = failing_since - interval '2 hours'")
    assert health.review() == 1
    assert fresh(target).disabled_at is not None


def test_what_disabling_leaves_behind(target: Endpoint, operator: User) -> None:
    other, _ = endpoint(operator, name="Watcher", event_types=["endpoint.disabled"])
    failed_for(target, 121, 20, deliveries(target, 10))
    health.note([Heard(target.pk, "network")])
    found = fresh(target)
    record = AuditEvent.objects.get(action="endpoint.disabled")
    assert (record.actor, record.subject_id, record.reason) == (None, str(target.pk), found.disabled_reason)
    assert record.after == {"rule": "failing"}
    event = OutboxEvent.objects.get(type="endpoint.disabled")
    assert (event.subject, event.tenant) == (f"endpoint:{target.pk}", target.tenant)
    body = bytes(event.body).decode()
    assert f'"data":{{"endpoint_id":{target.pk},"rule":"failing"}}' in body, "no words, which may name another's host"
    assert Delivery.objects.filter(event=event, endpoint=other, state="pending").exists()
    (alarm,) = Alarm.objects.open()
    assert (alarm.kind, alarm.subject_id) == (health.DISABLED, str(target.pk))
    # Held, not dropped.
    assert set(target.deliveries.values_list("state", flat=True)) == {"pending"}
    assert claiming.claim_from(target.pk, 5) == []
    health.note([Heard(target.pk, "network")])
    assert AuditEvent.objects.filter(action="endpoint.disabled").count() == 1
    with transaction.atomic():
        health.reset(target.pk)
    assert not Alarm.objects.open().exists()
    assert fresh(target).failing_since is None


@pytest.mark.parametrize("failure_class", ["transient", "gone"])
def test_one_poison_event_never_disables_an_endpoint(failure_class: str, target: Endpoint) -> None:
    """It fails for a week while others get through, now and then."""
    poison, *others = deliveries(target, 9)
    for hour in range(160, 0, -1):
        attempt(poison, failure_class, hour * HOUR)
        if hour % 20 == 0:
            attempt(others[hour // 20 - 1], "", hour * HOUR - 60)
        if hour % 10 == 0:
            health.note([Heard(target.pk, failure_class)])
            health.review()
    assert fresh(target).disabled_at is None


@pytest.mark.parametrize(
    ("seconds", "between", "disabled"),
    [(301, None, True), (299, None, False), (301, "", False), (301, "transient", True)],
)
def test_gone_twice_within_five_minutes_and_more(
    seconds: int, between: str | None, disabled: bool, target: Endpoint
) -> None:
    one, two, _ = deliveries(target, 3)
    attempt(one, "gone", seconds)
    if between is not None:
        attempt(two, between, 100)
    answered = claiming.claim_from(target.pk, 3)
    dispatch.record([(answered[2], said(410))], Dispatched())
    found = fresh(target)
    assert (found.disabled_at is not None) is disabled
    if disabled:
        assert "410 Gone" in found.disabled_reason
        assert AuditEvent.objects.get(action="endpoint.disabled").after == {"rule": "gone"}


@pytest.mark.parametrize(("first", "checks", "disabled"), [(3601, 3, True), (3599, 3, False), (3700, 2, False)])
def test_a_url_that_leads_into_a_forbidden_network_is_a_security_event(
    first: int, checks: int, disabled: bool, target: Endpoint
) -> None:
    ids = deliveries(target, 2)
    for number in range(checks - 1):
        attempt(ids[0], "blocked", first - number * 1800, error="10.0.0.7 is a private address.")
    claimed = claiming.claim_from(target.pk, 2)
    dispatch.record([(claimed[1], said(failure_class="blocked"))], Dispatched())
    found = fresh(target)
    assert (found.disabled_at is not None) is disabled
    if disabled:
        assert "somebody may be trying to reach your own network" in found.disabled_reason
        assert [alarm.kind for alarm in Alarm.objects.open()] == [health.BLOCKED]
        assert AuditEvent.objects.get(action="endpoint.disabled").after == {"rule": "blocked"}


def test_it_is_said_when_it_will_be_disabled_and_taken_back_on_success(target: Endpoint) -> None:
    ids = deliveries(target, 3)
    attempt(ids[0], "network", 50 * 60, error="Connection refused.")
    health.note([Heard(target.pk, "network")])
    assert not Alarm.objects.open().exists()
    due = health.disable_due_at(fresh(target))
    assert due is not None
    assert 119 * HOUR < seconds_until(due) < 120 * HOUR
    for hours in (1, 24, 72):
        sql("UPDATE webhooks_endpoint SET failing_since = now() - %s", timedelta(hours=hours, minutes=1))
        health.review()
        (alarm,) = Alarm.objects.open()
        assert alarm.kind == health.FAILING
        until = health.disable_due_at(fresh(target))
        assert f"for more than {hours} h, since" in alarm.message
        assert "Connection refused." in alarm.message
        assert f"disabled at {until:%Y-%m-%d %H:%M} UTC" in alarm.message
    answer(target, said(204))
    assert not Alarm.objects.open().exists()
    assert health.disable_due_at(fresh(target)) is None


def test_what_failed_before_a_successful_ping_is_forgotten(target: Endpoint, operator: User) -> None:
    ids = deliveries(target, 12)
    failed_for(target, 300, 50, ids)
    sql(
        "INSERT INTO webhooks_ping (endpoint_id, event_id, sent_by_id, started_at, finished_at, url, key_ids, peer, status, "
        "failure_class, error, milliseconds) "
        "VALUES (%s, 'evt_ping', %s, now(), now() - interval '1 minute', '', '{}', '', 204, '', '', 5)",
        target.pk,
        operator.pk,
    )
    answer(target, *[said(500)] * 4)
    found = fresh(target)
    assert (found.circuit_step, found.disabled_at) == (0, None)
    assert found.failing_since is not None
    assert -seconds_until(found.failing_since) < 60


# Our own faults.


def names_fail(*targets: Endpoint, failure_class: str = "dns_temp") -> None:
    claimed = [claiming.claim_from(each.pk, 1)[0] for each in targets]
    dispatch.record([(each, said(failure_class=failure_class)) for each in claimed], Dispatched())


def test_names_that_do_not_exist_are_nobody_elses_fault(operator: User) -> None:
    made = [endpoint(operator, name=f"e{number}")[0] for number in range(3)]
    deliveries(made[0], 1)
    names_fail(*made, failure_class="dns_name")
    assert set(Delivery.objects.values_list("attempts", "last_class")) == {(1, "dns_name")}


@pytest.mark.parametrize(("failing", "answering", "ours"), [(3, 0, True), (2, 1, True), (2, 2, False), (2, 0, False)])
def test_names_that_fail_at_most_endpoints_are_our_own_fault(
    failing: int, answering: int, ours: bool, operator: User
) -> None:
    made = [endpoint(operator, name=f"e{number}")[0] for number in range(failing + answering)]
    deliveries(made[0], 2)  # each endpoint has its own
    for each in made[failing:]:
        answer(each, said(204))
    names_fail(*made[:failing])
    charged = Delivery.objects.filter(endpoint__in=made[:failing], attempts=1).count()
    classes = set(DeliveryAttempt.objects.filter(endpoint__in=made[:failing]).values_list("failure_class", flat=True))
    assert (charged, classes) == ((0, {"sender_error"}) if ours else (failing, {"dns_temp"}))
    if ours:
        retried = Delivery.objects.filter(endpoint=made[0], last_class="sender_error").get()
        assert 58 < seconds_until(retried.due_at) <= 60 * 1.15
        assert (fresh(made[0]).failing_since, fresh(made[0]).circuit_step) == (None, 0)
        (alarm,) = Alarm.objects.open()
        assert alarm.kind == health.SENDER
        assert "Names cannot be looked up here" in alarm.message
        health.review()
        assert Alarm.objects.open().exists()
        sql("UPDATE base_alarm SET noticed_at = now() - interval '4 minutes'")
        health.review()
        assert not Alarm.objects.open().exists()
    else:
        assert not Alarm.objects.open().exists()


def test_a_fault_of_our_own_consumes_no_attempt_however_often_it_comes(target: Endpoint) -> None:
    deliveries(target, 1)
    for _ in range(20):
        answer(target, said(failure_class="sender_error"))
        make_due()
    delivery = Delivery.objects.get()
    assert (delivery.attempts, delivery.state, delivery.lease_token) == (0, "pending", 20)
    assert fresh(target).circuit_step == 0
    assert Alarm.objects.open().get().kind == health.SENDER
