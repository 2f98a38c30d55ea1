"""Endpoints by their verbs: confirmed by a ping, disabled, changed, retired; and what becomes of what they are owed."""

import json
from collections.abc import Callable
from threading import Barrier
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from django_q.models import OrmQ

from cleanup_project.base import alarms, roles
from cleanup_project.base.models import Alarm, AuditEvent, User
from tests.ledger.threads import Beside, somebody_waits, until
from tests.webhooks.http import Answer, Request, receiver
from tests.webhooks.world import assets, endpoint, expire_leases, make_due, notice, sql, states, tell
from webhooks import cancel, dispatch, endpoints, lanes, pings, secrets, sender, sweep
from webhooks.exceptions import WebhooksError
from webhooks.models import Delivery, Endpoint, EndpointSecret, OutboxEvent, Ping

pytestmark = pytest.mark.django_db
real_transactions = pytest.mark.django_db(transaction=True)
HOSTED = "https://receiver.example/hook"
BOTH = ["media.deleted", "run.closed"]


def again(made: Endpoint) -> Endpoint:
    return Endpoint.objects.get(pk=made.pk)


def reasons() -> list[str]:
    return list(Delivery.objects.filter(state="cancelled").order_by("pk").values_list("cancel_reason", flat=True))


# Confirmed by a ping


def test_a_new_endpoint_is_owed_its_events_and_sent_none_until_it_has_answered_a_ping(operator: User) -> None:
    with receiver() as inbox:
        made, secret = endpoint(operator, inbox.url, enabled=False)
        assert (made.disabled_reason, made.disabled_by) == (endpoints.UNCONFIRMED, None)
        tell(notice("a", "1"))
        dispatch.dispatch(threads=1)
        assert inbox.requests == []
        sent = endpoints.enable(endpoint=made, by=operator)
        assert (sent.status, made.disabled_at, made.disabled_reason) == (204, None, "")
        assert made.resumed_at is not None, "it has something to catch up with"
    (request,) = inbox.requests
    assert request.is_signed_by(secret)
    assert json.loads(request.body)["type"] == "endpoint.ping"
    enabled = AuditEvent.objects.get(action="endpoint.enabled")
    assert (enabled.actor, enabled.before) == (operator, {"disabled_reason": endpoints.UNCONFIRMED})
    assert enabled.after == {"ping": sent.event_id, "status": 204}
    assert [message.func() for message in OrmQ.objects.all()] == ["webhooks.tasks.dispatch"]


def test_what_is_behind_nothing_does_not_catch_up(operator: User) -> None:
    with receiver() as inbox:
        made, _ = endpoint(operator, inbox.url, enabled=False)
        endpoints.enable(endpoint=made, by=operator)
    assert again(made).resumed_at is None


REDIRECT = b"HTTP/1.1 307 Temporary\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n"


@pytest.mark.parametrize("answer", [400, 401, 404, 409, 410, 429, 500, REDIRECT, b"junk\r\n\r\n", b""])
def test_only_a_2xx_enables(answer: int | bytes, operator: User) -> None:
    with receiver(lambda request: answer) as inbox:
        made, _ = endpoint(operator, inbox.url, enabled=False, duplicate_is_success=True)
        with pytest.raises(WebhooksError, match="Nothing was enabled"):
            endpoints.enable(endpoint=made, by=operator)
        assert [request.path for request in inbox.requests] == ["/hook"]
    left = Ping.objects.get()
    assert left.finished_at is not None
    assert left.failure_class
    assert again(made).disabled_reason == endpoints.UNCONFIRMED
    actions = list(AuditEvent.objects.order_by("id").values_list("action", flat=True))
    assert actions == ["endpoint.created", "endpoint.pinged"]


def test_a_ping_without_an_answer_does_not_enable(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "READ_TIMEOUT", 0.2)
    hung = Barrier(2)

    def answer(request: Request) -> int:
        hung.wait(30)
        return 204

    with receiver(answer) as inbox:
        made, _ = endpoint(operator, inbox.url, enabled=False)
        with pytest.raises(WebhooksError, match="timeout ambiguous"):
            endpoints.enable(endpoint=made, by=operator)
        hung.wait(30)
    assert again(made).disabled_at is not None


def test_nobody_answers_where_nobody_listens(operator: User) -> None:
    with receiver() as inbox:
        made, _ = endpoint(operator, inbox.url, enabled=False)
    with pytest.raises(WebhooksError, match=r"not acknowledged \(network\)"):
        endpoints.enable(endpoint=made, by=operator)
    assert Ping.objects.get().status is None


