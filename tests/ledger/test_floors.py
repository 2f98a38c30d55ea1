"""No enforcing run opens on input that looks wrong; a dry run goes on and says so."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from cleanup_project.base.models import Alarm
from ledger import manifest, runs, schedule
from ledger.exceptions import InputRefused, RunOverlap
from ledger.models import CleanupRun, ScheduleSlot
from retention.models import Bucket, CatalogueSync, ObjectVersion, RetentionPolicy
from tests.ledger.acting import Acting, build
from tests.ledger.test_schedule import begun, make_daily
from tests.web import quick_pages, url  # noqa: F401
from tests.world import listed, published, version

pytestmark = pytest.mark.django_db


@pytest.fixture
def acting() -> Acting:
    made = build()
    version(made.bucket, made.tenant, "o/1")
    return made


def enforcing(acting: Acting) -> CleanupRun:
    return runs.open_run(policy=acting.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)[0]


def make_stale() -> None:
    CatalogueSync.objects.update(started_at=timezone.now() - timedelta(hours=72))


def test_a_stale_catalogue_refuses_a_run_and_raises_an_alarm_until_it_is_over(acting: Acting) -> None:
    make_stale()
    with pytest.raises(InputRefused, match="72 hours old, and its limit is 48"):
        enforcing(acting)
    assert not CleanupRun.objects.exists()
    alarm = Alarm.objects.open().get()
    assert (alarm.kind, alarm.subject_label) == ("catalogue.stale", "media")
    assert "catalogue sync media" in alarm.message
    listed(acting.bucket)
    assert enforcing(acting).guards == {"floors": []}
    assert not Alarm.objects.open().exists()


def test_a_shrunken_catalogue_refuses_a_run(acting: Acting) -> None:
    for versions in (100, 79):
        listed(acting.bucket, versions=versions)
    with pytest.raises(InputRefused, match="79 versions at the last listing and 100 at the one before"):
        enforcing(acting)
    assert Alarm.objects.open().get().kind == "catalogue.shrunk"


def test_every_bucket_in_scope_must_be_fresh(acting: Acting) -> None:
    other = Bucket.objects.create(name="other")
    published(
        acting.tenant, acting.bucket, author=acting.people["manager"], publisher=acting.people["manager2"],
        code="originals", bucket_ids=[acting.bucket.pk, other.pk],
    )  # fmt: skip
    with pytest.raises(InputRefused, match="other/ has never been"):
        enforcing(acting)


def test_a_dry_run_goes_on_and_keeps_what_speaks_against_it(acting: Acting, client: Client) -> None:
    make_stale()
    run, _new = runs.open_run(policy=acting.revision.policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    run = manifest.freeze(run)
    assert run.item_count == 1
    (finding,) = run.guards["floors"]
    assert (finding["kind"], finding["bucket"], finding["limit"], finding["actual"]) == (
        "catalogue.stale",
        "media",
        48,
        72,
    )
    client.force_login(acting.people["compliance"])
    assert "72 hours old" in client.get(url(CleanupRun, "change", run.pk)).content.decode()


def test_a_schedule_records_the_refusal_and_the_alarm_stays(acting: Acting) -> None:
    policy = make_daily(RetentionPolicy.objects.get())
    begun(policy, days_ago=1)
    make_stale()
    assert schedule.tick() == []
    slot = policy.slots.latest("scheduled_for")
    assert slot.outcome == ScheduleSlot.Outcome.REFUSED
    assert "72 hours old" in slot.reason
    assert Alarm.objects.open().exists()


def test_a_run_that_is_open_is_named_before_what_is_wrong_with_another(acting: Acting) -> None:
    run = enforcing(acting)
    make_stale()
    with pytest.raises(RunOverlap, match=run.key):
        enforcing(acting)


def test_a_scope_that_is_suddenly_empty_refuses_a_run(acting: Acting) -> None:
    manifest.freeze(runs.open_run(policy=acting.revision.policy, by=None, mode=CleanupRun.Mode.DRY_RUN)[0])
    ObjectVersion.objects.update(tenant=None)  # a key rule was changed, and everything is unscheduled
    with pytest.raises(InputRefused, match="No present object version is in the scope of originals"):
        enforcing(acting)
    ObjectVersion.objects.update(tenant=acting.tenant, gone_at=timezone.now(), gone_reason="vanished")
    with pytest.raises(InputRefused, match="No present object version"):
        enforcing(acting)


def test_a_scope_that_we_emptied_ourselves_does_not(acting: Acting) -> None:
    manifest.freeze(runs.open_run(policy=acting.revision.policy, by=None, mode=CleanupRun.Mode.DRY_RUN)[0])
    ObjectVersion.objects.update(gone_at=timezone.now(), gone_reason="destroyed")
    assert enforcing(acting).state == "scanning"


def test_a_scope_that_never_held_anything_does_not_either(acting: Acting) -> None:
    ObjectVersion.objects.update(tenant=None)
    assert enforcing(acting).state == "scanning"
