"""From draft to publication: what is saved, who decides, what is asked for before, and when it comes into force."""

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.utils import timezone

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from retention import control, governing, policies, preview
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, ImpactPreview, PolicyRevision, RetentionPolicy, Tenant
from tests.retention.test_verbs import draft
from tests.world import published, version

pytestmark = pytest.mark.django_db


def ready(revision: PolicyRevision) -> PolicyRevision:
    """Submitted and previewed: only the publisher is missing."""
    policies.submit(revision=revision, by=revision.author)
    preview.request(revision=revision, by=revision.author)
    revision.refresh_from_db()
    return revision


def next_draft(revision: PolicyRevision, by: User, **changed: Any) -> PolicyRevision:
    said = {name: getattr(revision, name) for name in preview.SAID}
    return policies.draft(policy=revision.policy, by=by, **(said | changed))


def test_an_edited_draft_says_something_else_and_must_be_submitted_again(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    revision = ready(draft(tenant, bucket, manager))
    edited = policies.edit(revision=revision, by=manager, period_number=60, prefixes=["o/"])
    assert (edited.period_number, edited.prefixes, edited.submitted_at, edited.submitted_by) == (60, ["o/"], None, None)
    event = AuditEvent.objects.get(action="policy.edited")
    assert (event.before, event.after) == (
        {"period_number": 30, "prefixes": [""]},
        {"period_number": 60, "prefixes": ["o/"]},
    )
    with pytest.raises(RetentionError, match="is not submitted"):
        policies.publish(revision=edited, by=second_manager, reason="Reviewed")
    policies.submit(revision=edited, by=manager)
    with pytest.raises(RetentionError, match="is of an earlier draft"):
        policies.publish(revision=edited, by=second_manager, reason="Reviewed")


def test_a_bad_edit_changes_nothing(tenant: Tenant, bucket: Bucket, manager: User) -> None:
    revision = draft(tenant, bucket, manager)
    with pytest.raises(ValidationError):
        policies.edit(revision=revision, by=manager, prefixes=[])
    with pytest.raises(TypeError, match="published_by"):
        policies.edit(revision=revision, by=manager, published_by=manager)
    revision.refresh_from_db()
    assert revision.prefixes == [""]


def test_a_draft_says_nothing_of_who_decided_about_it(tenant: Tenant, bucket: Bucket, manager: User) -> None:
    first = draft(tenant, bucket, manager)
    for field in ("number", "editor_ids", "submitted_at", "published_by", "only_lengthens", "in_force_from"):
        with pytest.raises(TypeError, match=field):
            next_draft(first, manager, **{field: None})
    assert PolicyRevision.objects.count() == 1


def test_whoever_edited_a_draft_is_not_its_second_person(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, person: Callable[..., User]
) -> None:
    revision = draft(tenant, bucket, manager)
    ready(policies.edit(revision=revision, by=second_manager, period_number=31))
    for drafter in (manager, second_manager):
        with pytest.raises(NotPermitted, match="a second person must publish it"):
            policies.publish(revision=revision, by=drafter, reason="Mine")
    with pytest.raises(IntegrityError, match="revision_second_person"), transaction.atomic():
        PolicyRevision.objects.filter(pk=revision.pk).update(
            published_by=second_manager, published_at=timezone.now(), in_force_from=timezone.now()
        )
    policies.publish(revision=revision, by=person("third", roles.RETENTION_MANAGER), reason="Reviewed")


def test_a_draft_is_discarded_and_what_it_said_stays_on_record(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    revision = ready(draft(tenant, bucket, manager))
    policies.discard(revision=revision, by=second_manager, reason="No longer needed")
    assert not PolicyRevision.objects.exists()
    event = AuditEvent.objects.get(action="policy.discarded")
    assert (event.subject_label, event.reason) == ("originals", "No longer needed")
    assert (event.before["revision"], event.before["period_number"]) == ("originals/1", 30)
    with pytest.raises(RetentionError, match="was discarded"):
        policies.edit(revision=revision, by=manager, period_number=1)


def test_a_reviewer_sends_a_draft_back(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> None:
    revision = draft(tenant, bucket, manager)
    with pytest.raises(RetentionError, match="is not submitted"):
        policies.send_back(revision=revision, by=second_manager, reason="Too short")
    ready(revision)
    with pytest.raises(RetentionError, match="submitted already"):
        policies.submit(revision=revision, by=manager)
    with pytest.raises(RetentionError, match="State a reason"):
        policies.send_back(revision=revision, by=second_manager, reason=" ")
    sent = policies.send_back(revision=revision, by=second_manager, reason="Too short")
    assert (sent.submitted_at, sent.submitted_by) == (None, None)
    assert AuditEvent.objects.get(action="policy.sent_back").reason == "Too short"


def test_drafts_are_for_drafters_and_decisions_for_publishers(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, compliance: User, person: Callable[..., User]
) -> None:
    revision = draft(tenant, bucket, manager)
    operator = person("operator", roles.OPERATOR)
    for act in (
        lambda: policies.edit(revision=revision, by=compliance, period_number=1),
        lambda: policies.discard(revision=revision, by=compliance, reason="R"),
        lambda: policies.submit(revision=revision, by=compliance),
        lambda: policies.send_back(revision=revision, by=operator, reason="R"),
        lambda: policies.suspend(policy=revision.policy, by=operator, reason="R"),
        lambda: policies.resume(policy=revision.policy, by=operator, reason="R"),
        lambda: policies.reschedule(
            policy=revision.policy, schedule="0 2 * * *", missed_slots="skip", by=operator, reason="R"
        ),
        lambda: preview.request(revision=revision, by=operator),
    ):
        with pytest.raises(NotPermitted, match="may not"):
            act()


def test_a_published_revision_is_no_draft(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> None:
    revision = published(tenant, bucket, author=manager, publisher=second_manager)
    for act in (
        lambda: policies.edit(revision=revision, by=manager, period_number=1),
        lambda: policies.discard(revision=revision, by=manager, reason="R"),
        lambda: policies.submit(revision=revision, by=manager),
        lambda: policies.send_back(revision=revision, by=second_manager, reason="R"),
        lambda: preview.request(revision=revision, by=manager),
    ):
        with pytest.raises(RetentionError, match="is published already"):
            act()


def test_a_draft_that_a_later_one_has_overtaken_is_not_published(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    first = draft(tenant, bucket, manager)
    policies.publish(revision=ready(next_draft(first, manager)), by=second_manager, reason="Reviewed")
    with pytest.raises(RetentionError, match="originals/2 is published already"):
        policies.publish(revision=ready(first), by=second_manager, reason="Reviewed")


def test_what_makes_things_destroyable_waits_for_the_tenants_delay(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    first = policies.publish(revision=ready(draft(tenant, bucket, manager)), by=second_manager, reason="Reviewed")
    assert first.in_force_from is not None
    assert first.published_at is not None
    assert first.in_force_from - first.published_at == timedelta(hours=24)
    assert first.effective_from < first.published_at  # as it was drafted
    assert governing.of_tenant(tenant, timezone.now()) == []
    assert [rule.label for rule in governing.of_tenant(tenant, first.in_force_from)] == ["originals/1"]

    Tenant.objects.update(shortening_delay_hours=100)
    shorter = ready(next_draft(first, manager, period_number=29))
    shorter = policies.publish(revision=shorter, by=second_manager, reason="Reviewed")
    assert shorter.in_force_from is not None
    assert shorter.published_at is not None
    assert shorter.in_force_from - shorter.published_at == timedelta(hours=100)
    assert not shorter.only_lengthens


@pytest.mark.parametrize(("days", "hours"), [(3, 24), (1, 100)])
def test_the_delay_and_the_effective_date_are_both_waited_for(
    days: int, hours: int, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    Tenant.objects.update(shortening_delay_hours=hours)
    effective = timezone.now() + timedelta(days=days)
    drafted = ready(draft(tenant, bucket, manager, effective_from=effective))
    revision = policies.publish(revision=drafted, by=second_manager, reason="Reviewed")
    assert revision.published_at is not None
    assert revision.in_force_from == max(effective, revision.published_at + timedelta(hours=hours))


def test_a_lengthening_is_published_by_its_author_and_at_once(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    first = published(tenant, bucket, author=manager, publisher=second_manager, code="originals")
    Tenant.objects.update(shortening_delay_hours=24)
    longer = policies.publish(
        revision=ready(next_draft(first, manager, period_number=31)), by=manager, reason="New law"
    )
    assert longer.only_lengthens
    assert longer.in_force_from == longer.published_at
    assert [rule.label for rule in governing.of_tenant(tenant, timezone.now())] == ["originals/2"]
    with pytest.raises(NotPermitted, match="a second person must publish it"):
        policies.publish(revision=ready(next_draft(longer, manager, period_number=30)), by=manager, reason="Back")


def test_the_database_knows_publications_as_whole_ones(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    revision = ready(draft(tenant, bucket, manager))
    rows = PolicyRevision.objects.filter(pk=revision.pk)
    whole = {"published_by": second_manager, "published_at": timezone.now(), "in_force_from": timezone.now()}
    for wrong in (
        {"in_force_from": None},
        {"in_force_from": timezone.now() - timedelta(days=1)},
        {"submitted_at": None, "submitted_by": None},
        {"effective_from": timezone.now() + timedelta(days=1)},
    ):
        with pytest.raises(IntegrityError, match="revision_published_whole"), transaction.atomic():
            rows.update(**(whole | wrong))
    with pytest.raises(IntegrityError, match="revision_submitted_whole"), transaction.atomic():
        rows.update(submitted_by=None)
    with pytest.raises(IntegrityError, match="revision_published_whole"), transaction.atomic():
        rows.update(only_lengthens=True)


def test_a_policy_is_resumed_by_another_person(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    policy = published(tenant, bucket, author=manager, publisher=second_manager).policy
    with pytest.raises(RetentionError, match="is not suspended"):
        policies.resume(policy=policy, by=manager, reason="Go on")
    policies.suspend(policy=policy, by=manager, reason="Under review")
    with pytest.raises(NotPermitted, match="a second person must resume it"):
        policies.resume(policy=policy, by=manager, reason="Go on")
    with pytest.raises(IntegrityError, match="policy_resumed_by_another"), transaction.atomic():
        RetentionPolicy.objects.update(suspended_at=None, suspended_reason="", resumed_by=manager)
    with pytest.raises(IntegrityError, match="policy_suspension_whole"), transaction.atomic():
        RetentionPolicy.objects.update(suspended_at=None, suspended_reason="")
    with pytest.raises(RetentionError, match="State a reason"):
        policies.resume(policy=policy, by=second_manager, reason=" ")
    resumed = policies.resume(policy=policy, by=second_manager, reason="Counsel agrees")
    assert (resumed.suspended_at, resumed.suspended_reason, resumed.resumed_by) == (None, "", second_manager)
    assert not governing.of_tenant(tenant, timezone.now())[0].suspended
    event = AuditEvent.objects.get(action="policy.resumed")
    assert (event.reason, event.before["suspended_reason"]) == ("Counsel agrees", "Under review")
    policies.suspend(policy=policy, by=second_manager, reason="Again")
    policy.refresh_from_db()
    assert (policy.suspended_by, policy.resumed_by) == (second_manager, None)


def test_every_decision_raises_the_epoch(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> None:
    revision = ready(draft(tenant, bucket, manager))
    epochs = [control.read(tenant.pk)[0]]
    policies.publish(revision=revision, by=second_manager, reason="R")
    epochs.append(control.read(tenant.pk)[0])
    policies.suspend(policy=revision.policy, by=manager, reason="R")
    epochs.append(control.read(tenant.pk)[0])
    assert epochs == [0, 1, 2]


@pytest.mark.parametrize("schedule", ["0 0 30 2 *", "0 0 31 4,6 *"])
def test_a_schedule_that_never_comes_is_refused(schedule: str, tenant: Tenant, manager: User) -> None:
    with pytest.raises(ValidationError, match="names a day that never comes"):
        policies.create(tenant=tenant, code="never", by=manager, schedule=schedule)
    assert policies.create(tenant=tenant, code="leap", by=manager, schedule="0 0 29 2 *").pk


def test_a_policy_is_rescheduled_with_a_reason(tenant: Tenant, manager: User, second_manager: User) -> None:
    policy = policies.create(tenant=tenant, code="originals", by=manager)
    asked: dict[str, Any] = {"policy": policy, "by": second_manager, "missed_slots": "skip"}
    with pytest.raises(RetentionError, match="State a reason"):
        policies.reschedule(schedule="0 2 * * *", reason="", **asked)
    with pytest.raises(ValidationError, match="five cron fields"):
        policies.reschedule(schedule="at noon", reason="R", **asked)
    with pytest.raises(RetentionError, match="has this schedule already"):
        policies.reschedule(schedule="0 1 * * *", reason="R", **asked | {"missed_slots": "run_once"})
    policies.reschedule(schedule="0 2 * * *", reason="Quieter then", **asked)
    policy.refresh_from_db()
    assert (policy.schedule, policy.missed_slots) == ("0 2 * * *", "skip")
    event = AuditEvent.objects.get(action="policy.rescheduled")
    assert (event.before["schedule"], event.after["schedule"], event.reason) == (
        "0 1 * * *",
        "0 2 * * *",
        "Quieter then",
    )


def test_publishing_stands_on_an_exact_preview_of_this_draft_among_these_rules(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    other = published(tenant, bucket, author=manager, publisher=second_manager, code="other")
    revision = draft(tenant, bucket, manager)
    policies.submit(revision=revision, by=manager)

    def refused(words: str) -> None:
        with pytest.raises(RetentionError, match=words):
            policies.publish(revision=revision, by=second_manager, reason="Reviewed")

    refused("has no exact preview")
    foreign = next_draft(other, manager)
    preview.request(revision=foreign, by=manager)
    refused("has no exact preview")
    preview.request(revision=revision, by=manager)
    policies.suspend(policy=other.policy, by=manager, reason="R")
    refused("other policies were published, suspended or resumed")
    policies.resume(policy=other.policy, by=second_manager, reason="R")
    policies.publish(revision=revision, by=second_manager, reason="Reviewed")
    event = AuditEvent.objects.filter(action="policy.published").latest("pk")
    shown = ImpactPreview.objects.get(pk=event.after["preview"])
    assert (shown.revision, event.after["figures"]) == (revision, shown.figures)


def test_an_old_preview_is_not_enough(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = ready(draft(tenant, bucket, manager))
    later = timezone.now() + timedelta(hours=72, seconds=1)
    monkeypatch.setattr(preview, "clock", SimpleNamespace(now=lambda: later))
    with pytest.raises(RetentionError, match="older than 72 hours"):
        policies.publish(revision=revision, by=second_manager, reason="Reviewed")


def test_a_preview_that_is_still_being_counted_is_not_enough(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "SMALL", 0)
    version(bucket, tenant, "o/1")
    revision = ready(draft(tenant, bucket, manager))
    with pytest.raises(RetentionError, match="still being counted"):
        policies.publish(revision=revision, by=second_manager, reason="Reviewed")
