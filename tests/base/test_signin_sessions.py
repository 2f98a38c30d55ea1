"""Sessions end: by themselves, by an administrator, and with the account."""

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, Session, User
from cleanup_project.base.signin import sessions
from tests.web import quick_pages  # noqa: F401

PAGE = "/admin/base/alarm/"
HOUR = 3600


@pytest.fixture
def auditor(person: Callable[..., User], client: Client) -> User:
    user = person("olga", roles.AUDITOR)
    client.force_login(user)
    return user


def shift(client: Client, **seconds: float) -> None:
    """Make the session older: `shift(client, seen=60)` as if its person had been away for a minute."""
    session = client.session
    for name, by in seconds.items():
        session[name] -= by
    session.save()


def test_a_session_knows_whose_it_is(auditor: User, client: Client) -> None:
    assert Session.objects.get(person=auditor).session_key == client.session.session_key


def test_a_session_ends_after_eight_hours_however_busy_one_was(auditor: User, client: Client) -> None:
    shift(client, since=8 * HOUR - 60)
    assert client.get(PAGE).status_code == 200
    shift(client, since=61)
    shown = client.get(PAGE, follow=True)
    assert "a session ends after 8 hours" in shown.content.decode()
    assert not Session.objects.filter(person=auditor).exists()


def test_a_session_ends_after_half_an_hour_without_its_person(auditor: User, client: Client) -> None:
    shift(client, seen=29 * 60)
    assert client.get(PAGE).status_code == 200  # and was seen just now
    shift(client, seen=29 * 60)
    assert client.get(PAGE).status_code == 200
    shift(client, seen=30 * 60)
    shown = client.get(PAGE, follow=True)
    assert shown.redirect_chain[-1][0] == f"/signin/?next={PAGE.replace('/', '%2F')}"
    assert "you did nothing for 30 minutes" in shown.content.decode()


def test_a_page_that_refreshes_itself_does_not_keep_a_session_alive(auditor: User, client: Client) -> None:
    shift(client, seen=29 * 60)
    assert client.get(PAGE, headers={"HX-Request": "true"}).status_code == 200
    shift(client, seen=60)
    answer = client.get(PAGE, headers={"HX-Request": "true"})
    assert (answer.status_code, answer["HX-Refresh"]) == (200, "true")  # the page signs in, not a part of it
    assert not Session.objects.filter(person=auditor).exists()


def test_what_a_person_sends_by_htmx_does_keep_it_alive(auditor: User, client: Client) -> None:
    shift(client, seen=29 * 60)
    client.post(PAGE, headers={"HX-Request": "true"})
    assert time.time() - client.session[sessions.SEEN] < 60


def test_a_session_that_nothing_is_known_of_is_over(auditor: User, client: Client) -> None:
    session = client.session
    del session[sessions.SINCE]
    session.save()
    assert client.get(PAGE).status_code == 302


def test_looking_at_pages_writes_the_session_once_a_minute(auditor: User, client: Client) -> None:
    for away, written in ((0, False), (61, True), (0, False)):
        shift(client, seen=away)
        with CaptureQueriesContext(connection) as asked:
            client.get(PAGE)
        assert any('UPDATE "base_session"' in each["sql"] for each in asked) == written


def test_an_administrator_ends_all_sessions_of_somebody(
    auditor: User, person: Callable[..., User], client: Client
) -> None:
    adam = Client()
    adam.force_login(person("adam", roles.ADMINISTRATOR))
    Client().force_login(auditor)
    address = reverse("admin:base_user_end-sessions", args=[auditor.pk])
    assert "Reason" in adam.get(address).content.decode()
    assert client.get(PAGE).status_code == 200
    assert adam.post(address, {"reason": "Laptop stolen."}).status_code == 302
    assert client.get(PAGE).status_code == 302
    event = AuditEvent.objects.get(action="sessions.ended")
    assert (event.actor_name, event.subject_label, event.reason, event.after) == (
        "adam", "olga", "Laptop stolen.", {"sessions": 2},
    )  # fmt: skip


@pytest.mark.parametrize("verb", ["end-sessions", "reset-factor", "unlink-provider"])
@pytest.mark.parametrize("role", sorted(set(roles.MATRIX) - {roles.ADMINISTRATOR}))
def test_nobody_else_does(role: str, verb: str, auditor: User, person: Callable[..., User], client: Client) -> None:
    client.force_login(person("someone", role))
    address = reverse(f"admin:base_user_{verb}", args=[auditor.pk])
    for answer in (client.get(address), client.post(address, {"reason": "x"})):
        assert answer.status_code == 403
    assert not AuditEvent.objects.exists()


def test_an_administrator_does_nothing_to_a_superuser(person: Callable[..., User], client: Client) -> None:
    client.force_login(person("adam", roles.ADMINISTRATOR))
    root = person("root", is_superuser=True)
    for verb in ("end-sessions", "reset-factor", "unlink-provider"):
        assert client.post(reverse(f"admin:base_user_{verb}", args=[root.pk]), {"reason": "x"}).status_code == 403


def test_a_deactivated_persons_sessions_end_at_once_and_for_good(
    auditor: User, person: Callable[..., User], client: Client
) -> None:
    adam = Client()
    adam.force_login(person("adam", roles.ADMINISTRATOR))
    form = {"username": "olga", "is_staff": "on", "first_name": "", "last_name": "", "email": ""}
    change = reverse("admin:base_user_change", args=[auditor.pk])
    assert adam.post(change, form).status_code == 302
    assert client.get(PAGE).status_code == 302
    assert adam.post(change, form | {"is_active": "on"}).status_code == 302
    assert client.get(PAGE).status_code == 302  # active again, and signed out all the same
    assert [each.action for each in AuditEvent.objects.filter(subject_id=str(auditor.pk)).order_by("pk")] == [
        "settings.changed", "sessions.ended", "settings.changed",
    ]  # fmt: skip


def test_deactivation_by_any_way_shuts_out_with_the_next_request(auditor: User, client: Client) -> None:
    User.objects.filter(pk=auditor.pk).update(is_active=False)
    assert client.get(PAGE).status_code == 302


def test_sessions_that_have_expired_go_when_somebody_signs_in(auditor: User, client: Client) -> None:
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    Client().force_login(auditor)
    assert Session.objects.count() == 1


def test_somebody_sees_until_when_their_session_lasts(auditor: User, client: Client) -> None:
    shown = client.get(reverse("mfa_index")).content.decode()
    assert "Ends at the latest" in shown
    assert "after 30 minutes" in shown
