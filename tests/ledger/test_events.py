"""Who hears what of runs, holds and quarantine: each fact once, in the transaction that makes it true, by every path."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django_q.models import OrmQ

from ledger import breaker, claim, dispositions, erasure, manifest, publish, quarantine, reconcile, runs
from ledger.dispositions import Chosen
from ledger.models import CleanupCommand, CleanupRun, DeadLetter
from retention import holds, releases
from retention.models import LegalHold, Tenant
from retention.storage import VersionRef
from retention.storage.memory import Fault
from tests import world as rows
from tests.ledger import invariants
from tests.ledger.acting import Acting, build
from tests.ledger.parking import DENIED, dead, deleted, withdrawn
from tests.ledger.test_breaker import Failing, tallied
from tests.webhooks.schemas import wrong_bodies
from webhooks.models import Delivery, DetailedBody, Endpoint, OutboxEvent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def bodies_are_as_published() -> Any:
    """Whatever a test has made the outbox hold."""
    yield
    assert wrong_bodies() == []


def told(*types: str) -> list[dict[str, Any]]:
    """The bodies of these types, or of all, in the order in which they were emitted."""
    events = OutboxEvent.objects.filter(type__in=types) if types else OutboxEvent.objects.all()
    return [json.loads(bytes(body)) for body in events.order_by("pk").values_list("body", flat=True)]


def data(*types: str) -> list[dict[str, Any]]:
    return [each["data"] for each in told(*types)]


def opened(acting: Acting, mode: str = "enforce") -> CleanupRun:
    return runs.open_run(policy=acting.revision.policy, by=None, mode=CleanupRun.Mode(mode))[0]


# Runs.


def test_a_run_is_opened_and_closed_in_one_lane() -> None:
    acting = build()
    acting.put("clips/a")
    run = acting.run()
    acting.drain()
    acting.settled()
    first, last = told("run.opened", "run.closed")
    assert {each["subject"] for each in (first, last)} == {f"run:{run.key}"}
    assert (first["sequence"], last["sequence"]) == (1, 2)
    assert first["data"] == {
        "run": run.key, "policy": "originals", "mode": "enforce", "by": "system", "erasure": False,
        "as_of": run.as_of.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }  # fmt: skip
    assert last["data"] == {
        "run": run.key, "policy": "originals", "mode": "enforce", "state": "closed", "counts": {"deleted": 1}, "items": 1,
        "manifest_root": run.manifest_root,
    }  # fmt: skip
    acting.settled()
    assert len(told("run.closed")) == 1
    invariants.check(acting.stores)


@pytest.mark.parametrize(("mode", "objects"), [("dry_run", 1), ("enforce", 0)])
def test_a_run_that_destroys_nothing_ends_when_it_is_sealed(mode: str, objects: int) -> None:
    acting = build()
    for n in range(objects):
        acting.put(f"clips/{n}")
    run = manifest.freeze(opened(acting, mode))
    (ended,) = data("run.closed")
    assert (ended["state"], ended["items"], ended["counts"]) == ("closed", objects, {})
    assert ended["manifest_root"] == run.manifest_root
    assert not told("run.needs_approval")


def test_a_run_that_a_person_opened_says_so_and_not_who() -> None:
    acting = build()
    runs.open_run(policy=acting.revision.policy, by=acting.people["manager"], mode=CleanupRun.Mode.DRY_RUN)
    assert [each["by"] for each in data("run.opened")] == ["person"]
    assert "manager" not in json.dumps(told())


def test_a_run_that_a_program_opened_says_so() -> None:
    acting = build()
    account = rows.program(person=acting.people["operator"], scopes=["runs:create"])
    runs.open_run(policy=acting.revision.policy, by=account, mode=CleanupRun.Mode.DRY_RUN)
    assert [each["by"] for each in data("run.opened")] == ["program"]


def test_the_same_request_opens_and_tells_once() -> None:
    acting = build()
    for _ in range(2):
        runs.open_run(policy=acting.revision.policy, by=None, idempotency_key="job-7")
    assert len(told("run.opened")) == 1


@pytest.mark.parametrize("sealed", [False, True])
def test_a_cancelled_run_has_ended_too(sealed: bool) -> None:
    acting = build(authorisation="approval")
    acting.put("clips/a")
    run = opened(acting)
    if sealed:
        run = manifest.freeze(run)
    runs.cancel(run=run, by=acting.people["operator"], reason="Jane Doe asked for it.")
    (ended,) = data("run.closed")
    assert (ended["state"], ended["items"], ended["counts"]) == ("cancelled", 1 if sealed else None, {})
    assert ended["manifest_root"] == run.manifest_root
    assert "Jane" not in json.dumps(told())
    invariants.check()


def test_an_erasure_tells_that_it_is_one() -> None:
    acting = build(period_number=100, period_unit="years")
    acting.put("clips/a")
    request = erasure.file(
        tenant=acting.tenant, reference="Letter 17", authority="GDPR, article 17", reason="Jane Doe asked for it.",
        form="csv", data=b"bucket,key\nmedia,clips/a\n", by=acting.people["manager"],
    )  # fmt: skip
    erasure.approve(request=request, by=acting.people["compliance"], reason="Checked.", versions=1)
    (begun,) = data("run.opened")
    assert (begun["erasure"], begun["by"], begun["mode"]) == (True, "person", "enforce")
    assert "Jane" not in json.dumps(told())


def test_a_policy_that_asks_for_a_person_is_heard() -> None:
    acting = build(authorisation="approval")
    acting.put("clips/a", b"four")
    run = manifest.freeze(opened(acting))
    assert data("run.needs_approval") == [
        {
            "run": run.key, "policy": "originals", "mode": "enforce", "because": "policy", "caps": [], "exempt": 0,
            "items": 1, "targets": 1, "bytes": 4, "manifest_root": run.manifest_root,
        }
    ]  # fmt: skip


def test_a_cap_that_is_exceeded_is_named() -> None:
    acting = build(cap_objects=1, cap_bytes=1)
    for key in "ab":
        acting.put(key)
    manifest.freeze(opened(acting))
    assert [(each["because"], each["caps"]) for each in data("run.needs_approval")] == [("cap", ["bytes", "objects"])]
    invariants.check()


def test_each_exemption_that_undoes_an_authorisation_is_heard_once() -> None:
    acting = build(authorisation="approval", cooling_off_minutes=60)
    for key in ("a/1", "a/2", "b/1", "c/1"):
        acting.put(key)
    run = manifest.freeze(opened(acting))
    dispositions.exempt(run=run, chosen=Chosen(prefix="c/"), by=acting.people["compliance"], reason="It waits anyway.")
    for prefix in ("a/", "b/"):
        run.refresh_from_db()
        runs.approve(
            run=run, by=acting.people["compliance"], root=run.remaining_root, confirmation=run.key, reason="Read."
        )
        dispositions.exempt(run=run, chosen=Chosen(prefix=prefix), by=acting.people["compliance"], reason="Kept.")
    found = data("run.needs_approval")
    assert [(each["because"], each["exempt"]) for each in found] == [("policy", 0), ("exemption", 3), ("exemption", 4)]
    invariants.check()


def test_a_run_that_trips_twice_is_told_twice() -> None:
    acting = build(Failing())
    acting.put("a")
    run = acting.run()
    for _ in range(2):
        tallied(acting, run, (50, 60))
        assert breaker.judge_run(run.pk)
        runs.rearm(run=run, by=acting.people["compliance"], reason="Jane Doe repaired it.")
    assert (
        data("run.tripped")
        == [{"run": run.key, "policy": "originals", "failed": 50, "tried": 60, "percent": 20, "minimum": 50}] * 2
    )
    assert len({each["id"] for each in told("run.tripped")}) == 2
    assert "Jane" not in json.dumps(told())


# Holds.


def test_a_hold_is_told_in_numbers_alone() -> None:
    acting = build()
    placed = rows.hold(
        acting.tenant, acting.bucket, "people/doe/", by=acting.people["compliance"], matter="Doe v. Acme",
        reason="About Jane Doe", custodian="Jane Doe", stored_from=rows.EPOCH, retention_classes=["raw", "cut"],
    )  # fmt: skip
    rows.release(placed)
    first, last = told("hold.placed", "hold.released")
    assert first["subject"] == last["subject"] == f"hold:{placed.pk}"
    assert first["data"] == {"hold": placed.pk, "buckets": 1, "prefixes": 1, "retention_classes": 2, "dated": True}
    released = placed.releases.get()
    assert (last["data"]["hold"], last["data"]["release"]) == (placed.pk, released.pk)
    assert not any(word in json.dumps(told()) for word in ("Doe", "doe", "Jane", "compliance", "raw"))
    invariants.check()


def test_a_release_that_is_denied_tells_nothing() -> None:
    acting = build()
    placed = rows.hold(acting.tenant, acting.bucket, "", by=acting.people["compliance"])
    asked = releases.request(hold=placed, by=acting.people["compliance"], reason="Over.")
    releases.deny(release=asked, by=acting.people["compliance2"], reason="It is not.")
    assert [each["type"] for each in told()] == ["hold.placed"]
    assert data("hold.placed")[0]["retention_classes"] == 0, "every class"


# Quarantine: every way in.


def denied(acting: Acting) -> None:
    """What the store denies, in a batch with nothing else."""
    dead(acting, "clips/x")


def denied_beside_a_deletion(acting: Acting) -> None:
    """One settlement has both to tell, and emits once."""
    good, bad = acting.put("clips/good", asset="good"), acting.put("clips/x", asset="clips-x")
    acting.run()
    acting.store.inject(Fault("delete_versions", DENIED, frozenset({VersionRef(bad.key, bad.version_id)})))
    acting.drain()
    assert not acting.there(good)
    assert len(told("media.deleted")) == 1


def lost_by_every_worker(acting: Acting) -> None:
    """Refused by the claim itself."""
    acting.put("clips/x", asset="clips-x")
    acting.run()
    CleanupCommand.objects.update(lease_losses=6)
    acting.drain()


def refused_by_a_second_look(acting: Acting) -> None:
    """Refused when its claim looked again, since the epoch had moved."""
    acting.put("clips/x", asset="clips-x")
    acting.run()
    turn = claim.next_turn(acting.bucket.pk)
    assert turn is not None
    batch = claim.claim(acting.bucket.pk, *turn, 60)
    for each in batch.commands:
        each.lease_losses = 6
    assert claim.recheck(batch, batch.commands) == []


WAYS_IN = [denied, denied_beside_a_deletion, lost_by_every_worker, refused_by_a_second_look]


@pytest.mark.parametrize("way", WAYS_IN)
def test_what_enters_quarantine_is_told_in_its_assets_lane(way: Callable[[Acting], None]) -> None:
    acting = build()
    way(acting)
    entry = DeadLetter.objects.select_related("command__run").get()
    (entered,) = told("quarantine.entered")
    assert (entered["subject"], entered["sequence"]) == ("clips-x", 1)
    assert entered["data"] == {
        "attempts": entry.attempts, "bytes": 1, "command_key": entry.command.key, "cycle": 0, "policy": "originals",
        "failure_class": entry.failure_class, "revision": 1, "run": entry.command.run.key, "targets": 1,
    }  # fmt: skip
    event = OutboxEvent.objects.get(type="quarantine.entered")
    assert (event.name, event.occurrence, event.command_key) == (entry.command.key, "0", entry.command.key)
    assert "said the store" not in json.dumps(told())


def test_a_second_stay_in_quarantine_is_a_second_fact() -> None:
    acting = build()
    command = dead(acting)
    quarantine.replay(command=command, by=acting.people["operator"], reason="Repaired.")
    row = acting.versions["clips/dead"][0]
    acting.store.inject(Fault("delete_versions", DENIED, frozenset({VersionRef(row.key, row.version_id)})))
    acting.drain()
    assert [each["cycle"] for each in data("quarantine.entered")] == [0, 1]
    assert [(each["cycle"], each["resolution"]) for each in data("quarantine.resolved")] == [(0, "replayed")]
    invariants.check(acting.stores)


# Quarantine: every way out.


def replayed(acting: Acting, command: CleanupCommand) -> None:
    quarantine.replay(command=command, by=acting.people["operator"], reason="Jane Doe repaired it.", repair="locator")


def closed(acting: Acting, command: CleanupCommand) -> None:
    quarantine.close(command=command, by=acting.people["compliance"], reason="Jane Doe keeps it.")


def adopted(acting: Acting, command: CleanupCommand) -> None:
    acting.settled()
    acting.run()


def found_deleted(acting: Acting, command: CleanupCommand) -> None:
    """By a late request of ours."""
    row = acting.versions["clips/dead"][0]
    acting.store.delete_versions(acting.place, [VersionRef(row.key, row.version_id)], deadline_seconds=60)
    CleanupCommand.objects.update(inspect_due=Now())
    assert reconcile.look_again(acting.stores) == 1


def test_late_evidence_waits_for_whoever_closes_the_run_before_it_locks_anything_else() -> None:
    acting = build()
    command = dead(acting)
    with CaptureQueriesContext(connection) as asked:
        found_deleted(acting, command)
    locks = [each["sql"] for each in asked if "FOR NO KEY UPDATE" in each["sql"]]
    tables = [name for sql in locks for name in ("cleanuprun", "objectversion", "cleanupcommand") if f"_{name}" in sql]
    assert list(dict.fromkeys(tables)) == ["cleanuprun", "objectversion", "cleanupcommand"]


@pytest.mark.parametrize(
    ("way", "resolution"),
    [(replayed, "replayed"), (closed, "closed"), (adopted, "adopted"), (found_deleted, "deleted")],
)
def test_what_leaves_quarantine_is_told_once(way: Callable[..., None], resolution: str) -> None:
    acting = build()
    command = dead(acting)
    way(acting, command)
    (left,) = told("quarantine.resolved")
    command.refresh_from_db()
    entry = DeadLetter.objects.get()
    assert (left["subject"], left["sequence"], left["data"]["resolution"]) == ("clips-dead", 2, resolution)
    assert (left["data"]["failure_class"], left["data"]["cycle"]) == ("permission", 0)
    assert left["data"]["run"] == CleanupRun.objects.get(pk=command.run_id).key
    assert entry.resolution == resolution
    assert "Jane" not in json.dumps(told())
    own = [(each["type"], each["sequence"]) for each in told() if each["subject"] == "clips-dead"]
    wanted = [("quarantine.entered", 1), ("quarantine.resolved", 2)]
    assert own == wanted + ([("media.deleted", 3)] if resolution == "deleted" else [])


def test_what_was_parked_otherwise_leaves_no_quarantine() -> None:
    acting = build()
    command = withdrawn(acting)
    quarantine.replay(command=command, by=acting.people["operator"], reason="On again.")
    assert not told("quarantine.entered", "quarantine.resolved")


# Together with their acts.


def place(acting: Acting) -> None:
    rows.hold(acting.tenant, acting.bucket, "", by=acting.people["compliance"])


def open_one(acting: Acting) -> None:
    opened(acting)


@pytest.mark.parametrize(
    ("act", "left"),
    [(place, LegalHold.objects), (open_one, CleanupRun.objects), (denied, DeadLetter.objects)],
)
def test_an_act_that_is_rolled_back_has_told_nothing(act: Callable[[Acting], None], left: Any) -> None:
    acting = build()
    with transaction.atomic():
        act(acting)
        assert OutboxEvent.objects.exists()
        transaction.set_rollback(True)
    assert not OutboxEvent.objects.exists()
    assert not left.exists()
    act(acting)
    assert OutboxEvent.objects.exists()


@pytest.mark.parametrize("act", [place, open_one])
def test_an_act_that_cannot_tell_of_it_is_not_done(
    act: Callable[[Acting], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    acting = build()

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("no room")

    for module in (holds, runs.notices):
        monkeypatch.setattr(module, "emit", full)
    with pytest.raises(RuntimeError, match="no room"), transaction.atomic():
        act(acting)
    assert not LegalHold.objects.exists()
    assert not CleanupRun.objects.exists()


def test_whoever_waits_for_an_event_is_rung_for() -> None:
    acting = build()
    place(acting)
    assert "webhooks.tasks.dispatch" not in {message.func() for message in OrmQ.objects.all()}, "nobody subscribes"
    acting.subscribe()
    place(acting)
    assert "webhooks.tasks.dispatch" in {message.func() for message in OrmQ.objects.all()}


def test_only_endpoints_of_the_runs_own_tenant_hear_of_it() -> None:
    acting = build()
    Tenant.objects.create(code="beta", name="Beta")
    own, other = acting.subscribe("own"), acting.subscribe("other")
    Endpoint.objects.filter(pk=other.pk).update(tenant="beta")
    acting.put("clips/a")
    acting.run()
    acting.drain()
    acting.settled()
    place(acting)
    assert set(Delivery.objects.values_list("endpoint_id", flat=True)) == {own.pk}
    assert Delivery.objects.count() == 4 == OutboxEvent.objects.count()


# Object keys.


def asking(acting: Acting) -> Endpoint:
    endpoint = acting.subscribe("curious")
    Endpoint.objects.filter(pk=endpoint.pk).update(include_keys=True)
    return endpoint


def detailed() -> dict[str, Any]:
    bodies = DetailedBody.objects.order_by("event_id").values_list("event__type", "body")
    return {type: json.loads(bytes(body)) for type, body in bodies}


def test_object_keys_stand_in_the_bodies_for_those_who_ask_and_nowhere_else() -> None:
    acting = build()
    asking(acting)
    acting.subscribe("thin")
    command = dead(acting, "clips/jane-doe")
    quarantine.replay(command=command, by=acting.people["operator"], reason="Repaired.")
    acting.drain()
    place(acting)
    row = acting.versions["clips/jane-doe"][0]
    named = [{"bucket": "media", "key": row.key, "version_id": row.version_id}]
    found = detailed()
    assert sorted(found) == ["media.deleted", "quarantine.entered", "quarantine.resolved"]
    for type, body in found.items():
        assert (body["data"].pop("objects"), body["data"].pop("objects_omitted")) == (named, 0)
        assert [body] == told(type), "else as the body for all"
    bodies = b"".join(bytes(body) for body in OutboxEvent.objects.values_list("body", flat=True))
    assert b'"key"' not in bodies
    assert b"version_id" not in bodies


def test_where_nobody_asks_for_object_keys_none_are_kept() -> None:
    acting = build()
    acting.subscribe()
    deleted(acting)
    assert not DetailedBody.objects.exists()


def test_of_a_thousand_targets_those_are_named_that_fit() -> None:
    acting = build()
    asking(acting)
    acting.put("clips/a", asset="album")
    for n in range(600):
        acting.put(f"thumbs/{'x' * 100}/{n:04}.jpg", original_key="clips/a", role="derivative")
    acting.run()
    acting.drain()
    body = detailed()["media.deleted"]
    size = len(bytes(DetailedBody.objects.get(event__type="media.deleted").body))
    objects, omitted = body["data"]["objects"], body["data"]["objects_omitted"]
    assert body["data"]["targets"] == 601 == len(objects) + omitted
    assert omitted > 0
    assert 65_000 < size <= 65_536, "as many as there was room for"
    assert objects[0]["key"] == "clips/a"
    assert len({each["key"] for each in objects}) == len(objects)


def test_a_part_that_adopts_many_reads_their_names_at_once(django_assert_max_num_queries: Any) -> None:
    acting = build()
    asking(acting)
    bad = [acting.put(f"clips/{n}", asset=f"clip-{n}") for n in range(20)]
    acting.run()
    acting.store.inject(
        Fault("delete_versions", DENIED, frozenset({VersionRef(row.key, row.version_id) for row in bad}))
    )
    acting.drain()
    acting.settled()
    run = manifest.freeze(opened(acting))
    with django_assert_max_num_queries(60):
        publish.publish(run.pk)
    assert len(data("quarantine.resolved")) == 20
    assert DetailedBody.objects.filter(event__type="quarantine.resolved").count() == 20
