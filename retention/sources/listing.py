"""The listing of a bucket as a source: every version and delete marker, one transaction a page, resumable anywhere."""

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from math import inf
from typing import Any, Final, NamedTuple

import structlog
from django.db import connection, transaction
from django.db.models.functions import Now

from cleanup_project.base import alarms
from retention import buckets, catalogue, freshness, lifecycle, losses
from retention.exceptions import RetentionError
from retention.facts import BucketRules, Observation, Unrecordable, check_text, incarnation
from retention.models import Bucket, CatalogueSync, ObjectVersion
from retention.sources.paging import Page, pages
from retention.storage import (
    BucketRef,
    Inspection,
    ListedVersion,
    ObjectStore,
    Presence,
    StorageError,
    VersionRef,
    store_for,
)

RESUMABLE: Final = timedelta(hours=24)
SOURCE: Final = ObjectVersion.Source.LISTING
UNLISTED: Final = "catalogue.unlisted"  # the alarm of a bucket that the worker could not list; a whole listing ends it

log = structlog.get_logger(__name__)
Progress = Callable[[CatalogueSync], None]


class SyncInterrupted(RetentionError):
    """The store did not let the sync go on. What was listed is recorded, and a later call resumes."""


class Missing(NamedTuple):
    """A present row of the catalogue that a complete listing did not show."""

    id: int
    key: str
    version_id: str
    incarnation: str
    is_delete_marker: bool

    @property
    def ref(self) -> VersionRef:
        return VersionRef(self.key, self.version_id)


def sync(
    bucket: Bucket,
    *,
    prefix: str = "",
    store: ObjectStore | None = None,
    progress: Progress | None = None,
    budget_seconds: float = inf,
) -> CatalogueSync:
    """Bring the catalogue up to date with a bucket's listing under a prefix, resuming an unfinished sync of the day.

    Killed anywhere, or ended by its budget, it goes on after the last recorded key when called again. Raises BucketBusy
    while another sync or import of the bucket runs, SyncInterrupted when the store refuses, and ListingUnusable.
    """
    place = buckets.ref(bucket)
    store = store or store_for(place)
    tell = progress or (lambda run: None)
    until = time.monotonic() + budget_seconds
    with catalogue.exclusive(bucket):
        run = begin(bucket, prefix)
        run.bucket = bucket  # the caller's own, so that it says what was observed
        try:
            if not record_pages(run, place, store, until, tell):
                return run
        except StorageError as error:
            raise SyncInterrupted(
                f"Bucket {bucket.name} cannot be listed: {error}. {run.versions} versions are recorded; "
                f"run the sync again within 24 hours and it goes on from there."
            ) from error
        for _ in mark_vanished(run, place, store):
            tell(run)
            if time.monotonic() > until:
                return run
        catalogue.couple(bucket, prefix=prefix)
        with transaction.atomic():
            CatalogueSync.objects.filter(pk=run.pk).update(finished_at=Now())
            losses.tell(run)
            if not prefix:
                alarms.clear(UNLISTED, bucket)
        freshness.review(bucket)
        catalogue.analyse()
    run.refresh_from_db()
    return run


def record_pages(run: CatalogueSync, place: BucketRef, store: ObjectStore, until: float, tell: Progress) -> bool:
    """Record page after page until the listing, or the time, is at its end: whether it is the listing's.

    At least one page is recorded, so that no slice is for nothing.
    """
    observe_bucket(run.bucket, place, store)
    lifecycle.observe(run.bucket, place, store)
    rules, begun = BucketRules.of(run.bucket), run.pages
    for page in pages(store, place, prefix=run.prefix, after=run.after_key):
        if run.pages > begun and time.monotonic() > until:
            return False
        record_page(run, page, rules)
        tell(run)
    return True


def begin(bucket: Bucket, prefix: str) -> CatalogueSync:
    """The unfinished sync of this bucket and prefix, if it is young enough, else a new one."""
    unfinished = CatalogueSync.objects.filter(
        bucket=bucket, prefix=prefix, source=SOURCE, finished_at=None, started_at__gt=Now() - RESUMABLE
    )
    return unfinished.order_by("-id").first() or CatalogueSync.objects.create(bucket=bucket, prefix=prefix)


