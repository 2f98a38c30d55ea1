"""Buckets by the names that people type, and as the storage port knows them."""

from collections.abc import Collection, Sequence
from typing import Final, cast

from django.db.models import Exists, OuterRef, QuerySet

from retention.exceptions import RetentionError
from retention.models import Bucket, KeyRule, ObjectVersion, Tenant
from retention.storage import AddressingStyle, BucketRef

LISTED: Final = 20  # in an error


def ref(bucket: Bucket) -> BucketRef:
    """Where the bucket is, for the storage port."""
    return BucketRef(
        name=bucket.name,
        endpoint_url=bucket.endpoint_url,
        region=bucket.region,
        addressing_style=cast(AddressingStyle, bucket.addressing_style),
        credential_profile=bucket.credential_profile,
    )


def named(text: str, codes: Collection[str] = ()) -> Bucket:
    """The bucket called `name`, or `name@endpoint` where two stores have one of that name.

    `codes`: of tenants, for who sees no others: then only the buckets that these use are there. Raises RetentionError, which
    lists buckets that there are.
    """
    return among(known(codes), text)


def known(codes: Collection[str] = ()) -> list[Bucket]:
    """All buckets, or those that these tenants use."""
    return list((used_by(codes) if codes else Bucket.objects.all()).order_by("name", "endpoint_url"))


def among(known: Sequence[Bucket], text: str) -> Bucket:
    """As `named`, of buckets that were read before."""
    exact = [each for each in known if full_name(each) == text]
    found = exact or [each for each in known if each.name == text]
    if len(found) == 1:
        return found[0]
    if found:
        raise RetentionError(f"{len(found)} stores have a bucket named {text}; say which one: {listed(found)}")
    names = listed(known) or "none; add one under Buckets in the administration"
    raise RetentionError(f"There is no bucket {text!r} here. Known buckets: {names}")


def listed(rows: Sequence[Bucket]) -> str:
    more = f" and {len(rows) - LISTED:,} more" if len(rows) > LISTED else ""
    return ", ".join(full_name(each) for each in rows[:LISTED]) + more


def used_by(codes: Collection[str]) -> QuerySet[Bucket]:
    """The buckets, perhaps shared, in which a key rule or an object version, present or gone, is of these tenants."""
    ruled = KeyRule.objects.filter(bucket=OuterRef("pk"), tenant__code__in=codes)
    owners = list(Tenant.objects.filter(code__in=codes).values_list("pk", flat=True))
    stored = ObjectVersion.objects.filter(bucket=OuterRef("pk"), tenant__in=owners)
    return Bucket.objects.filter(Exists(ruled) | Exists(stored))


def full_name(bucket: Bucket) -> str:
    """`name@endpoint`; the endpoint of Amazon S3 is `aws`."""
    return f"{bucket.name}@{bucket.endpoint_url or 'aws'}"
