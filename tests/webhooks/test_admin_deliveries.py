"""Deliveries in the admin: filtered, shown with all that their attempts tell, and sent again singly, ticked, or all."""

import re
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from cleanup_project.base import clock, jobs, roles
from cleanup_project.base.models import BulkJob, User
from tests.web import quick_pages, url  # noqa: F401
from tests.webhooks.test_redelivery import deliver, die, disable, many, owed, wait_an_hour
from tests.webhooks.world import TENANT, endpoint, notice, sql, tell
from webhooks import outbox
from webhooks.admin import redelivery as pages
from webhooks.models import Delivery, DeliveryAttempt, Endpoint

pytestmark = pytest.mark.django_db
LIST = "changelist"


@pytest.fixture
def at_work(operator: User, client: Client) -> User:
    client.force_login(operator)
    return operator


def bulk() -> str:
    return reverse("admin:webhooks_delivery_bulk")


def listed(client: Client, **query: Any) -> set[int]:
    page = client.get(url(Delivery, LIST), query)
    return {row.pk for row in page.context["cl"].result_list}


def sent_along(page: str) -> dict[str, str]:
    """The hidden inputs of the confirmation page, by name."""
    return dict(re.findall(r'<input type="hidden" name="(counted|expected|token)" value="([^"]*)">', page))


def confirm(client: Client, chosen: dict[str, Any], **said: Any) -> Any:
    """Look at the count, then confirm what it shows."""
    shown = sent_along(client.get(bulk(), chosen).content.decode())
    return client.post(bulk(), chosen | shown | {"rate": 50, "reason": "The receiver is repaired."} | said)


def test_deliveries_are_filtered_by_state_endpoint_type_class_and_time(at_work: User, client: Client) -> None:
    one, _ = endpoint(at_work)
    two, _ = endpoint(at_work, name="two", event_types=["quarantine.entered"])
    dead, gone = owed("a", "b")
    to_one, to_two = owed("c", kind="quarantine.entered")
    die(dead)
    die(gone, failure="gone")
    disable(two)
    everything = {dead.pk, gone.pk, to_one.pk, to_two.pk}
    assert listed(client) == everything
    assert listed(client, state__exact="dead") == {dead.pk, gone.pk}
    assert listed(client, state__exact="pending") == {to_one.pk, to_two.pk}
    assert listed(client, state__exact="held") == {to_two.pk}
    assert listed(client, endpoint=one.pk) == everything - {to_two.pk}
    assert listed(client, endpoint="x") == set()
    assert listed(client, type="quarantine.entered") == {to_one.pk, to_two.pk}
    assert listed(client, **{"class": "gone"}) == {gone.pk}
    assert listed(client, emitted="hour") == everything
    assert listed(client, emitted="hour", state__exact="dead", endpoint=two.pk) == set()


def test_a_delivery_is_sent_again_from_its_page(at_work: User, client: Client) -> None:
    endpoint(at_work)
    (row,) = owed("a")
    die(row)
    verb = url(Delivery, "redeliver", row.pk)
    assert verb in client.get(url(Delivery, "change", row.pk)).content.decode()
    assert client.get(verb).status_code == 200
    assert "This field is required." in client.post(verb, {"reason": " "}).content.decode()
    answer = client.post(verb, {"reason": "Repaired."}, follow=True)
    made = Delivery.objects.get(round=1)
    assert answer.redirect_chain == [(url(Delivery, "change", made.pk), 302)]
    shown = answer.content.decode()
    assert f"Redelivery 1, delivery {made.pk}, is due now." in shown
    assert "redelivery 1" in shown
    assert url(Delivery, "change", row.pk) in shown
    assert "on its way already" in client.post(verb, {"reason": "Again."}).content.decode()