def observe_bucket(bucket: Bucket, place: BucketRef, store: ObjectStore) -> None:
    asked_at = catalogue.now()
    state = store.bucket_state(place)
    bucket.versioning, bucket.object_lock, bucket.observed_at = state.versioning, state.object_lock, asked_at
    bucket.save(update_fields=["versioning", "object_lock", "observed_at"])


def record_page(run: CatalogueSync, page: Page, rules: BucketRules) -> None:
    """Record a page and the place it reached, together."""
    with transaction.atomic():
        recorded = catalogue.record(
            run.bucket,
            [observation(each) for each in page.versions],
            observed_at=page.observed_at,
            source=SOURCE,
            rules=rules,
        )
        run.after_key = resumable(page) or run.after_key
        run.pages += 1
        run.versions += page.counted
        run.refused += len(recorded.refused)
        run.survived += recorded.survived
        run.save(update_fields=["after_key", "pages", "versions", "refused", "survived"])


def resumable(page: Page) -> str:
    """The page's end, if it is a key that can be written down."""
    try:
        check_text("key", page.after)
    except Unrecordable:
        return ""
    return page.after


def observation(listed: ListedVersion) -> Observation:
    return Observation(
        key=listed.key,
        version_id=listed.version_id,
        etag=listed.etag,
        size=listed.size,
        stored_at=listed.last_modified,
        is_latest=listed.is_latest,
        is_delete_marker=listed.is_delete_marker,
        storage_class=listed.storage_class,
    )


def mark_vanished(run: CatalogueSync, place: BucketRef, store: ObjectStore) -> Iterator[None]:
    """Mark what was there before the sync began, was not listed by it, and is not found when looked at; in chunks.

    The look costs one request for each thousand, or one for each version where they lie scattered. It is needed: some
    stores leave keys out of paged listings, and a version that is taken for vanished leaves its derivatives alone.
    """
    unseen = (
        ObjectVersion.objects.present()
        .filter(catalogue.under("key", run.prefix, bucket=run.bucket), observed_at__lt=run.started_at)
        .order_by("key", "version_id", "incarnation")
        .values_list("pk", "key", "version_id", "incarnation", "is_delete_marker")
    )
    for chunk in catalogue.chunks(unseen.iterator(chunk_size=catalogue.PAGE), catalogue.PAGE):
        missing = [Missing(*row) for row in chunk]
        asked_at = catalogue.now()
        seen = store.inspect(place, list({row.ref for row in missing}))
        gone = [row.id for row in missing if is_gone(row, seen[row.ref])]
        if len(gone) < len(missing):
            log.warning("not listed, yet not gone for sure", bucket=run.bucket.name, versions=len(missing) - len(gone))
        with transaction.atomic(), connection.cursor() as cursor:
            kept = losses.kept(gone, run.started_at)
            cursor.execute(catalogue.sql("vanished.sql"), {"ids": gone, "asked_at": asked_at})
            vanished = {row[0] for row in cursor.fetchall()}
            run.vanished += len(vanished)
            run.vanished_held += len(vanished & kept.held)
            run.vanished_retained += len(vanished & kept.retained)
            run.save(update_fields=["vanished", "vanished_held", "vanished_retained"])
        yield


def is_gone(row: Missing, seen: Inspection) -> bool:
    """Whether a look proves that exactly this row's version is no longer there."""
    if seen.state is Presence.GONE:
        return True
    if seen.state is Presence.UNKNOWN or not row.incarnation:
        return False
    if seen.state is Presence.DELETE_MARKER:
        return not row.is_delete_marker
    return seen.last_modified is not None and row.incarnation != incarnation(
        row.version_id, seen.etag, seen.last_modified
    )


def summary(run: CatalogueSync) -> dict[str, Any]:
    """A sync in JSON-ready form."""
    return {
        "bucket": run.bucket.name,
        "prefix": run.prefix,
        "started_at": run.started_at.isoformat(),
        "finished_at": run.finished_at.isoformat() if run.finished_at else None,
        "pages": run.pages,
        "versions": run.versions,
        "refused": run.refused,
        "vanished": run.vanished,
        "vanished_held": run.vanished_held,
        "vanished_retained": run.vanished_retained,
        "survived": run.survived,
    }
