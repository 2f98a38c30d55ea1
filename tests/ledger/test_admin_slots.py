"""The schedule page: what is expected of each policy, beside what is on record."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cleanup_project.base import clock
from ledger import schedule
from ledger.models import ScheduleSlot
from retention.models import RetentionPolicy
from tests.ledger.acting import Acting, build
from tests.web import quick_pages, url  # noqa: F401
from tests.world import published

pytestmark = pytest.mark.django_db


@pytest.fixture
def acting() -> Acting:
    made = build()
    made.put("clips/one", asset="one")
    return made


def begun(policy: RetentionPolicy, ago: timedelta) -> None:
    """As if its schedule had counted from so long ago: what came before it was rescheduled is nobody's."""
    RetentionPolicy.objects.filter(pk=policy.pk).update(schedule="* * * * *", rescheduled_at=None)
    ScheduleSlot.objects.create(policy=policy, scheduled_for=clock.now() - ago, outcome="missed", reason="Long ago.")


def test_a_slot_that_nobody_answered_is_told(acting: Acting) -> None:
    policy = acting.revision.policy
    begun(policy, timedelta(minutes=20))
    (found,) = schedule.outlook(RetentionPolicy.objects.all(), 10)
    assert found.overdue
    assert found.next is not None
    assert found.next > clock.now()
    schedule.answer(RetentionPolicy.objects.get())
    (found,) = schedule.outlook(RetentionPolicy.objects.all(), 10)
    assert not found.overdue
    assert (found.answers["opened"], found.answers["missed"] > 1) == (1, True)


def test_the_page_shows_what_is_expected_and_what_became_of_it(acting: Acting, client: Client) -> None:
    begun(acting.revision.policy, timedelta(minutes=20))
    client.force_login(acting.people["operator"])
    page = url(ScheduleSlot, "changelist")
    shown = client.get(page).content.decode()
    for words in ("a slot is unanswered", "run once now", "1 missed", "Long ago.", "0:20:0"):
        assert words in shown
    RetentionPolicy.objects.update(
        suspended_at=clock.now(), suspended_reason="Audit.", suspended_by=acting.people["manager"]
    )
    assert "suspended: refused" in client.get(page).content.decode()
    assert "What is expected" not in client.get(page, {"q": "another"}).content.decode()


def test_policies_cost_no_queries_each(acting: Acting, client: Client) -> None:
    client.force_login(acting.people["operator"])

    def counted() -> int:
        with CaptureQueriesContext(connection) as captured:
            client.get(url(ScheduleSlot, "changelist"))
        return len(captured)

    few = counted()
    for _ in range(3):
        people = acting.people
        published(acting.tenant, acting.bucket, author=people["manager"], publisher=people["manager2"])
    assert counted() == few
