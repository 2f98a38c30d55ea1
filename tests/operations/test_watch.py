"""Deadlines become alarms, and alarms are told: to programs once, to people until they were told."""

import io
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import structlog
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.db.models.functions import Now
from django_q.models import OrmQ

from cleanup_project.base import alarms, heartbeats
from cleanup_project.base.models import Alarm, Heartbeat, User
from cleanup_project.operations import tasks
from cleanup_project.operations.watch import judging, snapshots, telling
from cleanup_project.operations.watch.deadlines import AT_ONCE, DEADLINES, WRITTEN, Deadline, with_settings
from ledger import manifest, runs
from ledger.models import CleanupRun, DeadLetter
from ledger.tasks import tick
from retention import control
from retention.models import Bucket, PolicyRevision, StopSwitch, Tenant
from tests import world
from tests.ledger.acting import build
from tests.operations.mail import Postbox, mail_server
from tests.operations.trouble import DAY, troubled_world
from tests.webhooks.http import receiver
from tests.webhooks.schemas import wrong_bodies
from tests.webhooks.world import endpoint, sql
from webhooks import dispatch
from webhooks.models import OutboxEvent

pytestmark = pytest.mark.django_db

OPS = "ops@example.org"


@pytest.fixture
def postbox(settings: Any) -> Iterator[Postbox]:
    """Django's tests replace the way out; this is the real one, to a server on loopback."""
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.ALERT_EMAILS, settings.SITE_URL = [OPS], "https://cleanup.example.org"
    with mail_server() as server:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        yield server


def working() -> None:
    Heartbeat.objects.all().delete()
    Heartbeat.objects.create(host="h", queue="cleanup", last_tick_at=Now())
    Heartbeat.objects.create(host="h", queue="work")


def answered() -> None:
    """As if every schedule had been changed just now: whatever the time of day is, no slot waits."""
    sql("UPDATE retention_retentionpolicy SET rescheduled_at = now()")


def long_ago(table: str, column: str, interval: str) -> None:
    """As if it had been so much earlier, which its guard lets nobody say."""
    sql("SET CONSTRAINTS ALL IMMEDIATE")  # or their checks are still to come, and the table cannot be altered
    sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    sql(f"UPDATE {table} SET {column} = now() - %s::interval", interval)


def judged() -> set[tuple[str, str]]:
    """(deadline, tenant) of each alarm that is open after a round, but those about workers."""
    judging.judge()
    found = Alarm.objects.open().filter(kind__startswith="deadline.").values_list("kind", "tenant")
    return {(kind.removeprefix("deadline."), tenant) for kind, tenant in found}


# Deadlines.


def test_a_setting_says_when_something_is_overdue() -> None:
    chosen = with_settings(WRITTEN, {"oldest-eligible": timedelta(hours=3), "queue-age": timedelta(minutes=20)})
    assert chosen["Oldest eligible"][:2] == (timedelta(hours=1.5), timedelta(hours=3))
    assert chosen["Queue age"][:2] == (WRITTEN["Queue age"].watch, timedelta(minutes=20))
    assert chosen["Workers"] == WRITTEN["Workers"]


@pytest.mark.parametrize("wrong", ["Queue age", "missed-slots", "sending", "nothing"])
def test_a_setting_that_names_no_deadline_is_refused_with_those_that_there_are(wrong: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=rf"DEADLINES names {wrong}.*there are stopped, oldest-eligible"):
        with_settings(WRITTEN, {wrong: DAY})


def test_everything_that_waits_is_judged_or_has_an_alarm_of_its_own() -> None:
    elsewhere = {"Oldest listing", "Sending", "Endpoints in trouble"}  # catalogue.stale, webhooks.oldest_due, .failing
    assert {each.name for each in judging.WATCHED} | elsewhere == set(DEADLINES)


