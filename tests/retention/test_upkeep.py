"""Listings that nobody has to start: when they are due, in slices, and what a store that refuses leads to."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now

from cleanup_project.base.models import Alarm
from ledger.sweep import sweep
from retention import buckets, tasks
from retention.models import Bucket, CatalogueSync, ObjectVersion
from retention.sources import listing, upkeep
from retention.storage import Failure, FailureClass, VersionRef
from retention.storage.memory import Fault, MemoryStore
from tests.retention.catalogue_stores import SmallPages

pytestmark = pytest.mark.django_db


@pytest.fixture
def store(bucket: Bucket) -> MemoryStore:
    made = MemoryStore()
    made.create_bucket(buckets.ref(bucket))
    for number in range(6):
        made.put(buckets.ref(bucket), f"clips/{number}", b"x")
    return made


def finished(bucket: Bucket, hours_ago: float, prefix: str = "") -> None:
    CatalogueSync.objects.create(
        bucket=bucket, prefix=prefix, started_at=Now() - timedelta(hours=hours_ago), finished_at=Now()
    )


def test_a_bucket_is_due_until_a_whole_listing_began_within_its_interval(bucket: Bucket) -> None:
    assert upkeep.due() == [bucket.pk]
    finished(bucket, 1, prefix="clips/")
    assert upkeep.due() == [bucket.pk]
    finished(bucket, 25)
    assert upkeep.due() == [bucket.pk]
    finished(bucket, 23)
    assert upkeep.due() == []
    Bucket.objects.update(sync_every_hours=22)
    assert upkeep.due() == [bucket.pk]
    Bucket.objects.update(sync_every_hours=None)
    assert upkeep.due() == []


def test_an_import_is_no_listing(bucket: Bucket) -> None:
    finished(bucket, 1)
    CatalogueSync.objects.update(source=ObjectVersion.Source.IMPORT)
    assert upkeep.due() == [bucket.pk]


def test_slices_go_on_where_the_last_one_ended(bucket: Bucket, store: MemoryStore) -> None:
    known = [0]
    while not upkeep.list_slice(bucket.pk, budget_seconds=0, store=SmallPages(store, 2)):
        known.append(ObjectVersion.objects.count())
    assert known == sorted(known)
    assert len(set(known)) > 2, "each slice recorded more than the one before it"
    sync = CatalogueSync.objects.get()
    assert (sync.versions, ObjectVersion.objects.count()) == (6, 6)
    assert sync.finished_at is not None
    assert upkeep.due() == []


def test_slices_also_find_what_vanished(bucket: Bucket, store: MemoryStore) -> None:
    listing.sync(bucket, store=store)
    CatalogueSync.objects.update(started_at=Now() - timedelta(days=2))
    for row in ObjectVersion.objects.filter(key__in=["clips/1", "clips/4"]):
        store.delete_versions(buckets.ref(bucket), [VersionRef(row.key, row.version_id)], deadline_seconds=10)
    while not upkeep.list_slice(bucket.pk, budget_seconds=0, store=SmallPages(store, 2)):
        pass
    assert sorted(ObjectVersion.objects.present().values_list("key", flat=True)) == [
        f"clips/{number}" for number in (0, 2, 3, 5)
    ]


def test_a_store_that_refuses_raises_an_alarm_and_is_left_alone_for_a_while(bucket: Bucket, store: MemoryStore) -> None:
    store.inject(Fault("list_versions", Failure.of(FailureClass.PERMISSION, "AccessDenied", "No.")))
    assert upkeep.list_slice(bucket.pk, budget_seconds=60, store=store)
    alarm = Alarm.objects.open().get()
    assert (alarm.kind, alarm.subject_label) == (listing.UNLISTED, bucket.name)
    assert "cannot be listed" in alarm.message
    assert upkeep.due() == []
    Alarm.objects.update(noticed_at=Now() - timedelta(minutes=11))
    assert upkeep.due() == [bucket.pk]
    assert upkeep.list_slice(bucket.pk, budget_seconds=60, store=store)
    assert not Alarm.objects.open().exists()


def test_a_whole_listing_by_hand_ends_the_alarm_and_one_of_a_prefix_does_not(
    bucket: Bucket, store: MemoryStore
) -> None:
    store.inject(Fault("list_versions", Failure.of(FailureClass.PERMISSION, "AccessDenied", "No.")))
    assert upkeep.list_slice(bucket.pk, budget_seconds=60, store=store)
    listing.sync(bucket, prefix="clips/", store=store)
    assert Alarm.objects.open().get().kind == listing.UNLISTED
    listing.sync(bucket, store=store)
    assert not Alarm.objects.open().exists()


def test_the_sweep_rings_and_a_late_message_lists_nothing(bucket: Bucket, store: MemoryStore) -> None:
    assert sweep()["listing"] == 1
    finished(bucket, 1)
    assert sweep()["listing"] == 0
    tasks.sync(bucket.pk)  # would ask a store that is not there
    assert CatalogueSync.objects.count() == 1
