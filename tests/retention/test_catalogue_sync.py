"""Syncing a bucket's listing into the catalogue: what it records, and what it survives."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unicodedata import normalize
from urllib.parse import quote, urlencode

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanup_project.base.models import User
from retention import buckets, catalogue, holds
from retention.exceptions import RetentionError
from retention.facts import BucketRules, Observation, incarnation
from retention.models import Bucket, CatalogueSync, KeyRule, ObjectVersion, Role, Tenant
from retention.sources.listing import SyncInterrupted, sync
from retention.sources.paging import MAX_RESTARTS, ListingUnusable, pages
from retention.storage import BucketRef, Failure, FailureClass, ListPage, VersionRef
from retention.storage.memory import Fault, MemoryStore
from retention.storage.s3 import S3Store
from tests import servers
from tests.retention.catalogue_stores import LONG_AGO, ForgetfulPages, Shows, SmallPages, listed
from tests.world import version

pytestmark = pytest.mark.django_db

NFC, NFD = normalize("NFC", "é"), normalize("NFD", "é")
AWKWARD_ANYWHERE = [
    *("a+b", "a b", "a%2Bb", "a%20b", "a//b", "/leading", "trailing/", "&?#=;:@'\"<>\\", "..", "{x}"),
    *(f"caf{NFC}", f"caf{NFD}", "k" * 1024, "ü" * 512, "\U0001f3ac", "null", "z~"),
]
AWKWARD_IN_MEMORY = [
    "line\nbreak",
    "carriage\rreturn",
    "tab\there",
    "bell\x07",
    "\x01",
    "\x7f",
    "\ufffe",
    " ",
    "\\N",
    "\\.",
]


@pytest.fixture
def place(bucket: Bucket) -> BucketRef:
    return buckets.ref(bucket)


@pytest.fixture
def store(place: BucketRef) -> MemoryStore:
    made = MemoryStore()
    made.create_bucket(place)
    return made


@pytest.fixture
def rules(bucket: Bucket, tenant: Tenant) -> None:
    """Originals and their thumbnails."""
    KeyRule.objects.create(
        bucket=bucket,
        position=1,
        pattern="originals/{year}/{month}/{asset}.mp4",
        tenant=tenant,
        retention_class="video",
        series="series-{asset}",
    )
    KeyRule.objects.create(
        bucket=bucket,
        position=2,
        pattern="thumbs/{year}/{month}/{asset}.jpg",
        tenant=tenant,
        role=Role.DERIVATIVE,
        original_key="originals/{year}/{month}/{asset}.mp4",
    )


def row(key: str, version_id: str | None = None) -> ObjectVersion:
    found = ObjectVersion.objects.filter(key=key)
    return found.get(version_id=version_id) if version_id else found.get()


def present() -> set[tuple[str, str]]:
    return set(ObjectVersion.objects.present().values_list("key", "version_id"))


def observe(key: str, version_id: str = "v1", **changes: object) -> Observation:
    ordinary = Observation(key, version_id, "d41d8cd98f00b204e9800998ecf8427e", 100, LONG_AGO, True, False, "STANDARD")
    return replace(ordinary, **changes)


def record(
    bucket: Bucket, *seen: Observation, at: datetime | None = None, source: str = "listing"
) -> catalogue.Recorded:
    return catalogue.record(
        bucket,
        seen,
        observed_at=at or catalogue.now(),
        source=ObjectVersion.Source(source),
        rules=BucketRules.of(bucket),
    )


class TestFacts:
    def test_come_from_the_first_rule_that_matches(
        self, bucket: Bucket, tenant: Tenant, store: MemoryStore, place: BucketRef, rules: None
    ) -> None:
        ref = store.put(place, "originals/2021/07/clip.mp4", b"film", modified=LONG_AGO)
        run = sync(bucket, store=store)
        found = row("originals/2021/07/clip.mp4")
        assert (found.tenant, found.asset, found.series, found.retention_class) == (
            tenant,
            "clip",
            "series-clip",
            "video",
        )
        assert (found.role, found.standalone, found.original_key) == (Role.ORIGINAL, True, "")
        assert found.dated_at == datetime(2021, 7, 1, tzinfo=UTC)
        assert (found.version_id, found.size, found.stored_at, found.is_latest) == (ref.version_id, 4, LONG_AGO, True)
        assert (found.source, found.listed_at, found.incarnation) == ("listing", found.observed_at, "")
        assert run.started_at < found.observed_at < run.finished_at
        assert (run.pages, run.versions, run.after_key) == (1, 1, found.key)

    def test_of_a_key_without_rule_are_the_key_and_no_tenant(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef, rules: None
    ) -> None:
        store.put(place, "elsewhere/file")
        sync(bucket, store=store)
        found = row("elsewhere/file")
        assert (found.tenant, found.asset, found.role, found.standalone) == (
            None,
            "elsewhere/file",
            Role.ORIGINAL,
            True,
        )

    def test_follow_a_changed_rule_at_the_next_sync(
        self, bucket: Bucket, tenant: Tenant, store: MemoryStore, place: BucketRef
    ) -> None:
        store.put(place, "a")
        sync(bucket, store=store)
        KeyRule.objects.create(bucket=bucket, position=1, pattern="{_*}", tenant=tenant, retention_class="all")
        sync(bucket, store=store)
        assert (row("a").tenant, row("a").retention_class) == (tenant, "all")

    def test_a_saved_rule_that_cannot_work_is_named(self, bucket: Bucket, store: MemoryStore) -> None:
        KeyRule.objects.create(bucket=bucket, position=3, pattern="{broken")
        with pytest.raises(RetentionError, match=r"Key rule media 3: \{broken cannot be used: The brace"):
            sync(bucket, store=store)

    def test_a_class_that_does_not_fit_is_refused_and_the_rest_kept(self, bucket: Bucket) -> None:
        KeyRule.objects.create(bucket=bucket, position=1, pattern="{class*}", retention_class="{class}")
        done = record(bucket, observe("x" * 201), observe("short"))
        assert [(each.position, each.reason) for each in done.refused] == [
            (0, "its retention class has 201 characters; at most 200")
        ]
        assert present() == {("short", "v1")}


class TestDerivatives:
    def test_travel_with_their_original_and_stand_alone_without_it(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef, rules: None
    ) -> None:
        original = store.put(place, "originals/2021/07/a.mp4")
        store.put(place, "thumbs/2021/07/a.jpg")
        store.put(place, "thumbs/2021/07/orphan.jpg")
        sync(bucket, store=store)
        coupled, orphan = row("thumbs/2021/07/a.jpg"), row("thumbs/2021/07/orphan.jpg")
        assert (coupled.standalone, orphan.standalone) == (False, True)
        assert (coupled.original_bucket, coupled.original_key) == (bucket, "originals/2021/07/a.mp4")
        store.delete_versions(place, [original], deadline_seconds=1)
        store.put(place, "originals/2021/07/orphan.mp4")
        sync(bucket, store=store)
        assert row("thumbs/2021/07/a.jpg").standalone
        assert not row("thumbs/2021/07/orphan.jpg").standalone

    def test_an_original_under_a_delete_marker_is_still_there(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef, rules: None
    ) -> None:
        original = store.put(place, "originals/2021/07/a.mp4")
        store.put_marker(place, original.key)
        store.put(place, "thumbs/2021/07/a.jpg")
        sync(bucket, store=store)
        assert not row("thumbs/2021/07/a.jpg").standalone
        store.delete_versions(place, [original], deadline_seconds=1)
        sync(bucket, store=store)
        assert row("thumbs/2021/07/a.jpg").standalone, "only the marker is left"

    def test_a_sync_of_the_originals_decides_about_thumbnails_in_another_bucket(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef
    ) -> None:
        thumbs = Bucket.objects.create(name="thumbs")
        KeyRule.objects.create(
            bucket=thumbs,
            position=1,
            pattern="{name}.jpg",
            role=Role.DERIVATIVE,
            original_key="{name}.mp4",
            original_bucket=bucket,
        )
        store.create_bucket(buckets.ref(thumbs))
        store.put(buckets.ref(thumbs), "a.jpg")
        sync(thumbs, store=store)
        assert row("a.jpg").standalone
        store.put(place, "a.mp4")
        sync(bucket, store=store, prefix="a")
        assert not row("a.jpg").standalone
        assert row("a.jpg").original_bucket == bucket

    def test_are_not_judged_alone_before_their_original_is_listed(self, bucket: Bucket, rules: None) -> None:
        record(bucket, observe("thumbs/2021/07/a.jpg"))
        assert not row("thumbs/2021/07/a.jpg").standalone

    def test_markers_of_derivatives_stand_alone(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef, rules: None
    ) -> None:
        store.put(place, "originals/2021/07/a.mp4")
        marker = store.put_marker(place, "thumbs/2021/07/a.jpg")
        sync(bucket, store=store)
        found = row(marker.key)
        assert (found.is_delete_marker, found.standalone, found.role) == (True, True, Role.DERIVATIVE)
        assert (found.etag, found.size) == ("", 0)

    def test_a_key_that_is_its_own_original_is_an_original(self, bucket: Bucket) -> None:
        KeyRule.objects.create(bucket=bucket, position=1, pattern="{name}", role=Role.DERIVATIVE, original_key="{name}")
        record(bucket, observe("a"))
        assert (row("a").role, row("a").standalone) == (Role.ORIGINAL, True)

    def test_a_role_that_changes_keeps_the_row_consistent(self, bucket: Bucket) -> None:
        record(bucket, observe("a.jpg"))
        rule = KeyRule.objects.create(
            bucket=bucket, position=1, pattern="{name}.jpg", role=Role.DERIVATIVE, original_key="{name}.mp4"
        )
        record(bucket, observe("a.jpg"))
        assert (row("a.jpg").role, row("a.jpg").standalone) == (Role.DERIVATIVE, False)
        catalogue.couple(bucket)
        assert row("a.jpg").standalone
        record(bucket, observe("a.jpg"))
        assert row("a.jpg").standalone, "a page in mid-sync does not hide an orphan"
        rule.delete()
        record(bucket, observe("a.jpg"))
        assert (row("a.jpg").role, row("a.jpg").standalone) == (Role.ORIGINAL, True)

    def test_coupling_writes_only_what_changes(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef, rules: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(catalogue, "COUPLE_CHUNK", 2)
        for number in range(5):
            store.put(place, f"thumbs/2021/07/{number}.jpg")
        sync(bucket, store=store)
        assert catalogue.couple(bucket) == 0
        ObjectVersion.objects.filter(key__endswith=".jpg").update(standalone=False)
        assert catalogue.couple(bucket) == 5


class TestKeys:
    @pytest.mark.parametrize("key", [*AWKWARD_ANYWHERE, *AWKWARD_IN_MEMORY], ids=ascii)
    def test_are_kept_exactly(self, key: str, bucket: Bucket, store: MemoryStore, place: BucketRef) -> None:
        ref = store.put(place, key)
        sync(bucket, store=store)
        assert present() == {(key, ref.version_id)}

    def test_nfc_and_nfd_are_two_objects(self, bucket: Bucket, store: MemoryStore, place: BucketRef) -> None:
        store.put(place, f"caf{NFC}")
        store.put(place, f"caf{NFD}")
        sync(bucket, store=store)
        assert ObjectVersion.objects.count() == 2

    def test_that_cannot_be_recorded_are_refused_and_counted(self, bucket: Bucket) -> None:
        bad = ["", "nul\x00here", "k" * 1025, "lone\ud800"]
        shown = [listed("a"), *(listed(key) for key in bad), listed("z"), listed("z")]
        run = sync(bucket, store=Shows(*shown))
        assert present() == {("a", "v1"), ("z", "v1")}
        assert (run.refused, run.versions) == (len(bad) + 1, len(shown))

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"version_id": ""}, "the version id is empty"),
            ({"version_id": "v\x00"}, "the version_id contains NUL"),
            ({"size": -1}, "the size is -1"),
            ({"size": 2**63}, "the size is 9223372036854775808"),
            ({"storage_class": "S" * 33}, "the storage class is longer"),
            ({"etag": "\x00"}, "the etag contains NUL"),
        ],
    )
    def test_observations_that_make_no_row_say_why(
        self, bucket: Bucket, changes: dict[str, object], reason: str
    ) -> None:
        (refusal,) = record(bucket, observe("a", **changes)).refused
        assert refusal.reason.startswith(reason)

    def test_a_sync_resumes_after_a_page_that_ends_with_nul(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef
    ) -> None:
        for key in ("a", "b\x00", "c", "d"):
            store.put(place, key)
        run = sync(bucket, store=SmallPages(store, 2))
        assert {key for key, _ in present()} == {"a", "c", "d"}
        assert (run.refused, run.after_key) == (1, "d")


class TestVersions:
    def test_latest_follows_the_listing(self, bucket: Bucket, store: MemoryStore, place: BucketRef) -> None:
        first = store.put(place, "a")
        sync(bucket, store=store)
        second = store.put(place, "a")
        sync(bucket, store=store)
        assert (row(*names(first)).is_latest, row(*names(second)).is_latest) == (False, True)
        store.delete_versions(place, [second], deadline_seconds=1)
        sync(bucket, store=store)
        assert row(*names(first)).is_latest
        assert row(*names(second)).gone_reason == "vanished"

    def test_a_null_version_that_is_replaced_leaves_its_incarnation_gone(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef
    ) -> None:
        store.set_versioning(place, "unversioned")
        store.put(place, "a", b"one", modified=LONG_AGO)
        sync(bucket, store=store)
        (one,) = ObjectVersion.objects.all()
        assert one.incarnation == incarnation("null", one.etag, LONG_AGO)
        assert len(one.incarnation) == 32
        store.put(place, "a", b"two", modified=LONG_AGO + timedelta(days=1))
        run = sync(bucket, store=store)
        one.refresh_from_db()
        (two,) = ObjectVersion.objects.present()
        assert (one.gone_reason, one.gone_at) == ("vanished", two.observed_at)
        assert run.vanished == 0, "marked when its successor was shown"

    def test_a_late_observation_of_a_replaced_null_version_does_not_bring_it_back(self, bucket: Bucket) -> None:
        later = catalogue.now()
        record(bucket, observe("a", "null", etag="two"), at=later)
        record(bucket, observe("a", "null", etag="one"), at=later - timedelta(hours=1), source="inventory")
        assert [(each.etag, each.gone_at) for each in ObjectVersion.objects.order_by("pk")] == [
            ("two", None),
            ("one", later),
        ]

    def test_an_incarnation_does_not_depend_on_fractions_of_a_second(self) -> None:
        assert incarnation("null", "e", LONG_AGO) == incarnation(
            "null", "e", LONG_AGO + timedelta(microseconds=999_999)
        )
        assert incarnation("null", "e", LONG_AGO) != incarnation("null", "e", LONG_AGO + timedelta(seconds=1))
        assert incarnation("v1", "e", LONG_AGO) == ""

    def test_the_bucket_state_is_observed(self, bucket: Bucket, store: MemoryStore, place: BucketRef) -> None:
        store.create_bucket(place, versioning="suspended", object_lock=True)
        run = sync(bucket, store=store)
        bucket.refresh_from_db()
        assert (bucket.versioning, bucket.object_lock) == ("suspended", True)
        assert run.started_at <= bucket.observed_at <= run.finished_at


def names(ref: VersionRef) -> tuple[str, str]:
    return ref.key, ref.version_id


class TestFreshness:
    def test_an_older_observation_changes_nothing(self, bucket: Bucket) -> None:
        at = catalogue.now()
        record(bucket, observe("a", size=2), at=at)
        done = record(bucket, observe("a", size=1), at=at - timedelta(seconds=1))
        same = record(bucket, observe("a", size=1), at=at)
        assert (row("a").size, done.applied, same.applied) == (2, 0, 0)

    def test_a_page_fetched_before_a_deletion_and_recorded_after_it_brings_nothing_back(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef
    ) -> None:
        ref = store.put(place, "a")
        sync(bucket, store=store)

        class DeletedMeanwhile(SmallPages):
            def list_versions(self, bucket: BucketRef, **options: object) -> ListPage:
                page = super().list_versions(bucket, **options)
                store.delete_versions(place, [ref], deadline_seconds=1)
                ObjectVersion.objects.update(gone_at=catalogue.now(), gone_reason="destroyed")
                return page

        run = sync(bucket, store=DeletedMeanwhile(store, 10))
        assert (row("a").gone_reason, row("a").survived_at, run.survived) == ("destroyed", None, 0)

    def test_a_destroyed_version_that_is_listed_later_raises_the_alarm_and_stays_destroyed(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef, caplog: pytest.LogCaptureFixture
    ) -> None:
        store.put(place, "a")
        sync(bucket, store=store)
        ended = catalogue.now()
        ObjectVersion.objects.update(gone_at=ended, gone_reason="destroyed")
        run = sync(bucket, store=store)
        found = row("a")
        assert (found.gone_at, found.gone_reason, run.survived) == (ended, "destroyed", 1)
        assert found.survived_at is not None
        assert found.survived_at > ended
        assert "destroyed version is still listed" in caplog.text

    def test_no_file_raises_that_alarm(self, bucket: Bucket) -> None:
        record(bucket, observe("a"))
        ObjectVersion.objects.update(gone_at=catalogue.now(), gone_reason="destroyed")
        done = record(bucket, observe("a"), source="inventory")
        assert (done.survived, done.applied, row("a").survived_at) == (0, 0, None)

    def test_a_vanished_version_that_is_shown_again_is_back(self, bucket: Bucket) -> None:
        record(bucket, observe("a"))
        gone = catalogue.now()
        ObjectVersion.objects.update(gone_at=gone, gone_reason="vanished")
        record(bucket, observe("a"), at=gone - timedelta(microseconds=1))
        assert row("a").gone_at == gone
        record(bucket, observe("a"))
        assert (row("a").gone_at, row("a").gone_reason) == (None, "")

    def test_first_observed_stays_and_says_when_we_learned_of_it(self, bucket: Bucket) -> None:
        old = catalogue.now() - timedelta(days=30)
        record(bucket, observe("listed"), at=old)
        record(bucket, observe("listed"))
        record(bucket, observe("imported"), at=old, source="import")
        assert row("listed").first_observed_at == old
        assert row("imported").first_observed_at > old + timedelta(days=29)
        assert (row("imported").observed_at, row("imported").listed_at) == (old, None)

    @pytest.mark.django_db(transaction=True)
    def test_a_deletion_that_commits_while_a_page_waits_for_its_lock_wins(self, bucket: Bucket) -> None:
        record(bucket, observe("a"))
        observed_at = catalogue.now()
        with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as other:
            other.execute(
                "UPDATE retention_objectversion SET gone_at = clock_timestamp(), gone_reason = 'destroyed' RETURNING gone_at"
            )
            release = threading.Timer(0.3, other.commit)
            release.start()
            done = record(bucket, observe("a"), at=observed_at)
            release.join()
        assert (done.applied, row("a").gone_reason) == (0, "destroyed")


class TestParking:
    @pytest.fixture
    def parked(self, bucket: Bucket, tenant: Tenant, compliance: User) -> ObjectVersion:
        KeyRule.objects.create(bucket=bucket, position=1, pattern="{_*}", tenant=tenant, retention_class="video")
        hold = holds.place(
            tenant=tenant,
            matter="M",
            title="T",
            authority="A",
            reason="R",
            buckets=[bucket],
            prefixes=[""],
            retention_classes=["*"],
            by=compliance,
        )
        record(bucket, observe("a"))
        ObjectVersion.objects.update(parked_by=hold)
        return row("a")

    def test_lasts_while_nothing_changes_that_a_hold_looks_at(self, bucket: Bucket, parked: ObjectVersion) -> None:
        record(bucket, observe("a", is_latest=False, size=7))
        assert (row("a").parked_by, row("a").size) == (parked.parked_by, 7)

    @pytest.mark.parametrize("change", ["class", "stored_at", "gone"])
    def test_ends_with_any_fact_that_a_hold_looks_at(self, change: str, bucket: Bucket, parked: ObjectVersion) -> None:
        if change == "class":
            KeyRule.objects.update(retention_class="audio")
        if change == "gone":
            ObjectVersion.objects.update(gone_at=catalogue.now(), gone_reason="vanished")
        record(bucket, observe("a", stored_at=LONG_AGO + timedelta(seconds=change == "stored_at")))
        assert row("a").parked_by is None


class TestVanishing:
    def test_marks_what_the_listing_no_longer_shows(self, bucket: Bucket, store: MemoryStore, place: BucketRef) -> None:
        refs = [store.put(place, f"k{number}") for number in range(5)]
        sync(bucket, store=store)
        store.delete_versions(place, refs[1:3], deadline_seconds=1)
        run = sync(bucket, store=store)
        assert run.vanished == 2
        assert present() == {names(ref) for ref in (refs[0], *refs[3:])}
        assert row("k1").gone_reason == "vanished"
        assert run.started_at < row("k1").gone_at < run.finished_at
        assert sync(bucket, store=store).vanished == 0

    def test_leaves_other_prefixes_and_buckets_alone(self, bucket: Bucket, store: MemoryStore) -> None:
        other = Bucket.objects.create(name="other")
        for where, key in ((bucket, "a/1"), (bucket, "b/1"), (bucket, "a"), (other, "a/1")):
            version(where, None, key)
        assert sync(bucket, store=store, prefix="a/").vanished == 1
        assert sorted(ObjectVersion.objects.present().values_list("bucket__name", "key")) == [
            ("media", "a"),
            ("media", "b/1"),
            ("other", "a/1"),
        ]

    def test_takes_what_only_an_import_claims(self, bucket: Bucket, store: MemoryStore) -> None:
        record(bucket, observe("claimed"), source="import")
        assert sync(bucket, store=store).vanished == 1

    def test_spares_what_is_observed_while_the_listing_runs(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef
    ) -> None:
        store.put(place, "z")
        sync(bucket, store=SmallPages(store, 10, lambda number: record(bucket, observe("a"))))
        assert {key for key, _ in present()} == {"a", "z"}

    def test_looks_before_it_believes_a_listing_that_left_something_out(
        self, bucket: Bucket, caplog: pytest.LogCaptureFixture
    ) -> None:
        version(bucket, None, "left-out", version_id="v1")
        run = sync(bucket, store=Shows(listed("a"), hidden=[VersionRef("left-out", "v1")]))
        assert (run.vanished, row("left-out").gone_at) == (0, None)
        assert "not listed, yet not gone for sure" in caplog.text

    def test_decides_nothing_when_the_store_does_not_let_it_look(self, bucket: Bucket, store: MemoryStore) -> None:
        version(bucket, None, "a")
        store.inject(Fault("inspect", Failure.of(FailureClass.PERMISSION, "AccessDenied")))
        assert sync(bucket, store=store).vanished == 0
        assert sync(bucket, store=store).vanished == 1

    def test_tells_a_replaced_null_version_from_the_one_it_knew(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef
    ) -> None:
        store.set_versioning(place, "suspended")
        store.put(place, "kept", b"x", modified=LONG_AGO)
        store.put(place, "replaced", b"new", modified=LONG_AGO)
        store.put_marker(place, "marked")
        record(bucket, *(observe(key, "null", etag="other") for key in ("replaced", "marked")), at=LONG_AGO)
        (kept,) = store.list_versions(place, prefix="kept").versions
        record(bucket, observe("kept", "null", etag=kept.etag, stored_at=LONG_AGO), at=LONG_AGO)
        empty = SmallPages(store, 10)
        empty.list_versions = lambda bucket, **options: ListPage((), None, None, LONG_AGO)  # type: ignore[method-assign]
        assert sync(bucket, store=empty).vanished == 2
        assert present() == {("kept", "null")}


class TestPaging:
    def listing(self, store: object, place: BucketRef) -> set[tuple[str, str]]:
        return {(each.key, each.version_id) for page in pages(store, place) for each in page.versions}

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        versions=st.dictionaries(
            st.text(st.sampled_from("ab/é"), min_size=1, max_size=3), st.integers(1, 9), max_size=6
        ),
        size=st.integers(1, 5),
        doomed=st.sets(st.integers(0, 40), max_size=12),
        when=st.integers(1, 12),
        end=st.booleans(),
    )
    def test_shows_every_version_that_stays_whatever_disappears_meanwhile(
        self, place: BucketRef, versions: dict[str, int], size: int, doomed: set[int], when: int, end: bool
    ) -> None:
        store = MemoryStore()
        store.create_bucket(place)
        refs = [store.put(place, key) for key, count in versions.items() for _ in range(count)]
        going = [ref for number, ref in enumerate(refs) if number in doomed]

        def between(number: int) -> None:
            if number >= when:
                store.delete_versions(place, going[:3], deadline_seconds=1)
                del going[:3]

        shown = self.listing(ForgetfulPages(store, size, between, end=end), place)
        assert {names(ref) for number, ref in enumerate(refs) if number not in doomed} <= shown
        assert shown <= {names(ref) for ref in refs}

    def test_counts_each_version_once_though_pages_overlap(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef
    ) -> None:
        for number in range(20):
            for _ in range(number % 7 + 1):
                store.put(place, f"k{number:02d}")
        run = sync(bucket, store=SmallPages(store, 4))
        assert run.versions == ObjectVersion.objects.count() == sum(number % 7 + 1 for number in range(20))

    def test_a_key_of_more_than_a_thousand_versions(self, bucket: Bucket, store: MemoryStore, place: BucketRef) -> None:
        for _ in range(2300):
            store.put(place, "many")
        for key in ("before", "zz"):
            store.put(place, key)
        run = sync(bucket, store=store)
        assert (run.versions, ObjectVersion.objects.count(), run.after_key) == (2302, 2302, "zz")
        assert ObjectVersion.objects.filter(key="many", is_latest=True).count() == 1

    def test_a_marker_version_that_disappears_has_its_key_read_again(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef
    ) -> None:
        refs = [store.put(place, "many") for _ in range(10)]

        def between(number: int) -> None:
            if number == 2:
                store.delete_versions(place, [refs[7]], deadline_seconds=1)  # the third newest: it ended page 1

        run = sync(bucket, store=ForgetfulPages(store, 3, between, end=True))
        assert present() == {names(ref) for ref in refs}, "the first page still showed it"
        assert run.versions == 9
        assert sync(bucket, store=store).vanished == 1

    def test_a_key_that_shrinks_without_end_is_given_up(self, store: MemoryStore, place: BucketRef) -> None:
        refs = [store.put(place, "many") for _ in range(200)]

        def between(number: int) -> None:
            newest_first = [each.ref for each in store.list_versions(place).versions]
            store.delete_versions(place, newest_first[1:2], deadline_seconds=1)

        assert len(refs) > 4 * MAX_RESTARTS
        with pytest.raises(ListingUnusable, match="disappear faster"):
            self.listing(SmallPages(store, 2, between), place)

    def test_moto_repeats_the_last_version_of_the_marker_key(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef
    ) -> None:
        for key in "abcdef":
            store.put(place, key)

        class Repeating(SmallPages):
            def list_versions(self, bucket: BucketRef, **options: object) -> ListPage:
                page = super().list_versions(bucket, **options)
                marker = options.get("key_marker")
                again = store.list_versions(bucket, prefix=str(marker)).versions if marker else ()
                return replace(page, versions=(*again, *page.versions))

        assert sync(bucket, store=Repeating(store, 2)).versions == 6

    @pytest.mark.parametrize(
        "page",
        [
            ListPage((listed("b"), listed("a")), "b", "v1", LONG_AGO),
            ListPage((listed("a"), listed("b")), "a", "v1", LONG_AGO),
            ListPage((), "a", "v1", LONG_AGO),
            ListPage((listed("a"),), "a", None, LONG_AGO),
        ],
        ids=["not sorted", "ends elsewhere", "nothing new", "no version marker"],
    )
    def test_pages_that_make_no_sense_are_an_error(self, page: ListPage, bucket: Bucket, store: MemoryStore) -> None:
        senseless = SmallPages(store, 10)
        senseless.list_versions = lambda bucket, **options: page  # type: ignore[method-assign]
        with pytest.raises(ListingUnusable):
            sync(bucket, store=senseless)


class Killed(BaseException):
    """Like the end of the process: nothing catches it."""


class TestResuming:
    @pytest.fixture
    def ten(self, store: MemoryStore, place: BucketRef) -> list[VersionRef]:
        return [store.put(place, f"k{number}") for number in range(10)]

    def killing(self, store: MemoryStore, at: int) -> SmallPages:
        def between(number: int) -> None:
            if number == at:
                raise Killed

        return SmallPages(store, 3, between)

    @pytest.mark.parametrize("at", [1, 2, 3, 4])
    def test_goes_on_after_the_last_recorded_key(
        self, at: int, bucket: Bucket, store: MemoryStore, ten: list[VersionRef]
    ) -> None:
        with pytest.raises(Killed):
            sync(bucket, store=self.killing(store, at))
        (killed,) = CatalogueSync.objects.all()
        assert (killed.finished_at, killed.versions) == (None, 2 * (at - 1))
        resumed = SmallPages(store, 3)
        run = sync(bucket, store=resumed)
        assert (run.pk, run.versions, present()) == (killed.pk, 10, {names(ref) for ref in ten})
        assert resumed.pages < 5 or at == 1

    def test_what_vanished_before_the_interruption_is_found_after_it(
        self, bucket: Bucket, store: MemoryStore, place: BucketRef, ten: list[VersionRef]
    ) -> None:
        sync(bucket, store=store)
        store.delete_versions(place, ten[:1], deadline_seconds=1)
        with pytest.raises(Killed):
            sync(bucket, store=self.killing(store, 3))
        assert sync(bucket, store=store).vanished == 1

    def test_another_prefix_or_an_old_sync_is_not_resumed(
        self, bucket: Bucket, store: MemoryStore, ten: list[VersionRef]
    ) -> None:
        with pytest.raises(Killed):
            sync(bucket, store=self.killing(store, 3))
        (killed,) = CatalogueSync.objects.all()
        assert sync(bucket, store=store, prefix="k").pk != killed.pk
        CatalogueSync.objects.filter(pk=killed.pk).update(started_at=timezone.now() - timedelta(hours=25))
        run = sync(bucket, store=store)
        assert (run.pk != killed.pk, run.versions) == (True, 10)

    def test_an_error_of_the_store_says_what_to_do_and_leaves_the_sync_resumable(
        self, bucket: Bucket, store: MemoryStore, ten: list[VersionRef]
    ) -> None:
        def between(number: int) -> None:
            if number == 3:
                store.inject(Fault("list_versions", Failure.of(FailureClass.THROTTLED, "SlowDown")))

        with pytest.raises(
            SyncInterrupted, match=r"media cannot be listed: throttled: SlowDown.* 4 versions are recorded"
        ):
            sync(bucket, store=SmallPages(store, 3, between))
        assert sync(bucket, store=SmallPages(store, 3)).versions == 10
        assert CatalogueSync.objects.count() == 1

    def test_a_missing_bucket_is_an_error_and_nothing_vanishes(self, bucket: Bucket) -> None:
        version(bucket, None, "a")
        with pytest.raises(SyncInterrupted, match="bucket_missing"):
            sync(bucket, store=MemoryStore())
        assert row("a").gone_at is None

    def test_a_second_sync_of_the_bucket_is_refused_while_one_runs(self, bucket: Bucket, store: MemoryStore) -> None:
        with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as other:
            other.execute("SELECT pg_advisory_lock(%s, %s)", [catalogue.LOCK_CLASS, bucket.pk])
            with pytest.raises(catalogue.BucketBusy, match="Another sync or import of bucket media is running"):
                sync(bucket, store=store)
            other.execute("SELECT pg_advisory_unlock(%s, %s)", [catalogue.LOCK_CLASS, bucket.pk])
            sync(bucket, store=store)

    def test_the_lock_is_free_after_an_error(self, bucket: Bucket) -> None:
        with pytest.raises(SyncInterrupted):
            sync(bucket, store=MemoryStore())
        with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as other:
            found = other.execute("SELECT pg_try_advisory_lock(%s, %s)", [catalogue.LOCK_CLASS, bucket.pk]).fetchone()
        assert found == (True,)

    def test_progress_is_told_after_each_page(self, bucket: Bucket, store: MemoryStore, ten: list[VersionRef]) -> None:
        told = list[int]()
        sync(bucket, store=SmallPages(store, 3), progress=lambda run: told.append(run.versions))
        assert told == [2, 4, 6, 8, 10]


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    with servers.moto_server() as url:
        yield url


@pytest.fixture
def as_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in servers.aws_environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def remote(moto_url: str, as_owner: None) -> Iterator[Callable[..., Bucket]]:
    """Makes a bucket on moto's server, with these keys stored in it."""
    client = servers.client(moto_url)

    def make(name: str, keys: list[str]) -> Bucket:
        client.create_bucket(Bucket=name)
        client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        for key in keys:
            client.put_object(Bucket=name, Key=key, Body=b"x")
        return Bucket.objects.create(
            name=name, endpoint_url=moto_url, addressing_style=Bucket.Addressing.PATH, region=servers.REGION
        )

    yield make
    client.close()