def test_what_is_overdue_raises_an_alarm_of_its_tenant() -> None:
    working()
    acting = troubled_world()
    answered()
    Tenant.objects.create(code="beta", name="Another")
    sql("UPDATE ledger_deadletter SET entered_at = now() - interval '2 d'")
    long_ago("retention_stopswitch", "pressed_at", "5 h")
    assert judged() == {
        ("oldest-eligible", "acme"), ("queue-age", "acme"), ("in-quarantine", "acme"), ("missed-slots", "acme"),
        ("stopped", ""),
    }  # fmt: skip
    told = Alarm.objects.get(kind="deadline.in-quarantine")
    assert "That is 2 d 0 h; the deadline is 1 d 0 h. Repair its cause" in told.message
    assert (told.subject_type, told.subject_id) == ("retention.tenant", str(acting.tenant.pk))
    assert Alarm.objects.get(kind="deadline.stopped").subject_label == "this installation"


def test_what_is_within_its_deadline_raises_none() -> None:
    working()
    acting = build(authorisation=PolicyRevision.Authorisation.APPROVAL)
    acting.put("clips/a", asset="a")
    run, _new = runs.open_run(policy=acting.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    manifest.freeze(run)
    control.press(by=acting.people["operator"], scope=StopSwitch.Scope.EVERYTHING, reason="Look first.")
    assert judged() == {("oldest-eligible", "acme")}
    long_ago("ledger_cleanuprun", "sealed_at", "25 h")
    assert judged() == {("oldest-eligible", "acme"), ("runs-to-approve", "acme")}


def test_an_alarm_is_not_over_before_its_age_is_well_below() -> None:
    working()
    troubled_world()
    for hours, there in ((23, False), (25, True), (19, True), (17, False), (19, False)):
        sql("UPDATE ledger_deadletter SET entered_at = now() - %s", timedelta(hours=hours))
        assert (("in-quarantine", "acme") in judged()) is there, hours


def test_what_has_been_in_quarantine_the_longest_is_seen_behind_ever_so_many_causes() -> None:
    working()
    troubled_world()
    with connection.cursor() as cursor:  # more causes than a page shows, all of them before the one that is overdue
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        columns = [each.column for each in DeadLetter._meta.concrete_fields if not each.primary_key]
        values = {"failure_class": "'aaa'", "storage_code": "n", "cycle": "n", "entered_at": "now()"}
        cursor.execute(
            f"INSERT INTO ledger_deadletter ({', '.join(columns)}) SELECT "
            f"{', '.join(values.get(each, each) for each in columns)} FROM ledger_deadletter, generate_series(1, 600) n"
        )
    sql("UPDATE ledger_deadletter SET entered_at = now() - interval '2 d' WHERE failure_class = 'permission'")
    assert ("in-quarantine", "acme") in judged()


def test_that_nobody_works_is_told_from_outside() -> None:
    assert judged() == {("workers", ""), ("last-tick", "")}
    assert "No cluster of workers is known." in Alarm.objects.get(kind="deadline.workers").message
    working()
    assert judged() == set()
    Heartbeat.objects.filter(queue="cleanup").update(seen_at=Now() - timedelta(minutes=5))
    assert judged() == {("workers", "")}, "nobody serves that queue"
    Heartbeat.objects.create(host="third", queue="cleanup")
    assert judged() == set()


def test_a_queue_that_nobody_ever_served_is_told_of_by_the_deadline_and_not_before() -> None:
    row = heartbeats.begin("cleanup")
    assert judged() == set(), "both the other cluster and the tick may be about to come"
    Heartbeat.objects.update(started_at=Now() - timedelta(minutes=5))
    assert judged() == {("workers", ""), ("last-tick", "")}
    Heartbeat.objects.filter(pk=row.pk).update(last_tick_at=Now())
    assert judged() == {("workers", "")}


def test_an_orderly_stop_is_told_of_once_it_has_lasted_and_what_serves_no_queue_makes_up_for_nothing() -> None:
    working()
    for row in Heartbeat.objects.all():
        heartbeats.end(row)
    assert judged() == set(), "an upgrade"
    Heartbeat.objects.update(seen_at=Now() - timedelta(minutes=5), last_tick_at=Now() - timedelta(minutes=6))
    heartbeats.begin("cleanup")
    assert judged() == {("workers", ""), ("last-tick", "")}, "what began knows when the tick last came"
    Heartbeat.objects.create(host="h", queue="of-long-ago", seen_at=Now() - DAY)
    assert judged() == {("workers", ""), ("last-tick", "")}
    heartbeats.begin("work")
    assert judged() == {("last-tick", "")}


def test_a_session_that_reads_as_of_long_ago_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    working()
    other: Any = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT now()")
            (begun,) = cursor.fetchone()
        assert snapshots.oldest() == (True, begun)
        assert judged() == set()
        monkeypatch.setitem(judging.DEADLINES, "Oldest snapshot", Deadline(AT_ONCE, AT_ONCE, ""))
        assert judged() == {("oldest-snapshot", "")}
    finally:
        other.close()
    monkeypatch.setattr(judging.snapshots, "oldest", lambda: snapshots.Oldest(True, None))
    assert judged() == set()


def test_one_deadline_that_cannot_be_judged_keeps_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_codes: Any) -> None:
        sql("SELECT 1 / 0")

    first, *rest = judging.WATCHED
    monkeypatch.setattr(judging, "WATCHED", (first._replace(oldest=broken), *rest))
    assert judged() == {("workers", ""), ("last-tick", "")}


