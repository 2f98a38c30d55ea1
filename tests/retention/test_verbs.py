"""Policies and holds change by verbs alone: who may, what is refused, and what the database refuses besides."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from retention import governing, holds, policies, preview
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, HoldPrefix, LegalHold, PolicyRevision, Tenant
from tests.world import EPOCH, published, release

pytestmark = pytest.mark.django_db


def draft(tenant: Tenant, bucket: Bucket, by: User, **fields: Any) -> PolicyRevision:
    policy = policies.create(tenant=tenant, code="originals", by=by)
    defaults: dict[str, Any] = {
        "title": "Originals",
        "authority": "Retention Act",
        "bucket_ids": [bucket.pk],
        "prefixes": [""],
        "retention_classes": ["*"],
        "trigger": "stored_at",
        "period_number": 30,
        "period_unit": "days",
        "retroactive": True,
        "effective_from": EPOCH,
    }
    return policies.draft(policy=policy, by=by, **(defaults | fields))


def place(tenant: Tenant, bucket: Bucket, by: User, **fields: Any) -> LegalHold:
    said: dict[str, Any] = {
        "matter": "M", "title": "T", "authority": "A", "reason": "R", "buckets": [bucket], "prefixes": ["a/", "a/b/"],
        "retention_classes": ["*"],
    }  # fmt: skip
    return holds.place(tenant=tenant, by=by, **(said | fields))


def test_a_draft_governs_nothing_until_another_person_publishes_it(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    revision = draft(tenant, bucket, manager)
    assert governing.of_tenant(tenant, timezone.now()) == []
    with pytest.raises(NotPermitted, match="a second person must publish it"):
        policies.publish(revision=revision, by=manager, reason="Mine")
    policies.submit(revision=revision, by=manager)
    preview.request(revision=revision, by=manager)
    Tenant.objects.update(shortening_delay_hours=0)
    policies.publish(revision=revision, by=second_manager, reason="Reviewed")
    assert [rule.label for rule in governing.of_tenant(tenant, timezone.now())] == ["originals/1"]
    with pytest.raises(RetentionError, match="is published already"):
        policies.publish(revision=revision, by=second_manager, reason="Again")
    assert AuditEvent.objects.get(action="policy.published").reason == "Reviewed"


def test_the_database_refuses_an_author_who_publishes(tenant: Tenant, bucket: Bucket, manager: User) -> None:
    revision = policies.submit(revision=draft(tenant, bucket, manager), by=manager)
    now = timezone.now()
    with pytest.raises(IntegrityError, match="revision_second_person"), transaction.atomic():
        PolicyRevision.objects.filter(pk=revision.pk).update(published_by=manager, published_at=now, in_force_from=now)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"bucket_ids": []}, "bucket_ids"),
        ({"prefixes": []}, "prefixes"),
        ({"retention_classes": []}, "retention_classes"),
        ({"retention_classes": ["*", "video"]}, "retention_classes"),
        ({"bucket_ids": [987654]}, "bucket_ids"),
        ({"prefixes": ["a\x00"]}, "prefixes"),
        ({"authority": ""}, "authority"),
        ({"period_number": 4001}, "period_number"),
        ({"window_start": "01:00"}, "window_end"),
        ({"window_start": "01:00", "window_end": "01:00"}, "window_end"),
        ({"window_days": "monday"}, "window_days"),
        ({"window_days": "mon,tue,mon"}, "window_days"),
        ({"window_days": "mon, tue"}, "window_days"),
        ({"window_days": "mon\n"}, "window_days"),
        ({"window_zone": "Europe/Bonn"}, "window_zone"),
        ({"window_zone": ""}, "window_zone"),
        ({"breaker_percent": 0}, "breaker_percent"),
        ({"breaker_percent": 100}, "breaker_percent"),
        ({"breaker_minimum": 0}, "breaker_minimum"),
    ],
)
def test_a_bad_draft_is_refused_by_the_field_that_is_wrong(
    fields: dict[str, Any], field: str, tenant: Tenant, bucket: Bucket, manager: User
) -> None:
    with pytest.raises(ValidationError) as refused:
        draft(tenant, bucket, manager, **fields)
    assert field in refused.value.message_dict
    assert not PolicyRevision.objects.exists()


def test_an_empty_scope_is_refused_by_the_database_too(tenant: Tenant, bucket: Bucket, manager: User) -> None:
    revision = draft(tenant, bucket, manager)
    for empty in ("bucket_ids", "prefixes", "retention_classes"):
        with pytest.raises(IntegrityError, match="revision_scope_not_empty"), transaction.atomic():
            PolicyRevision.objects.filter(pk=revision.pk).update(**{empty: []})


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"window_days": "monday"}, "revision_window"),
        ({"window_days": "mon,"}, "revision_window"),
        ({"window_zone": ""}, "revision_window"),
        ({"window_start": "01:00", "window_end": "01:00"}, "revision_window"),
        ({"window_start": "01:00"}, "revision_window_whole"),
        ({"breaker_percent": 100}, "revision_breaker"),
        ({"breaker_percent": 0}, "revision_breaker"),
        ({"breaker_minimum": 0}, "revision_breaker"),
    ],
)
def test_bad_windows_and_breakers_are_refused_by_the_database_too(
    fields: dict[str, Any], constraint: str, tenant: Tenant, bucket: Bucket, manager: User
) -> None:
    revision = PolicyRevision.objects.filter(pk=draft(tenant, bucket, manager).pk)
    with pytest.raises(IntegrityError, match=f'"{constraint}"'), transaction.atomic():
        revision.update(**fields)
    whole = {"window_days": "sun,mon", "window_start": "22:00", "window_end": "04:00", "window_zone": "Europe/Berlin"}
    revision.update(**whole, breaker_percent=None)
    revision.update(window_start=None, window_end=None, breaker_percent=99, breaker_minimum=1)


def test_only_managers_draft_and_only_publishers_publish(
    tenant: Tenant, bucket: Bucket, manager: User, person: Callable[..., User]
) -> None:
    operator = person("operator", roles.OPERATOR)
    with pytest.raises(NotPermitted, match="may not draft policies"):
        draft(tenant, bucket, operator)
    with pytest.raises(NotPermitted, match="may not publish policies"):
        policies.publish(revision=draft(tenant, bucket, manager), by=operator, reason="R")


def test_a_policy_is_suspended_once_and_with_a_reason(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    policy = published(tenant, bucket, author=manager, publisher=second_manager).policy
    with pytest.raises(RetentionError, match="State a reason"):
        policies.suspend(policy=policy, by=manager, reason="")
    policies.suspend(policy=policy, by=manager, reason="Under review")
    assert governing.of_tenant(tenant, timezone.now())[0].suspended
    with pytest.raises(RetentionError, match="suspended already"):
        policies.suspend(policy=policy, by=manager, reason="Again")


def test_a_revision_that_is_not_retroactive_leaves_older_objects_to_its_predecessor(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    people = {"author": manager, "publisher": second_manager, "code": "originals"}
    published(tenant, bucket, **people)
    since = EPOCH.replace(year=2022)
    published(tenant, bucket, **people, retroactive=False, effective_from=since)
    newer, older = governing.of_tenant(tenant, timezone.now())
    assert (newer.label, newer.stored_from, newer.stored_to) == ("originals/2", since, None)
    assert (older.label, older.stored_from, older.stored_to) == ("originals/1", None, since)


def test_only_compliance_places_holds_and_a_hold_is_looked_up_by_minimal_prefixes(
    tenant: Tenant, bucket: Bucket, manager: User, compliance: User
) -> None:
    with pytest.raises(NotPermitted, match="may not place legal holds"):
        place(tenant, bucket, manager)
    hold = place(tenant, bucket, compliance)
    assert list(HoldPrefix.objects.filter(hold=hold).values_list("prefix", flat=True)) == ["a/"]
    with pytest.raises(ValidationError, match="later than its start"):
        place(tenant, bucket, compliance, stored_from=EPOCH, stored_to=EPOCH)


def test_a_hold_is_released_once_and_never_changed(tenant: Tenant, bucket: Bucket, compliance: User) -> None:
    hold = LegalHold.objects.filter(pk=place(tenant, bucket, compliance).pk)
    with pytest.raises(IntegrityError, match="can only be released"), transaction.atomic():
        hold.update(prefixes=["b/"])
    release(hold.get())
    with pytest.raises(IntegrityError, match="can only be released"), transaction.atomic():
        hold.update(released_at=None)
    with pytest.raises(IntegrityError), transaction.atomic():
        hold.delete()
