"""A manifest is frozen part by part: exact, complete, resumable, and what its digests say."""

import json
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
import rfc8785
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from cleanup_project.base.models import AuditEvent, User
from ledger import manifest, runs
from ledger.exceptions import IdempotencyConflict, LedgerError, RunOverlap
from ledger.models import CleanupRun, ManifestItem, ManifestPart
from ledger.states import RunState
from retention import holds, policies
from retention.models import Bucket, LegalHold, ObjectVersion, PolicyRevision, RetentionPolicy, Tenant
from tests.ledger.threads import Beside, somebody_waits, until
from tests.world import enforced, published, release, version

pytestmark = pytest.mark.django_db


@pytest.fixture
def policy(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> RetentionPolicy:
    return published(tenant, bucket, author=manager, publisher=second_manager, code="originals").policy


def dry_run(policy: RetentionPolicy, **options: Any) -> CleanupRun:
    run, _new = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN, **options)
    return manifest.freeze(run)


def keys(run: CleanupRun) -> list[str]:
    return list(run.items.order_by("ordinal").values_list("command_key", flat=True))


def test_a_manifest_names_exact_versions_and_says_why(policy: RetentionPolicy, tenant: Tenant, bucket: Bucket) -> None:
    original = version(
        bucket, tenant, "o/é+ %41\n\x01.mp4", asset="clip-7", version_id="abc.DEF_1-", etag='x"y', size=7
    )
    thumbnail = version(
        bucket,
        tenant,
        "t/7.jpg",
        original_key=original.key,
        stored_at=original.stored_at + timedelta(seconds=5),
        size=2,
    )
    version(bucket, tenant, "o/recent.mp4", stored_at=timezone.now())
    run = dry_run(policy)

    item = run.items.get()
    assert item.command_key == "acme:clip-7:abc.DEF_1-:originals-1"
    assert (item.target_count, item.bytes, item.object_version_id) == (2, 9, original.pk)
    line = json.loads(item.line)
    assert [(t["role"], t["key"], t["version_id"], t["object_version"]) for t in line["targets"]] == [
        ("original", original.key, "abc.DEF_1-", original.pk),
        ("derivative", "t/7.jpg", thumbnail.version_id, thumbnail.pk),
    ]
    assert line["why"] == {
        "considered": ["originals/1"],
        "cutoff": "none",
        "holds": 0,
        "period": "30 days",
        "trigger": "stored_at",
        "trigger_at": "2020-01-01T00:00:00.000000Z",
    }
    assert line["eligible_since"] == "2020-01-31T00:00:00.000000Z"
    assert rfc8785.dumps(line) == item.line.encode()


def test_digests_lead_from_the_lines_to_the_root(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "PART_SIZE", 3)
    for n in range(7):
        version(bucket, tenant, f"o/{n}")
    run = dry_run(policy)

    parts = list(run.parts.order_by("number"))
    assert [part.key for part in parts] == [f"{run.key}:part-{n:04d}" for n in (1, 2, 3)]
    root = sha256()
    for part in parts:
        lines = part.items.order_by("ordinal").values_list("line", flat=True)
        digest = sha256(b"".join(sha256(line.encode()).digest() for line in lines))
        assert part.digest == digest.hexdigest()
        root.update(digest.digest())
    assert run.manifest_root == root.hexdigest()
    assert (run.item_count, run.target_count, run.bytes) == (7, 7, 700)
    assert list(run.items.order_by("ordinal").values_list("ordinal", flat=True)) == list(range(1, 8))


def test_a_dry_run_and_the_run_after_it_have_the_same_lines(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket
) -> None:
    for n in range(5):
        version(bucket, tenant, f"o/{n}")
    assert dry_run(policy).manifest_root == dry_run(policy).manifest_root


def test_a_null_version_and_a_long_version_id_become_digests(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket
) -> None:
    version(bucket, tenant, "n", version_id="null", incarnation="a" * 32)
    version(bucket, tenant, "n2", version_id="null", incarnation="b" * 32, asset="n")
    version(bucket, tenant, "long", version_id="x" * 65)
    version(bucket, tenant, "colon", version_id="a:b")
    found = keys(dry_run(policy))
    assert len(set(found)) == 4
    assert all(key.split(":")[2].startswith("~") and len(key.split(":")) == 4 for key in found)


