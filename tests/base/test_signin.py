"""Signing in by password: who comes in, what is on record of it, and when nobody is let try any more."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.hashers import identify_hasher
from django.db import connection
from django.test import Client
from django.urls import NoReverseMatch, reverse

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, Session, User
from tests.web import quick_pages  # noqa: F401

SIGN_IN = "/signin/"


@pytest.fixture
def auditor(person: Callable[..., User]) -> User:
    return person("olga", roles.AUDITOR)


def records() -> list[tuple[str, str, str]]:
    return [(each.action, each.actor_name, each.subject_label) for each in AuditEvent.objects.order_by("pk")]


def test_somebody_signs_in_and_lands_where_they_wanted_to_go(auditor: User, client: Client) -> None:
    page = client.get("/admin/base/alarm/", follow=True)
    assert page.redirect_chain[-1][0].startswith(SIGN_IN)
    assert 'name="next" value="/admin/base/alarm/"' in page.content.decode()
    answer = client.post(SIGN_IN, {"login": "olga", "password": "correct horse", "next": "/admin/base/alarm/"})
    assert (answer.status_code, answer["Location"]) == (302, "/admin/base/alarm/")
    assert client.get("/admin/base/alarm/").status_code == 200
    assert records() == [("session.began", "olga", "olga")]
    assert AuditEvent.objects.get().after == {"address": "127.0.0.1", "with": ["password"]}


def test_nobody_is_led_to_another_site(auditor: User, client: Client) -> None:
    answer = client.post(SIGN_IN, {"login": "olga", "password": "correct horse", "next": "https://evil.example/"})
    assert answer["Location"] == reverse("my-work")


def test_a_wrong_password_is_on_record_and_an_unknown_name_is_not(auditor: User, client: Client) -> None:
    for name in ("olga", "nobody", "o\x00lga"):
        shown = client.post(SIGN_IN, {"login": name, "password": "wrong"})
        assert shown.status_code == 200
    assert records() == [("signin.failed", "system", "olga")]
    event = AuditEvent.objects.get()
    assert (event.reason, event.after) == ("password", {"address": "127.0.0.1"})


def test_after_five_failures_the_right_password_does_not_count_and_no_more_is_written(
    auditor: User, client: Client
) -> None:
    for _ in range(7):
        client.post(SIGN_IN, {"login": "olga", "password": "wrong"})
    shown = client.post(SIGN_IN, {"login": "OLGA", "password": "correct horse"}).content.decode()
    assert "Too many attempts failed. Wait five minutes" in shown
    shown = client.post(SIGN_IN, {"login": "olga", "password": "correct horse"}).content.decode()
    assert "Too many attempts failed." in shown
    assert "_auth_user_id" not in client.session
    assert AuditEvent.objects.filter(action="signin.failed").count() == 5


def test_attempts_are_counted_for_the_person_however_the_host_is_written(
    auditor: User, client: Client, settings: Any
) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    for host in ("a.example", "A.example", "a.example:81", "b.example", "b.example:8000"):
        client.post(SIGN_IN, {"login": "olga", "password": "wrong"}, headers={"host": host})
    shown = client.post(SIGN_IN, {"login": "olga", "password": "correct horse"}, headers={"host": "c.example"})
    assert "Too many attempts failed." in shown.content.decode()


def test_what_counts_attempts_is_shared_by_all_web_processes(auditor: User, client: Client) -> None:
    client.post(SIGN_IN, {"login": "olga", "password": "wrong"})
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM base_cache WHERE cache_key LIKE '%%login_failed%%'")
        assert cursor.fetchone()[0] == 2  # one for the address, one for the name


def test_a_deactivated_person_is_refused_in_words_and_on_record(auditor: User, client: Client) -> None:
    User.objects.filter(pk=auditor.pk).update(is_active=False)
    shown = client.post(SIGN_IN, {"login": "olga", "password": "correct horse"}, follow=True)
    assert "This account was deactivated." in shown.content.decode()
    assert AuditEvent.objects.get().reason == "the account is not active"


def test_whoever_has_no_page_here_is_told_so(person: Callable[..., User], client: Client) -> None:
    User.objects.filter(pk=person("guest").pk).update(is_staff=False)
    client.post(SIGN_IN, {"login": "guest", "password": "correct horse"})
    page = client.get("/admin/work/", follow=True)
    assert (page.status_code, "This account may not open any page here." in page.content.decode()) == (403, True)


def test_signing_out_takes_a_post_and_is_on_record(auditor: User, client: Client) -> None:
    client.post(SIGN_IN, {"login": "olga", "password": "correct horse"})
    for address in (reverse("admin:logout"), reverse("account_logout")):
        assert client.get(address).status_code == 200
        assert "_auth_user_id" in client.session
    answer = client.post(reverse("admin:logout"))
    assert (answer.status_code, answer["Location"]) == (302, SIGN_IN)
    assert [action for action, _, _ in records()] == ["session.began", "session.ended"]
    assert not Session.objects.filter(person=auditor).exists()


def test_signing_in_and_out_is_protected_against_forgery(auditor: User) -> None:
    strict = Client(enforce_csrf_checks=True)
    for address in (SIGN_IN, reverse("account_logout"), reverse("admin:logout")):
        assert strict.post(address, {"login": "olga", "password": "correct horse"}).status_code == 403, address


def test_somebody_changes_their_password_and_their_other_sessions_end(auditor: User, client: Client) -> None:
    other = Client()
    for browser in (client, other):
        browser.post(SIGN_IN, {"login": "olga", "password": "correct horse"})
    assert client.get(reverse("admin:password_change")).status_code == 302
    form = {"oldpassword": "correct horse", "password1": "n3w secret!", "password2": "n3w secret!"}
    wrong = client.post(reverse("account_change_password"), form | {"oldpassword": "x"}).content.decode()
    assert "That is not your present password." in wrong
    assert client.post(reverse("account_change_password"), form)["Location"] == reverse("mfa_index")
    assert client.get(reverse("mfa_index")).status_code == 200
    assert other.get(reverse("mfa_index")).status_code == 302
    assert records()[-1] == ("password.changed", "olga", "olga")
    auditor.refresh_from_db()
    assert auditor.check_password("n3w secret!")


@pytest.mark.parametrize(
    "name", ["account_signup", "account_email", "account_reset_password", "socialaccount_connections"]
)
def test_what_is_not_offered_has_no_address(name: str) -> None:
    with pytest.raises(NoReverseMatch):
        reverse(name)


def test_allauth_has_no_pages_in_the_admin() -> None:
    labels = {model._meta.app_label for model in admin.site._registry}
    assert not labels & {"account", "mfa", "socialaccount"}


def test_passwords_are_kept_by_argon2(person: Callable[..., User], settings: object) -> None:
    from cleanup_project import settings as ours

    settings.PASSWORD_HASHERS = ours.PASSWORD_HASHERS  # type: ignore[attr-defined]
    assert identify_hasher(person("ada").password).algorithm == "argon2"