def test_a_bucket_that_is_not_listed_any_more_is_judged_although_no_run_looks_at_it() -> None:
    working()
    acting = build()
    world.listed(acting.bucket)
    sql("UPDATE retention_bucket SET catalogue_max_age_hours = 1")
    judging.judge()
    assert not Alarm.objects.filter(kind="catalogue.stale").exists()
    sql("UPDATE retention_cataloguesync SET started_at = now() - interval '2 h'")
    judging.judge()
    assert Alarm.objects.open().filter(kind="catalogue.stale").exists()


def test_one_bucket_that_cannot_be_judged_keeps_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    working()
    first = Bucket.objects.create(name="never-listed")
    acting = build()
    world.listed(acting.bucket)
    sql("UPDATE retention_bucket SET catalogue_max_age_hours = 1")
    sql("UPDATE retention_cataloguesync SET started_at = now() - interval '2 h'")
    review = judging.freshness.review

    def broken_for_the_first(bucket: Bucket) -> None:
        if bucket == first:
            sql("SELECT 1 / 0")
        review(bucket)

    monkeypatch.setattr(judging.freshness, "review", broken_for_the_first)
    judging.judge()
    assert [each.subject_id for each in Alarm.objects.open()] == [str(acting.bucket.pk)]


def test_what_takes_too_long_to_be_judged_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(_codes: Any) -> None:
        sql("SELECT pg_sleep(5)")

    first, *rest = judging.WATCHED
    monkeypatch.setattr(judging, "JUDGED_WITHIN", 100)
    monkeypatch.setattr(judging, "WATCHED", (first._replace(oldest=slow), *rest))
    with structlog.testing.capture_logs() as logged:
        assert judged() == {("workers", ""), ("last-tick", "")}
    assert [each["deadline"] for each in logged] == [first.name]


# By event.


def raised(kind: str = "catalogue.stale", subject: Any = None) -> Alarm:
    alarms.notice(kind, subject, "3 days old.")
    return Alarm.objects.open().get(kind=kind)


def told_events() -> list[tuple[str, str]]:
    return list(OutboxEvent.objects.filter(type__startswith="alarm.").order_by("pk").values_list("type", "tenant"))


def test_an_alarm_is_told_once_to_its_tenant_and_to_whoever_is_told_of_all(settings: Any, tenant: Tenant) -> None:
    settings.ALERT_TENANT = "watchers"
    raised(subject=tenant)
    assert (telling.announce(), telling.announce()) == (1, 0)
    assert told_events() == [("alarm.raised", "acme"), ("alarm.raised", "watchers")]
    alarms.clear("catalogue.stale", tenant)
    assert (telling.announce(), telling.announce()) == (1, 0)
    assert told_events()[2:] == [("alarm.cleared", "acme"), ("alarm.cleared", "watchers")]
    assert wrong_bodies() == []


def test_what_is_of_no_tenant_is_told_to_nobody_but_those(settings: Any) -> None:
    raised()
    telling.announce()
    assert told_events() == []
    alarms.clear("catalogue.stale", None)
    settings.ALERT_TENANT = "watchers"
    telling.announce()
    assert told_events() == [("alarm.cleared", "watchers")]


