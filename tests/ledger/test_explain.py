"""The six answers, from durable state alone, in every state and after compaction; and the story in order."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F
from django.db.models.functions import Now

from ledger import compact, manifest, publish, quarantine, runs
from ledger.exceptions import Unknown
from ledger.explain import NO_COMMAND, Explanation, explain
from ledger.models import CleanupCommand, CleanupRun, Incident, ManifestItem, Receipt
from ledger.next_action import Turn
from ledger.telling import answers
from retention import control, policies
from retention.models import LegalHold, ObjectVersion
from retention.storage import Failure, FailureClass
from retention.storage.memory import Fault
from tests.ledger.acting import Acting, build
from tests.ledger.parking import cancelled, dead, deleted, held, locked, released, withdrawn
from webhooks import endpoints
from webhooks.models import Delivery, DeliveryAttempt, Endpoint

pytestmark = pytest.mark.django_db


def told(command: CleanupCommand) -> Explanation:
    return explain(command.key)


def says(command: CleanupCommand) -> str:
    return "\n".join(sentence for _question, sentences in answers(told(command)) for sentence in sentences)


def listening(world: Acting, settings: Any) -> Endpoint:
    return world.subscribe("archive", ["media.deleted"])


def test_a_deleted_command_answers_all_six_questions(settings: Any) -> None:
    world = build()
    endpoint = listening(world, settings)
    command = deleted(world)
    row = world.versions["clips/deleted"][0]
    delivery = Delivery.objects.get()
    for token in (1, 2):
        DeliveryAttempt.objects.create(
            delivery=delivery, endpoint=endpoint, number=token, token=token, url=endpoint.url
        )
    found = told(command)
    (target,) = found.selected.targets
    assert (target["bucket"], target["key"], target["version_id"]) == ("media", row.key, row.version_id)
    assert found.selected.names_from == "the command"
    assert (found.eligible.policy, found.eligible.revision) == ("originals", 1)
    assert found.eligible.why["trigger"] == "stored_at"
    receipt = Receipt.objects.get()
    assert (found.deletion.confirmed, found.deletion.outcome, found.deletion.intact) == (True, "deleted", True)
    assert found.deletion.receipt_sha256 == bytes(receipt.digest).hex()
    assert found.deletion.looks[0]["after"]["at"] > found.deletion.looks[0]["before"]["at"]
    assert found.event is not None
    assert (found.event.id, found.event.sequence) == (command.event_id, 1)
    assert [(each.endpoint, each.state, each.attempts) for each in found.deliveries] == [("archive", "pending", 2)]
    assert (found.next.turn, found.next.what) == (Turn.AUTOMATIC, "It is destroyed. Its notice is delivered.")
    assert explain(command.event_id) == found
    assert "Yes, deleted. Receipt of" in says(command)


def test_the_story_is_told_in_order_from_the_opening_of_the_run() -> None:
    world = build()
    command = dead(world)
    quarantine.replay(command=command, by=world.people["operator"], reason="Granted.", repair="permission")
    world.drain()
    story = told(command).story
    assert [moment.at for moment in story] == sorted(moment.at for moment in story)
    words = "\n".join(f"{moment.what} {moment.who}" for moment in story)
    for expected in (
        "Run originals:", "Manifest sealed: root", "Run authorised: Standing authorisation of originals/1",
        "Frozen as item 1 of run", "Command published.", "Request 1 committed", "Attempt 1: failed (permission).",
        "Into quarantine, permission: AccessDenied No.", "Out of quarantine, replayed. Granted. operator",
        "Cycle 1 begins, replay: Granted. Repaired before: permission. operator", "Request 2 committed",
        "Receipt issued: SHA-256", "Event media.deleted evt_", "Attempt 2, not charged: deleted.",
    ):  # fmt: skip
        assert expected in words
    assert (told(command).tries.attempts, told(command).tries.requests, told(command).tries.charged) == (2, 2, 1)


def test_late_attempts_and_incidents_are_told() -> None:
    world = build()
    command = dead(world)
    command.tries.create(token=1, late=True, cycle=0, outcome="deleted", charged=False, claimed_at=Now(), worker="w")
    Incident.objects.create(command=command, cycle=0, from_state="dead", detail="Destroyed by a late request.")
    words = "\n".join(moment.what for moment in told(command).story)
    assert "Attempt 1, late: it decided nothing: deleted." in words
    assert "Incident: Destroyed by a late request." in words
    assert "1 of them late" in says(command)


def test_after_compaction_the_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    world = build()
    command = deleted(world)
    world.settled()
    before = told(command)
    CleanupCommand.objects.update(changed_at=F("changed_at") - timedelta(days=400))
    assert compact.compact() == 1
    after = told(command)
    assert after.compacted_at is not None
    assert after.selected.names_from == "the receipt's locators"
    names = ("bucket", "key", "version_id", "commitment", "role", "size", "etag")
    assert [[each[name] for name in names] for each in after.selected.targets] == [
        [each[name] for name in names] for each in before.selected.targets
    ]
    for same in ("eligible", "authorisation", "deletion", "event", "deliveries", "tries", "next"):
        assert getattr(after, same) == getattr(before, same), same

    monkeypatch.setattr(compact, "AT_LEAST", timedelta(days=-1))
    compact.forget_locators(older_than=timedelta(seconds=-60))
    forgotten = told(command)
    assert forgotten.selected.names_from == ""
    assert set(forgotten.selected.targets[0]) == {"commitment", "role", "size", "etag", "stored_at"}
    assert "The names were forgotten" in says(command)
    assert "clips/deleted" not in json.dumps(forgotten.as_json())


def test_whose_turn_it_is_with_a_command_that_is_ready() -> None:
    world = build()
    world.put("clips/one", asset="one")
    run = world.run()
    command = CleanupCommand.objects.get()
    manager, operator = world.people["manager"], world.people["operator"]
    assert told(command).next.what == "It is due: the next drain of its bucket takes it."
    later = datetime(2100, 1, 1, tzinfo=UTC)
    CleanupCommand.objects.update(due_at=later, claims=1, lease_token=1)
    assert (told(command).next.turn, told(command).next.at) == (Turn.AUTOMATIC, later)
    CleanupCommand.objects.update(inspect_due=Now())
    assert "What became of an earlier request is looked at" in told(command).next.what
    CleanupCommand.objects.update(lease_until=later)
    assert told(command).next.what.startswith("A worker has it.")
    CleanupCommand.objects.update(lease_until=None, inspect_due=None)
    policies.suspend(policy=world.revision.policy, by=manager, reason="Reviewed.")
    assert told(command).next.turn is Turn.PERSON
    runs.pause(run=run, by=operator, reason="Wait.")
    assert "somebody with the right operate resumes it" in told(command).next.what
    control.press(scope="tenant", tenant=world.tenant, by=operator, reason="Stop.")
    stopped = told(command).next
    assert (stopped.turn, "Stopped by operator since" in stopped.what) == ("person", True)
    assert "(tenant acme): Stop. Somebody with the right rearm lifts it." in stopped.what


def test_whose_turn_it_is_with_a_command_that_is_parked() -> None:
    world = build()
    gone = cancelled(world)
    assert "Withdrawn: The run was cancelled: Wrong month." in told(gone).next.what
    assert "Enforcement is off" in told(withdrawn(world)).next.what
    command = dead(world)
    assert (told(command).next.turn, "Grant s3:DeleteObjectVersion" in told(command).next.what) == (Turn.PERSON, True)
    quarantine.close(command=command, by=world.people["compliance"], reason="Kept.")
    assert (told(command).next.turn, "Closed without retry by compliance: Kept." in told(command).next.what) == (
        Turn.NOBODY, True,
    )  # fmt: skip
    CleanupCommand.objects.filter(pk=command.pk).update(inspect_due=Now())
    assert "it is looked at" in told(command).next.what
    CleanupCommand.objects.filter(pk=command.pk).update(inspect_due=None)
    ObjectVersion.objects.filter(key="clips/dead").update(gone_at=Now(), gone_reason="destroyed")
    assert "another command has destroyed its object" in told(command).next.what


def test_whose_turn_it_is_with_a_command_that_is_held() -> None:
    world = build()
    command, placed = held(world)
    assert (told(command).next.turn, f"Legal hold {placed.pk}" in told(command).next.what) == (Turn.PERSON, True)
    released(placed)
    assert told(command).next.turn is Turn.AUTOMATIC
    later = datetime(2100, 1, 1, tzinfo=UTC)
    until = locked(world, later)
    assert (told(until).next.turn, told(until).next.at) == (Turn.AUTOMATIC, later)
    assert told(locked(world, None, "clips/unknown")).next.turn is Turn.PERSON
    assert LegalHold.objects.count() == 1


@pytest.mark.parametrize(
    ("changed", "turn", "words"),
    [
        ({"state": "dead", "finished_at": Now()}, Turn.PERSON, "archive could not be told"),
        ({"state": "cancelled", "finished_at": Now(), "cancel_reason": "Moved."}, Turn.AUTOMATIC, "nothing is owed"),
    ],
)
def test_whose_turn_it_is_with_a_notice(changed: dict[str, Any], turn: Turn, words: str, settings: Any) -> None:
    world = build()
    endpoint = listening(world, settings)
    command = deleted(world)
    endpoints.disable(endpoint=endpoint, by=world.people["operator"], reason="Moved.")
    assert "The endpoint archive is disabled" in told(command).next.what
    Delivery.objects.update(**changed)
    assert told(command).next.turn is turn
    assert words in told(command).next.what


def test_an_item_of_a_dry_run_and_one_that_was_left_out_say_so() -> None:
    world = build()
    row = world.put("clips/one", asset="one")
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    manifest.freeze(run)
    key = ManifestItem.objects.get().command_key
    dry = explain(key)
    assert (dry.state, dry.next.turn) == (NO_COMMAND, Turn.NOBODY)
    assert "is a dry run" in dry.next.what
    assert dry.selected.names_from == "the manifest"
    assert dry.selected.targets[0]["version_id"] == row.version_id

    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    manifest.freeze(run)
    assert "published in its turn" in explain(key).next.what
    ObjectVersion.objects.update(gone_at=Now(), gone_reason="destroyed")
    publish.publish(run.pk)
    assert "Another command has destroyed one of its objects." in explain(key).next.what


def test_an_item_whose_run_waits_says_for_what() -> None:
    world = build(authorisation="approval", cooling_off_minutes=5)
    world.put("clips/one", asset="one")
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    run = manifest.freeze(run)
    key = ManifestItem.objects.get().command_key
    assert (explain(key).next.turn, "approves its manifest root" in explain(key).next.what) == (Turn.PERSON, True)
    run = runs.approve(
        run=run, by=world.people["compliance"], root=run.remaining_root, confirmation="1", reason="Read."
    )
    assert (explain(key).next.turn, explain(key).next.at) == (Turn.AUTOMATIC, run.cooling_until)
    assert explain(key).authorisation.by == "compliance"
    runs.cancel(run=run, by=world.people["compliance"], reason="Wrong.")
    assert "has ended (Wrong.)" in explain(key).next.what


def test_what_is_not_on_record_is_an_error_that_says_what_to_give() -> None:
    for key in ("acme:nothing:v1:originals-1", "evt_" + "a" * 40, "", "a\x00b"):
        with pytest.raises(Unknown):
            explain(key)
    with pytest.raises(CommandError, match="Nothing is on record under 'nothing'"):
        call_command("explain", "nothing")


def test_the_command_prints_the_answers_for_people_and_for_machines(capsys: Any) -> None:
    world = build()
    world.store.inject(Fault("delete_versions", Failure.of(FailureClass.PERMISSION, "AccessDenied")))
    command = deleted_or_dead(world)
    call_command("explain", command.key)
    shown = capsys.readouterr().out
    for text in (
        command.key, "1  Which immutable versions were selected?", "6  Whose is the next action?",
        "A person's: nothing goes on before somebody acts.", "No. The command is dead.", "Story",
    ):  # fmt: skip
        assert text in shown
    call_command("explain", command.key, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["next"]["turn"] == "person"
    assert found["eligible"]["as_of"].endswith("Z")
    assert set(found) >= {"selected", "eligible", "deletion", "event", "deliveries", "next", "story", "tries"}


def deleted_or_dead(world: Acting) -> CleanupCommand:
    world.put("clips/one", asset="one")
    world.run()
    world.drain()
    return CleanupCommand.objects.get()
