"""Decisions about single objects: who may take them, what they change, and what is refused, by the database too."""

import json
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction

from cleanup_project.base import clock, roles
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import AuditEvent, User
from ledger.models import ManifestItem
from retention import control, dispositions, holds
from retention.eligibility import Reason
from retention.exceptions import NotPermitted, RetentionError
from retention.facts import Observation
from retention.models import Bucket, Disposition, KeyRule, ObjectVersion, PolicyRevision, Tenant
from retention.why import why
from tests.world import EPOCH, hold, published, release, sealed_run, version

pytestmark = pytest.mark.django_db


@pytest.fixture
def row(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> ObjectVersion:
    """An object whose retention has ended."""
    published(tenant, bucket, author=manager, publisher=second_manager)
    return version(bucket, tenant, "o/1", retention_class="video")


def test_an_exemption_keeps_until_it_is_ended_and_never_changes(row: ObjectVersion, manager: User) -> None:
    before = control.read(row.tenant_id or 0)[0]
    assert dispositions.exempt([row.pk, row.pk], by=manager, reason="Jubilee") == 1
    assert control.read(row.tenant_id or 0)[0] > before
    assert dispositions.exempt([row.pk], by=manager, reason="Again") == 0
    assert why(row).reason is Reason.EXEMPT
    event = AuditEvent.objects.get(action="disposition.exempt")
    assert (event.subject_type, event.subject_id, event.reason) == ("retention.objectversion", str(row.pk), "Jubilee")

    made = Disposition.objects.filter(object_version=row)
    for change in ({"reason": "Other"}, {"until": EPOCH}, {"by": None}):
        with pytest.raises(IntegrityError), transaction.atomic():
            made.update(**change)
    ended = dispositions.end(disposition=made.get(), by=manager, reason="Over")
    assert (ended.ended_by, ended.end_reason) == (manager, "Over")
    assert why(row).reason is Reason.ELIGIBLE
    with pytest.raises(RetentionError, match="ended already"):
        dispositions.end(disposition=ended, by=manager, reason="Again")
    with pytest.raises(IntegrityError, match="can only be ended"), transaction.atomic():
        made.update(ended_at=None, ended_by=None, end_reason="")
    with pytest.raises(IntegrityError), transaction.atomic():
        made.delete()
    assert dispositions.exempt([row.pk], by=manager, reason="Once more") == 1
    assert AuditEvent.objects.get(action="disposition.ended").subject_id == str(row.pk)


def test_of_several_extensions_the_latest_counts(row: ObjectVersion, manager: User) -> None:
    now = clock.now()
    far, near = now + timedelta(days=100), now + timedelta(days=10)
    for until in (far, near):
        assert dispositions.extend([row.pk], until=until, by=manager, reason="Audit") == 1
    verdict = why(row)
    assert (verdict.reason, verdict.eligible_since) == (Reason.NOT_YET, far)
    assert why(row, far).reason is Reason.ELIGIBLE
    dispositions.end(disposition=Disposition.objects.get(until=far), by=manager, reason="Audit is done")
    assert why(row).eligible_since == near
    with pytest.raises(RetentionError, match="still to come"):
        dispositions.extend([row.pk], until=now, by=manager, reason="Audit")


def test_an_extension_does_not_make_an_object_eligible_sooner(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    published(tenant, bucket, author=manager, publisher=second_manager, period_number=1000, period_unit="years")
    row = version(bucket, tenant, "o/1")
    since = why(row).eligible_since
    dispositions.extend([row.pk], until=clock.now() + timedelta(days=1), by=manager, reason="Audit")
    assert why(row).eligible_since == since


def test_what_an_extension_adds_stands_in_the_manifest(row: ObjectVersion, manager: User) -> None:
    version(row.bucket, row.tenant, "o/2", retention_class="video")
    until = clock.now() + timedelta(seconds=1)
    dispositions.extend([row.pk], until=until, by=manager, reason="Audit")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(1.1)")
    sealed_run(PolicyRevision.objects.get())
    first, second = (json.loads(item.line) for item in ManifestItem.objects.order_by("ordinal"))
    assert first["targets"][0]["key"] == "o/1"
    assert first["eligible_since"] == first["why"]["extended_until"] == instant(until)
    assert "extended_until" not in second["why"]


def test_an_object_in_another_class_stays_there_whatever_the_next_listing_says(
    row: ObjectVersion, manager: User
) -> None:
    from retention import catalogue

    KeyRule.objects.create(bucket=row.bucket, position=1, pattern="o/{_}", tenant=row.tenant, retention_class="video")
    assert dispositions.reclassify([row.pk], retention_class="audio", by=manager, reason="No picture") == 1
    assert dispositions.reclassify([row.pk], retention_class="audio", by=manager, reason="Again") == 0
    made = Disposition.objects.get()
    assert (made.former_class, made.new_class) == ("video", "audio")
    seen = Observation(row.key, row.version_id, row.etag, row.size, row.stored_at, True, False)
    catalogue.record(row.bucket, [seen], observed_at=clock.now(), source=ObjectVersion.Source.LISTING)
    row.refresh_from_db()
    assert (row.retention_class, row.stated) == ("audio", ["retention_class"])
    with pytest.raises(RetentionError, match="A reclassification has no end"):
        dispositions.end(disposition=made, by=manager, reason="Undo")


def test_nobody_takes_an_object_out_of_a_hold_by_calling_it_something_else(
    row: ObjectVersion, manager: User, compliance: User
) -> None:
    assert row.tenant is not None
    placed = hold(row.tenant, row.bucket, "o/", by=compliance, retention_classes=["video"])
    with pytest.raises(RetentionError, match=r"The legal hold Doe v\. Acme covers o/1"):
        dispositions.reclassify([row.pk], retention_class="audio", by=manager, reason="No picture")
    row.refresh_from_db()
    assert row.retention_class == "video"
    assert not Disposition.objects.exists()
    release(placed)
    hold(row.tenant, row.bucket, "o/", by=compliance)
    assert dispositions.reclassify([row.pk], retention_class="audio", by=manager, reason="No picture") == 1


def test_a_parked_object_in_another_class_is_read_again(row: ObjectVersion, manager: User, compliance: User) -> None:
    assert row.tenant is not None
    placed = hold(row.tenant, row.bucket, "o/", by=compliance)
    ObjectVersion.objects.filter(pk=row.pk).update(parked_by=placed)
    dispositions.reclassify([row.pk], retention_class="audio", by=manager, reason="No picture")
    row.refresh_from_db()
    assert row.parked_by is None


@pytest.mark.parametrize(
    ("retention_class", "words"),
    [("*", "means any class"), ("x" * 201, "at most 200"), ("a\x00", "NUL"), ("é" * 200 + "x", "at most 200")],
)
def test_a_class_that_cannot_be_is_refused(retention_class: str, words: str, row: ObjectVersion, manager: User) -> None:
    with pytest.raises(RetentionError, match=words):
        dispositions.reclassify([row.pk], retention_class=retention_class, by=manager, reason="R")


def test_only_who_may_approve_runs_decides_and_with_a_reason(
    row: ObjectVersion, manager: User, person: Callable[..., User]
) -> None:
    operator = person("operator", roles.OPERATOR)
    until = clock.now() + timedelta(days=1)
    for verb in (
        lambda by, reason: dispositions.exempt([row.pk], by=by, reason=reason),
        lambda by, reason: dispositions.extend([row.pk], until=until, by=by, reason=reason),
        lambda by, reason: dispositions.reclassify([row.pk], retention_class="audio", by=by, reason=reason),
    ):
        with pytest.raises(NotPermitted, match="approve_run"):
            verb(operator, "R")
        with pytest.raises(RetentionError, match="State a reason"):
            verb(manager, " ")
    dispositions.exempt([row.pk], by=manager, reason="R")
    for by, reason, refusal in ((operator, "R", NotPermitted), (manager, "", RetentionError)):
        with pytest.raises(refusal):
            dispositions.end(disposition=Disposition.objects.get(), by=by, reason=reason)


def test_nothing_is_decided_where_one_of_the_objects_is_unknown_or_nobodys(
    row: ObjectVersion, bucket: Bucket, manager: User
) -> None:
    with pytest.raises(RetentionError, match="No object version has the id 0"):
        dispositions.exempt([row.pk, 0], by=manager, reason="R")
    nobodys = version(bucket, None, "x")
    with pytest.raises(RetentionError, match="belongs to no tenant"):
        dispositions.exempt([row.pk, nobodys.pk], by=manager, reason="R")
    assert not Disposition.objects.exists()


def test_many_are_decided_in_chunks(row: ObjectVersion, manager: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispositions, "CHUNK", 2)
    ids = [row.pk, *(version(row.bucket, row.tenant, f"o/{n}").pk for n in range(2, 6))]
    assert dispositions.exempt(ids, by=manager, reason="R") == 5
    assert AuditEvent.objects.filter(action="disposition.exempt").count() == 5


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "extend"},
        {"kind": "exempt", "until": EPOCH},
        {"kind": "exempt", "new_class": "audio"},
        {"kind": "reclassify"},
        {"kind": "reclassify", "new_class": "audio", "until": EPOCH},
        {"kind": "exempt", "reason": ""},
        {"kind": "exempt", "ended_at": EPOCH},
        {"kind": "other"},
    ],
)
def test_the_database_refuses_a_decision_that_says_nothing_whole(
    fields: dict[str, object], row: ObjectVersion, manager: User
) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Disposition.objects.create(
            **{"object_version": row, "tenant": row.tenant, "by": manager, "reason": "R", **fields}
        )