def test_what_came_and_went_before_anybody_looked_is_told_in_order(tenant: Tenant) -> None:
    raised(subject=tenant)
    alarms.clear("catalogue.stale", tenant)
    telling.announce()
    assert told_events() == [("alarm.raised", "acme"), ("alarm.cleared", "acme")]


def test_a_receiver_gets_it_signed(settings: Any, tenant: Tenant, compliance: User) -> None:
    settings.WEBHOOK_ALLOW_HTTP, settings.WEBHOOK_ALLOW_CIDRS = True, ["127.0.0.0/8"]
    with receiver() as inbox:
        _made, secret = endpoint(compliance, inbox.url, event_types=["alarm.raised"])
        alarm = raised(subject=tenant)
        telling.announce()
        dispatch.dispatch(threads=1)
    (request,) = inbox.requests
    assert request.is_signed_by(secret)
    data = json.loads(request.body)["data"]
    assert (data["alarm"], data["kind"], data["tenant"]) == (alarm.pk, "catalogue.stale", "acme")
    assert "3 days old." not in request.body.decode(), "what is told to programs holds no words"


def test_one_alarm_that_cannot_be_told_keeps_no_other(monkeypatch: pytest.MonkeyPatch, tenant: Tenant) -> None:
    first, second = raised("run.tripped", tenant), raised(subject=tenant)
    emit = telling.emit

    def broken_for_the_first(alarm: Alarm, type: str) -> None:
        if alarm == first:
            sql("SELECT 1 / 0")
        emit(alarm, type)

    monkeypatch.setattr(telling, "emit", broken_for_the_first)
    assert telling.announce() == 1
    assert [each.pk for each in Alarm.objects.unannounced()] == [first.pk]
    assert json.loads(bytes(OutboxEvent.objects.get().body))["data"]["alarm"] == second.pk


# By e-mail.


def later(**past: float) -> None:
    """As if everything had been told or tried so much earlier."""
    sql("UPDATE base_alarm SET told_at = told_at - %s, tried_at = tried_at - %s", *2 * [timedelta(**past)])


def test_an_open_alarm_is_told_once_and_again_after_a_day_and_when_it_is_over(postbox: Postbox, tenant: Tenant) -> None:
    raised(subject=tenant)
    raised("run.tripped")
    assert (telling.mail(), telling.mail()) == (2, 0)
    (message,) = postbox.messages
    assert (message["To"], message["Subject"]) == (OPS, "Cleanup: 2 alarms open, 0 over")
    text = message.get_content()
    assert "catalogue.stale, acme, tenant acme\n3 days old." in text
    assert "https://cleanup.example.org/admin/base/alarm/" in text
    later(hours=23)
    assert telling.mail() == 0
    later(hours=2)
    assert telling.mail() == 2
    assert "STILL OPEN" in postbox.messages[-1].get_content()
    alarms.clear("run.tripped", None)
    later(minutes=2)
    assert (telling.mail(), telling.mail()) == (1, 0)
    assert postbox.messages[-1]["Subject"] == "Cleanup: 0 alarms open, 1 over"
    later(hours=30)
    assert telling.mail() == 1, "what is over is told no more"


def test_nobody_to_tell_is_no_error(settings: Any) -> None:
    raised()
    assert (telling.mail(), telling.ring(), telling.untold()) == (0, 0, 0)
    assert Alarm.objects.get().tried_at is None


def test_a_mail_server_that_is_away_loses_nothing_and_is_asked_ever_more_rarely(
    postbox: Postbox, settings: Any
) -> None:
    raised()
    port, settings.EMAIL_PORT = settings.EMAIL_PORT, 1
    assert telling.mail() == 0
    alarm = Alarm.objects.get()
    assert (alarm.tries, alarm.told_at, "refused" in alarm.trouble) == (1, None, True)
    assert telling.mail() == 0
    assert Alarm.objects.get().tries == 1, "not asked again at once"
    for minutes, tries in ((2, 2), (3, 2), (2, 3)):
        later(minutes=minutes)
        telling.mail()
        assert Alarm.objects.get().tries == tries
    sql("UPDATE base_alarm SET raised_at = now() - interval '1 h'")
    assert telling.untold() == 1
    settings.EMAIL_PORT = port
    postbox.refusing = True
    later(hours=1)
    assert telling.mail() == 0
    assert "451" in Alarm.objects.get().trouble
    postbox.refusing = False
    later(hours=1)
    assert telling.mail() == 1
    alarm = Alarm.objects.get()
    assert (alarm.tries, alarm.trouble, len(postbox.messages)) == (0, "", 1)
    assert telling.untold() == 0