def test_enabling_forgets_what_was_wrong(operator: User) -> None:
    with receiver() as inbox:
        made, _ = endpoint(operator, inbox.url)
        other, _ = endpoint(operator, name="Other")
        endpoints.disable(endpoint=made, by=operator, reason="Moving house.")
        wrong = "failing_since = now(), circuit_step = 3, open_until = now() + interval '1 h', paused_until = now()"
        sql(f"UPDATE webhooks_endpoint SET {wrong}")
        for about in (made, other):
            alarms.notice("webhooks.failing", about, "It fails.")
            alarms.notice("webhooks.disabled", about, "It was disabled.")
        endpoints.enable(endpoint=made, by=operator)
    fine = again(made)
    assert (fine.failing_since, fine.circuit_step, fine.open_until, fine.paused_until) == (None, 0, None, None)
    assert {alarm.subject_id for alarm in Alarm.objects.open()} == {str(other.pk)}
    assert again(other).circuit_step == 3


def test_an_enabled_endpoint_is_not_pinged_to_enable_it(operator: User) -> None:
    made, _ = endpoint(operator)
    with pytest.raises(WebhooksError, match="is not disabled"):
        endpoints.enable(endpoint=made, by=operator)
    assert not Ping.objects.exists()


def meanwhile(change: Callable[[], object]) -> Answer:
    def answer(request: Request) -> int:
        done = Beside(change)
        done.answer()
        return 204

    return answer


@real_transactions
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda made, by: endpoints.change(endpoint=made, by=by, reason="R", url=HOSTED), "URL was changed"),
        (lambda made, by: secrets.rotate(endpoint=made, by=by, reason="R"), "secrets were changed"),
        (lambda made, by: secrets.rotate(endpoint=made, by=by, reason="R", overlap=0), "secrets were changed"),
        (lambda made, by: endpoints.retire(endpoint=made, by=by, reason="R"), "retired for ever"),
    ],
)
def test_what_changed_while_the_ping_was_under_way_is_not_enabled(
    change: Callable[[Endpoint, User], object], words: str, operator: User
) -> None:
    with receiver(meanwhile(lambda: change(made, operator))) as inbox:
        made, _ = endpoint(operator, inbox.url, enabled=False)
        with pytest.raises(WebhooksError, match=words):
            endpoints.enable(endpoint=made, by=operator)
    assert again(made).disabled_at is not None
    assert Ping.objects.get().status == 204


@real_transactions
def test_of_two_people_who_enable_at_once_one_does(operator: User, compliance: User) -> None:
    both = Barrier(2)

    def answer(request: Request) -> int:
        both.wait(30)
        return 204

    with receiver(answer) as inbox:
        made, _ = endpoint(operator, inbox.url, enabled=False)
        asked = [Beside(endpoints.enable, endpoint=again(made), by=by) for by in (operator, compliance)]
        refusals = []
        for each in asked:
            try:
                each.answer()
            except WebhooksError as refusal:
                refusals.append(str(refusal))
    assert refusals == [f"Somebody else enabled {made} while the ping was under way."]
    assert again(made).disabled_at is None
    assert AuditEvent.objects.filter(action="endpoint.enabled").count() == 1


@real_transactions
def test_who_disabled_it_anew_meanwhile_is_not_overruled(operator: User, compliance: User) -> None:
    def anew() -> None:
        sql("UPDATE webhooks_endpoint SET disabled_at = NULL, disabled_reason = ''")
        endpoints.disable(endpoint=made, by=compliance, reason="It leaks.")

    with receiver(meanwhile(anew)) as inbox:
        made, _ = endpoint(operator, inbox.url, enabled=False)
        with pytest.raises(WebhooksError, match=r"disabled anew .* It leaks\."):
            endpoints.enable(endpoint=made, by=operator)
    left = again(made)
    assert (left.disabled_reason, left.disabled_by) == ("It leaks.", compliance)


# Disabled


def test_disabling_says_who_and_why(operator: User) -> None:
    made, _ = endpoint(operator)
    endpoints.disable(endpoint=made, by=operator, reason="Moving house.")
    assert (made.disabled_by, made.disabled_reason) == (operator, "Moving house.")
    with pytest.raises(WebhooksError, match="is disabled already: Moving house"):
        endpoints.disable(endpoint=made, by=operator, reason="Again.")


# Changed


