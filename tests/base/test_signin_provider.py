"""Signing in at an identity provider: who is let in, who is not and why, and what the provider says about factors."""

import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from allauth.socialaccount.models import SocialAccount
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from cleanup_project.base.signin import proof
from retention import control
from retention.models import StopSwitch
from tests.base.oidc import CLIENT_ID, CLIENT_SECRET, OpenIDProvider, fresh_key, serving
from tests.web import quick_pages  # noqa: F401

CLAIMS = {"sub": "7f3a", "email": "olga@example.org", "email_verified": True}


@pytest.fixture
def idp(settings: Any) -> Iterator[OpenIDProvider]:
    with serving() as provider:
        provider.claims = dict(CLAIMS)
        settings.OIDC_ISSUER = provider.issuer
        settings.OIDC_NAME = "Example Corp"
        settings.SOCIALACCOUNT_REQUESTS_TIMEOUT = 30  # seconds: the machine may be busy
        known = deepcopy(settings.SOCIALACCOUNT_PROVIDERS)
        (app,) = known["openid_connect"]["APPS"]
        app |= {"client_id": CLIENT_ID, "secret": CLIENT_SECRET}
        app["settings"]["server_url"] = provider.issuer
        settings.SOCIALACCOUNT_PROVIDERS = known
        yield provider


@pytest.fixture
def olga(person: Callable[..., User]) -> User:
    return person("olga", roles.AUDITOR, email="Olga@example.org")


def come(client: Client, idp: OpenIDProvider, start: str = "/signin/provider/") -> Any:
    """Through the provider and back, as a browser goes."""
    there = client.get(start)
    assert there.status_code == 302, there.content.decode()
    assert there["Location"].startswith(f"{idp.issuer}/authorize?")
    back = urlsplit(idp.authorize(dict(parse_qsl(urlsplit(there["Location"]).query))))
    return client.get(f"{back.path}?{back.query}")


def signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_somebody_known_by_a_verified_address_comes_in_and_is_linked(
    idp: OpenIDProvider, olga: User, client: Client
) -> None:
    assert "Sign in with Example Corp" in client.get("/signin/?next=/admin/base/alarm/").content.decode()
    answer = come(client, idp, "/signin/provider/?next=/admin/base/alarm/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/base/alarm/")
    assert client.get("/admin/base/alarm/").status_code == 200
    linked, began = AuditEvent.objects.order_by("pk")
    assert (linked.action, linked.after) == (
        "provider.linked", {"provider": "Example Corp", "subject": f"{idp.issuer} 7f3a"},
    )  # fmt: skip
    assert (began.action, began.after["with"]) == ("session.began", ["identity provider"])
    olga.refresh_from_db()
    assert olga.check_password("correct horse")  # the way in for emergencies stays


def test_from_then_on_the_subject_leads_to_the_person_whatever_the_address(
    idp: OpenIDProvider, olga: User, person: Callable[..., User]
) -> None:
    come(Client(), idp)
    idp.claims["email"] = person("other", roles.AUDITOR, email="other@example.org").email
    client = Client()
    come(client, idp)
    assert client.session["_auth_user_id"] == str(olga.pk)
    assert SocialAccount.objects.count() == 1