class TestOverHttp:
    def test_awkward_keys_come_through_exactly(self, remote: Callable[..., Bucket]) -> None:
        keys = [key for key in AWKWARD_ANYWHERE if key != ".."]
        bucket = remote("awkward", keys)
        run = sync(bucket)
        assert {key for key, _ in present()} == set(keys)
        assert (run.versions, bucket.versioning) == (len(keys), "enabled")

    def test_many_pages_of_a_real_listing(self, remote: Callable[..., Bucket]) -> None:
        bucket = remote("large", [f"k{number % 60:04d}" for number in range(120)])
        client = servers.client(bucket.endpoint_url)
        client.delete_object(Bucket="large", Key="k0000")
        run = sync(bucket, store=SmallPages(S3Store(), 10))
        shown = client.list_object_versions(Bucket="large")
        client.close()
        marker = shown["DeleteMarkers"][0]["VersionId"]
        truth = {(each["Key"], each["VersionId"]) for each in shown["Versions"]} | {("k0000", marker)}
        assert len(truth) == 121
        assert present() == truth
        assert (run.versions, run.pages > 12, row("k0000", marker).is_latest) == (121, True, True)
        assert sync(bucket).vanished == 0

    def test_a_key_that_fills_pages_of_a_real_listing(self, remote: Callable[..., Bucket]) -> None:
        bucket = remote("deep", ["a", *["many"] * 23, "z"])
        run = sync(bucket, store=SmallPages(S3Store(), 5))
        assert (run.versions, ObjectVersion.objects.filter(key="many").count()) == (25, 23)