def test_a_changed_url_holds_for_the_next_attempt_and_keeps_its_query_out_of_the_record(operator: User) -> None:
    with receiver(lambda request: 500) as before, receiver() as after:
        made, _ = endpoint(operator, before.url + "?token=old")
        tell(notice("a", "1"))
        dispatch.dispatch(threads=1)
        endpoints.change(endpoint=made, by=operator, reason="Moved.", url=after.url + "?token=new", name="Index")
        make_due()
        dispatch.dispatch(threads=1)
    assert [request.path for request in after.requests] == ["/hook?token=new"]
    assert made.name == "Index"
    told = AuditEvent.objects.get(action="endpoint.changed")
    assert (told.reason, told.before["name"], told.after["name"]) == ("Moved.", "Archive", "Index")
    assert set(told.after) == {"name", "url"}
    assert "token=" not in f"{AuditEvent.objects.values_list('before', 'after')}"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"url": "https://user:password@example.org/"}, "without user name"),
        ({"url": "ftp://example.org/"}, "https://host/path"),
        ({"event_types": []}, "cannot be blank"),
        ({"event_types": ["*", "media.deleted"]}, "leave the others out"),
        ({"name": "Other"}, "already exists"),
        ({"name": ""}, "cannot be blank"),
    ],
)
def test_what_no_endpoint_may_be_is_refused(fields: dict[str, Any], words: str, operator: User) -> None:
    made, _ = endpoint(operator)
    endpoint(operator, name="Other")
    with pytest.raises(ValidationError, match=words):
        endpoints.change(endpoint=made, by=operator, reason="R", **fields)
    assert again(made).name == "Archive"
    assert not AuditEvent.objects.filter(action="endpoint.changed").exists()


def test_nothing_changes_without_a_reason_or_a_change(operator: User) -> None:
    made, _ = endpoint(operator)
    with pytest.raises(WebhooksError, match="State a reason"):
        endpoints.change(endpoint=made, by=operator, reason=" ", name="Index")
    with pytest.raises(WebhooksError, match="Nothing would change"):
        endpoints.change(endpoint=made, by=operator, reason="R", name="Archive", event_types=["*"], include_keys=False)


def test_object_keys_need_a_reason_from_the_start(operator: User) -> None:
    with pytest.raises(WebhooksError, match="State a reason for telling object keys"):
        endpoint(operator, include_keys=True)
    made, _ = endpoint(operator, include_keys=True, reason="The index is by key.")
    told = AuditEvent.objects.get(action="endpoint.created")
    assert (told.reason, told.after["include_keys"], made.include_keys) == ("The index is by key.", True, True)


def test_a_dropped_type_is_cancelled_and_its_lane_goes_on(operator: User) -> None:
    with receiver() as inbox:
        made, _ = endpoint(operator, inbox.url, event_types=BOTH)
        tell(
            notice("a", "1", type="run.closed"),
            notice("a", "2", type="run.closed"),
            notice("a", "3"),
            notice("a", "4", type="run.closed"),
            notice("b", "5"),
        )
        endpoints.change(endpoint=made, by=operator, reason="Too much.", event_types=["media.deleted"])
        assert reasons() == ["The endpoint does not subscribe to run.closed any more: Too much."] * 3
        settled = OutboxEvent.objects.filter(settled_at__isnull=False)
        assert set(settled.values_list("type", flat=True)) == {"run.closed"}
        dispatch.dispatch(threads=1)
    assert [json.loads(request.body)["sequence"] for request in inbox.requests] == [3, 1]
    assert states() == {"cancelled": 3, "delivered": 2}


def test_every_type_given_up_for_one_drops_the_others_and_back_again_brings_nothing_back(operator: User) -> None:
    made, _ = endpoint(operator)
    tell(notice("a", "1"), notice("a", "2", type="run.closed"))
    endpoints.change(endpoint=made, by=operator, reason="R", event_types=["run.closed"])
    endpoints.change(endpoint=made, by=operator, reason="R", event_types=["*"])
    assert states() == {"cancelled": 1, "pending": 1}
    assert Delivery.objects.get(state="pending").due_at is not None


def test_whoever_waits_for_settled_events_is_rung(operator: User, settings: Any) -> None:
    settings.WEBHOOKS_SETTLED_TASK = "ledger.tasks.notify"
    made, _ = endpoint(operator)
    endpoints.change(endpoint=made, by=operator, reason="R", event_types=["run.closed"])
    assert not OrmQ.objects.exists()
    tell(notice("a", "1", type="run.closed"))
    endpoints.retire(endpoint=made, by=operator, reason="Gone.")
    assert [message.func() for message in OrmQ.objects.all()] == ["ledger.tasks.notify"]


