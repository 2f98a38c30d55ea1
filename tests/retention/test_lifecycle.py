"""Lifecycle rules of the store: read with each sync, kept as rows, and an alarm where they could delete what is kept."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from cleanup_project.base import clock
from cleanup_project.base.models import Alarm, User
from ledger import sweep
from retention import buckets, lifecycle, policies
from retention.models import Bucket, LegalHold, Tenant
from retention.models import LifecycleRule as Row
from retention.sources.listing import sync
from retention.storage import BucketRef, Failure, FailureClass, LifecycleRule
from retention.storage.memory import Fault, MemoryStore
from tests.web import quick_pages, url  # noqa: F401
from tests.world import hold, published, release

pytestmark = pytest.mark.django_db

OLD = LifecycleRule("old", True, "case/", noncurrent_days=30)


@pytest.fixture
def place(bucket: Bucket) -> BucketRef:
    return buckets.ref(bucket)


@pytest.fixture
def store(place: BucketRef) -> MemoryStore:
    made = MemoryStore()
    made.create_bucket(place)
    return made


@pytest.fixture
def observe(bucket: Bucket, place: BucketRef, store: MemoryStore) -> Callable[..., None]:
    """A sync that finds these rules."""

    def make(*rules: LifecycleRule) -> None:
        store.set_lifecycle(place, *rules)
        sync(bucket, store=store)
        bucket.refresh_from_db()

    return make


def alarm() -> str:
    found = Alarm.objects.open().filter(kind="lifecycle.conflict").first()
    return found.message if found else ""


def test_rules_are_kept_from_first_to_last_sight(observe: Any) -> None:
    observe(OLD)
    (row,) = Row.objects.all()
    assert (row.rule_id, row.prefix, row.ended_at) == ("old", "case/", None)
    assert row.words == "Deletes versions 30 days after they ceased to be current, under 'case/'."
    assert lifecycle.of_row(row) == OLD
    observe(OLD)
    again = Row.objects.get()
    assert (again.first_seen_at, again.last_seen_at > row.last_seen_at) == (row.first_seen_at, True)
    changed = replace(OLD, noncurrent_days=7, expire_on=datetime(2030, 1, 1, tzinfo=UTC), narrowed=True)
    observe(changed)
    first, second = Row.objects.order_by("pk")
    assert (first.ended_at == second.first_seen_at, lifecycle.of_row(second), second.ended_at) == (True, changed, None)
    observe()
    assert not Row.objects.current().exists()


def test_words_say_what_a_rule_does() -> None:
    assert lifecycle.words(LifecycleRule("a", False)) == "Switched off. Deletes nothing, in the whole bucket."
    said = lifecycle.words(
        LifecycleRule("a", True, expire_days=3, noncurrent_days=4, noncurrent_kept=2, lone_markers=True, narrowed=True)
    )
    assert said == (
        "Expires current versions after 3 days; Deletes versions 4 days after they ceased to be current, but for the 2 "
        "newest; Deletes delete markers that nothing stands behind, in the whole bucket, narrowed by tags or sizes."
    )


def test_a_rule_that_could_delete_what_is_held_raises_an_alarm_until_it_is_over(
    observe: Any, tenant: Tenant, bucket: Bucket, compliance: User
) -> None:
    observe(OLD)
    assert alarm() == ""
    placed = hold(tenant, bucket, "case/1/", by=compliance)
    assert sweep.sweep()["lifecycle_conflicts"] == 1
    assert f"old (hold {placed.pk} of Doe v. Acme)" in alarm()
    release(placed)
    assert sweep.sweep()["lifecycle_conflicts"] == 0
    assert alarm() == ""
    hold(tenant, bucket, "", by=compliance)
    sweep.sweep()
    assert alarm()
    observe()
    assert alarm() == ""


@pytest.mark.parametrize(
    ("rule", "versioning", "conflict"),
    [
        (OLD, "enabled", True),
        (replace(OLD, enabled=False), "enabled", False),
        (replace(OLD, prefix="case/1"), "enabled", True),
        (replace(OLD, prefix=""), "enabled", True),
        (replace(OLD, prefix="other/"), "enabled", False),
        (replace(OLD, narrowed=True), "enabled", True),
        (LifecycleRule("x", True, expire_days=1), "enabled", False),
        (LifecycleRule("x", True, expire_days=1), "suspended", True),
        (LifecycleRule("x", True, expire_days=1), "unversioned", True),
        (LifecycleRule("x", True, expire_on=datetime(2030, 1, 1, tzinfo=UTC)), "unversioned", True),
        (LifecycleRule("x", True, lone_markers=True), "unversioned", False),
    ],
)
def test_which_rules_could_delete_what_is_held(
    rule: LifecycleRule,
    versioning: Any,
    conflict: bool,
    observe: Any,
    store: MemoryStore,
    place: BucketRef,
    tenant: Tenant,
    bucket: Bucket,
    compliance: User,
) -> None:
    store.set_versioning(place, versioning)
    hold(tenant, bucket, "case/", by=compliance)
    observe(rule)
    assert bool(alarm()) == conflict


@pytest.mark.parametrize(
    ("days", "fields", "conflict"),
    [
        (29, {}, True),
        (30, {}, False),
        (30, {"period_unit": "months", "period_number": 1}, True),
        (31, {"period_unit": "months", "period_number": 1}, False),
        (5000, {"retain_permanently": True}, True),
        (5000, {"keep_newest": 1}, True),
        (5000, {"trigger": "dated_at"}, True),
        (5000, {"cutoff": "year"}, True),
        (29, {"prefixes": ["other/"]}, False),
    ],
)
def test_which_rules_could_delete_what_a_policy_retains(
    days: int,
    fields: dict[str, Any],
    conflict: bool,
    observe: Any,
    tenant: Tenant,
    bucket: Bucket,
    manager: User,
    second_manager: User,
) -> None:
    published(tenant, bucket, author=manager, publisher=second_manager, code="films", **fields)
    observe(replace(OLD, noncurrent_days=days))
    assert ("old (retained by films/1)" in alarm()) == conflict


def test_a_suspended_policy_still_retains(
    observe: Any, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    revision = published(tenant, bucket, author=manager, publisher=second_manager)
    policies.suspend(policy=revision.policy, by=manager, reason="Review")
    observe(replace(OLD, noncurrent_days=5000))
    assert alarm()


def test_other_buckets_do_not_matter(observe: Any, tenant: Tenant, compliance: User) -> None:
    hold(tenant, Bucket.objects.create(name="elsewhere"), "", by=compliance)
    observe(OLD)
    assert alarm() == ""


def test_where_the_rules_cannot_be_read_that_is_said_and_the_sync_goes_on(
    observe: Any, store: MemoryStore, tenant: Tenant, bucket: Bucket, compliance: User, client: Client
) -> None:
    observe(OLD)
    placed = hold(tenant, bucket, "case/", by=compliance)
    store.inject(Fault("lifecycle_rules", Failure.of(FailureClass.PERMISSION, "AccessDenied", "No.")))
    run = sync(bucket, store=store)
    bucket.refresh_from_db()
    assert run.finished_at is not None
    assert "AccessDenied" in bucket.lifecycle_trouble
    assert Row.objects.current().count() == 1, "what was known stays"
    client.force_login(compliance)
    page = client.get(url(LegalHold, "change", placed.pk)).content.decode()
    assert "its lifecycle rules are not known (permission: AccessDenied No.)" in page
    assert "AccessDenied" in client.get(url(Bucket, "change", bucket.pk)).content.decode()
    observe(OLD)
    assert bucket.lifecycle_trouble == ""


def test_pages_show_rules_and_conflicts(
    observe: Any, tenant: Tenant, bucket: Bucket, compliance: User, client: Client
) -> None:
    client.force_login(compliance)
    placed = hold(tenant, bucket, "case/", by=compliance)
    pages = url(Bucket, "change", bucket.pk), url(LegalHold, "change", placed.pk)
    assert "not read yet" in client.get(pages[0]).content.decode()
    assert "no sync has read them yet" in client.get(pages[1]).content.decode()
    observe(replace(OLD, prefix="other/"))
    assert "nothing that is kept" in client.get(pages[0]).content.decode()
    assert "None of its buckets has a rule" in client.get(pages[1]).content.decode()
    observe(OLD)
    assert f"hold {placed.pk} of Doe v. Acme" in client.get(pages[0]).content.decode()
    assert "could delete what this hold covers" in client.get(pages[1]).content.decode()
    assert lifecycle.conflicts(bucket, clock.now())[0].rule.rule_id == "old"


def test_rules_are_read_outside_of_a_transaction(observe: Any, store: MemoryStore) -> None:
    from django.db import connection

    depth = len(connection.savepoint_ids)  # the test's own transaction
    seen: list[int] = []
    store.before_call = lambda *_: seen.append(len(connection.savepoint_ids))
    observe(OLD)
    assert set(seen) == {depth}
