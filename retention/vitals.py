"""What stops destruction now, and how old the catalogue of each bucket is.

`codes` are those of tenants; none: all of them.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import DurationField, ExpressionWrapper, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now

from retention.models import Bucket, CatalogueSync, StopSwitch


class Listed(NamedTuple):
    """When a bucket's catalogue was last brought up to date; None: never. `limit` is in hours."""

    bucket_id: int
    bucket: str
    at: datetime | None
    limit: int


def switches(codes: Sequence[str] = ()) -> QuerySet[StopSwitch]:
    """Stop switches that are on and stop something of these tenants; buckets are shared."""
    on = StopSwitch.objects.active().order_by("pressed_at")
    shared = Q(scope=StopSwitch.Scope.EVERYTHING) | Q(scope=StopSwitch.Scope.BUCKET)
    return on.filter(shared | Q(tenant__code__in=codes) | Q(policy__tenant__code__in=codes)) if codes else on


def limited() -> QuerySet[Any]:
    """Buckets whose catalogue has a limit, with `at`, when it was last brought up to date; NULL: never."""
    newest = CatalogueSync.objects.filter(bucket=OuterRef("pk"), finished_at__isnull=False).order_by("-id")
    return Bucket.objects.filter(catalogue_max_age_hours__isnull=False).annotate(
        at=Subquery(newest.values("started_at")[:1])
    )


def unlisted() -> QuerySet[Bucket]:
    """Those of them that have not been listed within their limit."""
    hours = ExpressionWrapper(F("catalogue_max_age_hours") * timedelta(hours=1), output_field=DurationField())
    return limited().filter(Q(at=None) | Q(at__lt=Now() - hours)).order_by("pk")


def oldest_listing(codes: Sequence[str] = ()) -> Listed | None:
    """Of the buckets with a limit, the one whose catalogue is the oldest; of these tenants' key rules alone."""
    buckets = limited()
    if codes:
        buckets = buckets.filter(pk__in=Bucket.objects.filter(key_rules__tenant__code__in=codes).values("pk"))
    first = buckets.order_by(F("at").asc(nulls_first=True), "pk").values_list(
        "pk", "name", "at", "catalogue_max_age_hours"
    )[:1]
    return next((Listed(pk, name, at, limit or 0) for pk, name, at, limit in first), None)