def test_one_object_is_exempt_once(row: ObjectVersion, manager: User) -> None:
    dispositions.exempt([row.pk], by=manager, reason="R")
    with pytest.raises(IntegrityError, match="disposition_exempt_once"), transaction.atomic():
        Disposition.objects.create(object_version=row, tenant=row.tenant, kind="exempt", by=manager, reason="R")


@pytest.mark.django_db(transaction=True)
def test_a_decision_waits_for_the_part_that_judges_its_object_and_is_later_than_it(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    """Or a decision could bear an earlier time than a run that did not see it, and nothing would judge again."""
    row = version(bucket, tenant, "o/1")
    started = threading.Event()

    def decide() -> None:
        try:
            with transaction.atomic():
                started.set()
                dispositions.exempt([row.pk], by=manager, reason="R")
        finally:
            connection.close()

    with transaction.atomic():
        ObjectVersion.objects.select_for_update(no_key=True).get(pk=row.pk)
        thread = threading.Thread(target=decide)
        thread.start()
        assert started.wait(10)
        thread.join(0.5)
        assert thread.is_alive()
        judged_at = clock.now()
    thread.join(10)
    assert Disposition.objects.get().at > judged_at


@pytest.mark.django_db(transaction=True)
def test_a_hold_that_is_being_placed_is_waited_for(
    tenant: Tenant, bucket: Bucket, manager: User, compliance: User
) -> None:
    row = version(bucket, tenant, "o/1", retention_class="video")
    said: list[str] = []

    def decide() -> None:
        try:
            dispositions.reclassify([row.pk], retention_class="audio", by=manager, reason="R")
        except RetentionError as refusal:
            said.append(str(refusal))
        finally:
            connection.close()

    thread = threading.Thread(target=decide)
    with transaction.atomic():
        hold(tenant, bucket, "o/", by=compliance, retention_classes=["video"])
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
    thread.join(10)
    assert "The legal hold Doe v. Acme covers" in said[0]
    assert holds.in_force(tenant.pk)
