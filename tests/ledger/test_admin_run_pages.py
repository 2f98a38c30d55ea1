"""The list and the page of runs: whose turn it is, how far each has come, and what a person may do about it."""

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cleanup_project.base.models import User
from ledger import manifest, runs, standing
from ledger.models import CleanupRun, DeadLetter, Receipt, RunTally
from ledger.next_action import Turn
from ledger.states import RUN_MEANING, RunState
from retention import control
from retention.models import StopSwitch
from tests.ledger import parking
from tests.ledger.acting import build
from tests.web import quick_pages, url  # noqa: F401
from tests.world import sealed_run

pytestmark = pytest.mark.django_db


def turn(run: CleanupRun) -> tuple[Turn, str]:
    run.refresh_from_db()
    following = standing.of_run(run, standing.progress([run])[run.pk])
    return following.turn, following.what


def page(client: Client, run: CleanupRun) -> str:
    return client.get(url(CleanupRun, "change", run.pk)).content.decode()


def test_every_state_of_a_run_has_a_turn() -> None:
    assert set(standing.TURNS) == set(RunState) == set(RUN_MEANING)


def test_whose_turn_it_is_from_the_opening_to_the_end() -> None:
    acting = build(authorisation="approval", cooling_off_minutes=10)
    acting.put("clips/one", asset="one")
    opened, _new = runs.open_run(policy=acting.revision.policy, by=acting.people["manager"])
    assert turn(opened)[0] is Turn.AUTOMATIC
    run = manifest.freeze(opened)
    waits = turn(run)
    assert waits[0] is Turn.PERSON
    assert "Somebody other than manager, who opened it," in waits[1]
    runs.approve(run=run, by=acting.people["compliance"], root=run.remaining_root, confirmation="1", reason="Read.")
    run.refresh_from_db()
    following = standing.of_run(run, standing.progress([run])[run.pk])
    assert (following.turn, following.at) == (Turn.AUTOMATIC, run.cooling_until)
    runs.cancel(run=run, by=acting.people["operator"], reason="Wrong month.")
    ended = turn(run)
    assert ended[0] is Turn.NOBODY
    assert "Cancelled by operator at " in ended[1]
    assert "Wrong month." in ended[1]


def test_a_pause_a_stop_and_a_trip_each_say_who_did_it_and_why() -> None:
    acting = build()
    acting.fill([f"clips/{n}" for n in range(3)])
    run = acting.run()
    assert turn(run) == (Turn.AUTOMATIC, standing.of_draining(run, standing.Progress(3)).what)
    runs.pause(run=run, by=acting.people["operator"], reason="Store is being repaired.")
    paused = turn(run)
    assert (paused[0], "by operator" in paused[1], "Store is being repaired." in paused[1]) == (Turn.PERSON, True, True)
    run.refresh_from_db()
    runs.resume(run=run, by=acting.people["operator"], reason="Repaired.")
    control.press(scope=StopSwitch.Scope.BUCKET, bucket=acting.bucket, by=acting.people["manager"], reason="Wait.")
    stopped = turn(run)
    assert (stopped[0], "Stopped by manager" in stopped[1], "Wait." in stopped[1]) == (Turn.PERSON, True, True)
    CleanupRun.objects.filter(pk=run.pk).update(state=RunState.TRIPPED)
    assert "See in quarantine why" in turn(run)[1]


def test_progress_counts_settled_items_and_then_what_the_run_closed_with(client: Client) -> None:
    acting = build()
    parking.dead(acting)  # a run of its own, which is still open: the dead one is an outcome
    run = CleanupRun.objects.latest("pk")
    assert run.counts == {"dead": 1}
    acting.fill([f"clips/{n}" for n in range(3)])
    run = acting.run()
    come = standing.progress([run])[run.pk]
    assert (come.total, come.done, come.left) == (4, 0, 4)
    acting.drain()
    come = standing.progress([run])[run.pk]
    assert (come.done, come.grouped()) == (4, {"deleted": 4})
    client.force_login(acting.people["operator"])
    shown = page(client, run)
    assert "Progress: 4 of 4 items have an outcome" in shown
    assert f"/{run.pk}/live/?state=draining" in shown
    receipts = f"{url(Receipt, 'changelist')}?run={run.pk}&amp;outcome=deleted"
    assert receipts in shown
    assert len(client.get(receipts.replace("&amp;", "&")).context["cl"].result_list) == 4
    dead = CleanupRun.objects.earliest("pk")
    quarantined = f"{url(DeadLetter, 'changelist')}?run={dead.pk}&amp;entries=all"
    assert quarantined in page(client, dead)
    acting.settled()
    run.refresh_from_db()
    assert standing.progress([run])[run.pk].outcomes == {"deleted": 4} == run.counts
    assert "hx-get" not in page(client, run)


