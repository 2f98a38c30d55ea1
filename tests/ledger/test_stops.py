"""The stop switch while workers run: what it keeps from being sent, what goes on, and the report of what was in flight."""

import json
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command, load_command_class
from django.core.management.base import CommandError
from django.db import connection, transaction

from cleanup_project.base import clock, limits
from cleanup_project.base.models import User
from ledger import claim, next_action, stops, sweep, tasks
from ledger import drain as draining
from ledger.models import Attempt, CleanupCommand, Pace, Request, StopReport, Turn
from ledger.next_action import of_command
from ledger.states import RunState
from ledger.stops import ends, pressed, unreported
from retention import control, holds, policies
from retention.buckets import ref
from retention.models import Bucket, StopSwitch, Tenant
from retention.storage import BucketRef, DeleteOutcome, Failure, FailureClass, VersionRef, deletes
from retention.storage.client import Reply
from retention.storage.deletes import Deletion
from retention.storage.memory import MemoryStore
from tests import world as making
from tests.ledger import invariants
from tests.ledger.acting import Acting, build
from tests.ledger.folder import FolderStore
from tests.ledger.processes import Say, worker
from tests.ledger.threads import Beside, Gate, somebody_waits, until

Scope = StopSwitch.Scope


def press(world: Acting, scope: str = "everything", **target: Any) -> StopSwitch:
    return control.press(scope=Scope(scope), by=world.people["operator"], reason="Look first.", **target)


def lift(world: Acting) -> None:
    for switch in StopSwitch.objects.active():
        control.lift(switch=switch, by=world.people["compliance"], reason="Seen.")


def target_of(world: Acting, scope: str) -> dict[str, Any]:
    targets = {"tenant": world.tenant, "bucket": world.bucket, "policy": world.revision.policy}
    return {scope: targets[scope]} if scope in targets else {}


def sent(world: Acting) -> list[str]:
    """Keys of which a deletion was asked, in order."""
    return [name.key for operation, names in world.store.calls if operation == "delete_versions" for name in names]


@pytest.mark.django_db
@pytest.mark.parametrize("scope", list(Scope))
def test_what_is_stopped_is_not_sent_until_the_switch_is_lifted(scope: str) -> None:
    world = build()
    world.fill(["a", "b"])
    run = world.run()
    press(world, scope, **target_of(world, scope))
    assert world.drain().claimed == 0
    assert sent(world) == []
    following = of_command(world.command("a"))
    assert following.turn is next_action.Turn.PERSON
    assert following.what.startswith("Stopped by operator since ")
    assert "Look first. Somebody with the right rearm lifts it." in following.what
    lift(world)
    assert world.drain().gone == 2
    world.settled()
    run.refresh_from_db()
    assert run.state == RunState.CLOSED
    world.settled()
    invariants.check(world.stores)


@pytest.mark.django_db
def test_a_switch_for_something_else_stops_nothing() -> None:
    world = build()
    world.put("a")
    world.run()
    press(world, "tenant", tenant=Tenant.objects.create(code="other", name="Other"))
    press(world, "bucket", bucket=Bucket.objects.create(name="other"))
    other = policies.create(tenant=world.tenant, code="other", by=world.people["manager"])
    press(world, "policy", policy=other)
    assert "It is due" in of_command(world.command("a")).what
    assert world.drain().gone == 1


@pytest.mark.django_db
def test_a_command_waits_for_every_bucket_that_it_has_a_target_in() -> None:
    world = build()
    thumbs = Bucket.objects.create(name="thumbs", keys_per_second=1_000_000)
    world.store.create_bucket(ref(thumbs))
    making.enforced(world.tenant, thumbs, "", by=world.people["manager"], approver=world.people["manager2"])
    world.fill(["a", "b"])
    name = world.store.put(ref(thumbs), "t/a", b"t")
    making.version(
        thumbs, world.tenant, "t/a", version_id=name.version_id, size=1, original_key="a", original_bucket=world.bucket,
        etag="e358efa489f58062f10dd7316b65649e", listed_at=clock.now(),
    )  # fmt: skip
    world.run()
    press(world, "bucket", bucket=thumbs)
    assert world.drain().gone == 1
    assert sent(world) == ["b"]
    waiting = world.command("a")
    assert (waiting.state, waiting.attempts, waiting.due_at > clock.now()) == ("ready", 0, True)
    assert "(bucket thumbs" in of_command(waiting).what
    lift(world)
    world.due_now()
    assert world.drain().gone == 1
    assert sorted(sent(world)) == ["a", "b", "t/a"]
    world.settled()
    invariants.check(world.stores)


