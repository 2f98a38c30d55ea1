"""Retention events: what starts a clock, who posts and withdraws, what is refused, and what a scan reads of it all."""

import json
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction

from cleanup_project.base import clock, roles
from cleanup_project.base.models import AuditEvent, User
from ledger import manifest, runs
from ledger.models import CleanupRun, ManifestItem
from retention import control, events, governing, holds, policies, scan
from retention.eligibility import Reason
from retention.exceptions import NotPermitted, RetentionError, TryLater
from retention.models import Bucket, PolicyRevision, RetentionEvent, Tenant
from retention.why import explain, why
from tests.world import EPOCH, event, published, sealed_run, version

pytestmark = pytest.mark.django_db


@pytest.fixture
def revision(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> PolicyRevision:
    return awaiting(tenant, bucket, manager, second_manager)


def awaiting(tenant: Tenant, bucket: Bucket, *people: User, **fields: Any) -> PolicyRevision:
    said = {"trigger": "event", "event_type": "contract-ended"} | fields
    return published(tenant, bucket, author=people[0], publisher=people[1], **said)


def items(run: CleanupRun) -> list[str]:
    """The keys of a run's items, in order."""
    lines = ManifestItem.objects.filter(run=run).order_by("ordinal").values_list("line", flat=True)
    return [json.loads(line)["targets"][0]["key"] for line in lines]


def test_without_an_event_the_clock_stands_still(revision: PolicyRevision, bucket: Bucket, manager: User) -> None:
    row = version(bucket, revision.tenant, "c/1/a")
    assert why(row).reason is Reason.AWAITING_EVENT
    assert "(it waits for the event contract-ended)" in list(explain(row, why(row)))[1]
    event(revision.tenant, bucket, "c/1/", by=manager, event_type="other")
    event(revision.tenant, bucket, "c/2/", by=manager)
    event(revision.tenant, bucket, "c/", by=manager, retention_classes=["video"])
    event(revision.tenant, Bucket.objects.create(name="other"), "c/", by=manager)
    assert why(row).reason is Reason.AWAITING_EVENT
    assert sealed_run(revision).item_count == 0


def test_the_latest_of_several_events_counts(revision: PolicyRevision, bucket: Bucket, manager: User) -> None:
    row = version(bucket, revision.tenant, "c/1/a")
    first = event(revision.tenant, bucket, "c/1/", by=manager)
    verdict = why(row)
    assert (verdict.reason, verdict.eligible_since) == (Reason.ELIGIBLE, EPOCH + timedelta(days=30))
    assert f"by the event contract-ended {first.pk}" in list(explain(row, verdict))[1]
    event(revision.tenant, bucket, "c/", by=manager, occurred_at=clock.now() - timedelta(days=1))
    event(revision.tenant, bucket, "", by=manager)
    assert why(row).reason is Reason.NOT_YET
    assert sealed_run(revision).item_count == 0


def test_a_run_reads_what_events_cover_and_says_which_started_the_clock(
    revision: PolicyRevision, bucket: Bucket, manager: User
) -> None:
    for key in ("c/1/a", "c/1/b", "c/2/a", "d/1"):
        version(bucket, revision.tenant, key, retention_class=key[-1])
    posted = event(revision.tenant, bucket, "c/1/", by=manager)
    event(revision.tenant, bucket, "c/", by=manager, retention_classes=["b"])
    run = sealed_run(revision)
    assert items(run) == ["c/1/a", "c/1/b"]
    line = json.loads(ManifestItem.objects.get(run=run, ordinal=1).line)
    assert line["why"]["event"] == posted.pk
    assert (line["why"]["trigger"], line["why"]["trigger_at"]) == ("event", "2020-01-01T00:00:00.000000Z")


def test_a_scan_reads_under_the_events_prefixes_alone_each_object_once(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    revision = awaiting(tenant, bucket, manager, second_manager, prefixes=["c/", "d/1/", "e/"])
    for prefix in ("c/1/", "c/1/2/", "c/", "d/", "x/"):
        event(tenant, bucket, prefix, by=manager)
    late = clock.now() - timedelta(days=3)
    event(tenant, bucket, "e/", by=manager, occurred_at=late)
    as_of = clock.now()
    streams = scan.plan(governing.of_tenant(tenant, as_of), as_of)
    assert [(each.prefix, each.retention_class, each.by_key) for each in streams] == [
        ("c/", "*", True),
        ("d/1/", "*", True),
    ]
    for key in ("c/1/2/a", "d/1/a", "d/2/a", "e/a", "x/a"):
        version(bucket, tenant, key)
    assert items(sealed_run(revision)) == ["c/1/2/a", "d/1/a"]


def test_an_event_over_a_whole_bucket_is_read_by_class(revision: PolicyRevision, bucket: Bucket, manager: User) -> None:
    for retention_class in ("", "audio", "video"):
        version(bucket, revision.tenant, f"k/{retention_class}", retention_class=retention_class)
    event(revision.tenant, bucket, "", by=manager)
    run = sealed_run(revision)
    assert [(each["retention_class"], each["by_key"]) for each in run.streams] == [
        ("", False), ("audio", False), ("video", False),
    ]  # fmt: skip
    assert items(run) == ["k/", "k/audio", "k/video"]


def test_what_is_posted_or_withdrawn_later_changes_nothing_of_a_run(
    revision: PolicyRevision, bucket: Bucket, manager: User
) -> None:
    for key in ("c/1/a", "c/2/a"):
        version(bucket, revision.tenant, key)
    first = event(revision.tenant, bucket, "c/1/", by=manager)
    run, _new = runs.open_run(policy=revision.policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    event(revision.tenant, bucket, "c/", by=manager, occurred_at=clock.now())
    events.withdraw(event=first, by=manager, reason="Wrong contract")
    assert items(manifest.freeze(run)) == ["c/1/a"]
    assert items(sealed_run(revision)) == []


def test_the_newest_generations_are_ranked_by_their_events(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    awaiting(tenant, bucket, manager, second_manager, keep_newest=1)
    old, new, waiting = (
        version(bucket, tenant, f"c/{n}/a", series="s", stored_at=EPOCH + timedelta(days=n)) for n in (3, 2, 1)
    )
    event(tenant, bucket, "c/3/", by=manager)
    event(tenant, bucket, "c/2/", by=manager, occurred_at=EPOCH + timedelta(days=1))
    assert [why(row).reason for row in (old, new, waiting)] == [
        Reason.ELIGIBLE, Reason.KEPT_NEWEST, Reason.AWAITING_EVENT,
    ]  # fmt: skip


def test_a_preview_says_what_an_event_would_start(
    revision: PolicyRevision, bucket: Bucket, manager: User, second_manager: User
) -> None:
    tenant = revision.tenant
    awaiting(tenant, bucket, manager, second_manager, prefixes=["c/1/", "c/2/"], code="contracts")
    awaiting(tenant, bucket, manager, second_manager, retain_permanently=True, code="for-ever")
    for key in ("c/1/a", "c/1/b", "c/2/a", "d/a"):
        version(bucket, tenant, key, size=1000)
    version(bucket, tenant, "c/1/gone", gone_at=clock.now(), gone_reason="vanished")
    version(bucket, tenant, "c/1/t", original_key="c/1/a")
    version(bucket, None, "c/1/nobodys")
    version(bucket, tenant, "c/1/marker", is_delete_marker=True)
    posted = event(tenant, bucket, "c/1/", by=manager)
    assert (posted.started_versions, posted.started_bytes, posted.counted_all) == (2, 2000, True)
    told = AuditEvent.objects.get(action="event.posted").after
    assert (told["versions"], told["policies"]) == (2, ["contracts/1", str(revision)])
    unsaved = RetentionEvent(
        tenant=tenant, event_type="contract-ended", occurred_at=EPOCH, bucket_ids=[bucket.pk], prefixes=["c/", "c/2/"],
        retention_classes=["*"], reason="R",
    )  # fmt: skip
    seen = events.preview(unsaved)
    assert (seen.versions, [row.key for row in seen.samples]) == (3, ["c/1/a", "c/1/b", "c/2/a"])
    assert "starts the clock of 3 present object versions, under contracts/1, " in seen.words
    whole = event(tenant, bucket, "", by=manager)  # a whole bucket, as the policy of the fixture covers it
    assert whole.started_versions == 4
    unsaved.event_type = "nobody-waits"
    assert events.preview(unsaved).words.startswith("It starts no clock")
    assert events.preview(unsaved).versions == 0


def test_a_preview_counts_only_so_far(
    revision: PolicyRevision, bucket: Bucket, manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        version(bucket, revision.tenant, f"c/{n}/a")
    monkeypatch.setattr(events, "COUNT_UP_TO", 3)
    for prefixes in (["c/"], [f"c/{n}/" for n in range(5)]):
        posted = events.post(
            tenant=revision.tenant, event_type="contract-ended", occurred_at=EPOCH, buckets=[bucket], prefixes=prefixes,
            retention_classes=["*"], by=manager, reason="R",
        )  # fmt: skip
        assert (posted.started_versions, posted.counted_all) == (3, False)


def test_an_event_is_posted_though_its_count_takes_too_long(
    revision: PolicyRevision, bucket: Bucket, manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "COUNT_SECONDS", 0.05)
    monkeypatch.setattr(events.sqlfiles, "read", lambda *_: "SELECT 1, 1, ARRAY[]::bigint[] FROM pg_sleep(10)")
    posted = event(revision.tenant, bucket, "c/", by=manager)
    assert (posted.started_versions, posted.counted_all) == (0, False)
    assert AuditEvent.objects.get(action="event.posted").after["counted_all"] is False
    assert "clock of at least 0 present object versions" in events.preview(posted).words


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"prefixes": []}, "prefixes"),
        ({"buckets": []}, "bucket_ids"),
        ({"retention_classes": []}, "retention_classes"),
        ({"event_type": ""}, "event_type"),
        ({"event_type": "Contract ended"}, "event_type"),
        ({"reason": " "}, "reason"),
        ({"ahead": timedelta(days=1, minutes=1)}, "occurred_at"),
    ],
)
def test_an_event_that_says_too_little_is_refused_by_the_field_that_is_wrong(
    fields: dict[str, Any], field: str, tenant: Tenant, bucket: Bucket, manager: User
) -> None:
    said: dict[str, Any] = {
        "event_type": "contract-ended", "buckets": [bucket], "prefixes": ["c/"], "retention_classes": ["*"], "reason": "R",
    }  # fmt: skip
    said |= fields
    occurred_at = clock.now() + said.pop("ahead", timedelta(0))
    with pytest.raises(ValidationError) as refused:
        events.post(tenant=tenant, occurred_at=occurred_at, by=manager, **said)
    assert field in refused.value.message_dict
    assert not RetentionEvent.objects.exists()


def test_a_type_belongs_to_the_trigger_event_and_to_no_other(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    for fields in ({"trigger": "event", "event_type": ""}, {"trigger": "stored_at", "event_type": "contract-ended"}):
        with pytest.raises(ValidationError) as refused:
            published(tenant, bucket, author=manager, publisher=second_manager, **fields)
        assert "event_type" in refused.value.message_dict
    policy = policies.create(tenant=tenant, code="p", by=manager)
    draft = policies.draft(
        policy=policy, by=manager, title="T", authority="A", bucket_ids=[bucket.pk], prefixes=[""],
        retention_classes=["*"], trigger="stored_at", period_number=1, period_unit="days", retroactive=True,
        effective_from=EPOCH,
    )  # fmt: skip
    for change in ({"trigger": "event"}, {"event_type": "contract-ended"}):
        with pytest.raises(IntegrityError, match="revision_event_named"), transaction.atomic():
            PolicyRevision.objects.filter(pk=draft.pk).update(**change)


def test_an_event_is_withdrawn_once_and_never_changed(revision: PolicyRevision, bucket: Bucket, manager: User) -> None:
    row = version(bucket, revision.tenant, "c/1/a")
    posted = event(revision.tenant, bucket, "c/1/", by=manager)
    stored = RetentionEvent.objects.filter(pk=posted.pk)
    for change in ({"prefixes": ["c/"]}, {"occurred_at": EPOCH - timedelta(days=9)}, {"reason": "Other"}):
        with pytest.raises(IntegrityError, match="can only be withdrawn"), transaction.atomic():
            stored.update(**change)
    before = control.read(revision.tenant_id)[0]
    withdrawn = events.withdraw(event=posted, by=manager, reason="Wrong contract")
    assert (withdrawn.withdrawn_by, withdrawn.withdrawn_reason) == (manager, "Wrong contract")
    assert control.read(revision.tenant_id)[0] > before
    assert why(row).reason is Reason.AWAITING_EVENT
    with pytest.raises(RetentionError, match="withdrawn already"):
        events.withdraw(event=posted, by=manager, reason="Again")
    with pytest.raises(IntegrityError, match="can only be withdrawn"), transaction.atomic():
        stored.update(withdrawn_at=None, withdrawn_by=None, withdrawn_reason="")
    with pytest.raises(IntegrityError), transaction.atomic():
        stored.delete()
    assert AuditEvent.objects.get(action="event.withdrawn").reason == "Wrong contract"


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({}, True),
        ({"key": "c/2/a"}, False),  # outside of the event
        ({"key": "c/1/kept/a"}, False),  # no policy waits there
        ({"gone_reason": "vanished"}, False),
        ({"before": True}, False),
        ({"retention_class": "audio"}, False),
    ],
)
def test_an_event_under_which_something_was_destroyed_stands(
    fields: dict[str, Any], refused: bool, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    awaiting(tenant, bucket, manager, second_manager, prefixes=["c/1/a", "c/2/"], retention_classes=["", "video"])
    long_ago = clock.now() - timedelta(seconds=5)
    posted = event(tenant, bucket, "c/1/", by=manager)
    said = {"key": "c/1/a", "gone_reason": "destroyed"} | fields
    gone_at = long_ago if said.pop("before", False) else clock.now()
    version(bucket, tenant, gone_at=gone_at, **said)
    if refused:
        with pytest.raises(RetentionError, match="has been destroyed under this event already"):
            events.withdraw(event=posted, by=manager, reason="R")
    else:
        events.withdraw(event=posted, by=manager, reason="R")
    posted.refresh_from_db()
    assert (posted.withdrawn_at is None) == refused


def test_only_who_may_publish_policies_posts_and_withdraws_and_with_a_reason(
    tenant: Tenant, bucket: Bucket, manager: User, person: Callable[..., User]
) -> None:
    operator = person("operator", roles.OPERATOR)
    with pytest.raises(NotPermitted, match="post_event"):
        event(tenant, bucket, "c/", by=operator)
    posted = event(tenant, bucket, "c/", by=manager)
    with pytest.raises(NotPermitted, match="post_event"):
        events.withdraw(event=posted, by=operator, reason="R")
    with pytest.raises(RetentionError, match="State a reason"):
        events.withdraw(event=posted, by=manager, reason=" ")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", ["post", "withdraw"])
def test_whoever_judges_is_waited_for_and_what_is_written_is_later(
    verb: str, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    """Or an event could bear an earlier time than a run that did not see it, and nothing would judge again."""
    awaiting(tenant, bucket, manager, second_manager)
    posted = event(tenant, bucket, "c/", by=manager) if verb == "withdraw" else None

    def act() -> None:
        try:
            if posted is None:
                event(tenant, bucket, "c/", by=manager)
            else:
                events.withdraw(event=posted, by=manager, reason="R")
        finally:
            connection.close()

    thread = threading.Thread(target=act)
    with transaction.atomic():
        holds.share_lock(tenant.pk)
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
        judged_at = clock.now()
    thread.join(10)
    made = RetentionEvent.objects.get()
    assert (made.withdrawn_at or made.posted_at) > judged_at


@pytest.mark.django_db(transaction=True)
def test_who_judges_too_long_is_not_waited_for(
    tenant: Tenant, bucket: Bucket, manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LOCK_SECONDS", 0.2)
    said: list[str] = []

    def act() -> None:
        try:
            event(tenant, bucket, "c/", by=manager)
        except TryLater as refusal:
            said.append(str(refusal))
        finally:
            connection.close()

    with transaction.atomic():
        holds.share_lock(tenant.pk)
        thread = threading.Thread(target=act)
        thread.start()
        thread.join(10)
    assert said == ["Workers are busy with objects of this tenant: try again in a moment."]
    assert not RetentionEvent.objects.exists()


def test_the_database_refuses_an_event_that_has_not_happened(tenant: Tenant, bucket: Bucket, manager: User) -> None:
    posted = event(tenant, bucket, "c/", by=manager)
    posted.pk = None
    posted.occurred_at = posted.posted_at + timedelta(days=2)
    with pytest.raises(IntegrityError, match="retention_event_happened"), transaction.atomic():
        posted.save(force_insert=True)