def test_what_is_being_sent_may_still_arrive(operator: User) -> None:
    made, _ = endpoint(operator)
    tell(notice("a", "1"), notice("a", "2"), notice("b", "3"))
    (first, second) = dispatch.claim_from(made.pk, 2)
    endpoints.change(endpoint=made, by=operator, reason="R", event_types=["run.closed"])
    assert states() == {"pending": 2, "cancelled": 1}
    dispatch.record([(first, sender.Answer(204, "", "", b"", 5))], dispatch.Dispatched())
    dispatch.record([(second, sender.Answer(500, "transient", "no", b"", 5))], dispatch.Dispatched())
    assert states() == {"pending": 1, "cancelled": 1, "delivered": 1}
    assert sweep.walk()["cancelled"] == 1
    assert states() == {"cancelled": 2, "delivered": 1}
    assert not OutboxEvent.objects.filter(settled_at=None).exists()


def test_a_lease_that_has_expired_protects_nothing_and_its_owner_changes_nothing(operator: User) -> None:
    made, _ = endpoint(operator)
    tell(notice("a", "1"))
    (claimed,) = dispatch.claim_from(made.pk, 1)
    expire_leases()
    endpoints.retire(endpoint=made, by=operator, reason="Gone.")
    assert states() == {"cancelled": 1}
    total = dispatch.Dispatched()
    dispatch.record([(claimed, sender.Answer(204, "", "", b"", 5))], total)
    assert (total.lost, states()) == (1, {"cancelled": 1})


@real_transactions
def test_one_that_is_delivered_while_the_rest_is_cancelled_stays_delivered(operator: User) -> None:
    made, _ = endpoint(operator)
    tell(notice("a", "1"), notice("b", "2"))
    row = Delivery.objects.earliest("pk")
    with transaction.atomic():
        lanes.lock([row.lane_id or 0])
        retiring = Beside(endpoints.retire, endpoint=made, by=operator, reason="Gone.")
        until(somebody_waits)
        sql("UPDATE webhooks_delivery SET state = 'delivered', finished_at = now() WHERE id = %s", row.pk)
    retiring.answer()
    assert states() == {"delivered": 1, "cancelled": 1}


def test_more_than_a_chunk_is_cancelled_and_the_rest_keeps_its_order(
    operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel, "CHUNK", 7)
    made, _ = endpoint(operator, event_types=BOTH)
    other, _ = endpoint(operator, name="Other", event_types=["run.closed"])
    for number in range(6):
        types = ["run.closed", "media.deleted"] if number % 3 else ["run.closed"]
        tell(*[notice(f"asset-{lane}", f"{lane}:{number}:{type}", type=type) for lane in range(5) for type in types])
    endpoints.change(endpoint=made, by=operator, reason="R", event_types=["media.deleted"])
    mine = Delivery.objects.filter(endpoint=made)
    assert mine.filter(state="cancelled").count() == 30
    assert set(mine.filter(state="pending").values_list("event__type", flat=True)) == {"media.deleted"}
    assert Delivery.objects.filter(endpoint=other, state="pending").count() == 30
    due = [row for row in mine.filter(state="pending").order_by("lane_id", "sequence") if row.due_at]
    assert [row.sequence for row in due] == [3] * 5, "the first that is owed still, in each lane, and nothing else"


def test_a_request_is_cut_short_and_the_sweep_does_the_rest(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel, "CHUNK", 7)
    monkeypatch.setattr(cancel, "AT_ONCE", 0.0)
    made, _ = endpoint(operator)
    tell(*assets(5, events=4))
    endpoints.retire(endpoint=made, by=operator, reason="Gone.")
    assert states() == {"cancelled": 7, "pending": 13}
    monkeypatch.setattr(cancel, "AT_ONCE", 10.0)
    assert sweep.walk()["cancelled"] == 13
    assert states() == {"cancelled": 20}
    assert sorted(set(reasons())) == ["The endpoint is retired.", "The endpoint is retired: Gone."]


def test_a_redelivery_that_waits_in_no_lane_is_cancelled_too(operator: User) -> None:
    made, _ = endpoint(operator)
    tell(notice("a", "1"))
    row = Delivery.objects.get()
    sql("UPDATE webhooks_delivery SET state = 'dead', finished_at = now()")
    Delivery.objects.create(
        event=row.event, endpoint=made, tenant=row.tenant, round=1, requested_by=operator, sequence=1, due_at=row.due_at
    )
    endpoints.retire(endpoint=made, by=operator, reason="Gone.")
    assert states() == {"dead": 1, "cancelled": 1}


