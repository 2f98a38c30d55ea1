"""The page of one command: its banner, what was checked, what is so now, and everything that happened to it."""

from collections.abc import Callable
from functools import partial

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cleanup_project.base import roles
from cleanup_project.base.models import User
from ledger import present, quarantine
from ledger.explain import explain
from ledger.models import CleanupCommand, CleanupRun, DeadLetter, Receipt
from tests.ledger.acting import Acting, build
from tests.ledger.parking import dead, deleted
from tests.web import quick_pages, url  # noqa: F401
from tests.world import hold, sealed_run
from webhooks.models import Delivery, DeliveryAttempt, OutboxEvent

pytestmark = pytest.mark.django_db


@pytest.fixture
def acting() -> Acting:
    return build()


def page(client: Client, address: str, **headers: str) -> str:
    response = client.get(address, headers=headers)
    assert response.status_code == 200
    return response.content.decode()


def seen_by(client: Client, user: User, command: CleanupCommand) -> str:
    client.force_login(user)
    return page(client, url(CleanupCommand, "change", command.pk))


def test_the_banner_says_whose_turn_it_is_and_has_the_buttons_of_who_reads_it(
    acting: Acting, person: Callable[..., User], client: Client
) -> None:
    command = dead(acting)
    replay = url(CleanupCommand, "replay", command.pk)
    close = url(DeadLetter, "close", DeadLetter.objects.get().pk)
    shown = seen_by(client, acting.people["compliance"], command)
    for text in (
        "<strong>Dead.</strong>",
        "<strong>not confirmed</strong>",
        "<strong>a person’s</strong>",
        replay,
        close,
    ):
        assert text in shown, text
    shown = seen_by(client, acting.people["operator"], command)
    assert replay in shown
    assert close not in shown
    for reader in (acting.people["manager"], person("auditor", roles.AUDITOR)):
        shown = seen_by(client, reader, command)
        assert replay not in shown
        assert close not in shown
        assert client.get(replay).status_code == 403


def test_what_is_closed_or_goes_on_by_itself_has_no_such_button(acting: Acting, client: Client) -> None:
    command = dead(acting)
    quarantine.close(command=command, by=acting.people["compliance"], reason="Kept.")
    shown = seen_by(client, acting.people["compliance"], command)
    assert "Close without retry</a>" not in shown
    assert "<strong>nobody’s</strong>" in shown
    quarantine.replay(command=command, by=acting.people["operator"], reason="Repaired.")
    again = seen_by(client, acting.people["compliance"], command)
    assert "<strong>automatic</strong>" in again
    assert url(CleanupCommand, "replay", command.pk) not in again


def test_every_fact_that_was_checked_is_told_with_what_followed(acting: Acting, client: Client) -> None:
    shown = seen_by(client, acting.people["operator"], dead(acting))
    for text in (
        "Date of the trigger", "2020-01-01 00:00:00 UTC", "30 days", "No cut-off", "2020-01-31 00:00:00 UTC",
        "days overdue", "originals/1 governs: no other covers it.", "Legal holds that covered it", "Judged as of",
    ):  # fmt: skip
        assert text in shown, text


def test_what_is_so_now_is_looked_up_when_asked_as_a_part_or_as_a_page(acting: Acting, client: Client) -> None:
    command = dead(acting)
    placed = hold(acting.tenant, acting.bucket, "clips/", by=acting.people["compliance"])
    assert "A legal hold covers it" not in seen_by(client, acting.people["operator"], command)
    address = url(CleanupCommand, "now", command.pk)
    part = page(client, address, **{"HX-Request": "true"})
    assert "<html" not in part
    whole = page(client, address)
    assert "Which immutable versions were selected?" in whole
    for shown in (part, whole):
        for text in ("<strong>no</strong>. A legal hold covers it", placed.matter, "Looked up <time", "on, where all"):
            assert text in shown, text