def test_the_request_uses_pkce_and_what_the_settings_ask_for(idp: OpenIDProvider, olga: User, client: Client) -> None:
    come(client, idp, "/signin/provider/?scope=everything&auth_params=prompt%3Dnone&process=connect")
    (asked,) = idp.asked
    assert set(asked["scope"].split()) == {"openid", "profile", "email"}
    assert (asked["client_id"], asked["code_challenge_method"]) == (CLIENT_ID, "S256")
    assert "prompt" not in asked
    assert asked["redirect_uri"].endswith("/signin/oidc/callback/")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an address that nobody has": ({"email": "nobody@example.org"}, "Nobody here has the address nobody@example.org."),
    "an address that is not verified": ({"email_verified": False}, "does not vouch for an e-mail address of yours"),
    "an address that is said to be verified in words": ({"email_verified": "no"}, "does not vouch"),
    "no address": ({"email": None}, "does not vouch"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_whoever_is_not_known_is_refused_in_words(case: str, idp: OpenIDProvider, olga: User, client: Client) -> None:
    said, words = REFUSED[case]
    idp.claims |= said
    answer = come(client, idp)
    assert (answer.status_code, words in answer.content.decode()) == (403, True)
    assert "Ask an administrator" in answer.content.decode()
    assert (signed_in(client), User.objects.count(), SocialAccount.objects.count()) == (False, 1, 0)


def test_an_address_that_two_people_have_leads_to_neither(
    idp: OpenIDProvider, olga: User, person: Callable[..., User], client: Client
) -> None:
    person("olga2", roles.AUDITOR, email="olga@example.org")
    assert "Several people here have the address" in come(client, idp).content.decode()
    assert not signed_in(client)


def test_an_address_that_changed_hands_leads_nowhere(idp: OpenIDProvider, olga: User) -> None:
    come(Client(), idp)
    idp.claims["sub"] = "somebody else"
    client = Client()
    assert "an address may have changed hands" in come(client, idp).content.decode()
    assert not signed_in(client)


def test_the_database_knows_one_subject_for_each_person(idp: OpenIDProvider, olga: User, client: Client) -> None:
    come(client, idp)
    for user, uid in ((olga, "another"), (olga, f"{idp.issuer} 7f3a")):
        with pytest.raises(IntegrityError), transaction.atomic():
            SocialAccount.objects.create(user=user, provider="oidc", uid=uid)


def test_a_deactivated_person_stays_out(idp: OpenIDProvider, olga: User, client: Client) -> None:
    User.objects.filter(pk=olga.pk).update(is_active=False)
    come(client, idp)
    assert not signed_in(client)


@pytest.mark.parametrize("case", ["key", "audience", "issuer", "expired", "subjects differ", "no token", "state"])
def test_what_is_not_the_providers_word_is_not_believed(
    case: str, idp: OpenIDProvider, olga: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"audience": {"aud": "other"}, "issuer": {"iss": "https://evil.example"}, "expired": {"exp": 1}}
    idp.claims |= wrong.get(case, {})
    if case == "key":
        idp.signed_with = fresh_key()
    if case == "subjects differ":
        idp.about["sub"] = "other"
    if case == "no token":
        whole = idp.token
        monkeypatch.setattr(idp, "token", lambda sent: {"access_token": (whole(sent) or {})["access_token"]})
    if case == "state":
        client.get("/signin/provider/")
        answer = client.get("/signin/oidc/callback/?code=x&state=forged")
    else:
        answer = come(client, idp)
    assert answer.status_code == 401
    assert "did not succeed" in answer.content.decode()
    assert not signed_in(client)


def test_a_provider_that_does_not_answer_is_no_fault_of_ours(
    idp: OpenIDProvider, client: Client, db: None, settings: Any
) -> None:
    settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]["settings"]["server_url"] = "http://127.0.0.1:9"
    answer = client.get("/signin/provider/")
    assert (answer.status_code, "Example Corp does not answer." in answer.content.decode()) == (503, True)


def test_without_a_provider_there_is_no_such_way(client: Client, db: None) -> None:
    for address in ("/signin/provider/", "/signin/oidc/callback/"):
        assert client.get(address).status_code == 404
    assert "Sign in with" not in client.get("/signin/").content.decode()


FACTORS: dict[str, tuple[dict[str, Any], bool]] = {
    "nothing": ({}, False),
    "a password": ({"amr": ["pwd"]}, False),
    "several factors": ({"amr": ["pwd", "mfa"]}, True),
    "a class that counts": ({"acr": "phr"}, True),
    "another class": ({"acr": "1"}, False),
    "nonsense": ({"amr": "mfa"}, False),
}


@pytest.mark.parametrize("case", FACTORS)
def test_a_factor_shown_to_the_provider_counts_where_it_says_so(
    case: str, idp: OpenIDProvider, person: Callable[..., User], client: Client, settings: Any
) -> None:
    settings.MFA_REQUIRED, settings.OIDC_MFA_ACR = True, ["phr"]
    person("carla", roles.COMPLIANCE, email="olga@example.org")
    said, enough = FACTORS[case]
    idp.claims |= said | {"auth_time": int(time.time())}
    come(client, idp)
    led = client.get("/admin/work/", follow=True)
    assert led.request["PATH_INFO"] == ("/admin/work/" if enough else "/signin/own/factor/add/")


