"""What is so of a command now, from the database, and from the store itself when it is asked."""

import pytest
from django.db.models.functions import Now

from ledger import present
from retention import control
from retention.models import Enforcement, ObjectVersion, StopSwitch
from retention.storage import Failure, FailureClass, VersionRef
from retention.storage.memory import Fault
from tests.ledger import parking
from tests.ledger.acting import Acting, build
from tests.world import enforced, hold, published

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Acting:
    return build()


def test_what_failed_and_is_still_due_is_eligible_and_nothing_is_in_its_way(world: Acting) -> None:
    found = present.present(parking.dead(world))
    assert found.eligible is True
    assert found.why.startswith("Its retention has ended and nothing keeps it.")
    assert (list(found.holds), found.enforced, found.stopped) == ([], True, "")
    assert [(each.target.key, each.state) for each in found.objects] == [("clips/dead", "present")]


def test_what_has_too_much_around_it_is_not_judged_while_somebody_waits(
    world: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(present, "READ", 0)
    found = present.present(parking.dead(world))
    assert found.eligible is None
    assert "manage.py why" in found.why
    assert (found.enforced, [each.state for each in found.objects]) == (True, ["present"])


def test_holds_enforcement_and_the_stop_switch_show_at_once(world: Acting) -> None:
    command = parking.dead(world)
    placed = hold(world.tenant, world.bucket, "clips/", by=world.people["compliance"])
    Enforcement.objects.update(switched_off_at=Now())
    control.press(
        scope=StopSwitch.Scope.TENANT, tenant=world.tenant, by=world.people["operator"], reason="The store is ill."
    )
    found = present.present(command)
    assert found.eligible is False
    assert found.why.startswith("A legal hold covers it")
    assert list(found.holds) == [placed]
    assert found.enforced is False
    assert "The store is ill." in found.stopped

    parking.released(placed)
    enforced(world.tenant, world.bucket, "", by=world.people["manager"], approver=world.people["manager2"])
    after = present.present(command)
    assert (after.eligible, list(after.holds), after.enforced) == (True, [], True)


def test_another_policy_that_governs_now_makes_it_not_eligible_under_its_own(world: Acting) -> None:
    command = parking.dead(world)
    published(
        world.tenant, world.bucket, author=world.people["manager"], publisher=world.people["manager2"], code="longer",
        period_number=60,
    )  # fmt: skip
    found = present.present(command)
    assert found.eligible is False
    assert "longer/1 governs it now, not originals/1." in found.why


def test_what_was_destroyed_is_not_eligible_and_what_vanished_is_shown_so(world: Acting) -> None:
    found = present.present(parking.deleted(world))
    assert (found.eligible, found.objects[0].state) == (False, "destroyed")
    command = parking.dead(world)
    ObjectVersion.objects.filter(key="clips/dead").update(gone_at=Now(), gone_reason="vanished")
    vanished = present.present(command)
    assert (vanished.eligible, vanished.objects[0].state) == (True, "vanished")


def test_the_store_is_asked_and_its_answer_has_a_time(world: Acting) -> None:
    command = parking.dead(world)
    (seen,) = present.look(command, world.stores)
    assert (seen.there, seen.words) == (True, "It is there, as it was frozen.")
    row = ObjectVersion.objects.get(key="clips/dead")
    name = VersionRef(row.key, row.version_id)

    denied = Failure.of(FailureClass.PERMISSION, "AccessDenied", "No.")
    world.store.inject(Fault("inspect", denied, frozenset({name})))
    (unseen,) = present.look(command, world.stores)
    assert unseen.there is None
    assert "AccessDenied" in unseen.words

    world.store.delete_versions(world.place, [name], deadline_seconds=5)
    (gone,) = present.look(command, world.stores)
    assert (gone.there, gone.words) == (False, "It is gone.")
    assert gone.at > seen.at


def test_other_content_under_the_same_name_is_told(world: Acting) -> None:
    world.store.set_versioning(world.place, "unversioned")
    command = parking.dead(world)
    world.store.put(world.place, "clips/dead", b"another")
    (seen,) = present.look(command, world.stores)
    assert seen.there is True
    assert seen.words.startswith("Another content is there")


def test_the_look_keeps_its_deadline_with_a_store_that_does_not_answer(world: Acting) -> None:
    command = parking.dead(world)
    type(world.bucket).objects.update(endpoint_url="http://192.0.2.1:9", addressing_style="path")
    command.refresh_from_db()
    (seen,) = present.look(command, seconds=0.2)
    assert seen.there is None
