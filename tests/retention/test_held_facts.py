"""What a hold in force covers stays in its scope, whatever a listing, an import or a corrected key rule says of it."""

import pytest

from cleanup_project.base import clock
from cleanup_project.base.models import User
from retention import holds
from retention.models import Bucket, KeyRule, ObjectVersion, Tenant
from retention.sources.listing import sync
from tests.retention.catalogue_stores import Shows, listed
from tests.world import hold, release

pytestmark = pytest.mark.django_db


@pytest.fixture
def rule(bucket: Bucket, tenant: Tenant) -> KeyRule:
    return KeyRule.objects.create(bucket=bucket, position=1, pattern="{_*}", tenant=tenant, retention_class="video")


def listed_again(bucket: Bucket) -> ObjectVersion:
    sync(bucket, store=Shows(listed("a")))
    return ObjectVersion.objects.get(key="a")


def corrected(rule: KeyRule, **fields: object) -> None:
    KeyRule.objects.filter(pk=rule.pk).update(**fields)


def test_a_corrected_class_takes_nothing_out_of_a_hold_until_it_is_released(
    bucket: Bucket, tenant: Tenant, rule: KeyRule, compliance: User
) -> None:
    row = listed_again(bucket)
    placed = hold(tenant, bucket, "", by=compliance, retention_classes=["video"])
    corrected(rule, retention_class="audio")
    assert listed_again(bucket).retention_class == "video"
    assert holds.covering([row.pk], tenant.pk) == {row.pk: [placed.pk]}
    release(placed)
    assert listed_again(bucket).retention_class == "audio"


def test_nor_does_another_tenant_or_none(bucket: Bucket, tenant: Tenant, rule: KeyRule, compliance: User) -> None:
    row = listed_again(bucket)
    placed = hold(tenant, bucket, "", by=compliance)
    for other in (Tenant.objects.create(code="other", name="Other"), None):
        corrected(rule, tenant=other)
        assert listed_again(bucket).tenant == tenant
        assert holds.covering([row.pk], tenant.pk) == {row.pk: [placed.pk]}


def test_what_the_hold_covers_all_the_same_is_corrected(
    bucket: Bucket, tenant: Tenant, rule: KeyRule, compliance: User
) -> None:
    listed_again(bucket)
    hold(tenant, bucket, "", by=compliance, retention_classes=["video", "audio"])
    corrected(rule, retention_class="audio")
    assert listed_again(bucket).retention_class == "audio"


@pytest.mark.parametrize(("prefix", "later"), [("b", False), ("", True)])
def test_what_no_hold_covers_is_corrected(
    bucket: Bucket, tenant: Tenant, rule: KeyRule, compliance: User, prefix: str, later: bool
) -> None:
    listed_again(bucket)
    since = clock.now() if later else None
    hold(tenant, bucket, prefix, by=compliance, retention_classes=["video"], stored_from=since)
    corrected(rule, retention_class="audio")
    assert listed_again(bucket).retention_class == "audio"
