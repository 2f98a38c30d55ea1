"""What policies say after a manifest was frozen keeps an object until the delete call: the longest retention wins."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from cleanup_project.base import clock
from ledger.models import Attempt, Request
from ledger.states import CommandState
from retention import dispositions, events, policies
from retention.exceptions import RetentionError
from retention.models import Disposition, ObjectVersion, PolicyRevision, RetentionPolicy
from tests.ledger.acting import Acting, build
from tests.world import EPOCH, event, published

pytestmark = pytest.mark.django_db(transaction=True)


def another_policy(world: Acting, **fields: Any) -> PolicyRevision:
    people = world.people
    return published(
        world.tenant, world.bucket, author=people["manager"], publisher=people["manager2"], code="second", **fields
    )


def assert_kept(world: Acting, words: str) -> None:
    command = world.command("a")
    assert (command.state, command.reason) == (CommandState.WITHDRAWN, words)
    assert world.there(world.versions["a"][0])


def test_a_longer_retention_that_is_published_after_the_freeze_keeps_the_object() -> None:
    world = build()
    world.put("a")
    world.run()
    another_policy(world, period_number=100, period_unit="years")
    world.drain()
    assert_kept(world, "Its retention has not ended yet.")


def test_a_shorter_one_changes_nothing() -> None:
    world = build()
    world.put("a")
    world.run()
    another_policy(world, period_number=1)
    world.drain()
    assert world.command("a").state == CommandState.DELETED


def test_a_revision_that_comes_into_force_only_later_changes_nothing_yet() -> None:
    world = build()
    world.put("a")
    world.run()
    another_policy(world, period_number=100, period_unit="years", effective_from=clock.now() + timedelta(days=1))
    world.drain()
    assert world.command("a").state == CommandState.DELETED


def test_another_policy_that_covers_it_keeps_it_once_suspended() -> None:
    world = build()
    second = another_policy(world, period_number=1)
    world.put("a")
    world.run()
    policies.suspend(policy=second.policy, by=world.people["manager"], reason="Under review")
    world.drain()
    assert_kept(world, "A policy that covers it is suspended.")


def test_a_suspension_that_committed_only_after_the_freeze_keeps_it_although_it_bears_an_earlier_time() -> None:
    world = build()
    second = another_policy(world, period_number=1)
    world.put("a")
    run = world.run()
    RetentionPolicy.objects.filter(pk=second.policy_id).update(
        suspended_at=run.as_of - timedelta(seconds=1),
        suspended_reason="Under review",
        suspended_by=world.people["manager"],
    )
    world.drain()
    assert_kept(world, "A policy that covers it is suspended.")


def test_its_own_policy_lets_it_wait_while_suspended() -> None:
    world = build()
    world.put("a")
    world.run()
    policies.suspend(policy=world.revision.policy, by=world.people["manager"], reason="Under review")
    world.drain()
    assert world.command("a").state == CommandState.READY
    assert world.there(world.versions["a"][0])


def test_what_was_exempted_after_the_freeze_is_kept() -> None:
    world = build()
    row = world.put("a")
    world.put("b")
    world.run()
    dispositions.exempt([row.pk], by=world.people["manager"], reason="Jubilee")
    world.drain()
    assert_kept(world, "Somebody exempted it, or something that would go with it, from destruction.")
    assert world.command("b").state == CommandState.DELETED


def test_an_exempted_derivative_keeps_its_original_even_where_they_seem_to_be_strangers_now() -> None:
    world = build()
    world.put("a")
    thumb = world.put("thumb", original_key="a", asset="a")
    world.run()
    dispositions.exempt([thumb.pk], by=world.people["manager"], reason="Jubilee")
    type(thumb).objects.filter(pk=thumb.pk).update(original_version_id="another")
    world.drain()
    assert_kept(world, "Somebody exempted it, or something that would go with it, from destruction.")
    assert world.there(thumb)


def test_an_extended_derivative_keeps_its_original_until_then() -> None:
    world = build()
    world.put("a")
    thumb = world.put("thumb", original_key="a", asset="a")
    world.run()
    until = clock.now() + timedelta(days=1)
    dispositions.extend([thumb.pk], until=until, by=world.people["manager"], reason="Audit")
    world.drain()
    assert_kept(world, "Its retention has not ended yet.")


def test_an_exemption_that_ended_lets_a_later_run_take_the_object_up() -> None:
    world = build()
    row = world.put("a")
    world.run()
    dispositions.exempt([row.pk], by=world.people["manager"], reason="Jubilee")
    world.drain()
    world.settled()
    assert world.run().item_count == 0
    (made,) = Disposition.objects.all()
    dispositions.end(disposition=made, by=world.people["manager2"], reason="It is over")
    assert world.run().item_count == 1
    world.drain()
    assert world.command("a").state == CommandState.DELETED


def test_what_another_policy_governs_now_is_left_to_that_one() -> None:
    """An object that was put into another class is destroyed on that class's authority, if at all."""
    world = build(retention_classes=["video"])
    row = world.put("a", retention_class="video")
    another_policy(world, retention_classes=["audio"])
    world.run()
    dispositions.reclassify([row.pk], retention_class="audio", by=world.people["manager"], reason="No picture in it")
    world.drain()
    assert_kept(world, "Another policy governs it now: a run of that one decides about it.")


def waiting_world() -> Acting:
    world = build(trigger="event", event_type="contract-ended")
    world.put("a")
    return world