def test_a_crash_after_it_was_sent_sends_it_again_as_the_same_message(
    postbox: Postbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised()
    with monkeypatch.context() as patched:
        patched.setattr(telling, "finish", lambda *_: exit())
        with pytest.raises(SystemExit):
            telling.mail()
    later(minutes=5)
    assert telling.mail() == 1
    first, second = postbox.messages
    assert first["Message-ID"] == second["Message-ID"]


def test_what_ended_while_it_was_being_told_is_told_as_over(postbox: Postbox, monkeypatch: pytest.MonkeyPatch) -> None:
    raised()
    send = telling.send

    def meanwhile(taken: Any) -> str:
        alarms.clear("catalogue.stale", None)
        return send(taken)

    with monkeypatch.context() as patched:
        patched.setattr(telling, "send", meanwhile)
        telling.mail()
    later(minutes=2)
    assert telling.mail() == 1
    assert postbox.messages[-1].get_content().startswith("OVER")


def test_what_stands_in_an_alarm_makes_no_header_and_no_lines_of_its_own(postbox: Postbox) -> None:
    alarms.notice("run.tripped", None, "Bad\r\nBcc: all@example.org\r\n\r\nbody")
    telling.mail()
    (message,) = postbox.messages
    assert message["Bcc"] is None
    assert "Bcc: all@example.org" not in message.get_content().splitlines()


def test_many_alarms_are_few_messages(postbox: Postbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "AT_ONCE", 2)
    for n in range(5):
        raised(f"kind.{n}")
    assert (telling.mail(), len(postbox.messages)) == (5, 3)


def test_a_mail_server_that_is_slow_keeps_no_worker_for_longer_than_its_budget(
    postbox: Postbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "AT_ONCE", 1)
    monkeypatch.setattr(telling.limits, "DRAIN_BUDGET", 0)
    for n in range(3):
        raised(f"kind.{n}")
    for left in (2, 1, 0):
        assert (telling.mail(), telling.owed().count(), rung()) == (1, left, (left and [tasks.mail.name]) or [])
        OrmQ.objects.all().delete()


# The round.


def rung() -> list[str]:
    return [message.func() for message in OrmQ.objects.order_by("id")]


def test_each_tick_has_a_round_made_and_a_round_rings_for_mail_only_where_some_is_owed(settings: Any) -> None:
    tick()
    assert tasks.watch.name in rung()
    OrmQ.objects.all().delete()
    working()
    tasks.watch()
    assert rung() == []
    settings.ALERT_EMAILS = [OPS]
    raised()
    tasks.watch()
    assert [(message.func(), message.key) for message in OrmQ.objects.all()] == [(tasks.mail.name, "work")]


@pytest.mark.parametrize("step", ["judging.judge", "telling.announce"])
def test_whatever_fails_in_a_round_mail_is_rung_for(settings: Any, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def broken() -> None:
        raise RuntimeError("a fault of ours")

    settings.ALERT_EMAILS = [OPS]
    raised()
    monkeypatch.setattr(f"cleanup_project.operations.watch.{step}", broken)
    with pytest.raises(RuntimeError):
        tasks.watch()
    assert rung() == [tasks.mail.name]


def test_a_round_by_hand_says_what_it_did(postbox: Postbox) -> None:
    out = io.StringIO()
    call_command("watch", "--json", stdout=out)
    assert json.loads(out.getvalue()) == {"overdue": 2, "announced": 2, "mailed": 2}
    call_command("watch", stdout=out)
    assert "overdue 2, announced 0, mailed 0" in out.getvalue()