@pytest.mark.django_db
@pytest.mark.parametrize(("scope", "sent_keys"), [("policy", []), ("other", ["a"])])
def test_a_switch_pressed_between_claim_and_request_is_looked_at_closely(scope: str, sent_keys: list[str]) -> None:
    world = build()
    world.put("a")
    world.run()
    other = policies.create(tenant=world.tenant, code="other", by=world.people["manager"])
    targets = {"policy": world.revision.policy, "other": other}
    turn = claim.next_turn(world.bucket.pk)
    assert turn is not None
    batch = claim.claim(world.bucket.pk, *turn, 60)
    press(world, "policy", policy=targets[scope])
    executed = draining.execute(batch, world.stores)
    draining.settle(batch, executed.verdicts)
    assert sent(world) == sent_keys
    assert world.story("a") == (["deleted"] if sent_keys else ["not_sent"])
    assert Attempt.objects.filter(charged=True).count() == 0


@pytest.mark.django_db
def test_what_is_in_doubt_is_looked_at_under_a_stop_and_nothing_is_sent() -> None:
    world = build()
    world.put("a")
    world.run()
    in_doubt(world, "a")
    press(world)
    world.leases_expire()
    world.drain()
    assert world.story("a") == ["lease_lost", "present"]
    assert sent(world) == []
    world.due_now()
    assert world.drain().claimed == 0


def in_doubt(world: Acting, key: str) -> None:
    """A worker has the command and has committed a request for it; what it did then, nobody knows."""
    (claimed,) = claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60, 1).commands
    assert claimed.id == world.command(key).pk
    Request.objects.create(command_id=claimed.id, token=claimed.token, sent_before=clock.now(), worker="lost")


class Asked(MemoryStore):
    """Its deletions go through the adapter's own code. It takes no batches; `then` runs once it has refused one."""

    then: Callable[[], object] = staticmethod(lambda: None)
    takes_batches = False

    def delete_versions(self, bucket: BucketRef, refs: Collection[VersionRef], **options: Any) -> Any:
        self.calls.append(("delete_versions", tuple(refs)))

        def ask(operation: str, until: float, **said: Any) -> Reply:
            if operation == "delete_object":
                self._delete(bucket, VersionRef(said["Key"], said["VersionId"]))
                return Reply({}, 204, "", "r", True)
            some = [VersionRef(each["Key"], each["VersionId"]) for each in said["Delete"]["Objects"]]
            if not self.takes_batches:
                return Reply({}, 501, "", "r", True, Failure.of(FailureClass.MALFORMED_REQUEST, "NotImplemented"))
            for name in some:
                self._delete(bucket, name)
            return Reply({"Deleted": [{"Key": n.key, "VersionId": n.version_id} for n in some]}, 200, "", "r", True)

        asked = list[int]()

        def proceed() -> bool:
            asked.append(1)
            if len(asked) == 2:
                self.then()
            return bool(options["proceed"]())

        return Deletion(ask, list(refs), options["deadline_seconds"] + time.monotonic(), proceed).run()


