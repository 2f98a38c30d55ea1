"""Listings that nobody has to start: each bucket is listed again when its last whole listing is old enough."""

from datetime import timedelta
from typing import Final

import structlog
from django.db.models import F, Q
from django.db.models.functions import Now

from cleanup_project.base import alarms
from cleanup_project.base.models import Alarm
from retention.catalogue import BucketBusy
from retention.exceptions import RetentionError
from retention.models import Bucket, CatalogueSync
from retention.sources import listing
from retention.sources.listing import UNLISTED
from retention.storage import ObjectStore

AGAIN_AFTER: Final = timedelta(minutes=10)  # since the store last refused
HOUR: Final = timedelta(hours=1)

log = structlog.get_logger(__name__)


def due() -> list[int]:
    """Buckets of which no whole listing has begun within their interval and come to its end."""
    fresh = CatalogueSync.objects.filter(
        prefix="",
        source=listing.SOURCE,
        finished_at__isnull=False,
        started_at__gt=Now() - F("bucket__sync_every_hours") * HOUR,
    )
    refused = Alarm.objects.open().filter(kind=UNLISTED, noticed_at__gt=Now() - AGAIN_AFTER)
    waiting = [int(pk) for pk in refused.values_list("subject_id", flat=True)]
    buckets = Bucket.objects.filter(~Q(pk__in=waiting), sync_every_hours__isnull=False)
    return list(buckets.exclude(pk__in=fresh.values("bucket")).order_by("pk").values_list("pk", flat=True))


def list_slice(bucket_id: int, *, budget_seconds: float, store: ObjectStore | None = None) -> bool:
    """List a bucket for so long, from where the last slice ended; whether there is nothing left to do now.

    A bucket that somebody else lists or imports into is left to them. A store that refuses raises an alarm.
    """
    bucket = Bucket.objects.get(pk=bucket_id)
    if bucket_id not in due():  # a message that came twice, or late
        return True
    try:
        run = listing.sync(bucket, store=store, budget_seconds=budget_seconds)
    except BucketBusy:
        return True
    except RetentionError as error:
        log.error("bucket not listed", bucket=bucket.name, error=str(error))
        alarms.notice(UNLISTED, bucket, f"{error} The worker tries again by itself.")
        return True
    return run.finished_at is not None
