"""Before a decision somebody shows again who they are, and nothing that they filled in is lost."""

from collections.abc import Callable

import pytest
from django.test import Client
from django.urls import reverse

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from cleanup_project.base.signin import proof
from retention import control
from retention.models import StopSwitch
from tests.base.test_signin_factors import enrol
from tests.base.totp import code
from tests.web import quick_pages  # noqa: F401

REASON = "The fault is repaired: 'quoted' <b>é</b>."


@pytest.fixture
def carla(person: Callable[..., User], client: Client) -> User:
    user = person("carla", roles.COMPLIANCE)
    client.force_login(user)
    return user


@pytest.fixture
def lift(carla: User) -> str:
    """The address at which a stop switch is lifted."""
    switch = control.press(scope=StopSwitch.Scope.EVERYTHING, reason="Trial.", by=carla)
    return reverse("admin:retention_stopswitch_lift", args=[switch.pk])


def grow_stale(client: Client, seconds: float = 600) -> None:
    session = client.session
    session[proof.PROVED] -= seconds
    session.save()


def lifted() -> bool:
    return StopSwitch.objects.get().lifted_at is not None


def test_whoever_signed_in_just_now_is_not_asked(lift: str, client: Client) -> None:
    grow_stale(client, 590)
    assert client.post(lift, {"reason": REASON}).status_code == 302
    assert lifted()


def test_whoever_did_so_a_while_ago_is_asked_with_what_they_filled_in_kept(lift: str, client: Client) -> None:
    grow_stale(client)
    assert client.get(lift).status_code == 200  # reading is free
    page = client.post(lift, {"reason": REASON, "twice": ["a", "b"]})
    shown = page.content.decode()
    assert "Is it still you?" in shown
    assert "<strong>Lift the stop switch</strong>" in shown
    assert not lifted()
    assert page.context["kept"] == [("reason", REASON), ("twice", "a"), ("twice", "b")]
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    answer = client.post(lift, dict(page.context["kept"]) | {"proof-password": "correct horse"})
    assert (answer.status_code, lifted()) == (302, True)
    assert AuditEvent.objects.get(action="stop.lifted").reason == REASON


def test_a_wrong_password_decides_nothing_and_loses_nothing(lift: str, client: Client) -> None:
    grow_stale(client)
    page = client.post(lift, {"reason": REASON, "proof-password": "wrong"})
    assert "The password is not right." in page.content.decode()
    assert page.context["kept"] == [("reason", REASON)]
    assert not lifted()
    assert AuditEvent.objects.latest("pk").action == "signin.failed"


def test_passwords_cannot_be_tried_for_long(lift: str, client: Client) -> None:
    grow_stale(client)
    for _ in range(5):
        client.post(lift, {"reason": REASON, "proof-password": "wrong"})
    page = client.post(lift, {"reason": REASON, "proof-password": "correct horse"}).content.decode()
    assert "Too many attempts failed." in page
    assert not lifted()


def test_whoever_has_a_second_factor_shows_that_and_not_the_password(carla: User, lift: str, client: Client) -> None:
    secret, codes = enrol(client)
    grow_stale(client)
    page = client.post(lift, {"reason": REASON, "proof-password": "correct horse"}).content.decode()
    assert 'name="proof-code"' in page
    assert 'name="proof-password"' not in page
    assert not lifted()
    assert client.post(lift, {"reason": REASON, "proof-code": code(secret, steps=1)}).status_code == 302
    assert lifted()
    assert codes


def test_one_proof_serves_for_ten_minutes(lift: str, client: Client, carla: User) -> None:
    grow_stale(client)
    client.post(lift, {"reason": REASON, "proof-password": "correct horse"})
    other = control.press(scope=StopSwitch.Scope.EVERYTHING, reason="Again.", by=carla)
    again = reverse("admin:retention_stopswitch_lift", args=[other.pk])
    assert client.post(again, {"reason": REASON}).status_code == 302


def test_stopping_is_never_delayed(carla: User, client: Client) -> None:
    grow_stale(client)
    pressed = {"scope": "everything", "tenant": "", "bucket": "", "policy": "", "reason": "Now."}
    assert client.post(reverse("admin:retention_stopswitch_add"), pressed).status_code == 302
    assert StopSwitch.objects.exists()


def test_ones_own_factor_is_touched_only_with_a_fresh_proof(carla: User, client: Client) -> None:
    secret, _codes = enrol(client)
    grow_stale(client)
    for name in ("mfa_deactivate_totp", "mfa_generate_recovery_codes", "mfa_view_recovery_codes"):
        answer = client.get(reverse(name))
        assert answer["Location"] == f"{reverse('mfa_reauthenticate')}?next={reverse(name).replace('/', '%2F')}"
    asked = {"code": code(secret, steps=1), "next": reverse("mfa_deactivate_totp")}
    assert client.post(reverse("mfa_reauthenticate"), asked)["Location"] == reverse("mfa_deactivate_totp")
    assert client.get(reverse("mfa_deactivate_totp")).status_code == 200


def test_the_password_is_no_way_round_the_second_factor(carla: User, lift: str, client: Client) -> None:
    enrol(client)
    grow_stale(client)
    answer = client.post(reverse("account_reauthenticate"), {"password": "correct horse"})
    assert answer["Location"] == reverse("mfa_reauthenticate")
    assert "Is it still you?" in client.post(lift, {"reason": REASON}).content.decode()


def test_a_proof_belongs_to_its_session(lift: str, client: Client, carla: User) -> None:
    other = Client()
    other.force_login(carla)
    grow_stale(other)
    client.post(lift, {"reason": ""})
    assert "Is it still you?" in other.post(lift, {"reason": REASON}).content.decode()
    assert not lifted()


def test_a_page_that_asks_leaves_no_record(lift: str, client: Client) -> None:
    grow_stale(client)
    before = AuditEvent.objects.count()
    client.post(lift, {"reason": REASON})
    assert AuditEvent.objects.count() == before
