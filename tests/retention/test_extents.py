"""What the lists of holds and policies say of how much each of them reaches: right, bounded, and at a constant price."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cleanup_project.base import clock, roles
from cleanup_project.base.models import User
from cleanup_project.operations.bench.world import add_originals
from retention import extents, policies
from retention.admin.extents import worded
from retention.extents import Extent, Number
from retention.models import Bucket, LegalHold, ObjectVersion, PolicyRevision, RetentionPolicy, Tenant
from tests import world
from tests.ledger.test_admin_plans import explained, rows_read
from tests.web import quick_pages, url  # noqa: F401

pytestmark = pytest.mark.django_db

Publish = Callable[..., RetentionPolicy]
Store = Callable[..., ObjectVersion]


@pytest.fixture
def publish(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> Publish:
    def made(**fields: Any) -> RetentionPolicy:
        year = {"period_number": 365}
        return world.published(tenant, bucket, author=manager, publisher=second_manager, **(year | fields)).policy

    return made


@pytest.fixture
def store(tenant: Tenant, bucket: Bucket) -> Store:
    """`store("a", 10)`: an original that is due in so many days by a policy of `publish`."""

    def made(key: str, due_in: float = 1000, **fields: Any) -> ObjectVersion:
        stored_at = world.days_ago(365 - due_in, clock.now())
        return world.version(bucket, tenant, key, **({"stored_at": stored_at} | fields))

    return made


def of(policy: RetentionPolicy) -> Extent | None:
    return extents.of_policies({policy.pk: list(policy.revisions.order_by("-number"))}).get(policy.pk)


def due(policy: RetentionPolicy) -> tuple[Number, ...]:
    found = of(policy)
    assert found is not None
    return found.due


def known(*numbers: int) -> tuple[Number, ...]:
    return tuple(Number(number, whole=True) for number in numbers)


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few rows are read for a number that any catalogue is large."""
    monkeypatch.setattr(extents, "AT_MOST", 4)


def test_a_hold_counts_what_it_covers_and_nothing_beside_it(
    tenant: Tenant, bucket: Bucket, store: Store, compliance: User
) -> None:
    elsewhere = Bucket.objects.create(name="elsewhere")
    old = {"stored_at": world.EPOCH}
    store("case/1", **old)
    store("case/1.jpg", original_key="case/1", **old)
    store("case/2", is_delete_marker=True, size=0, **old)
    store("case/gone", gone_at=world.EPOCH, gone_reason="vanished", **old)
    store("case/other-class", retention_class="audio", **old)
    store("case/later", stored_at=world.EPOCH + timedelta(days=1))
    for beside in ("cas", "casf", "case"):
        store(beside, **old)
    world.version(bucket, Tenant.objects.create(code="other", name="Other"), "case/theirs")
    world.version(elsewhere, tenant, "case/1")
    until = world.EPOCH + timedelta(days=1)
    placed = world.hold(tenant, bucket, "case/", by=compliance, retention_classes=[""], stored_to=until)
    whole = world.hold(tenant, elsewhere, "", by=compliance)
    assert extents.of_holds([placed, whole]) == {
        placed.pk: Extent(Number(3, whole=True), 200),
        whole.pk: Extent(Number(1, whole=True), 100),
    }


def test_a_released_hold_holds_nothing(tenant: Tenant, bucket: Bucket, store: Store, compliance: User) -> None:
    store("case/1")
    placed = world.hold(tenant, bucket, "case/", by=compliance)
    world.release(placed)
    placed.refresh_from_db()
    assert extents.of_holds([placed]) == {}