@pytest.mark.django_db
@pytest.mark.parametrize("takes_batches", [False, True])
def test_a_stop_between_two_waves_charges_nobody(takes_batches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the first one deleted its part, or was refused as a batch, of which nothing is executed."""
    monkeypatch.setattr(deletes, "BATCH", 4)
    world = build(Asked())
    world.store.takes_batches = takes_batches
    world.fill([f"{number:02d}" for number in range(40)])
    world.run()
    world.store.then = lambda: press(world)
    world.drain()
    gone = 32 if takes_batches else 0  # a wave of eight
    assert CleanupCommand.objects.filter(state="deleted").count() == gone
    left = CleanupCommand.objects.filter(state="ready")
    assert (left.count(), {each.attempts for each in left}) == (40 - gone, {0})
    assert set(Attempt.objects.filter(command__in=left).values_list("outcome", flat=True)) == {"not_sent"}
    lift(world)
    world.store.then = lambda: None
    world.store.takes_batches = True
    world.due_now()
    world.drain()
    assert CleanupCommand.objects.filter(state="deleted").count() == 40


@pytest.mark.django_db
def test_scans_and_publication_go_on_under_a_stop() -> None:
    world = build()
    press(world)
    world.fill(["a", "b"])
    run = world.run()
    assert (run.state, CleanupCommand.objects.count()) == (RunState.DRAINING, 2)


@pytest.mark.django_db
def test_a_stopped_tenant_with_urgent_work_keeps_nobody_else_from_a_turn() -> None:
    world = build(priority=0)
    other = Tenant.objects.create(code="other", name="Other")
    people = world.people
    making.published(
        other, world.bucket, author=people["manager"], publisher=people["manager2"], code="later", priority=2,
        authorisation="standing",
    )  # fmt: skip
    making.enforced(other, world.bucket, "", by=people["manager"], approver=people["manager2"])
    world.fill(["a", "b"])
    world.run()
    urgent, tenant, world.tenant = world.revision, world.tenant, other
    world.revision = other.policies.get().revisions.get()
    world.fill(["c"])
    world.run()
    control.press(scope=Scope.POLICY, policy=urgent.policy, by=people["operator"], reason="Wait.")
    done = world.drain()
    assert (done.gone, sent(world)) == (1, ["c"])
    assert CleanupCommand.objects.filter(tenant=tenant, claims=0).count() == 2
    assert Turn.objects.get(tenant=tenant).turns == 1, "one for nothing, and no more in the same drain"


@pytest.mark.django_db
def test_what_was_in_flight_is_reported_with_its_end() -> None:
    world = build()
    world.fill(["a", "b", "c"])
    world.run()
    in_doubt(world, "a")
    claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60, 1)
    switch = press(world, "policy", policy=world.revision.policy)
    tasks.stop_pressed(switch.pk)
    report = StopReport.objects.get()
    ids = [world.command(key).pk for key in ("a", "b")]
    assert (report.commands, report.tokens) == (ids, [1, 1])
    claims, unknown = ends(report, 10)
    assert ([each.ended_as for each in claims], unknown) == (["", ""], 2)
    world.leases_expire()
    world.drain()
    claims, unknown = ends(report, 10)
    assert ({each.key: each.ended_as for each in claims}, unknown) == (
        {world.command("a").key: "present", world.command("b").key: "not_sent"}, 0,
    )  # fmt: skip
    assert ends(report, 1)[0] == claims[:1]
    assert pressed(switch.pk) == report, "a second report is the first"


@pytest.mark.django_db
def test_a_report_counts_what_the_switch_concerns_and_nothing_else() -> None:
    world = build()
    world.put("a")
    world.run()
    in_doubt(world, "a")
    other = policies.create(tenant=world.tenant, code="other", by=world.people["manager"])
    counted = {
        switch.scope: len(pressed(switch.pk).commands)
        for switch in [
            press(world),
            press(world, "tenant", tenant=world.tenant),
            press(world, "bucket", bucket=Bucket.objects.create(name="other")),
            press(world, "policy", policy=other),
        ]
    }
    assert counted == {"everything": 1, "tenant": 1, "bucket": 0, "policy": 0}
    assert len(pressed(press(world, "bucket", bucket=world.bucket).pk).commands) == 1


@pytest.mark.django_db
def test_the_sweep_finds_switches_without_a_report() -> None:
    world = build()
    switch = press(world)
    assert unreported() == [switch.pk]
    assert sweep.sweep()["stops"] == 1
    pressed(switch.pk)
    assert (unreported(), sweep.sweep()["stops"]) == ([], 0)


@pytest.mark.django_db(transaction=True)
def test_a_report_waits_for_the_claim_that_may_have_missed_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    world = build()
    world.put("a")
    world.run()
    gate, take = Gate(), claim.take
    monkeypatch.setattr(claim, "take", lambda *arguments: (gate(), take(*arguments))[1])
    claiming = Beside(claim.claim, world.bucket.pk, world.tenant.pk, [0, 1, 2], 60)
    gate.reached()
    switch = press(world)
    reporting = Beside(pressed, switch.pk)
    until(somebody_waits)
    gate.open()
    assert len(claiming.answer().commands) == 1
    assert reporting.answer().commands == [world.command("a").pk]


@pytest.mark.django_db(transaction=True)
def test_pressing_for_all_tenants_never_deadlocks_with_who_forbids_something_for_several() -> None:
    world = build()
    other = Tenant.objects.create(code="other", name="Other")
    with transaction.atomic():
        control.bump(world.tenant.pk)
        pressing = Beside(press, world)
        until(somebody_waits)
        control.bump(other.pk)
    assert pressing.answer().scope == Scope.EVERYTHING
    assert control.read(world.tenant.pk)[1].whole


class Told(FolderStore):
    """Writes down when the control read before each request began, by the database's clock, and what it allowed."""

    def delete_versions(
        self,
        bucket: BucketRef,
        refs: Collection[VersionRef],
        *,
        deadline_seconds: float,
        proceed: Callable[[], bool] = lambda: True,
    ) -> dict[VersionRef, DeleteOutcome]:
        with self.log.with_suffix(".waits").open("a") as file:
            file.write("\n")
        time.sleep(1.0)  # whoever waits before a request finds out behind the wait
        at = clock.now()
        allowed = proceed()
        with self.log.with_suffix(".reads").open("a") as file:
            file.write(f"{at.isoformat()} {allowed:d}\n")
        return super().delete_versions(bucket, refs, deadline_seconds=deadline_seconds, proceed=lambda: allowed)

    def waiting(self) -> int:
        """How many are about to read."""
        file = self.log.with_suffix(".waits")
        return (len(file.read_text()) if file.exists() else 0) - len(self.reads())

    def reads(self) -> list[tuple[datetime, bool]]:
        file = self.log.with_suffix(".reads")
        lines = file.read_text().splitlines() if file.exists() else []
        return [(datetime.fromisoformat(at), allowed == "1") for at, allowed in map(str.split, lines)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("scope", list(Scope))
def test_no_worker_sends_a_request_after_a_stop_was_committed(scope: str, tmp_path: Path) -> None:
    world = build(Told(tmp_path / "store"))
    Bucket.objects.update(keys_per_second=40)
    world.fill([f"{n:03}" for n in range(240)])
    world.run()

    def work(say: Say) -> None:
        draining.drain(world.bucket.pk, stores=world.stores, budget_seconds=60)

    with ExitStack() as started:
        workers = [started.enter_context(worker(work)) for _ in range(3)]
        until(lambda: len(world.store.reads()) >= 1 and world.store.waiting() > 0)
        press(world, scope, **target_of(world, scope))
        committed = clock.now()
        assert [child.ended() for child in workers] == [0, 0, 0], "nobody works on what is stopped"
    assert any(allowed for _at, allowed in world.store.reads())
    assert [at for at, allowed in world.store.reads() if allowed and at > committed] == []
    for request in Request.objects.filter(made_at__gt=committed):
        assert Attempt.objects.get(command_id=request.command_id, token=request.token).outcome == "not_sent"
    left = CleanupCommand.objects.filter(state="ready", lease_until=None)
    assert left.count() >= 40
    assert Attempt.objects.filter(charged=True).count() == 0
    lift(world)
    Bucket.objects.update(keys_per_second=1_000_000)
    Pace.objects.update(gap=0.000001, free_at=clock.now())
    world.drain()
    world.settled()
    assert not left.exists()
    world.settled()
    invariants.check(world.stores)


def stop(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command("stop", *arguments, "--json", stdout=out, stderr=StringIO())
    said: dict[str, Any] = json.loads(out.getvalue())
    return said


@pytest.mark.django_db
def test_a_person_at_a_shell_stops_everything_and_hears_what_was_under_way() -> None:
    world = build()
    world.put("a")
    world.run()
    claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], world.bucket.settle_seconds)
    said = stop("--everything", "--by", "operator", "--reason", "Wrong prefix.")
    switch = StopSwitch.objects.get()
    assert (switch.scope, switch.pressed_by, switch.reason) == ("everything", world.people["operator"], "Wrong prefix.")
    assert (said["switch"], said["by"], said["under_way"], said["end_unknown"]) == (switch.pk, "operator", 1, 1)
    with pytest.raises(CommandError, match="stopped already"):
        stop("--everything", "--by", "operator", "--reason", "Again.")


@pytest.mark.django_db
@pytest.mark.parametrize("scope", ["tenant", "bucket", "policy"])
def test_a_shell_stops_what_it_names_and_nothing_else(scope: str) -> None:
    world = build()
    named = target_of(world, scope)[scope]
    said = stop(
        f"--{scope}", getattr(named, "name" if scope == "bucket" else "code"), "--by", "operator", "--reason", "No."
    )
    switch = StopSwitch.objects.get(pk=said["switch"])
    assert (switch.scope, getattr(switch, scope)) == (scope, named)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--everything", "--by", "nobody", "--reason", "No."), "No active person"),
        (("--everything", "--by", "auditor", "--reason", "No."), "right stop"),
        (("--everything", "--by", "operator", "--reason", " "), "state a reason"),
        (
            ("--bucket", "other", "--by", "operator", "--reason", "No."),
            "There is no bucket 'other' here",
        ),
        (("--tenant", "other", "--by", "operator", "--reason", "No."), "No tenant has the code 'other'. Known: acme"),
        (("--policy", "other", "--by", "operator", "--reason", "No."), "No policy has the code 'other'"),
        (("--by", "operator", "--reason", "No."), "--everything"),
    ],
)
def test_a_shell_that_cannot_stop_says_why_and_stops_nothing(arguments: tuple[str, ...], words: str) -> None:
    build()
    User.objects.create_user("auditor")
    with pytest.raises(CommandError, match=words):
        stop(*arguments)
    assert not StopSwitch.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_shell_says_that_it_is_on_though_a_claim_keeps_what_is_under_way_from_being_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = build()
    monkeypatch.setattr(limits, "DRAIN_BUDGET", 0)
    monkeypatch.setattr(stops, "BARRIER_SECONDS", 1)
    gate = Gate()

    def claiming() -> None:
        with transaction.atomic():
            holds.share_lock(world.tenant.pk)
            gate()

    beside = Beside(claiming)
    gate.reached()
    out = StringIO()
    call_command("stop", "--everything", "--by", "operator", "--reason", "No.", stdout=out, stderr=StringIO())
    gate.open()
    beside.answer()
    assert "It is on. What was under way could not be counted yet" in out.getvalue()
    assert StopSwitch.objects.active().exists()