def test_the_store_is_asked_on_demand_and_its_answer_carries_its_time(
    acting: Acting, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(present, "look", partial(present.look, stores=acting.stores))
    command = dead(acting)
    assert "The store was asked" not in seen_by(client, acting.people["operator"], command)
    address = url(CleanupCommand, "store", command.pk)
    for shown in (page(client, address), page(client, address, **{"HX-Request": "true"})):
        for text in ("The store was asked <time", "It is there, as it was frozen."):
            assert text in shown, text


def test_looks_are_for_who_may_see_the_command(acting: Acting, person: Callable[..., User], client: Client) -> None:
    command = dead(acting)
    client.force_login(person("administrator", roles.ADMINISTRATOR))
    for name in ("now", "store"):
        assert client.get(url(CleanupCommand, name, command.pk)).status_code == 403


def delivered(acting: Acting) -> tuple[CleanupCommand, Delivery]:
    """Destroyed; its notice failed once, and was then sent again because the operator asked for it."""
    endpoint = acting.subscribe(event_types=["media.deleted"])
    command = deleted(acting)
    delivery = Delivery.objects.get()
    ended = {"finished_at": Now(), "milliseconds": 501, "url": endpoint.url, "endpoint": endpoint, "number": 1}
    DeliveryAttempt.objects.create(
        delivery=delivery, token=1, status=503, failure_class="server_error", error="Try later.", peer="203.0.113.7",
        **ended,
    )  # fmt: skip
    again = Delivery.objects.create(
        event=delivery.event, endpoint=endpoint, tenant="acme", round=1, requested_by=acting.people["operator"],
        sequence=delivery.sequence, due_at=delivery.due_at,
    )  # fmt: skip
    DeliveryAttempt.objects.create(delivery=again, token=1, status=204, **ended)
    return command, again


def test_deliveries_and_redeliveries_are_on_the_timeline_with_their_answers(acting: Acting, client: Client) -> None:
    command, again = delivered(acting)
    shown = seen_by(client, acting.people["operator"], command)
    for text in (
        "Delivery attempt 1 at receiver: HTTP 503 (server_error), from 203.0.113.7. Try later.",
        "Delivery attempt 1 at receiver, redelivery 1: HTTP 204.", '<span class="quiet">operator</span>',
        url(Delivery, "change", again.pk), url(OutboxEvent, "change", again.event_id), "It took",
        url(Receipt, "change", Receipt.objects.get().pk), "intact: it has this digest",
    ):  # fmt: skip
        assert text in shown, text


def test_who_may_not_see_webhooks_gets_no_links_to_them(acting: Acting, client: Client) -> None:
    command, again = delivered(acting)
    shown = seen_by(client, acting.people["manager"], command)
    assert "redelivery 1: pending" in shown
    assert url(Delivery, "change", again.pk) not in shown
    assert url(OutboxEvent, "change", again.event_id) not in shown


def test_a_receipt_that_was_tampered_with_is_told_in_the_banner(acting: Acting, client: Client) -> None:
    command = deleted(acting)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_receipt DROP CONSTRAINT receipt_digest")  # as an owner of the table could
        cursor.execute("ALTER TABLE ledger_receipt DISABLE TRIGGER append_only")
        cursor.execute("UPDATE ledger_receipt SET digest = sha256('other')")
        cursor.execute("ALTER TABLE ledger_receipt ENABLE ALWAYS TRIGGER append_only")
    assert "its receipt was tampered with" in seen_by(client, acting.people["operator"], command)


def test_a_long_story_is_cut_and_says_by_how_much(
    acting: Acting, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.admin.commandpage.STORY_TOLD", 3)
    command = dead(acting)
    moments = len(explain(command.key).story)
    shown = seen_by(client, acting.people["operator"], command)
    assert shown.count("<li>") + shown.count('<li class="bad">') >= 3
    assert f"{moments - 3} earlier moments are left out here" in shown


def test_the_number_of_queries_depends_neither_on_runs_nor_on_attempts(acting: Acting, client: Client) -> None:
    command, _again = delivered(acting)
    client.force_login(acting.people["compliance"])

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            page(client, url(CleanupCommand, "change", command.pk))
        return len(captured)

    queries()
    few = queries()
    for number in range(2, 6):
        delivery = Delivery.objects.order_by("pk").first()
        assert delivery is not None
        DeliveryAttempt.objects.create(
            delivery=delivery, endpoint=delivery.endpoint, token=number, number=number, url="https://receiver.example/"
        )
    assert queries() == few


def test_runs_that_named_it_are_told_in_the_same_number_of_queries(acting: Acting, client: Client) -> None:
    command = dead(acting)
    client.force_login(acting.people["compliance"])

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            page(client, url(CleanupCommand, "change", command.pk))
        return len(captured)

    queries()
    few = queries()
    dry = [sealed_run(acting.revision, mode=CleanupRun.Mode.DRY_RUN) for _ in range(3)]
    assert queries() == few
    shown = page(client, url(CleanupCommand, "change", command.pk))
    for run in dry:
        assert f"Frozen as item 1 of dry run {run.key}." in shown