@pytest.mark.parametrize(
    ("role", "may"), [(roles.OPERATOR, 200), (roles.COMPLIANCE, 200), (roles.AUDITOR, 403), (roles.ADMINISTRATOR, 403)]
)
def test_who_may_send_again(role: str, may: int, operator: User, person: Any, client: Client) -> None:
    endpoint(operator)
    (row,) = owed("a")
    die(row)
    client.force_login(person("someone", role))
    assert client.get(url(Delivery, "redeliver", row.pk)).status_code == may
    assert client.get(bulk(), {"state": "dead"}).status_code == may
    if may == 403:
        assert client.post(url(Delivery, "redeliver", row.pk), {"reason": "R"}).status_code == 403
        assert client.post(bulk(), {"state": "dead"}).status_code == 403
        assert Delivery.objects.count() == 1
    if role == roles.AUDITOR:
        page = client.get(url(Delivery, LIST)).content.decode()
        assert bulk() not in page
        assert "redeliver_selected" not in page


def test_all_that_match_are_counted_confirmed_and_become_a_job(at_work: User, client: Client) -> None:
    one, _ = endpoint(at_work)
    two, _ = endpoint(at_work, name="two")
    rows = owed("a", "b", "c")
    die(*rows[:4])
    disable(two)
    chosen = {"state": "dead"}
    shown = client.get(bulk(), chosen).content.decode()
    assert "Chosen: 4, dead deliveries" in shown
    assert "disabled: they are held" in shown
    assert url(Endpoint, "change", one.pk) in shown
    answer = confirm(client, chosen)
    job = BulkJob.objects.get()
    assert answer.headers["Location"] == url(BulkJob, "change", job.pk)
    assert (job.total, job.selection, job.rate, job.requested_by) == (4, "dead deliveries", 50, at_work)
    assert Delivery.objects.count() == 6  # nothing happens in the request


def test_what_was_not_counted_is_not_done(at_work: User, client: Client) -> None:
    endpoint(at_work)
    rows = owed("a", "b")
    die(rows[0])
    shown = sent_along(client.get(bulk(), {"state": "dead"}).content.decode())
    answer = client.post(bulk(), shown | {"state": "pending", "rate": 50, "reason": "R"}).content.decode()
    assert "was not counted as it is now" in answer
    assert "Chosen: 1, pending deliveries" in answer
    answer = client.post(bulk(), {"state": "dead", "rate": 50, "reason": "R"})
    assert "Chosen: 1, dead deliveries" in answer.content.decode()
    assert not BulkJob.objects.exists()
    die(rows[1])
    answer = client.post(bulk(), shown | {"state": "dead", "rate": 50, "reason": "R"})
    assert "You saw 1, and 2 match now." in answer.content.decode()
    assert not BulkJob.objects.exists()


def test_what_is_counted_anew_becomes_another_job(at_work: User, client: Client) -> None:
    """Whoever goes back to the form of a job that was made must not be shown that job for another set."""
    endpoint(at_work)
    die(*owed("a"))
    first = sent_along(client.get(bulk(), {"state": "dead"}).content.decode())
    counted = client.post(bulk(), first | {"state": "dead", "rate": "50", "reason": "R", "_count": "Count"})
    again = sent_along(counted.content.decode())
    assert again["token"] != first["token"]


def test_counting_again_keeps_what_was_written_and_complains_of_nothing(at_work: User, client: Client) -> None:
    endpoint(at_work)
    die(*owed("a"))
    answer = client.post(bulk(), {"state": "dead", "reason": "Because.", "rate": "7", "_count": "Count"})
    shown = answer.content.decode()
    assert "Chosen: 1" in shown
    assert "Because." in shown
    assert 'value="7"' in shown
    assert "This field is required" not in shown


