"""`why`: the verdict on any object, in words that name policies, dates and holds."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from cleanup_project.base.canonical import instant
from cleanup_project.base.models import User
from retention import dispositions, holds, policies
from retention.eligibility import Reason
from retention.exceptions import TooMuch
from retention.models import Bucket, Disposition, Tenant
from retention.why import explain, surroundings_of_each, why
from tests.world import event, published, version

pytestmark = pytest.mark.django_db

UNTIL = datetime(2999, 1, 1, tzinfo=UTC)


def asked(*arguments: str) -> list[dict[str, Any]]:
    out = StringIO()
    call_command("why", *arguments, "--json", stdout=out)
    said: list[dict[str, Any]] = json.loads(out.getvalue())
    return said


def test_every_reason_has_its_sentence(
    tenant: Tenant,
    bucket: Bucket,
    manager: User,
    second_manager: User,
    compliance: User,
    person: Callable[..., User],
) -> None:
    def rule(prefix: str, **fields: Any) -> Any:
        return published(tenant, bucket, author=manager, publisher=second_manager, prefixes=[prefix], **fields)

    rule("due/")
    rule("later/", period_number=4000, period_unit="years")
    rule("forever/", retain_permanently=True)
    rule("event/", trigger="event", event_type="contract-ended")
    rule("dated/", trigger="dated_at")
    rule("kept/", keep_newest=1)
    rule("markers/", remove_expired_markers=True)
    policies.suspend(policy=rule("paused/").policy, by=manager, reason="Under review")
    holds.place(
        tenant=tenant, matter="Doe v. Acme", title="T", authority="A", reason="R", buckets=[bucket],
        prefixes=["due/held"], retention_classes=["*"], by=compliance,
    )  # fmt: skip
    version(bucket, tenant, "due/1")
    version(bucket, tenant, "markers/1")
    expected = {
        "due/1": Reason.ELIGIBLE,
        "due/held": Reason.HELD,
        "due/exempt": Reason.EXEMPT,
        "due/longer": Reason.NOT_YET,
        "due/t": Reason.TRAVELS,
        "later/1": Reason.NOT_YET,
        "forever/1": Reason.PERMANENT,
        "event/1": Reason.AWAITING_EVENT,
        "dated/1": Reason.UNKNOWN_DATE,
        "kept/1": Reason.KEPT_NEWEST,
        "paused/1": Reason.SUSPENDED,
        "nowhere/1": Reason.UNSCHEDULED,
        "markers/1": Reason.STANDS_BEHIND,
        "due/gone": Reason.GONE,
    }
    special: dict[str, dict[str, Any]] = {
        "due/t": {"original_key": "due/1"},
        "markers/1": {"is_delete_marker": True},
        "due/gone": {"gone_at": timezone.now(), "gone_reason": "vanished"},
    }
    for key, reason in expected.items():
        row = version(bucket, tenant, key, **special.get(key, {}))
        if reason is Reason.EXEMPT:
            dispositions.exempt([row.pk], by=manager, reason="Jubilee exhibition")
        if key == "due/longer":
            dispositions.extend([row.pk], until=UNTIL, by=manager, reason="Litigation is likely")
        verdict = why(row)
        assert verdict.reason is reason, key
        assert next(iter(explain(row, verdict)))
    assert set(expected.values()) == set(Reason)


def test_the_command_answers_for_every_version_of_a_key(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, compliance: User
) -> None:
    revision = published(tenant, bucket, author=manager, publisher=second_manager, code="originals")
    old = version(bucket, tenant, "o/1\n", version_id="old", asset="clip")
    version(bucket, tenant, "o/1\n", version_id="new", asset="clip", stored_at=timezone.now())
    version(
        bucket, tenant, "t/1", original_key="o/1\n", version_id="thumb", stored_at=old.stored_at + timedelta(seconds=9)
    )
    newest, oldest = asked("o/1\n")
    assert (newest["version_id"], newest["reason"], newest["eligible"]) == ("new", "not_yet", False)
    assert (oldest["reason"], oldest["governed_by"]) == ("eligible", str(revision))
    assert oldest["targets"][1] == {"key": "t/1", "version_id": "thumb"}
    (thumb,) = asked("s3://media/t/1")
    assert "It goes with version old of o/1\n." in thumb["explanation"]
    assert asked("o/1\n", "--version-id", "new", "--as-of", "2999-01-01T00:00:00Z")[0]["eligible"]


def test_the_longest_retention_wins_and_is_said(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    published(tenant, bucket, author=manager, publisher=second_manager, code="short")
    published(tenant, bucket, author=manager, publisher=second_manager, code="long", period_number=60)
    row = version(bucket, tenant, "o/1")
    assert "The longest retention wins: long/1 governs." in list(explain(row, why(row)))


def test_what_was_decided_is_said_with_its_reason(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    published(tenant, bucket, author=manager, publisher=second_manager)
    row = version(bucket, tenant, "o/1")
    thumb = version(bucket, tenant, "t/1", original_key="o/1", stored_at=row.stored_at + timedelta(seconds=9))
    dispositions.extend([row.pk], until=UNTIL, by=manager, reason="Litigation is likely")
    dispositions.exempt([thumb.pk], by=manager, reason="On the front page")
    longer, exempt = Disposition.objects.order_by("pk")
    said = list(explain(row, why(row)))
    assert said[0] == "Its retention has not ended yet."
    assert f"Kept until {instant(UNTIL)}: decided by manager (disposition {longer.pk}). Litigation is likely" in said
    assert (
        f"Exempt from destruction until that is ended, for t/1 @ {thumb.version_id}: decided by manager "
        f"(disposition {exempt.pk}). On the front page"
    ) in said
    (told,) = asked("o/1")
    assert told["eligible_since"] == instant(UNTIL)
    assert [each["reason"] for each in told["dispositions"]] == ["Litigation is likely", "On the front page"]
    assert why(row, UNTIL).reason is Reason.EXEMPT


def test_an_unknown_object_or_bucket_is_said(bucket: Bucket) -> None:
    with pytest.raises(CommandError, match="is not in the catalogue"):
        asked("nope")
    with pytest.raises(CommandError, match=r"No bucket is called 'medai'\. Known: media\."):
        asked("nope", "--bucket", "medai")


def test_what_stands_around_many_versions_is_what_stands_around_each(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    published(tenant, bucket, author=manager, publisher=second_manager)
    other = Tenant.objects.create(code="other", name="Other")
    elsewhere = Bucket.objects.create(name="elsewhere")
    one = version(bucket, tenant, "clips/one", asset="one", is_latest=False)
    newer = version(bucket, tenant, "clips/one", asset="one")
    thumb = version(bucket, tenant, "thumbs/one", original_key="clips/one", original_version_id=one.version_id)
    sibling = version(bucket, tenant, "clips/sibling", asset="one")
    namesake = version(elsewhere, other, "clips/one", asset="one")
    version(elsewhere, other, "thumbs/one", original_key="clips/one", original_bucket=elsewhere)
    nobodys = version(bucket, None, "stray")
    dispositions.exempt([thumb.pk, namesake.pk], by=manager, reason="Jubilee")
    rows = [one, newer, thumb, sibling, namesake, nobodys]
    found = surroundings_of_each(rows)
    assert {each.id for each in found[one.pk].same_key} == {one.pk, newer.pk}
    assert {each.id for each in found[one.pk].series} == {one.pk, newer.pk, sibling.pk}
    assert {each.id for each in found[one.pk].derivatives} == {thumb.pk}
    assert {each.object_version_id for each in found[one.pk].dispositions} == {thumb.pk}
    assert {each.id for each in found[thumb.pk].originals} == {one.pk, newer.pk}
    assert {each.id for each in found[namesake.pk].same_key} == {namesake.pk}
    assert len(found[namesake.pk].derivatives) == 1
    assert found[nobodys.pk].series == []
    for row in rows:
        alone, among = surroundings_of_each([row])[row.pk], found[row.pk]
        for part in ("same_key", "series", "derivatives", "originals", "dispositions"):
            assert sorted(each.id for each in getattr(alone, part)) == sorted(each.id for each in getattr(among, part))


def test_events_are_read_up_to_what_was_asked_for(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    published(
        tenant, bucket, author=manager, publisher=second_manager, trigger="event", event_type="contract-ended"
    )  # fmt: skip
    row = version(bucket, tenant, "c/1")
    for prefix in ("a/", "b/"):
        event(tenant, bucket, prefix, by=manager)
    with pytest.raises(TooMuch, match="More than 1 versions or events"):
        why(row, most=1)
    assert why(row, most=2).reason is Reason.AWAITING_EVENT


def test_versions_around_are_read_up_to_what_was_asked_for(tenant: Tenant, bucket: Bucket) -> None:
    one = version(bucket, tenant, "gone-before")
    version(bucket, tenant, "gone-before", gone_at=timezone.now(), gone_reason="vanished")
    for series in "ab":
        version(bucket, tenant, "original", series=series)
    small = version(bucket, tenant, "small", role="derivative", original_bucket=bucket, original_key="original")
    for row in (one, small):
        with pytest.raises(TooMuch):
            why(row, most=1)
        assert why(row, most=2).reason is not None