def test_the_bound_is_shared_by_the_rows_of_a_page_and_said(
    tenant: Tenant, bucket: Bucket, store: Store, compliance: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        store(f"case/{number}")
    placed = [world.hold(tenant, bucket, "case/", by=compliance, matter=f"M{n}") for n in range(2)]

    def versions() -> list[Number]:
        return [each.versions for each in extents.of_holds(placed).values()]

    monkeypatch.setattr(extents, "AT_MOST", 7)
    assert versions() == [Number(6, whole=True)] * 2
    monkeypatch.setattr(extents, "AT_MOST", 5)
    assert versions() == [Number(5, whole=False)] * 2
    monkeypatch.setattr(extents, "TOGETHER", 8)
    assert versions() == [Number(4, whole=False)] * 2
    assert [worded(number) for number in (Number(1234, True), Number(0, True), Number(1234, False), Number(0, False))] == [
        "1,234", "0", "at least 1,234", "not counted",
    ]  # fmt: skip


def test_a_scope_of_very_many_prefixes_is_not_said_to_be_counted_whole(
    tenant: Tenant, bucket: Bucket, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extents, "PIECES", 2)
    for key in "abc":
        store(f"{key}/1")
    three = LegalHold(pk=0, tenant=tenant, bucket_ids=[bucket.pk], prefixes=["a/", "b/", "c/"], retention_classes=["*"])
    assert extents.of_holds([three])[0].versions == Number(2, whole=False)


@pytest.mark.parametrize("read_by", ["key", "date"])
def test_a_policy_counts_what_is_due_within_thirty_and_ninety_days(
    publish: Publish,
    store: Store,
    tenant: Tenant,
    bucket: Bucket,
    compliance: User,
    read_by: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same, whether all that it covers is read, or too much for that."""
    policy = publish(prefixes=["clips/"])
    for key, due_in in (("a", -3), ("b", 29), ("c", 31), ("d", 89), ("e", 91), ("f", 200), ("g", 300)):
        store(f"clips/{key}", due_in)
    store("clips/gone", -1, gone_at=world.EPOCH, gone_reason="vanished")
    store("clips/derivative", -1, original_key="clips/a")
    store("clips/marker", -1, is_delete_marker=True)
    held = world.hold(tenant, bucket, "clips/", by=compliance)
    store("clips/held", -1, parked_by=held)
    store("other", 40)
    covered = Number(8, whole=True)
    if read_by == "date":
        monkeypatch.setattr(extents, "AT_MOST", 6)
        covered = Number(5, whole=False)
    found = of(policy)
    assert found is not None
    assert (found.versions, found.due) == (covered, known(2, 4))


def test_what_is_due_of_much_is_counted_exactly_where_it_is_little(
    publish: Publish, store: Store, little: None
) -> None:
    policy = publish()
    for number in range(10):
        store(f"late/{number}", 60 + number)
    store("soon", 5)
    assert due(policy) == (Number(1, whole=True), Number(4, whole=False))


def test_a_date_attribute_counts_from_that_date(publish: Publish, store: Store, little: None) -> None:
    dated = publish(trigger=PolicyRevision.Trigger.DATED_AT, retention_classes=["video", "audio"])
    store("a", 900, dated_at=world.days_ago(360, clock.now()), retention_class="video")
    store("b", 900, dated_at=world.days_ago(290, clock.now()), retention_class="audio")
    store("c", 900, dated_at=world.days_ago(290, clock.now()), retention_class="text")
    store("d", -1, retention_class="audio")
    assert due(dated) == known(1, 2)


def test_what_the_index_shows_a_few_days_early_is_not_due(publish: Publish, store: Store, little: None) -> None:
    """The bound by which months are read is generous."""
    policy = publish(period_number=12, period_unit="months")
    for number in range(5):
        store(f"far/{number}")
    for due_in in (20, 32, 33):
        store(f"near/{due_in}", due_in)
    assert due(policy)[0] == Number(1, whole=True)


def test_older_objects_count_by_the_revision_that_governs_them(
    publish: Publish, store: Store, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    policy = publish(code="clips")
    world.published(
        tenant, bucket, author=manager, publisher=second_manager, code="clips", retroactive=False,
        effective_from=world.days_ago(100, clock.now()), period_number=3650,
    )  # fmt: skip
    store("old", 20)
    store("new", 364)
    found = of(policy)
    assert found is not None
    assert (found.versions, found.due) == (Number(2, whole=True), known(1, 1))


def test_what_waits_for_events_beside_what_has_dates_is_not_counted_and_said(
    publish: Publish, store: Store, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    policy = publish(code="clips", trigger="event", event_type="contract-ended")
    world.published(
        tenant, bucket, author=manager, publisher=second_manager, code="clips", retroactive=False,
        effective_from=world.days_ago(100, clock.now()), period_number=60,
    )  # fmt: skip
    store("waits", -1)
    store("dated", 315)  # by a year; it is fifty days old
    found = of(policy)
    assert found is not None
    assert (found.versions, found.due) == (Number(2, whole=True), (Number(1, whole=False),) * 2)


def test_of_very_many_prefixes_nothing_is_read_by_date(
    publish: Publish, store: Store, little: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extents, "PIECES", 2)
    policy = publish(prefixes=["a/", "b/", "c/"])
    store("c/1", 10)
    with CaptureQueriesContext(connection) as captured:
        assert due(policy) == (Number(0, whole=False),) * 2
    assert sum("retention_objectversion" in each["sql"] for each in captured) == 1


def test_no_less_is_due_later_than_sooner() -> None:
    """What was read of the later may hold less that counts."""
    by_key, by_date = [Number(3, whole=False), Number(4, whole=False)], [Number(5, whole=True), Number(2, whole=False)]
    assert extents.told(by_key, by_date, []) == (Number(5, whole=True), Number(5, whole=False))
    assert extents.told(by_key, [], []) == tuple(by_key)


def test_nothing_is_due_at_a_known_date_where_there_is_none(publish: Publish, store: Store, manager: User) -> None:
    store("a", -1)
    assert due(publish(trigger="event", event_type="contract-ended")) == ()
    assert due(publish(retain_permanently=True)) == ()
    suspended = publish()
    assert due(suspended) == known(1, 1)
    policies.suspend(policy=suspended, by=manager, reason="Disputed.")
    suspended.refresh_from_db()
    assert due(suspended) == ()
    assert of(policies.create(tenant=suspended.tenant, code="empty", by=manager)) is None


def test_the_lists_say_it_in_a_constant_number_of_queries(
    publish: Publish, store: Store, tenant: Tenant, bucket: Bucket, compliance: User, client: Client, little: None
) -> None:
    client.force_login(compliance)

    def listed(model: type[Any]) -> tuple[str, int]:
        with CaptureQueriesContext(connection) as captured:
            shown = client.get(url(model, "changelist")).content.decode()
        return shown, len(captured)

    def grow(names: str) -> None:
        for name in names:
            for number in range(5):
                store(f"{name}/{number}", 10)
            publish(prefixes=[f"{name}/"], code=name)
            world.hold(tenant, bucket, f"{name}/", by=compliance, matter=name)

    grow("a")
    few = [listed(model)[1] for model in (LegalHold, RetentionPolicy)]
    grow("bcd")
    holds, governed = listed(LegalHold), listed(RetentionPolicy)
    assert [holds[1], governed[1]] == few
    assert holds[0].count('<td class="field-held">at least 4<div class="quiet"><data value="400"') == 4
    for name in ("covered", "due_soon", "due_later"):
        assert governed[0].count(f'<td class="field-{name}">at least 4</td>') == 4
    assert '<abbr title="Present versions and delete markers that the hold covers' in holds[0]


@pytest.mark.bulk
def test_a_large_catalogue_costs_a_bounded_number_of_rows(
    publish: Publish, tenant: Tenant, bucket: Bucket, person: Callable[..., User], compliance: User, client: Client
) -> None:
    for number, prefix in enumerate(("", "media/0", "media/05", "none/", "")):
        publish(prefixes=[prefix], period_number=30 + 3650 * (number % 2))
        world.hold(tenant, bucket, prefix, by=compliance, matter=f"M{number}")
    add_originals(tenant, bucket, first=1, last=100_000, stored_at="now() - n * interval '1 minute'")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    client.force_login(person("auditor", roles.AUDITOR))
    for model, statements in ((LegalHold, 1), (RetentionPolicy, 3)):
        with CaptureQueriesContext(connection) as captured:
            client.get(url(model, "changelist"))
        asked = [each["sql"] for each in captured if "retention_objectversion" in each["sql"]]
        assert len(asked) == statements
        for statement in asked:
            assert rows_read(statement) <= 2 * 5 * extents.AT_MOST, explained(statement)