@pytest.fixture
def lift(person: Callable[..., User]) -> str:
    carla = person("carla", roles.COMPLIANCE, email="olga@example.org")
    carla.set_unusable_password()
    carla.save()
    switch = control.press(scope=StopSwitch.Scope.EVERYTHING, reason="Trial.", by=carla)
    return reverse("admin:retention_stopswitch_lift", args=[switch.pk])


def test_a_silent_sign_in_is_no_proof_and_signing_in_again_is(idp: OpenIDProvider, lift: str, client: Client) -> None:
    idp.claims["auth_time"] = int(time.time()) - 3600  # came in with this morning's session at the provider
    come(client, idp)
    asked = client.post(lift, {"reason": "Repaired."})
    shown = asked.content.decode()
    assert "Sign in again with Example Corp" in shown
    assert 'type="password"' not in shown
    idp.claims["auth_time"] = int(time.time())
    key = client.session.session_key
    back = come(client, idp, "/signin/provider/again/")
    assert (idp.asked[-1]["prompt"], idp.asked[-1]["max_age"]) == ("login", "0")
    assert back["Location"] == reverse("signin_proved")
    assert "go back to the page that waits for you" in client.get(back["Location"]).content.decode()
    assert client.session.session_key == key  # or the page that waits could not be sent any more
    assert client.post(lift, dict(asked.context["kept"])).status_code == 302
    assert StopSwitch.objects.get().lifted_at is not None


def test_a_provider_that_did_not_ask_anew_has_proved_nothing(idp: OpenIDProvider, lift: str, client: Client) -> None:
    idp.claims["auth_time"] = int(time.time()) - 3600
    come(client, idp)
    come(client, idp, "/signin/provider/again/")
    assert "Is it still you?" in client.post(lift, {"reason": "Repaired."}).content.decode()


def test_somebody_else_proves_nothing(idp: OpenIDProvider, lift: str, olga: User, client: Client) -> None:
    User.objects.filter(pk=olga.pk).update(email="x@example.org")
    idp.claims["auth_time"] = int(time.time()) - 3600
    come(client, idp)
    person = client.session["_auth_user_id"]
    idp.claims |= {"sub": "x", "email": "x@example.org", "auth_time": int(time.time())}
    answer = come(client, idp, "/signin/provider/again/")
    assert (answer.status_code, "as somebody else than here" in answer.content.decode()) == (403, True)
    assert client.session["_auth_user_id"] == person
    assert time.time() - client.session[proof.PROVED] > 600


def test_an_administrator_unlinks_somebody_whose_subject_changed(
    idp: OpenIDProvider, olga: User, person: Callable[..., User], client: Client
) -> None:
    come(client, idp)
    adam = Client()
    adam.force_login(person("adam", roles.ADMINISTRATOR))
    address = reverse("admin:base_user_unlink-provider", args=[olga.pk])
    assert address in adam.get(reverse("admin:base_user_change", args=[olga.pk])).content.decode()
    assert adam.post(address, {"reason": "New directory."}).status_code == 302
    assert client.get("/admin/work/").status_code == 302
    event = AuditEvent.objects.get(action="provider.unlinked")
    assert event.before == {"subjects": [f"{idp.issuer} 7f3a"]}
    assert "not linked" in adam.post(address, {"reason": "Again."}).content.decode()
    idp.claims["sub"] = "new"
    come(client, idp)
    assert client.session["_auth_user_id"] == str(olga.pk)


def test_whoever_has_no_password_is_told_how_to_get_one(idp: OpenIDProvider, olga: User, client: Client) -> None:
    olga.set_unusable_password()
    olga.save()
    come(client, idp)
    page = client.get(reverse("account_change_password"), follow=True).content.decode()
    assert "You have no password here." in page
    assert "You sign in with Example Corp." in page
