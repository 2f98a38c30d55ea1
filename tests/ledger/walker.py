"""A ledger that takes the steps of a walk: one method for each kind of step, and what must hold after each."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import connection

from cleanup_project.base import clock
from ledger import closing, drain, inflight, manifest, publish, quarantine, reconcile, runs, sweep
from ledger.exceptions import LedgerError
from ledger.models import CleanupCommand, CleanupRun
from ledger.states import RunState
from retention import control, enforcement, policies
from retention.buckets import ref
from retention.exceptions import RetentionError
from retention.models import Bucket, Enforcement, LegalHold, ObjectVersion, StopSwitch
from retention.storage import BucketRef, VersionRef
from tests import world
from tests.ledger import acting, laws
from tests.ledger.chaos import Clock, Watched, Worker, current, empty
from tests.ledger.walks import BLINDNESS, FAULTS, KEYS, MINUTE, Step
from tests.webhooks.world import endpoint
from webhooks import dispatch
from webhooks.sender import DELIVERED, Answer


class Ledger:
    """One tenant with an originals' and a thumbnails' bucket; the clock moves only in `time_passes`."""

    def __init__(self) -> None:
        empty()
        self.store = Watched(acting.MemoryStore(), self.may_send, self.was_removed)
        self.world = acting.build(self.store.inner)
        self.thumbs = Bucket.objects.create(name="thumbs", keys_per_second=1_000_000)
        self.buckets = {self.world.bucket.name: self.world.bucket, self.thumbs.name: self.thumbs}
        self.store.inner.create_bucket(ref(self.thumbs))
        self.endpoint, _ = endpoint(self.world.people["operator"], "https://app.example/", tenant="acme", name="app")
        self.manager, self.manager2 = self.world.people["manager"], self.world.people["manager2"]
        self.switch_enforcement_on()
        self.serial = 0
        self.frozen: list[Worker] = []
        self.workers: list[Worker] = []  # kept, so that their ids stay theirs
        self.gone_by_us: set[int] = set()
        self.unfenced: dict[int, set[int]] = {}
        self.targets: dict[int, Any] = {}
        self.places: dict[int, tuple[int, int]] = {}
        self.begun: dict[int, Any] = {}

    def live(self, steps: Sequence[Step]) -> None:
        """Take the steps and come to rest; the laws hold after each. Raises whatever goes wrong."""
        try:
            self.publish_revision()
            for kind, *arguments in steps:
                getattr(self, kind)(*arguments)
                self.check()
            self.come_to_rest()
        finally:
            for worker in self.frozen:
                worker.go_on(die=True)
            Clock.ahead = 0.0

    # What the store and the workers tell.

    def may_send(self, bucket: BucketRef, refs: Any) -> None:
        parameters = {
            "bucket": self.buckets[bucket.name].pk,
            "keys": [each.key for each in refs],
            "versions": [each.version_id for each in refs],
        }
        refused = laws.rows(laws.MAY_SEND, **parameters)
        assert not refused, f"sent after the control read should have refused it: {refused}"
        revived = laws.rows(laws.REVIVES, begun=self.begun.get(id(current()), clock.now()), **parameters)
        assert not revived, f"a current version is deleted while an older one is present: {revived}"

    def was_removed(self, bucket: BucketRef, name: VersionRef) -> None:
        row = ObjectVersion.objects.get(bucket__name=bucket.name, key=name.key, version_id=name.version_id)
        self.gone_by_us.add(row.pk)
        worker = current()
        if worker is not None and worker.late:
            self.unfenced.setdefault(id(worker), set()).add(row.pk)  # frozen between control read and send
        else:
            unreported = laws.rows(laws.UNREPORTED, version=row.pk)
            assert not unreported, f"executed under a hold whose report does not name it: {unreported}"

    # Rules: objects.

    def some_objects(self, number: int) -> None:
        for key in KEYS[:number]:
            self.put(key, listed=number == 1)
        self.put_thumbnail(KEYS[0], listed=number == 1, elsewhere=number == 2)
        self.run()

    def put(self, key: str, listed: bool) -> None:
        self.catalogue(self.world.bucket, key, listed=listed)

    def store_object(self, what: str, key: str, listed: bool) -> None:
        if what == "original":
            self.put(key, listed)
        else:
            self.put_thumbnail(key, listed, what == "elsewhere")

    def put_thumbnail(self, key: str, listed: bool, elsewhere: bool) -> None:
        bucket = self.thumbs if elsewhere else self.world.bucket
        fields = {"original_key": key, "original_bucket": self.world.bucket}
        self.catalogue(bucket, f"thumbs/{key}.jpg", listed=listed, **fields)

    def catalogue(self, bucket: Bucket, key: str, *, listed: bool, **fields: Any) -> ObjectVersion:
        self.serial += 1
        body = f"{self.serial}".encode()
        name = self.store.inner.put(ref(bucket), key, body)
        now = clock.now()
        ObjectVersion.objects.filter(bucket=bucket, key=key).update(is_latest=False)
        return world.version(
            bucket,
            self.world.tenant,
            key,
            version_id=name.version_id,
            etag=acting.md5(body, usedforsecurity=False).hexdigest(),
            size=len(body),
            stored_at=world.EPOCH + self.serial * MINUTE,
            first_observed_at=now,
            listed_at=now if listed else world.EPOCH,
            **fields,
        )

    def catalogued_late(self, key: str, back: int) -> None:
        """A version that was stored before others of which the catalogue knows already."""
        known = ObjectVersion.objects.filter(bucket=self.world.bucket, key=key, gone_at=None, is_latest=True)
        latest = set(known.values_list("pk", flat=True))
        row = self.catalogue(self.world.bucket, key, listed=True)
        if latest:
            ObjectVersion.objects.filter(pk=row.pk).update(
                is_latest=False, stored_at=world.EPOCH + max(0, self.serial - back - 1) * MINUTE + MINUTE / 2
            )
            ObjectVersion.objects.filter(pk__in=latest).update(is_latest=True)

    def removed_behind_our_back(self, which: int) -> None:
        row = pick(ObjectVersion.objects.filter(gone_at=None), which)
        if row is not None:
            self.store.tamper(ref(row.bucket), VersionRef(row.key, row.version_id))

    # Rules: what people decide.

    def decide(self, verb: str, which: int) -> None:
        getattr(self, verb)(which)

    def place_hold(self, prefix: str, old_only: bool) -> None:
        until = world.EPOCH + (self.serial // 2 + 1) * MINUTE if old_only else None
        bucket = self.thumbs if prefix == "thumbs/a/1" else self.world.bucket
        world.hold(self.world.tenant, bucket, prefix, by=self.world.people["compliance"], stored_to=until)

    def release_hold(self, which: int) -> None:
        hold = pick(LegalHold.objects.in_force(), which)
        if hold is not None:
            self.release(hold)

    def release(self, hold: LegalHold) -> None:
        world.release(hold)

    def switch_enforcement_off(self, which: int) -> None:
        row = pick(Enforcement.objects.filter(switched_off_at=None), which)
        if row is not None:
            enforcement.switch_off(row=row, by=self.manager, reason="Wait")

    def switch_enforcement_on(self, which: int = 0) -> None:
        for bucket, prefix in ((self.world.bucket, ""), (self.thumbs, "thumbs/")):
            if (bucket.pk, prefix) not in enforcement.switched_on(self.world.tenant.pk):
                world.enforced(self.world.tenant, bucket, prefix, by=self.manager, approver=self.manager2)

    def publish_revision(self, which: int = 0) -> None:
        self.world.revision = world.published(
            self.world.tenant, self.world.bucket, author=self.manager, publisher=self.manager2, code="originals",
            authorisation="standing", bucket_ids=[self.world.bucket.pk, self.thumbs.pk],
            already_absent=("review", "success")[which % 2],
        )  # fmt: skip

    def suspend(self, which: int = 0) -> None:
        with suppress(RetentionError):
            policies.suspend(policy=self.world.revision.policy, by=self.manager, reason="Wait")

    def end_suspension(self, which: int = 0) -> None:
        with suppress(RetentionError):
            policies.resume(policy=self.world.revision.policy, by=self.manager2, reason="Go on")

    def stop(self, which: int = 0) -> None:
        targets: list[dict[str, Any]] = [
            {"scope": "tenant", "tenant": self.world.tenant},
            {"scope": "bucket", "bucket": self.thumbs},
            {"scope": "policy", "policy": self.world.revision.policy},
            {"scope": "everything"},
            {"scope": "bucket", "bucket": self.world.bucket},
        ]
        with suppress(RetentionError):
            control.press(**targets[which % len(targets)], by=self.world.people["compliance"], reason="Stop")

    def lift(self, which: int = 0) -> None:
        for switch in StopSwitch.objects.active():
            control.lift(switch=switch, by=self.world.people["compliance"], reason="Go on")

    # Rules: what goes on.

    def run(self) -> None:
        """Open a run where none is, and bring it as far as it goes."""
        closing.close_drained()
        if not CleanupRun.objects.open().exists():
            runs.open_run(policy=self.world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
        self.freeze_and_publish()

    def freeze_and_publish(self) -> None:
        for run in CleanupRun.objects.open():
            manifest.freeze(run)
            publish.publish(run.pk)

    def steer(self, verb: Any) -> None:
        run = CleanupRun.objects.open().first()
        if run is not None:
            with suppress(LedgerError):
                verb(run=run, by=self.world.people["operator"], reason="A look")

    def replay(self, which: int) -> None:
        command = pick(CleanupCommand.objects.filter(state__in=["held", "dead", "withdrawn"]), which)
        if command is not None:
            with suppress(LedgerError):
                quarantine.replay(command=command, by=self.world.people["operator"], reason="Repaired")

    def close(self, which: int) -> None:
        command = pick(CleanupCommand.objects.filter(state="dead"), which)
        if command is not None:
            with suppress(LedgerError):
                quarantine.close(command=command, by=self.world.people["compliance"], reason="Seen")

    def report_holds(self) -> None:
        for pk in inflight.unreported():
            inflight.placed(pk)

    def follow_up(self, fate: Any, what: str) -> None:
        verbs = {
            "look_again": lambda: reconcile.look_again(self.stores),
            "sweep": sweep.sweep,
            "withdraw": closing.withdraw,
            "holds": self.report_holds,
            "acknowledge": self.acknowledge,
        }
        self.employ(verbs[what], fate)

    def work(self, fate: Any, fault: str | None, only: int | None, blind: str | None, split: bool, where: str) -> None:
        if not CleanupCommand.objects.filter(state="ready").exists():
            self.clear_the_way()
            self.some_objects(2 + only if only else 1)
        self.store.split = split
        self.store.plans = [replace(FAULTS[fault], only=only)] if fault else []
        self.store.blind = [BLINDNESS[blind]] if blind else []
        bucket = self.buckets[where].pk
        self.employ(lambda: drain.step(bucket, drain.Drained(), self.stores, set()), fate)
        self.store.plans, self.store.blind = [], []

    def interrupted(self, point: str, split: bool, verb: str) -> None:
        """A worker that stands still while something is forbidden, or while another takes over, and then goes on."""
        before = len(self.frozen)
        self.work((None, point), None, None, None, split, "media")
        if len(self.frozen) == before:
            return
        if verb == "place_hold":
            self.place_hold("", old_only=False)
        elif verb == "pause":
            self.steer(runs.pause)
        elif verb.startswith("takeover"):
            self.time_passes(3600)
            self.work((None, None), None, None, None, False, "media")
            if verb.endswith("hold"):
                self.time_passes(30)
                self.place_hold("", old_only=False)
                self.report_holds()
        else:
            self.decide(verb, 0)
        self.check()
        self.zombie_goes_on(before, die=False)

    def employ(self, work: Any, fate: tuple[int | None, int | str | None]) -> None:
        worker = Worker(work, dies_at=fate[0], stops_at=fate[1])
        self.workers.append(worker)
        self.begun[id(worker)] = clock.now()
        worker.start()
        if worker.frozen:
            self.frozen.append(worker)

    def zombie_goes_on(self, which: int, die: bool) -> None:
        if not self.frozen:
            return
        worker = self.frozen.pop(which % len(self.frozen))
        self.go_on(worker, die=die)

    def go_on(self, worker: Worker, *, die: bool = False) -> None:
        """What one did whose lease was long over, nothing could prevent; but if it lives, it tells."""
        worker.go_on(die=die)
        if not worker.dead:
            self.unfenced.pop(id(worker), None)

    def time_passes(self, seconds: int) -> None:
        self.store.arrive()
        for worker in self.frozen:
            worker.late = True
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE ledger_cleanupcommand SET lease_until = lease_until - %(by)s, due_at = due_at - %(by)s, "
                "inspect_due = inspect_due - %(by)s",
                {"by": timedelta(seconds=seconds)},
            )
            cursor.execute(
                "UPDATE webhooks_delivery SET lease_until = lease_until - %(by)s, due_at = due_at - %(by)s "
                "WHERE state = 'pending'",
                {"by": timedelta(seconds=seconds)},
            )
            cursor.execute("UPDATE ledger_pace SET free_at = least(free_at, now())")
        Clock.ahead += seconds

    def stores(self, bucket: BucketRef) -> Any:
        return self.store

    # What must hold.

    def laws_hold(self) -> None:
        laws.check(laws.ALWAYS)

    def what_is_gone_by_our_hand_is_accounted_for(self) -> None:
        lost = self.gone_by_us.difference(*self.unfenced.values())
        found = laws.rows(laws.UNACCOUNTED, versions=sorted(lost))
        assert not found, f"gone by our hand, and nobody knows: {found}"

    def what_is_said_to_be_gone_is_gone(self) -> None:
        for bucket, key, version in laws.rows(laws.SAID_TO_BE_GONE):
            assert not self.store.has(ref(self.buckets[bucket]), VersionRef(key, version)), (bucket, key, version)

    def commands_go_forward_and_name_the_same(self) -> None:
        rank = {"ready": 0, "held": 1, "dead": 1, "withdrawn": 1, "deleted": 2, "notified": 3}
        for pk, cycle, state, targets in laws.rows(laws.COMMANDS):
            assert self.targets.setdefault(pk, targets) == targets
            place = (cycle, rank[state])
            assert self.places.get(pk, place) <= place, f"command {pk} went back: {self.places[pk]} to {place}"
            self.places[pk] = place

    def clear_the_way(self) -> None:
        self.lift()
        self.switch_enforcement_on()
        self.end_suspension()
        for hold in LegalHold.objects.in_force():
            self.release(hold)
        for run in CleanupRun.objects.filter(state=RunState.PAUSED):
            runs.resume(run=run, by=self.world.people["operator"], reason="Go on")

    def come_to_rest(self) -> None:
        """Nothing more goes wrong and nobody forbids anything: then everything ends."""
        self.store.plans, self.store.blind = [], []
        while self.frozen:
            self.go_on(self.frozen.pop())
        self.clear_the_way()
        for _ in range(12):
            self.time_passes(3600)
            for run in CleanupRun.objects.open():
                manifest.freeze(run)
                publish.publish(run.pk)
            for bucket in self.buckets.values():
                for _ in range(10):
                    drain.step(bucket.pk, drain.Drained(), self.stores, set())
            reconcile.look_again(self.stores)
            self.report_holds()
            self.acknowledge()
            self.check()
            sweep.sweep()
            if not laws.rows("SELECT FROM ledger_cleanupcommand WHERE state IN ('ready', 'deleted') LIMIT 1"):
                break
        laws.check(laws.AT_REST)

    def check(self) -> None:
        self.laws_hold()
        self.what_is_gone_by_our_hand_is_accounted_for()
        self.what_is_said_to_be_gone_is_gone()
        self.commands_go_forward_and_name_the_same()

    def acknowledge(self) -> None:
        while True:
            claimed = dispatch.claim_from(self.endpoint.pk, 8)
            if not claimed:
                return
            said = Answer(200, DELIVERED, "", b"", 1)
            dispatch.record([(each, said) for each in claimed], dispatch.Dispatched())


def pick(found: Any, which: int) -> Any:
    rows = list(found.order_by("pk"))
    return rows[which % len(rows)] if rows else None