@pytest.mark.django_db(transaction=True)
def test_a_shell_waits_for_somebody_who_left_a_transaction_open_and_then_says_that_nothing_may_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = build()
    tries = []
    gate = Gate()

    def forgotten() -> None:
        with transaction.atomic():
            control.bump(world.tenant.pk)
            gate()

    def press(**said: Any) -> StopSwitch:
        tries.append(said)
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '100ms'")
        return pressing(**said)

    pressing = control.press
    monkeypatch.setattr(control, "press", press)
    beside = Beside(forgotten)
    gate.reached()
    with pytest.raises(CommandError, match=r"not known that anything was stopped: .* or stop the workers"):
        stop("--everything", "--by", "operator", "--reason", "No.")
    gate.open()
    beside.answer()
    assert len(tries) == 3
    assert not StopSwitch.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_shell_says_what_to_do_where_the_database_is_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "HOST", str(tmp_path))
    with pytest.raises(CommandError, match=r"not known that anything was stopped: .* or stop the workers"):
        stop("--everything", "--by", "operator", "--reason", "No.")
    connection.close()


def test_settings_that_are_broken_do_not_keep_a_shell_from_stopping() -> None:
    assert load_command_class("ledger", "stop").requires_system_checks == ()


@pytest.mark.django_db
def test_a_shell_says_in_words_what_was_under_way() -> None:
    build()
    out = StringIO()
    call_command("stop", "--tenant", "acme", "--by", "operator", "--reason", "No.", stdout=out, stderr=StringIO())
    assert out.getvalue() == ("It is on. Under way when it was pressed: 0 commands; of 0 the end is not known yet.\n")
