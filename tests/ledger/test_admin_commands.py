"""Commands, quarantine and receipts in the admin, and a run approved, paused and resumed: pages, verbs, roles."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from ledger import compact, inflight, manifest, runs
from ledger.models import CleanupCommand, CleanupRun, DeadLetter, HoldReport, ManifestItem, Receipt, SkippedItem
from tests.ledger.acting import Acting, build
from tests.ledger.parking import dead, deleted, held, withdrawn
from tests.web import quick_pages, url  # noqa: F401
from tests.world import hold

pytestmark = pytest.mark.django_db


@pytest.fixture
def acting() -> Acting:
    return build()


def page(client: Client, address: str, query: dict[str, str] | None = None) -> str:
    response = client.get(address, query or {})
    assert response.status_code == 200
    return response.content.decode()


def listed(client: Client, model: type, query: dict[str, str]) -> list[object]:
    return list(client.get(url(model, "changelist"), query).context["cl"].result_list)


def test_a_commands_page_answers_the_six_questions_and_tells_its_story(acting: Acting, client: Client) -> None:
    client.force_login(acting.people["operator"])
    command = dead(acting)
    shown = page(client, url(CleanupCommand, "change", command.pk))
    for text in (
        "Which immutable versions were selected?", "Whose is the next action?", "No. The command is dead.",
        "Grant s3:DeleteObjectVersion", "Into quarantine, permission: AccessDenied No.", "clips/dead<", "a person’s",
        url(CleanupCommand, "replay", command.pk), url(DeadLetter, "change", DeadLetter.objects.get().pk),
        url(ManifestItem, "change", command.item_id),
    ):  # fmt: skip
        assert text in shown, text


def test_a_compacted_command_still_answers(acting: Acting, client: Client) -> None:
    client.force_login(acting.people["compliance"])
    command = deleted(acting)
    acting.settled()
    CleanupCommand.objects.update(changed_at=F("changed_at") - timedelta(days=400))
    assert compact.compact() == 1
    shown = page(client, url(CleanupCommand, "change", command.pk))
    for text in (
        "Yes, deleted. Receipt of", "clips/deleted<", "attempts: 1 deleted", "were compacted", "1 attempt and 1 request",
    ):  # fmt: skip
        assert text in shown, text
    assert "compacted: nothing is left to ask" in page(client, url(CleanupCommand, "store", command.pk))


def test_commands_are_found_by_key_state_and_run(acting: Acting, client: Client) -> None:
    client.force_login(acting.people["operator"])
    done = deleted(acting)
    parked = dead(acting)
    assert listed(client, CleanupCommand, {}) == [parked, done]
    assert listed(client, CleanupCommand, {"state__exact": "dead"}) == [parked]
    assert listed(client, CleanupCommand, {"run": str(done.run_id)}) == [done]
    assert listed(client, CleanupCommand, {"q": parked.key}) == [parked]
    assert listed(client, CleanupCommand, {"q": parked.key[:-1]}) == []
    assert "Grant s3:DeleteObjectVersion" in page(client, url(CleanupCommand, "changelist"))
    assert client.get(url(CleanupCommand, "changelist"), {"asset__startswith": "a"}).status_code == 400


def test_the_list_takes_no_more_queries_for_more_rows(acting: Acting, client: Client) -> None:
    client.force_login(acting.people["operator"])
    asked = []
    for number in range(2):
        for each in range(1 + 11 * number):
            acting.put(f"clips/{number}-{each}", asset=f"{number}-{each}")
        acting.run()
        acting.drain()
        acting.settled()
        with CaptureQueriesContext(connection) as queries:
            page(client, url(CleanupCommand, "changelist"))
        asked.append(len(queries))
    assert asked[0] == asked[1]


@pytest.mark.parametrize("model", [CleanupCommand, DeadLetter])
def test_a_replay_is_a_decision_with_a_reason(model: type, acting: Acting, client: Client) -> None:
    operator = acting.people["operator"]
    client.force_login(operator)
    command = dead(acting)
    row = command if model is CleanupCommand else DeadLetter.objects.get()
    address = url(model, "replay", row.pk)
    assert address in page(client, url(model, "change", row.pk))
    assert "in its next cycle" in page(client, address)
    assert "This field is required." in client.post(address, {"reason": " "}).content.decode()
    response = client.post(address, {"reason": "Granted.", "repair": "permission"}, follow=True)
    assert "is ready again, in cycle 1." in response.content.decode()
    command.refresh_from_db()
    assert command.state == "ready"
    assert AuditEvent.objects.get(action="command.replayed").actor == operator
    refused = client.post(address, {"reason": "Once more."}).content.decode()
    assert "so there is nothing to replay: Replay by operator" in refused
    assert "Once more." in refused


def test_what_is_held_or_withdrawn_is_replayed_from_its_own_page(acting: Acting, client: Client) -> None:
    client.force_login(acting.people["operator"])
    back = withdrawn(acting)
    assert client.post(url(CleanupCommand, "replay", back.pk), {"reason": "On again."}).status_code == 302
    command, _placed = held(acting)
    refused = client.post(url(CleanupCommand, "replay", command.pk), {"reason": "Try."}).content.decode()
    assert "A legal hold covers it" in refused


def test_an_entry_is_closed_without_retry(acting: Acting, client: Client) -> None:
    client.force_login(acting.people["compliance"])
    command = dead(acting)
    entry = DeadLetter.objects.get()
    address = url(DeadLetter, "close", entry.pk)
    assert "still takes it up" in page(client, address)
    assert "Closed without retry." in client.post(address, {"reason": "Kept."}, follow=True).content.decode()
    command.refresh_from_db()
    assert command.state == "dead"
    shown = page(client, url(DeadLetter, "change", entry.pk))
    assert "closed without retry" in shown
    assert address not in shown
    assert "has no open quarantine entry" in client.post(address, {"reason": "Again."}).content.decode()


WHO = {
    roles.RETENTION_MANAGER: {"approve"},
    roles.COMPLIANCE: {"approve", "replay", "close", "pause"},
    roles.OPERATOR: {"replay", "pause"},
    roles.AUDITOR: set[str](),
    roles.ADMINISTRATOR: set[str](),
}


@pytest.mark.parametrize("role", sorted(WHO))
def test_who_sees_and_may_do_what(role: str, acting: Acting, person: Callable[..., User], client: Client) -> None:
    command = dead(acting)
    entry = DeadLetter.objects.get()
    client.force_login(person("someone", role))
    sees = role != roles.ADMINISTRATOR
    assert client.get(url(DeadLetter, "change", entry.pk)).status_code == (200 if sees else 403)
    shown = page(client, url(DeadLetter, "change", entry.pk)) if sees else ""
    for verb, address in (
        ("replay", url(DeadLetter, "replay", entry.pk)),
        ("close", url(DeadLetter, "close", entry.pk)),
        ("replay", url(CleanupCommand, "replay", command.pk)),
    ):
        assert client.get(address).status_code == (200 if verb in WHO[role] else 403), address
        assert (address in shown) == (verb in WHO[role]) or "cleanupcommand" in address

    acting.put("clips/two", asset="two")
    run = acting.run()
    shown = page(client, url(CleanupRun, "change", run.pk)) if sees else ""
    assert client.get(url(CleanupRun, "approve", run.pk)).status_code == (200 if "approve" in WHO[role] else 403)
    assert client.get(url(CleanupRun, "pause", run.pk)).status_code == (200 if "pause" in WHO[role] else 403)
    assert (url(CleanupRun, "pause", run.pk) in shown) == ("pause" in WHO[role])


def test_a_receipt_is_shown_and_checked(acting: Acting, client: Client) -> None:
    client.force_login(acting.people["compliance"])
    command = deleted(acting)
    receipt = Receipt.objects.get()
    shown = page(client, url(Receipt, "change", receipt.pk))
    for text in (
        "is the SHA-256 of the receipt", bytes(receipt.digest).hex(), "clips/deleted<", "&quot;command_key&quot;:",
        "Retention Act, section 1", url(CleanupCommand, "change", command.pk),
    ):  # fmt: skip
        assert text in shown, text
    assert (
        listed(client, Receipt, {"q": command.key})
        == listed(client, Receipt, {"run": str(command.run_id)})
        == [receipt]
    )
    receipt.locators.all().delete()
    assert "Forgotten when their retention ended." in page(client, url(Receipt, "change", receipt.pk))


@pytest.fixture
def waiting() -> tuple[Acting, CleanupRun]:
    acting = build(authorisation="approval")
    acting.put("clips/one", asset="one")
    run, _new = runs.open_run(policy=acting.revision.policy, by=acting.people["manager"], mode=CleanupRun.Mode.ENFORCE)
    return acting, manifest.freeze(run)


def test_a_run_is_approved_by_its_root(waiting: tuple[Acting, CleanupRun], client: Client) -> None:
    acting, run = waiting
    client.force_login(acting.people["compliance"])
    address = url(CleanupRun, "approve", run.pk)
    assert address in page(client, url(CleanupRun, "change", run.pk))
    shown = page(client, address)
    assert "under the root that you see here: 1 of 1 item." in shown
    assert run.remaining_root in shown
    said = {"confirmation": "1", "reason": "Read."}
    for typed in ("", run.manifest_root[:7], "0" * 8, run.manifest_root[1:9]):
        client.post(address, {"shown_root": run.manifest_root, "typed": typed, **said})
        run.refresh_from_db()
        assert run.state == "needs_approval", typed
    other = "f" * 64
    refused = client.post(address, {"shown_root": other, "typed": other[:8], **said}).content.decode()
    assert "That is not the root of what remains" in refused
    posted = {"shown_root": run.manifest_root, "typed": run.manifest_root[:8].upper(), **said}
    for wrong in ("", "2", "all"):
        client.post(address, posted | {"confirmation": wrong})
        run.refresh_from_db()
        assert run.state == "needs_approval", wrong
    assert "approved: it is authorised." in client.post(address, posted, follow=True).content.decode()
    run.refresh_from_db()
    assert (run.authorised_by, run.authorisation) == (acting.people["compliance"], "Read.")


def test_who_opened_a_run_does_not_approve_it(waiting: tuple[Acting, CleanupRun], client: Client) -> None:
    acting, run = waiting
    client.force_login(acting.people["manager"])
    address = url(CleanupRun, "approve", run.pk)
    assert address not in page(client, url(CleanupRun, "change", run.pk))
    assert client.get(address).status_code == 403


def test_a_run_is_paused_and_resumed(acting: Acting, client: Client) -> None:
    client.force_login(acting.people["operator"])
    acting.put("clips/one", asset="one")
    run = acting.run()
    for verb, state, words in (("pause", "paused", "paused."), ("resume", "draining", "resumed.")):
        address = url(CleanupRun, verb, run.pk)
        assert address in page(client, url(CleanupRun, "change", run.pk))
        assert words in client.post(address, {"reason": "Look first."}, follow=True).content.decode()
        run.refresh_from_db()
        assert run.state == state
    refused = client.post(url(CleanupRun, "resume", run.pk), {"reason": "Twice."}).content.decode()
    assert "only a run that is paused can resume" in refused


def test_a_run_shows_its_progress_and_then_its_counts(acting: Acting, client: Client) -> None:
    client.force_login(acting.people["operator"])
    acting.put("clips/one", asset="one")
    run = acting.run()
    address = url(CleanupRun, "change", run.pk)
    assert "None settled yet." in page(client, address)
    acting.drain()
    one = f'deleted <a href="{url(Receipt, "changelist")}?run={run.pk}&amp;outcome=deleted">1</a>'
    assert one in page(client, address)
    acting.settled()
    run.refresh_from_db()
    assert run.counts == {"deleted": 1}
    shown = page(client, address)
    assert one in shown
    for model in (CleanupCommand, SkippedItem, Receipt):
        assert f"{url(model, 'changelist')}?run={run.pk}" in shown


def test_a_hold_shows_what_was_in_flight_when_it_was_placed(acting: Acting, client: Client) -> None:
    client.force_login(acting.people["compliance"])
    acting.put("clips/one", asset="one")
    acting.run()
    command = CleanupCommand.objects.get()
    CleanupCommand.objects.update(inspect_due=command.published_at)
    placed = inflight.placed(hold(acting.tenant, acting.bucket, "clips/", by=acting.people["compliance"]).pk)
    shown = page(client, url(HoldReport, "change", placed.pk))
    assert url(CleanupCommand, "change", command.pk) in shown
    assert "not known yet" in shown
    assert "Doe v. Acme" in page(client, url(HoldReport, "changelist"))
    assert "was in flight when legal hold" in page(client, url(CleanupCommand, "change", command.pk))
