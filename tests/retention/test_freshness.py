"""What must be so of a bucket's catalogue before anything is destroyed, and who may change that."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.test import Client
from django.utils import timezone

from cleanup_project.base import roles
from cleanup_project.base.models import Alarm, AuditEvent, User
from retention import freshness
from retention.buckets import ref
from retention.exceptions import NotPermitted, RetentionError
from retention.freshness import SHRUNK, STALE, findings
from retention.models import Bucket, CatalogueSync, Tenant
from retention.sources.importing import import_file
from retention.sources.listing import sync
from retention.storage.memory import MemoryStore
from tests.web import quick_pages, url  # noqa: F401
from tests.world import published, version

pytestmark = pytest.mark.django_db


@pytest.fixture
def bare(db: None) -> Bucket:
    """A bucket that has never been listed."""
    return Bucket.objects.create(name="bare")


def listing(bucket: Bucket, *, hours_ago: float = 0, versions: int = 0, prefix: str = "", **fields: object) -> None:
    at = timezone.now() - timedelta(hours=hours_ago)
    CatalogueSync.objects.create(
        bucket=bucket, prefix=prefix, started_at=at, versions=versions, **({"finished_at": at} | fields)
    )


def kinds(bucket: Bucket, *prefixes: str) -> list[tuple[str, int | None]]:
    return [(each.kind, each.actual) for each in findings(bucket, prefixes or [""])]


def test_a_catalogue_is_stale_when_its_newest_finished_listing_is_older_than_the_limit(bare: Bucket) -> None:
    assert kinds(bare) == [(STALE, None)]
    listing(bare, finished_at=None)
    assert kinds(bare) == [(STALE, None)], "one that has not ended proves nothing"
    listing(bare, hours_ago=49.5)
    assert kinds(bare) == [(STALE, 49)]
    assert "50 hours old, and its limit is 48 hours" in findings(bare, [""])[0].message
    listing(bare, hours_ago=47.5)
    assert kinds(bare) == []
    Bucket.objects.update(catalogue_max_age_hours=47)
    bare.refresh_from_db()
    assert kinds(bare) == [(STALE, 47)]
    bare.catalogue_max_age_hours = None
    assert kinds(bare) == []


def test_each_prefix_needs_a_listing_that_covers_it(bare: Bucket) -> None:
    listing(bare, prefix="a/")
    listing(bare, prefix="b/c/")
    assert kinds(bare, "a/", "a/b/") == []
    assert kinds(bare, "a/", "b/") == [(STALE, None)]
    assert "bare/b/ has never" in findings(bare, ["a/", "b/"])[0].message
    listing(bare, hours_ago=60)
    assert kinds(bare, "a/", "b/") == [(STALE, 60)]
    assert kinds(bare, "a/", "b/c/d") == []


@pytest.mark.parametrize(("found", "expected"), [(80, []), (79, [(SHRUNK, 21)]), (0, [(SHRUNK, 100)]), (200, [])])
def test_a_listing_that_shows_much_less_than_the_one_before_is_no_ground(
    found: int, expected: list[tuple[str, int]], bare: Bucket
) -> None:
    listing(bare, hours_ago=2, versions=100)
    assert kinds(bare) == []
    listing(bare, hours_ago=1, versions=found)
    listing(bare, versions=50, prefix="part/")
    listing(bare, versions=3, source="import")
    assert kinds(bare) == expected
    bare.shrink_percent = None
    assert kinds(bare) == []


def test_a_second_listing_confirms_that_a_bucket_is_smaller(bare: Bucket) -> None:
    for versions in (100, 10, 10):
        listing(bare, versions=versions)
    assert kinds(bare) == []


def test_what_we_destroyed_ourselves_is_no_loss(bare: Bucket, tenant: Tenant) -> None:
    listing(bare, hours_ago=3, versions=100)
    for n in range(10):
        version(bare, tenant, f"ours/{n}", gone_at=timezone.now() - timedelta(hours=2), gone_reason="destroyed")
    listing(bare, hours_ago=1, versions=70)
    assert kinds(bare) == []
    CatalogueSync.objects.filter(versions=70).update(versions=69)
    assert kinds(bare) == [(SHRUNK, 21)]


def test_what_we_destroyed_before_or_elsewhere_or_others_did_is_a_loss(
    bare: Bucket, bucket: Bucket, tenant: Tenant
) -> None:
    listing(bare, hours_ago=3, versions=100, prefix="a/")
    ago = {hours: timezone.now() - timedelta(hours=hours) for hours in (2, 4)}
    for n in range(10):
        version(bare, tenant, f"a/{n}", gone_at=ago[4], gone_reason="destroyed")
        version(bare, tenant, f"a/v{n}", gone_at=ago[2], gone_reason="vanished")
        version(bare, tenant, f"b/{n}", gone_at=ago[2], gone_reason="destroyed")
        version(bucket, tenant, f"a/{n}", gone_at=ago[2], gone_reason="destroyed")
    listing(bare, hours_ago=1, versions=75, prefix="a/")
    assert kinds(bare, "a/x/") == [(SHRUNK, 25)]


def test_a_listing_raises_and_clears_the_alarms_of_its_bucket(
    bare: Bucket, tenant: Tenant, manager: User, second_manager: User
) -> None:
    published(tenant, bare, author=manager, publisher=second_manager, prefixes=["o/"])
    freshness.review(bare)
    assert list(Alarm.objects.open().values_list("kind", "subject_id")) == [(STALE, str(bare.pk))]
    store = MemoryStore()
    store.create_bucket(ref(bare))
    listing(bare, hours_ago=1, versions=100)
    sync(bare, store=store)
    assert list(Alarm.objects.open().values_list("kind", flat=True)) == [SHRUNK]
    sync(bare, store=store)
    assert not Alarm.objects.open().exists()


def test_an_alarm_speaks_of_every_prefix_that_a_policy_in_force_covers(
    bare: Bucket, tenant: Tenant, manager: User, second_manager: User
) -> None:
    listing(bare, prefix="a/")
    published(tenant, bare, author=manager, publisher=second_manager, prefixes=["a/"])
    freshness.review(bare)
    assert not Alarm.objects.exists()
    published(tenant, bare, author=manager, publisher=second_manager, prefixes=["b/"], code="later",
              effective_from=timezone.now() + timedelta(days=1))  # fmt: skip
    freshness.review(bare)
    assert not Alarm.objects.exists()
    published(tenant, bare, author=manager, publisher=second_manager, prefixes=["b/"])
    freshness.review(bare)
    assert "bare/b/" in Alarm.objects.open().get().message


def test_an_import_that_was_read_to_its_end_counts_as_of_when_its_rows_were_true(
    bare: Bucket, tenant: Tenant, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    head = "key,version_id,etag,size,last_modified,tenant"
    file.write_text(f"{head}\no/1,v1,e,1,2020-01-01T00:00:00Z,acme\n")
    import_file(bare, file, format="csv", observed_at=timezone.now() - timedelta(hours=72))
    assert kinds(bare) == [(STALE, 72)]
    import_file(bare, file, format="csv")
    assert kinds(bare) == []
    row = CatalogueSync.objects.latest("pk")
    assert (row.source, row.versions, row.refused) == ("import", 1, 0)
    file.write_text(f"{head}\n,v1,e,1,2020-01-01T00:00:00Z,acme\n")
    assert import_file(bare, file, format="csv", max_errors=1).stopped
    assert CatalogueSync.objects.count() == 2


def test_a_listing_does_not_resume_an_import(bare: Bucket) -> None:
    listing(bare, source="import", finished_at=None)
    store = MemoryStore()
    store.create_bucket(ref(bare))
    assert sync(bare, store=store).source == "listing"


def test_limits_are_changed_by_a_recorded_decision(
    bare: Bucket, manager: User, person: Callable[..., User], tenant: Tenant, second_manager: User
) -> None:
    published(tenant, bare, author=manager, publisher=second_manager)
    freshness.review(bare)
    assert Alarm.objects.open().exists()

    def change(by: User, hours: int | None, percent: int | None, reason: str = "Import only") -> Bucket:
        return freshness.change_limits(
            bucket=bare, catalogue_max_age_hours=hours, shrink_percent=percent, by=by, reason=reason
        )

    with pytest.raises(NotPermitted, match="publish_policy"):
        change(person("root", roles.ADMINISTRATOR), None, 20)
    with pytest.raises(RetentionError, match="State a reason"):
        change(manager, None, 20, " ")
    with pytest.raises(RetentionError, match="already"):
        change(manager, 48, 20)
    for hours, percent in ((0, 20), (48, 0), (48, 101)):
        with pytest.raises(ValidationError):
            change(manager, hours, percent)
        with pytest.raises(IntegrityError, match="bucket_limits"), transaction.atomic():
            Bucket.objects.update(catalogue_max_age_hours=hours, shrink_percent=percent)
    change(manager, None, 20)
    event = AuditEvent.objects.get(action="bucket.limits")
    assert (event.actor, event.reason) == (manager, "Import only")
    assert event.before == {"catalogue_max_age_hours": 48, "shrink_percent": 20}
    assert event.after == {"catalogue_max_age_hours": None, "shrink_percent": 20}
    assert not Alarm.objects.open().exists()


def test_an_administrator_reads_the_limits_and_a_manager_changes_them(
    bare: Bucket, manager: User, person: Callable[..., User], client: Client
) -> None:
    change, limits = url(Bucket, "change", bare.pk), url(Bucket, "limits", bare.pk)
    client.force_login(person("root", roles.ADMINISTRATOR))
    shown = client.get(change).content.decode()
    assert "Greatest loss" in shown
    assert limits not in shown
    assert 'name="shrink_percent"' not in shown
    said = {"catalogue_max_age_hours": "", "shrink_percent": "50", "reason": "Import only"}
    assert client.post(limits, said).status_code == 403
    client.force_login(manager)
    assert limits in client.get(change).content.decode()
    wrong = client.post(limits, said | {"shrink_percent": "101"}).content.decode()
    assert "less than or equal to 100" in wrong
    assert "are changed" in client.post(limits, said, follow=True).content.decode()
    bare.refresh_from_db()
    assert (bare.catalogue_max_age_hours, bare.shrink_percent) == (None, 50)
    assert "no limit: a recorded decision" in client.get(change).content.decode()
