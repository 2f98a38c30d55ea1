"""What vanished outside of us and what survived its destruction: alarms that stay until somebody has seen them."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client

from cleanup_project.base import clock, roles
from cleanup_project.base.models import Alarm, AuditEvent, User
from retention import buckets, losses
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, KeyRule, ObjectVersion, Tenant
from retention.sources.listing import sync
from retention.storage.memory import MemoryStore
from tests.web import quick_pages, url  # noqa: F401
from tests.world import hold, published, version

pytestmark = pytest.mark.django_db


@pytest.fixture
def store(bucket: Bucket) -> MemoryStore:
    made = MemoryStore()
    made.create_bucket(buckets.ref(bucket))
    return made


def open_message(kind: str) -> str:
    found = Alarm.objects.open().filter(kind=kind).first()
    return found.message if found else ""


def test_what_vanished_is_counted_and_what_was_to_be_kept_is_named(
    store: MemoryStore, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, compliance: User
) -> None:
    published(tenant, bucket, author=manager, publisher=second_manager, prefixes=["due/"])
    published(
        tenant, bucket, author=manager, publisher=second_manager, prefixes=["kept/"], period_number=4000,
        period_unit="years",
    )  # fmt: skip
    hold(tenant, bucket, "kept/1", by=compliance)
    hold(tenant, bucket, "due/1", by=compliance)
    for key in ("due/1", "due/2", "kept/1", "kept/2", "kept/3", "free"):
        version(bucket, tenant, key)
    version(bucket, None, "nobody's")
    run = sync(bucket, store=store)
    assert (run.vanished, run.vanished_held, run.vanished_retained) == (7, 2, 3)
    said = open_message("catalogue.vanished")
    assert "7 versions vanished outside of us, as 1 of our syncs found" in said
    assert "2 under a legal hold, 3 still retained by a policy or a decision" in said
    sync(bucket, store=store)
    assert open_message("catalogue.vanished") == said, "a sync that finds nothing hides nothing"


def test_a_later_sync_adds_to_what_nobody_has_seen(
    store: MemoryStore, tenant: Tenant, bucket: Bucket, compliance: User
) -> None:
    version(bucket, tenant, "a")
    sync(bucket, store=store)
    version(bucket, tenant, "b")
    sync(bucket, store=store)
    assert "2 versions vanished outside of us, as 2 of our syncs found" in open_message("catalogue.vanished")
    losses.seen(bucket=bucket, by=compliance, reason="An editor")
    version(bucket, tenant, "c")
    sync(bucket, store=store)
    assert "1 version vanished outside of us, as 1 of our syncs found" in open_message("catalogue.vanished")


def test_what_survived_raises_an_alarm(store: MemoryStore, tenant: Tenant, bucket: Bucket) -> None:
    KeyRule.objects.create(bucket=bucket, position=1, pattern="{_*}", tenant=tenant)
    store.put(buckets.ref(bucket), "a")
    sync(bucket, store=store)
    assert not Alarm.objects.exists()
    ObjectVersion.objects.update(gone_at=clock.now() - timedelta(seconds=1), gone_reason="destroyed")
    assert sync(bucket, store=store).survived == 1
    assert "1 version that we had destroyed was listed again" in open_message("catalogue.survived")


def test_losses_are_seen_with_a_reason_by_whoever_reviews_quarantine(
    store: MemoryStore, tenant: Tenant, bucket: Bucket, compliance: User, person: Callable[..., User], client: Client
) -> None:
    version(bucket, tenant, "a")
    sync(bucket, store=store)
    page = url(Bucket, "seen", bucket.pk)
    for role in (roles.RETENTION_MANAGER, roles.OPERATOR, roles.AUDITOR, roles.ADMINISTRATOR):
        outsider = person(role, role)
        with pytest.raises(NotPermitted, match="may not mark losses"):
            losses.seen(bucket=bucket, by=outsider, reason="R")
        client.force_login(outsider)
        assert client.post(page, {"reason": "R"}).status_code == 403
    with pytest.raises(RetentionError, match="State what you found out"):
        losses.seen(bucket=bucket, by=compliance, reason=" ")
    client.force_login(compliance)
    assert page in client.get(url(Bucket, "change", bucket.pk)).content.decode()
    assert "1 version vanished" in client.get(page).content.decode()
    assert client.post(page, {"reason": "An editor deleted it by hand"}).status_code == 302
    assert not Alarm.objects.open().exists()
    event = AuditEvent.objects.get(action="catalogue.loss_seen")
    assert (event.actor, event.reason) == (compliance, "An editor deleted it by hand")
    assert event.after["alarm"] == "catalogue.vanished"
    assert page not in client.get(url(Bucket, "change", bucket.pk)).content.decode()
    assert "Nothing is open about bucket media" in client.post(page, {"reason": "Again"}).content.decode()