def test_nothing_and_too_much_cannot_be_confirmed(
    at_work: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint(at_work)
    assert sent_along(client.get(bulk()).content.decode()) == {}
    assert "Nothing matches." in client.get(bulk(), {"state": "dead"}).content.decode()
    die(*owed("a", "b"))
    monkeypatch.setattr(jobs, "MOST", 1)
    shown = client.get(bulk(), {"state": "dead"}).content.decode()
    assert "More than 1 match" in shown
    assert sent_along(shown) == {}


def test_a_large_number_is_typed(at_work: User, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "TYPED_ABOVE", 1)
    endpoint(at_work)
    die(*owed("a", "b"))
    assert "Their number" in client.get(bulk(), {"state": "dead"}).content.decode()
    assert "Type 2, the number" in confirm(client, {"state": "dead"}).content.decode()
    assert "Type 2, the number" in confirm(client, {"state": "dead"}, typed="3").content.decode()
    assert not BulkJob.objects.exists()
    assert confirm(client, {"state": "dead"}, typed="2").status_code == 302


def test_the_same_confirmation_twice_makes_one_job(at_work: User, client: Client) -> None:
    endpoint(at_work)
    die(*owed("a"))
    token = str(uuid4())
    first, second = (confirm(client, {"state": "dead"}, token=token) for _ in range(2))
    assert first.headers["Location"] == second.headers["Location"]
    assert BulkJob.objects.count() == 1
    refused = confirm(client, {"state": "dead"}, reason="").content.decode()
    kept = sent_along(refused)["token"]
    again = client.post(bulk(), {"state": "dead", "rate": 50, "reason": "", "token": kept}).content.decode()
    assert sent_along(again)["token"] == kept


def test_what_is_ticked_or_matches_the_lists_filters_goes_to_the_confirmation(at_work: User, client: Client) -> None:
    made, _ = endpoint(at_work)
    rows = owed("a", "b", "c")
    die(*rows)
    ticked = {"action": "redeliver_selected", "_selected_action": [rows[0].pk, rows[2].pk]}
    answer = client.post(url(Delivery, LIST), ticked)
    address = answer.headers["Location"]
    assert parse_qs(urlsplit(address).query) == {"ids": [f"{rows[0].pk},{rows[2].pk}"]}
    shown = client.get(address).content.decode()
    assert "Chosen: 2, chosen one by one" in shown
    assert confirm(client, {"ids": f"{rows[0].pk},{rows[2].pk}"}).status_code == 302
    job = BulkJob.objects.get()
    assert list(job.items.values_list("subject_id", flat=True)) == [rows[0].pk, rows[2].pk]
    narrowed = {"state__exact": "dead", "endpoint": made.pk, "class": "transient", "emitted": "day"}
    page = client.get(url(Delivery, LIST), narrowed).content.decode()
    (link,) = re.findall(rf'href="({re.escape(bulk())}[^"]*)"', page)
    asked = parse_qs(urlsplit(link.replace("&amp;", "&")).query)
    assert {name: asked[name] for name in ("state", "endpoint", "failure_class")} == {
        "state": ["dead"], "endpoint": [str(made.pk)], "failure_class": ["transient"],
    }  # fmt: skip
    assert set(asked) == {"state", "endpoint", "failure_class", "since_0", "since_1"}
    assert "Chosen: 3" in client.get(link.replace("&amp;", "&")).content.decode()


def test_everything_in_a_long_list_is_chosen_by_the_filters_alone(
    at_work: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "ONE_BY_ONE", 1)
    endpoint(at_work)
    rows = owed("a", "b")
    die(*rows)
    every = {"action": "redeliver_selected", "select_across": "1", "_selected_action": [rows[0].pk]}
    answer = client.post(url(Delivery, LIST) + "?state__exact=dead", every)
    assert answer.headers["Location"] == f"{bulk()}?state=dead"
    event = rows[0].event.command_key
    answer = client.post(url(Delivery, LIST) + f"?q={event}", every, follow=True)
    assert "ids=" in answer.redirect_chain[0][0]
    two = {"action": "redeliver_selected", "_selected_action": [each.pk for each in rows]}
    assert "at most 1 by ticking" in client.post(url(Delivery, LIST), two, follow=True).content.decode()


@pytest.mark.parametrize("ids", ["1,x", "1,,2", "' OR 1=1", "9" * 30])
def test_what_is_no_list_of_ids_is_refused(ids: str, at_work: User, client: Client) -> None:
    answer = client.get(bulk(), {"ids": ids})
    assert answer.status_code == 200
    assert sent_along(answer.content.decode()) == {}


def test_an_attempt_shows_all_that_is_known_of_its_exchange(at_work: User, client: Client) -> None:
    made, _ = endpoint(at_work)
    (row,) = owed("a")
    attempt = DeliveryAttempt.objects.create(
        delivery=row, endpoint=made, number=1, token=1, url=made.url, key_ids=[4711], is_probe=True
    )
    sql(
        "UPDATE webhooks_deliveryattempt SET finished_at = now(), status = 500, failure_class = 'transient', error = 'No.', "
        "milliseconds = 1234, dns_ms = 11, connect_ms = 22, tls_ms = 33, first_byte_ms = 44, peer = '192.0.2.7', "
        "bytes_read = 98765, truncated = true, resent = true, reused = true, response = %s, headers = %s WHERE id = %s",
        b"\x00\xff\x1b[31m<script>alert(1)</script>",
        '{"server": "<b>nginx</b>"}',
        attempt.pk,
    )
    shown = client.get(url(DeliveryAttempt, "change", attempt.pk)).content.decode()
    for told in ("4711", "192.0.2.7", "98,765", "1234", "11", "22", "33", "44", "500"):
        assert told in shown, told
    assert "\\x00\\\\xff\\x1b[31m&lt;script&gt;alert(1)" in shown
    assert "&lt;b&gt;nginx" in shown
    for text in ("<script>alert", "<b>nginx"):
        assert text not in shown
    assert client.get(url(Delivery, "change", row.pk)).status_code == 200


def test_what_is_pending_offers_to_be_sent_now(at_work: User, client: Client) -> None:
    endpoint(at_work)
    (row,) = owed("a")
    wait_an_hour(row)
    assert "Send now" in client.get(url(Delivery, "change", row.pk)).content.decode()
    client.post(url(Delivery, "redeliver", row.pk), {"reason": "It is up again."})
    assert Delivery.objects.get().attempts == 0
    deliver(row)
    assert "Redeliver" in client.get(url(Delivery, "change", row.pk)).content.decode()


@pytest.mark.bulk
def test_pages_ask_as_many_queries_for_many_deliveries_as_for_few(at_work: User, client: Client) -> None:
    endpoint(at_work)
    tell(notice("seed", "seed"))
    asked = []
    for number in (10, 3000):
        many(number)
        sql("ANALYZE")
        with CaptureQueriesContext(
            connection,
        ) as queries:
            client.get(url(Delivery, LIST), {"state__exact": "dead"})
            client.get(bulk(), {"state": "dead"})
        asked.append(len(queries))
    assert asked[0] == asked[1]


@pytest.mark.bulk
def test_a_list_of_what_was_emitted_lately_reads_no_whole_table(operator: User) -> None:
    endpoint(operator)
    with transaction.atomic():
        outbox.emit(TENANT, [notice("seed", "seed")], at=clock.now() - timedelta(days=30))
    many(30_000)
    owed("a", "b")
    with connection.cursor() as cursor:
        cursor.execute("SELECT brin_summarize_new_values('event_by_time')")
        cursor.execute("ANALYZE webhooks_outboxevent, webhooks_delivery")
    lately = Delivery.objects.filter(event__emitted_at__gte=clock.now() - timedelta(hours=1)).order_by("-id")
    assert lately.count() == 2
    plan = lately[:100].explain()
    assert "event_by_time" in plan, plan
    assert "Seq Scan" not in plan, plan