# Retired


def test_a_retired_endpoint_is_owed_nothing_signs_nothing_and_stays_readable(operator: User) -> None:
    with receiver() as inbox:
        made, _ = endpoint(operator, inbox.url)
        tell(*assets(3, events=2))
        alarms.notice("webhooks.failing", made, "It fails.")
        endpoints.retire(endpoint=made, by=operator, reason="The archive was closed.")
        tell(notice("a", "later"))
        dispatch.dispatch(threads=1)
        assert inbox.requests == []
    assert states() == {"cancelled": 6}
    assert set(reasons()) == {"The endpoint is retired: The archive was closed."}
    assert not OutboxEvent.objects.filter(settled_at=None).exists()
    assert not EndpointSecret.objects.live().exists()
    assert not Alarm.objects.open().exists()
    assert (made.disabled_by, made.disabled_reason) == (operator, "The archive was closed.")
    assert made.retired_at == made.disabled_at
    assert AuditEvent.objects.get(action="endpoint.retired").after == {"secrets_revoked": 1}


def test_one_that_was_disabled_keeps_since_when(operator: User) -> None:
    made, _ = endpoint(operator)
    since = endpoints.disable(endpoint=made, by=operator, reason="Moving house.").disabled_at
    sql("UPDATE webhooks_endpoint SET disabled_at = disabled_at - interval '1 day'")
    endpoints.retire(endpoint=made, by=operator, reason="Gone.")
    assert made.disabled_at is not None
    assert since is not None
    assert made.disabled_at < since
    assert AuditEvent.objects.get(action="endpoint.retired").before == {"disabled_reason": "Moving house."}


@pytest.mark.parametrize(
    "verb",
    [
        lambda made, by: endpoints.enable(endpoint=made, by=by),
        lambda made, by: endpoints.disable(endpoint=made, by=by, reason="R"),
        lambda made, by: endpoints.change(endpoint=made, by=by, reason="R", name="Index"),
        lambda made, by: endpoints.retire(endpoint=made, by=by, reason="R"),
        lambda made, by: pings.ping(endpoint=made, by=by),
    ],
)
def test_retired_is_for_ever(verb: Callable[[Endpoint, User], object], operator: User) -> None:
    made, _ = endpoint(operator)
    endpoints.retire(endpoint=made, by=operator, reason="Gone.")
    before = AuditEvent.objects.count()
    with pytest.raises(WebhooksError, match="retired for ever"):
        verb(made, operator)
    assert AuditEvent.objects.count() == before


@pytest.mark.parametrize("role", sorted(set(roles.MATRIX) - {roles.OPERATOR, roles.COMPLIANCE}))
def test_who_may_not_manage_endpoints_changes_nothing(role: str, operator: User, person: Callable[..., User]) -> None:
    made, _ = endpoint(operator)
    by = person("someone", role)
    before = Endpoint.objects.values().get()
    for verb in (
        lambda: endpoints.create(tenant="acme", name="x", url=HOSTED, event_types=["*"], by=by),
        lambda: endpoints.enable(endpoint=made, by=by),
        lambda: endpoints.disable(endpoint=made, by=by, reason="R"),
        lambda: endpoints.change(endpoint=made, by=by, reason="R", name="Index"),
        lambda: endpoints.retire(endpoint=made, by=by, reason="R"),
    ):
        with pytest.raises(WebhooksError, match="may not manage endpoints"):
            verb()
    assert Endpoint.objects.values().get() == before


@pytest.mark.parametrize("verb", [endpoints.disable, endpoints.retire])
def test_whoever_watches_is_told_that_a_person_disabled_an_endpoint(verb: Callable[..., Any], operator: User) -> None:
    made, _ = endpoint(operator, event_types=["media.deleted"])
    watcher, _ = endpoint(operator, name="Watcher", event_types=["endpoint.disabled"])
    verb(endpoint=made, by=operator, reason="It moved to https://new.example/.")
    delivery = Delivery.objects.get(endpoint=watcher)
    body = json.loads(bytes(delivery.event.body))
    assert (body["type"], body["subject"]) == ("endpoint.disabled", f"endpoint:{made.pk}")
    assert body["data"] == {"endpoint_id": made.pk, "rule": "person"}


def test_of_one_that_was_disabled_before_nobody_is_told_that_it_was_retired(operator: User) -> None:
    made, _ = endpoint(operator, enabled=False)
    endpoints.retire(endpoint=made, by=operator, reason="Not needed.")
    assert not OutboxEvent.objects.exists()