KILLED_SYNC = """
import os, signal, sys, time
import django
django.setup()
from retention import catalogue
from retention.models import Bucket
from retention.sources.listing import sync
from retention.storage.s3 import S3Store

class SmallPages(S3Store):
    def list_versions(self, bucket, **options):
        return super().list_versions(bucket, **(options | {"max_keys": 5}))

recorded = 0
inner = catalogue.record

def record(*args, **options):
    global recorded
    done = inner(*args, **options)
    recorded += 1
    if recorded == 3 and sys.argv[2] == "in a transaction":
        os.kill(os.getpid(), signal.SIGKILL)
    return done

catalogue.record = record

def progress(run):
    if run.pages == 3 and sys.argv[2] == "between pages":
        os.kill(os.getpid(), signal.SIGKILL)
    print(run.pages, flush=True)
    if sys.argv[2] == "from outside":
        time.sleep(0.05)

sync(Bucket.objects.get(name=sys.argv[1]), store=SmallPages(), progress=progress)
"""


def database_url() -> str:
    config = connection.settings_dict
    options = {"host": config["HOST"], "port": str(config["PORT"])}
    user = f"{quote(config['USER'], safe='')}:{quote(config['PASSWORD'], safe='')}"
    return f"postgresql://{user}@/{config['NAME']}?{urlencode(options)}"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("moment", ["in a transaction", "between pages", "from outside"])
