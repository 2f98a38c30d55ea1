"""Alarms: one for each kind and subject, on every page until it is over."""

from collections.abc import Callable

import pytest
from django.test import Client

from cleanup_project.base import alarms, roles
from cleanup_project.base.models import Alarm, User
from tests.web import quick_pages as quick_pages

pytestmark = pytest.mark.django_db


def test_an_alarm_noticed_again_says_what_is_so_now(manager: User) -> None:
    alarms.notice("catalogue.stale", manager, "3 days old.")
    alarms.notice("catalogue.stale", manager, "4 days old.")
    alarm = Alarm.objects.get()
    assert (alarm.message, alarm.subject_label, alarm.cleared_at) == ("4 days old.", "manager", None)


def test_a_cleared_alarm_is_kept_and_may_come_again(manager: User) -> None:
    alarms.notice("catalogue.stale", manager, "3 days old.")
    assert alarms.clear("catalogue.stale", manager)
    assert not alarms.clear("catalogue.stale", manager)
    alarms.notice("catalogue.stale", manager, "Old again.")
    assert [alarm.message for alarm in Alarm.objects.open()] == ["Old again."]
    assert Alarm.objects.count() == 2


@pytest.mark.parametrize("role", roles.MATRIX)
def test_every_role_sees_on_every_page_that_something_is_wrong(
    client: Client, person: Callable[..., User], role: str
) -> None:
    somebody = person("somebody", role)
    client.force_login(somebody)
    page = client.get("/admin/")
    assert page.status_code == 200
    assert "alarm is open" not in page.content.decode()
    alarms.notice("catalogue.stale", somebody, "3 days old.")
    assert "1 alarm is open" in client.get("/admin/").content.decode()
    shown = client.get("/admin/base/alarm/?cleared_at__isnull=True").content.decode()
    assert "3 days old." in shown
    assert "Open now" in shown


def test_who_is_not_logged_in_is_told_nothing(client: Client, manager: User) -> None:
    alarms.notice("catalogue.stale", manager, "3 days old.")
    page = client.get("/admin/login/", follow=True)
    assert page.status_code == 200
    assert "alarm is open" not in page.content.decode()
