"""The second factor: whoever decides must have one, keeps its secret sealed, and loses it only through another person."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.test import Client
from django.urls import reverse

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, Session, User
from cleanup_project.base.signin import factors, provider, sessions
from cleanup_project.base.signin.administrators import SignInRefused
from tests.base.totp import code
from tests.web import quick_pages  # noqa: F401

SIGN_IN = "/signin/"
ENROL = "/signin/own/factor/add/"
DECIDING_ROLES = sorted(set(roles.MATRIX) - {roles.AUDITOR})


@pytest.fixture(autouse=True)
def required(quick_pages: None, settings: Any) -> None:  # noqa: F811
    settings.MFA_REQUIRED = True


@pytest.fixture
def carla(person: Callable[..., User]) -> User:
    return person("carla", roles.COMPLIANCE)


def by_password(client: Client, name: str, follow: bool = True) -> Any:
    return client.post(SIGN_IN, {"login": name, "password": "correct horse"}, follow=follow)


def enrol(client: Client) -> tuple[str, list[str]]:
    """Set up a factor in a session; returns its secret and the recovery codes."""
    secret = secret_of(client.get(ENROL))
    answer = client.post(ENROL, {"code": code(secret)}, follow=True)
    return secret, re.findall(r"<code>(\d{8})</code>", answer.content.decode())


def secret_of(page: Any) -> str:
    found = re.search(r'id="authenticator_secret"[^>]* value="([A-Z2-7]+)"', page.content.decode())
    assert found
    return found.group(1)


def test_the_roles_that_decide_are_known() -> None:
    assert {role for role, rights in roles.MATRIX.items() if rights & roles.DECIDING} == set(DECIDING_ROLES)
    assert set(roles.RIGHTS) >= roles.DECIDING


@pytest.mark.parametrize("role", DECIDING_ROLES)
def test_whoever_decides_is_led_to_set_one_up_and_does_nothing_else(
    role: str, person: Callable[..., User], client: Client
) -> None:
    person("dora", role)
    page = by_password(client, "dora")
    assert page.redirect_chain[-1][0] == ENROL
    shown = page.content.decode()
    assert "Your role decides things, so you need a second factor" in shown
    assert "data:image/svg+xml;base64," in shown
    for address in ("/admin/", "/admin/work/", "/admin/base/alarm/", "/admin/retention/stopswitch/add/"):
        for answer in (client.get(address), client.post(address, {"reason": "x"})):
            assert answer.status_code == 302, address
            assert answer["Location"].startswith("/admin/login/"), address


def test_a_superuser_needs_one(person: Callable[..., User], client: Client) -> None:
    person("root", is_superuser=True)
    assert by_password(client, "root").redirect_chain[-1][0] == ENROL


def test_whoever_only_reads_needs_none(person: Callable[..., User], client: Client) -> None:
    person("olga", roles.AUDITOR)
    assert by_password(client, "olga").redirect_chain[-1][0] == "/admin/work/"


def test_a_role_that_is_given_later_counts_with_the_next_request(person: Callable[..., User], client: Client) -> None:
    olga = person("olga", roles.AUDITOR)
    by_password(client, "olga")
    olga.groups.add(*User.groups.field.related_model.objects.filter(name=roles.OPERATOR))  # type: ignore[attr-defined]
    assert client.get("/admin/work/").status_code == 302


def test_setting_one_up_opens_the_pages_and_gives_recovery_codes_once(carla: User, client: Client) -> None:
    by_password(client, "carla")
    wrong = client.post(ENROL, {"code": "000000"}).content.decode()
    assert "The code is not right." in wrong
    assert client.get("/admin/work/").status_code == 302
    _secret, codes = enrol(client)
    assert len(set(codes)) == 10
    assert client.get("/admin/work/").status_code == 200
    again = client.get(reverse("mfa_view_recovery_codes")).content.decode()
    assert "10 of 10 codes are unused" in again
    assert not any(each in again for each in codes)
    assert [each.action for each in AuditEvent.objects.order_by("pk")] == ["session.began", "factor.added"]


def test_secrets_are_sealed_in_the_database(carla: User, client: Client) -> None:
    by_password(client, "carla")
    secret, _codes = enrol(client)
    for each in Authenticator.objects.all():
        (sealed,) = (value for name, value in each.data.items() if name in {"secret", "seed"})
        assert sealed.startswith("gAAAA")  # Fernet's version and the time
        assert secret not in sealed


def test_the_next_session_asks_for_the_code_and_a_code_counts_once(carla: User, client: Client) -> None:
    by_password(client, "carla")
    secret, _codes = enrol(client)
    later = Client()
    assert by_password(later, "carla").redirect_chain[-1][0] == "/signin/code/"
    assert later.get("/admin/work/", follow=True).redirect_chain[-1][0].startswith(SIGN_IN)
    shown = code(secret, steps=1)
    assert later.post("/signin/code/", {"code": shown}).status_code == 302
    assert later.get("/admin/work/").status_code == 200
    assert AuditEvent.objects.filter(action="session.began").latest("pk").after["with"] == ["password", "second factor"]
    thief = Client()
    by_password(thief, "carla")
    assert "The code is not right." in thief.post("/signin/code/", {"code": shown}).content.decode()
    event = AuditEvent.objects.latest("pk")
    assert (event.action, event.reason, event.subject_label) == ("signin.failed", "second factor", "carla")


def test_codes_cannot_be_tried_for_long(carla: User, client: Client) -> None:
    by_password(client, "carla")
    enrol(client)
    thief = Client()
    by_password(thief, "carla")
    pages = [thief.post("/signin/code/", {"code": f"{number:06d}"}).content.decode() for number in range(7)]
    assert "Too many attempts failed." in pages[-1]
    assert AuditEvent.objects.filter(reason="second factor").count() == 5


def test_a_recovery_code_signs_in_once(carla: User, client: Client) -> None:
    by_password(client, "carla")
    _secret, codes = enrol(client)
    for status in (302, 200):
        later = Client()
        by_password(later, "carla")
        assert later.post("/signin/code/", {"code": codes[0]}).status_code == status


def test_whoever_moves_to_another_telephone_sets_up_a_new_one_at_once(carla: User, client: Client) -> None:
    by_password(client, "carla")
    enrol(client)
    assert client.post(reverse("mfa_deactivate_totp")).status_code == 302
    assert client.get("/admin/work/", follow=True).redirect_chain[-1][0] == ENROL
    enrol(client)
    assert client.get("/admin/work/").status_code == 200
    assert [each.action for each in AuditEvent.objects.order_by("pk")][1:] == [
        "factor.added", "factor.removed", "factor.added",
    ]  # fmt: skip


def test_new_recovery_codes_are_on_record(carla: User, client: Client) -> None:
    by_password(client, "carla")
    enrol(client)
    client.post(reverse("mfa_generate_recovery_codes"))
    assert AuditEvent.objects.latest("pk").action == "recovery_codes.made"


def test_an_administrator_resets_somebodys_factor(carla: User, person: Callable[..., User], client: Client) -> None:
    by_password(client, "carla")
    enrol(client)
    adam = Client()
    person("adam", roles.ADMINISTRATOR)
    by_password(adam, "adam")
    enrol(adam)
    change = adam.get(reverse("admin:base_user_change", args=[carla.pk])).content.decode()
    address = reverse("admin:base_user_reset-factor", args=[carla.pk])
    assert address in change
    assert adam.post(address, {"reason": "Telephone lost; called back on the known number."}).status_code == 302
    assert not Authenticator.objects.filter(user=carla).exists()
    assert not Session.objects.filter(person=carla).exists()
    event = AuditEvent.objects.get(action="factor.reset")
    assert (event.actor_name, event.before) == ("adam", {"factors": ["recovery_codes", "totp"]})
    assert by_password(Client(), "carla").redirect_chain[-1][0] == ENROL


def test_nobody_resets_their_own(person: Callable[..., User], client: Client) -> None:
    adam = person("adam", roles.ADMINISTRATOR)
    by_password(client, "adam")
    enrol(client)
    address = reverse("admin:base_user_reset-factor", args=[adam.pk])
    assert address not in client.get(reverse("admin:base_user_change", args=[adam.pk])).content.decode()
    assert "Another administrator must do this for you" in client.post(address, {"reason": "x"}).content.decode()
    assert Authenticator.objects.filter(user=adam).count() == 2
    with pytest.raises(SignInRefused):
        factors.reset(person=adam, by=adam, reason="x")


def test_where_there_is_none_there_is_nothing_to_reset(carla: User, person: Callable[..., User]) -> None:
    with pytest.raises(SignInRefused, match="carla has no second factor"):
        factors.reset(person=carla, by=person("adam", roles.ADMINISTRATOR), reason="x")


@pytest.mark.parametrize("verb", [factors.reset, sessions.end, provider.unlink])
def test_the_verbs_themselves_know_who_manages_people(
    verb: Callable[..., object], carla: User, person: Callable[..., User]
) -> None:
    adam, root = person("adam", roles.ADMINISTRATOR), person("root", is_superuser=True)
    for by in (person("olaf", roles.OPERATOR), person("zoe", roles.ADMINISTRATOR, tenants=["acme"])):
        with pytest.raises(SignInRefused, match="does not manage people"):
            verb(person=carla, by=by, reason="x")
    with pytest.raises(SignInRefused, match="root is a superuser"):
        verb(person=root, by=adam, reason="x")
    for by, somebody in ((adam, carla), (root, adam), (root, root), (None, root)):
        assert sessions.end(person=somebody, by=by, reason="x") == 0


def test_where_it_is_switched_off_nobody_is_asked(carla: User, client: Client, settings: Any) -> None:
    settings.MFA_REQUIRED = False
    assert by_password(client, "carla").redirect_chain[-1][0] == "/admin/work/"


def test_a_factor_of_an_earlier_person_in_the_same_browser_does_not_count(
    carla: User, person: Callable[..., User], client: Client
) -> None:
    by_password(client, "carla")
    enrol(client)
    client.post(reverse("account_logout"))
    person("dora", roles.OPERATOR)
    assert by_password(client, "dora").redirect_chain[-1][0] == ENROL