def test_what_was_left_out_when_it_was_published_counts_as_withdrawn() -> None:
    acting = build()
    acting.put("clips/one", asset="one")
    acting.put("clips/two", asset="two")
    run = sealed_run(acting.revision, mode=CleanupRun.Mode.ENFORCE)
    item = run.items.earliest("ordinal")
    run.skipped.create(item_id=item.pk, command_key=item.command_key, reason="Another command has its object.")
    CleanupRun.objects.filter(pk=run.pk).update(published_parts=1)
    run.refresh_from_db()
    RunTally.objects.create(run=run, outcome="deleted", commands=1)
    assert standing.progress([run])[run.pk].outcomes == {"deleted": 1, "withdrawn": 1}


def test_a_pace_is_told_only_where_there_is_one() -> None:
    acting = build()
    acting.fill([f"clips/{n}" for n in range(3)])
    run = acting.run()
    assert standing.pace(run, 3) is None  # nothing settled
    RunTally.objects.create(run=run, outcome="deleted", commands=1)
    assert standing.pace(run, 2) is None  # too short a stretch
    RunTally.objects.create(run=run, outcome="deleted", commands=5, at=Now() - standing.PACE_OVER / 2)
    found = standing.pace(run, 2)
    assert found is not None
    # What the first settlement did is not counted, since nobody knows since when.
    assert round(found.per_second * found.over.total_seconds()) == 1
    assert found.ends_at is not None
    run.state = RunState.PAUSED
    assert standing.pace(run, 2) is None


def test_the_page_offers_what_the_person_may_do(client: Client) -> None:
    acting = build(authorisation="approval")
    acting.put("clips/one", asset="one")
    run = sealed_run(acting.revision, by=acting.people["manager"], mode=CleanupRun.Mode.ENFORCE)
    for name, offered in (
        ("manager", {"cancel", "exempt", "extend"}),  # who opened it may not approve it
        ("manager2", {"approve", "cancel", "exempt", "extend"}),
        ("operator", {"cancel"}),
    ):
        client.force_login(acting.people[name])
        shown = page(client, run)
        verbs = ("approve", "pause", "resume", "rearm", "cancel", "exempt", "extend")
        assert {verb for verb in verbs if f"/{run.pk}/{verb}/" in shown} == offered


def test_the_part_that_refreshes_itself_asks_for_the_whole_page_in_another_state(client: Client) -> None:
    acting = build(authorisation="approval")
    acting.put("clips/one", asset="one")
    run = sealed_run(acting.revision, mode=CleanupRun.Mode.ENFORCE)
    client.force_login(acting.people["operator"])
    address = url(CleanupRun, "live", run.pk)
    assert "HX-Refresh" not in client.get(address, {"state": "needs_approval"}).headers
    assert client.get(address, {"state": "scanning"}).headers["HX-Refresh"] == "true"
    client.force_login(User.objects.create_user("nobody", is_staff=True))
    assert client.get(address).status_code == 403


def test_the_list_says_how_each_run_stands_in_a_constant_number_of_queries(client: Client) -> None:
    acting = build()
    client.force_login(acting.people["operator"])

    def listed() -> tuple[str, int]:
        with CaptureQueriesContext(connection) as captured:
            shown = client.get(url(CleanupRun, "changelist")).content.decode()
        return shown, len(captured)

    def add(number: int) -> None:
        acting.fill([f"{number}/{n}" for n in range(2)])
        acting.run()
        acting.drain()

    add(1)
    shown, few = listed()
    assert 'aria-label="2 of 2 have an outcome"' in shown
    assert "2 deleted" in shown
    for number in (2, 3, 4):
        acting.settled()  # so that another may be opened
        add(number)
    shown, many = listed()
    assert shown.count("2 of 2") == 8  # label and words of four
    assert many == few