def test_freezing_goes_on_where_it_stopped(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "PART_SIZE", 2)
    for n in range(9):
        version(bucket, tenant, f"o/{n}", stored_at=timezone.now() - timedelta(days=100 - n % 3))
    uninterrupted = dry_run(policy)
    run, _ = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    manifest.freeze_part(run)
    with monkeypatch.context() as broken:
        write_part = manifest.write_part
        broken.setattr(manifest, "write_part", lambda *given: {}[write_part(*given)])
        with pytest.raises(KeyError):
            manifest.freeze_part(run)
    assert run.parts.count() == 1

    manifest.freeze(CleanupRun.objects.get(pk=run.pk))
    assert keys(run) == keys(uninterrupted)


def test_only_rules_that_can_cover_the_page_are_asked_and_the_latest_end_governs(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    for code, prefix, days in (("deep", "o/deep/", 60), ("deeper", "o/deep/er/", 90), ("aside", "aside/", 20)):
        published(
            tenant, bucket, author=manager, publisher=second_manager, code=code, prefixes=[prefix], period_number=days
        )
    version(bucket, tenant, "o/1")
    version(bucket, tenant, "o/deep/er/1")
    deeper = RetentionPolicy.objects.get(code="deeper")
    (line,) = dry_run(deeper).items.values_list("line", flat=True)
    assert json.loads(line)["why"]["considered"] == ["originals/1", "deep/1", "deeper/1"]
    assert [
        len(json.loads(line)["why"]["considered"]) for line in dry_run(policy).items.values_list("line", flat=True)
    ] == [1]


def test_objects_catalogued_after_the_run_opened_wait_for_the_next(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket
) -> None:
    version(bucket, tenant, "o/1")
    run, _ = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    version(bucket, tenant, "o/2", first_observed_at=timezone.now())
    assert manifest.freeze(run).item_count == 1
    assert dry_run(policy).item_count == 2


def test_streams_cover_every_class_prefix_and_bucket_once(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    other = Bucket.objects.create(name="other")
    for place, key, kind in [
        (bucket, "a/1", ""),
        (bucket, "a/b/2", "video"),
        (bucket, "c/3", "audio"),
        (other, "a/4", "z"),
        (other, "d/5", "z"),
    ]:
        version(place, tenant, key, retention_class=kind)
    revision = published(
        tenant,
        bucket,
        author=manager,
        publisher=second_manager,
        bucket_ids=[bucket.pk, other.pk],
        prefixes=["a/", "a/b/", "c"],
    )
    run = dry_run(revision.policy)
    assert sorted(json.loads(line)["targets"][0]["key"] for line in run.items.values_list("line", flat=True)) == [
        "a/1",
        "a/4",
        "a/b/2",
        "c/3",
    ]


def test_held_versions_are_left_out_reported_and_not_read_again(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket, compliance: User
) -> None:
    version(bucket, tenant, "free/1")
    kept = version(bucket, tenant, "case/1")
    coupled = version(bucket, tenant, "free/2")
    version(bucket, tenant, "case/t", original_key="free/2", stored_at=coupled.stored_at + timedelta(seconds=1))
    hold = place(tenant, bucket, compliance, "case/")
    run = dry_run(policy)
    assert keys(run) == [keys(run)[0]]
    assert (run.item_count, run.parts.get().held, run.parts.get().read) == (1, 2, 3)
    assert set(ObjectVersion.objects.filter(parked_by=hold)) == {kept, coupled}
    assert dry_run(policy).parts.get().read == 1

    release(hold)
    assert dry_run(policy).item_count == 3
    assert not ObjectVersion.objects.filter(parked_by__isnull=False).exists()


def test_a_run_misses_nothing_that_a_released_hold_had_parked_however_many_slices_it_takes(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket, compliance: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        version(bucket, tenant, f"case/{number}", retention_class="evidence")  # a class of which nothing else is there
    hold = place(tenant, bucket, compliance, "case/")
    dry_run(policy)
    assert ObjectVersion.objects.filter(parked_by=hold).count() == 5
    release(hold)
    monkeypatch.setattr(holds, "UNPARK_CHUNK", 2)
    run, _new = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    assert ObjectVersion.objects.filter(parked_by=hold).count() == 5, "not in the request that opens it"
    assert not manifest.freeze_slice(run.pk, budget_seconds=0)
    assert not run.parts.exists()
    assert manifest.freeze_slice(run.pk, budget_seconds=60)
    run.refresh_from_db()
    assert (run.item_count, run.sealed_at is not None) == (5, True)


@pytest.mark.django_db(transaction=True)
def test_two_that_give_back_at_once_leave_nothing_behind(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket, compliance: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = place(tenant, bucket, compliance, "case/")
    for number in range(5):
        version(bucket, tenant, f"case/{number}", parked_by=hold)
    release(hold)
    monkeypatch.setattr(holds, "UNPARK_CHUNK", 2)
    with transaction.atomic():
        holds.unpark_chunk()
        other = Beside(holds.unpark_released)
        until(somebody_waits)
    assert other.answer() is True
    assert not ObjectVersion.objects.filter(parked_by=hold).exists()


def place(tenant: Tenant, bucket: Bucket, by: User, prefix: str) -> LegalHold:
    return holds.place(
        tenant=tenant,
        matter="Doe v. Acme",
        title="Footage",
        authority="Court order",
        reason="Litigation",
        buckets=[bucket],
        prefixes=[prefix],
        retention_classes=["*"],
        by=by,
    )


def test_an_enforcing_run_takes_only_what_enforcement_covers_whole(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    version(bucket, tenant, "on/1")
    version(bucket, tenant, "off/1")
    split = version(bucket, tenant, "on/2")
    version(bucket, tenant, "off/t", original_key="on/2", stored_at=split.stored_at + timedelta(seconds=1))
    assert runs.open_run(policy=policy, by=None)[0].mode == CleanupRun.Mode.DRY_RUN
    enforced(tenant, bucket, "on/", by=manager, approver=second_manager)
    run, _ = runs.open_run(policy=policy, by=None)
    manifest.freeze(run)
    assert run.mode == CleanupRun.Mode.ENFORCE
    assert (run.item_count, run.parts.get().not_enforced) == (1, 2)
    assert run.state == RunState.NEEDS_APPROVAL


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"authorisation": "approval"}, RunState.NEEDS_APPROVAL),
        ({"authorisation": "standing"}, RunState.AUTHORISED),
        ({"authorisation": "standing", "cooling_off_minutes": 60}, RunState.COOLING_OFF),
    ],
)
def test_the_policy_says_what_a_sealed_run_waits_for(
    fields: dict[str, Any], state: RunState, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    version(bucket, tenant, "o/1")
    revision = published(tenant, bucket, author=manager, publisher=second_manager, **fields)
    enforced(tenant, bucket, "", by=manager, approver=second_manager)
    run, _ = runs.open_run(policy=revision.policy, by=None)
    assert manifest.freeze(run).state == state


def test_a_revision_published_while_a_run_scans_does_not_change_it(
    policy: RetentionPolicy,
    tenant: Tenant,
    bucket: Bucket,
    manager: User,
    second_manager: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manifest, "PART_SIZE", 1)
    for n in range(3):
        version(bucket, tenant, f"o/{n}")
    run, _ = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    manifest.freeze_part(run)
    published(tenant, bucket, author=manager, publisher=second_manager, code="originals", period_number=3000)
    assert manifest.freeze(run).item_count == 3


def test_a_policy_suspended_while_a_run_scans_stops_it_finding_more(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket, manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "PART_SIZE", 1)
    for n in range(3):
        version(bucket, tenant, f"o/{n}")
    run, _ = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    manifest.freeze_part(run)
    policies.suspend(policy=policy, by=manager, reason="Under review")
    assert manifest.freeze(run).item_count == 1


def test_runs_of_a_policy_do_not_overlap(policy: RetentionPolicy) -> None:
    run, _ = runs.open_run(policy=policy, by=None)
    with pytest.raises(RunOverlap, match=run.key):
        runs.open_run(policy=policy, by=None)
    manifest.freeze(run)
    assert runs.open_run(policy=policy, by=None)[1]


def test_an_idempotency_key_returns_its_run_for_ever(policy: RetentionPolicy) -> None:
    run, new = runs.open_run(policy=policy, by=None, idempotency_key="job-7")
    assert new
    assert runs.open_run(policy=policy, by=None, idempotency_key="job-7") == (run, False)
    manifest.freeze(run)
    again, new = runs.open_run(policy=policy, by=None, idempotency_key="job-7")
    assert (again.pk, new) == (run.pk, False)
    with pytest.raises(IdempotencyConflict):
        runs.open_run(policy=policy, by=None, idempotency_key="job-7", mode=CleanupRun.Mode.ENFORCE)


def test_whoever_asks_under_the_same_key_at_the_same_time_gets_the_same_run(
    policy: RetentionPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one commits after the key was looked for."""
    opened = []
    own_rules = runs.own_rules

    def late(*arguments: Any) -> Any:
        monkeypatch.undo()
        opened.append(runs.open_run(policy=policy, by=None, idempotency_key="job-7")[0])
        return own_rules(*arguments)

    monkeypatch.setattr(runs, "own_rules", late)
    assert runs.open_run(policy=policy, by=None, idempotency_key="job-7") == (opened[0], False)


def test_a_policy_without_a_revision_in_force_opens_no_run(tenant: Tenant, manager: User) -> None:
    policy = policies.create(tenant=tenant, code="empty", by=manager)
    with pytest.raises(LedgerError, match="publish one first"):
        runs.open_run(policy=policy, by=None)


def test_cancelling_needs_a_right_a_reason_and_an_open_run(
    policy: RetentionPolicy, manager: User, person: Callable[..., User]
) -> None:
    run, _ = runs.open_run(policy=policy, by=None)
    with pytest.raises(LedgerError, match="may not cancel"):
        runs.cancel(run=run, by=person("nobody"), reason="No")
    with pytest.raises(LedgerError, match="reason"):
        runs.cancel(run=run, by=manager, reason=" ")
    runs.cancel(run=run, by=manager, reason="Wrong bucket")
    assert manifest.freeze_part(run) is None
    with pytest.raises(LedgerError, match="ended already"):
        runs.cancel(run=run, by=manager, reason="Again")
    assert AuditEvent.objects.filter(action="run.cancelled", subject_id=run.pk, actor=manager).count() == 1


@pytest.mark.parametrize(
    "table", ["ledger_manifestitem", "ledger_manifestpart", "base_auditevent", "ledger_cleanuprun"]
)
@pytest.mark.parametrize("verb", ["DELETE FROM", "TRUNCATE"])
def test_evidence_cannot_be_removed(table: str, verb: str, policy: RetentionPolicy) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET LOCAL session_replication_role = replica")
        with pytest.raises(IntegrityError, match="append-only"):
            cursor.execute(f"{verb} {table}" + (" CASCADE" if verb == "TRUNCATE" else ""))
        transaction.set_rollback(True)


def test_items_and_parts_cannot_be_altered(policy: RetentionPolicy, tenant: Tenant, bucket: Bucket) -> None:
    version(bucket, tenant, "o/1")
    dry_run(policy)
    for rows, change in ((ManifestItem.objects, {"line": "{}"}), (ManifestPart.objects, {"digest": "0" * 64})):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            rows.update(**change)


def test_a_run_keeps_what_it_was_opened_and_sealed_with(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket
) -> None:
    version(bucket, tenant, "o/1")
    run = dry_run(policy)
    for change in ({"as_of": timezone.now()}, {"streams": []}, {"manifest_root": "0" * 64}, {"item_count": 5}):
        with pytest.raises(IntegrityError, match="cannot change"), transaction.atomic():
            CleanupRun.objects.filter(pk=run.pk).update(**change)


def test_a_published_revision_is_immutable(policy: RetentionPolicy) -> None:
    for act in (
        lambda: PolicyRevision.objects.update(period_number=1),
        lambda: PolicyRevision.objects.all()._raw_delete("default"),  # past Django's own look at who refers to it
    ):
        with pytest.raises(IntegrityError, match="is published"), transaction.atomic():
            act()