def test_a_sync_killed_with_signal_9_is_resumed_without_loss(moment: str, remote: Callable[..., Bucket]) -> None:
    keys = [f"k{number:03d}" for number in range(35)]
    bucket = remote(f"killed-{moment.replace(' ', '-')}", keys)
    environment = os.environ | {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "cleanup_project.settings"}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED_SYNC), bucket.name, moment],
        env=environment,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        if moment == "from outside":
            assert [process.stdout.readline() for _ in range(4)][-1] == "4\n"
            process.send_signal(signal.SIGKILL)
        process.stdout.read()
    assert process.returncode == -signal.SIGKILL
    (killed,) = CatalogueSync.objects.all()
    assert (killed.finished_at, 0 < killed.versions < 35) == (None, True)
    assert ObjectVersion.objects.count() == killed.versions
    until = time.monotonic() + 30
    while True:  # PostgreSQL notices the dead client, and frees its lock, in its own time
        try:
            run = sync(bucket, store=S3Store())
            break
        except catalogue.BucketBusy:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert (run.pk, run.versions, run.vanished) == (killed.pk, 35, 0)
    assert {key for key, _ in present()} == set(keys)


def test_a_failing_page_leaves_neither_rows_nor_its_place(
    bucket: Bucket, store: MemoryStore, place: BucketRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(place, "a")
    inner = catalogue.record

    def record_and_fail(*args: object, **options: object) -> None:
        inner(*args, **options)  # type: ignore[arg-type]
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(catalogue, "record", record_and_fail)
        with pytest.raises(Killed), transaction.atomic():
            sync(bucket, store=store)
    assert ObjectVersion.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("asset", "fits"), [("!" * 200, True), ("a" * 201, False), ("", False), ("a b", False), ("a\n", False)]
)
def test_the_database_knows_what_an_asset_is(asset: str, fits: bool, tenant: Tenant, bucket: Bucket) -> None:
    row = version(bucket, tenant, "a", asset="a")
    with nullcontext() if fits else pytest.raises(IntegrityError, match="object_version_asset"), transaction.atomic():
        ObjectVersion.objects.filter(pk=row.pk).update(asset=asset)