def test_an_event_that_was_withdrawn_after_the_freeze_starts_nothing_any_more() -> None:
    world = waiting_world()
    posted = event(world.tenant, world.bucket, "", by=world.people["manager"])
    world.run()
    events.withdraw(event=posted, by=world.people["manager"], reason="Wrong contract")
    world.drain()
    assert_kept(world, "A policy that covers it waits for a retention event.")


def test_a_later_event_of_after_the_freeze_starts_the_clock_anew() -> None:
    world = waiting_world()
    event(world.tenant, world.bucket, "", by=world.people["manager"])
    world.run()
    event(world.tenant, world.bucket, "a", by=world.people["manager"], occurred_at=clock.now())
    world.drain()
    assert_kept(world, "Its retention has not ended yet.")


def test_an_event_cannot_be_withdrawn_after_the_first_deletion() -> None:
    world = waiting_world()
    world.put("b")
    posted = event(world.tenant, world.bucket, "", by=world.people["manager"])
    world.run()
    world.drain()
    assert world.command("a").state == CommandState.DELETED
    with pytest.raises(RetentionError, match="has been destroyed under this event already"):
        events.withdraw(event=posted, by=world.people["manager"], reason="Wrong contract")


def test_one_whose_event_is_withdrawn_between_claim_and_send_is_kept() -> None:
    world = waiting_world()
    row = world.versions["a"][0]
    type(row).objects.update(listed_at=None)  # so that it is looked at between the claim and the deletion
    posted = event(world.tenant, world.bucket, "", by=world.people["manager"])
    world.run()

    def withdraw_at_the_look(operation: str, *_: Any) -> None:
        if operation == "inspect":
            world.store.before_call = None
            events.withdraw(event=posted, by=world.people["manager"], reason="Wrong contract")

    world.store.before_call = withdraw_at_the_look
    world.drain()
    assert_kept(world, "A policy that covers it waits for a retention event.")
    assert not any(operation == "delete_versions" for operation, _ in world.store.calls)


def test_one_that_is_exempted_between_claim_and_send_is_kept() -> None:
    world = build()
    row = world.put("a", asset="a")
    type(row).objects.update(listed_at=None)  # so that it is looked at between the claim and the deletion
    world.run()

    def exempt_at_the_look(operation: str, *_: Any) -> None:
        if operation == "inspect":
            world.store.before_call = None
            dispositions.exempt([row.pk], by=world.people["manager"], reason="Jubilee")

    world.store.before_call = exempt_at_the_look
    world.drain()
    assert_kept(world, "Somebody exempted it, or something that would go with it, from destruction.")
    assert not any(operation == "delete_versions" for operation, _ in world.store.calls)


def test_one_that_is_published_between_claim_and_send_still_keeps_it() -> None:
    world = build()
    row = world.put("a", asset="a")
    type(row).objects.update(listed_at=None)  # so that it is looked at between the claim and the deletion
    world.run()

    def publish_at_the_look(operation: str, *_: Any) -> None:
        if operation == "inspect":
            world.store.before_call = None
            another_policy(world, period_number=100, period_unit="years")

    world.store.before_call = publish_at_the_look
    world.drain()
    assert_kept(world, "Its retention has not ended yet.")
    assert not any(operation == "delete_versions" for operation, _ in world.store.calls)
    assert Request.objects.count() == 1
    assert Attempt.objects.get().outcome == Attempt.Outcome.WITHDRAWN


def test_a_newer_revision_withdraws_what_is_not_claimed_yet() -> None:
    from ledger import closing

    world = build()
    world.put("a")
    world.run()
    revision = world.revision
    published(
        world.tenant, world.bucket, author=world.people["manager"], publisher=world.people["manager2"],
        code=revision.policy.code, period_number=90,
    )  # fmt: skip
    assert closing.withdraw() == 1
    assert_kept(world, "A newer revision of its policy governs it now.")


def test_two_versions_of_a_derivative_go_with_their_original_the_older_one_first() -> None:
    world = build()
    world.put("a")
    thumbs = [world.put("thumb", n, original_key="a", asset="a") for n in (b"1", b"2")]
    world.run()
    assert world.command("a").target_count == 3
    world.drain()
    assert world.command("a").state == CommandState.DELETED
    asked = [
        [ref.version_id for ref in refs] for operation, refs in world.store.calls if operation == "delete_versions"
    ]
    assert [thumbs[1].version_id in each for each in asked] == [False, True]
    assert not any(world.there(row) for row in thumbs)


def test_what_has_become_the_newest_generation_since_the_freeze_is_kept() -> None:
    world = build(keep_newest=1)
    world.put("a", series="s", stored_at=EPOCH)
    newer = world.put("b", series="s", stored_at=EPOCH + timedelta(days=1))
    world.run()
    ObjectVersion.objects.filter(pk=newer.pk).update(gone_at=clock.now(), gone_reason="vanished")
    world.drain()
    assert_kept(world, "It is among the newest generations that a policy always keeps.")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"dated_at": Now()}, "Its retention has not ended yet."),
        ({"dated_at": None}, "A policy that covers it counts from a date that is not known."),
        ({"retention_class": "masters"}, "No retention policy in force covers it."),
        ({"tenant": None}, "No retention policy in force covers it."),
    ],
)
def test_what_an_import_or_a_key_rule_has_corrected_since_the_freeze_counts(facts: dict[str, Any], words: str) -> None:
    world = build(trigger="dated_at", retention_classes=["clips"])
    row = world.put("a", retention_class="clips", dated_at=EPOCH)
    world.run()
    ObjectVersion.objects.filter(pk=row.pk).update(**facts)
    world.drain()
    assert_kept(world, words)
