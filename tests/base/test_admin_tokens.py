"""Tokens of the API in the admin: made by form, shown once, replaced and revoked, and seen by whom they concern."""

import html
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from cleanup_project.base import apitokens, audit, roles
from cleanup_project.base.models import ApiToken, AuditEvent, User
from retention.models import Tenant
from tests.base.test_signin_proof import grow_stale
from tests.web import quick_pages, url  # noqa: F401

pytestmark = pytest.mark.django_db
FIELDS = {
    "name": "nightly", "scopes": ["runs:create", "runs:read"], "tenants": ["acme"], "days": "90", "reason": "Reports.",
}  # fmt: skip


@pytest.fixture(autouse=True)
def tenants() -> None:
    Tenant.objects.create(code="acme", name="Acme Media")
    Tenant.objects.create(code="zenith", name="Zenith")


@pytest.fixture
def adam(person: Callable[..., User], client: Client) -> User:
    user = person("adam", roles.ADMINISTRATOR)
    client.force_login(user)
    return user


def made(by: User, name: str = "nightly", **fields: Any) -> ApiToken:
    wanted = {"scopes": ["runs:read"], "tenants": ["acme"], "days": 90, "reason": "Reports."}
    return apitokens.create(name=name, by=by, **wanted | fields)[0]


def test_an_administrator_makes_a_token_and_sees_it_once(adam: User, client: Client) -> None:
    assert client.get(url(ApiToken, "add")).status_code == 200
    answer = client.post(url(ApiToken, "add"), FIELDS)
    text = answer.context["secret"]
    assert (answer.status_code, "no-store" in answer["Cache-Control"]) == (200, True)
    assert text in answer.content.decode()
    assert "messages" not in answer.cookies
    token = apitokens.authenticate(f"Bearer {text}")
    assert (token.account.tenants, token.created_by) == (["acme"], adam)
    secret = text.rpartition("_")[2]
    for page in (url(ApiToken, "change", token.pk), url(ApiToken, "history", token.pk), url(ApiToken, "changelist")):
        shown = client.get(page).content.decode()
        assert "program:nightly" in shown
        assert secret not in shown
    assert "There is a program nightly already" in client.post(url(ApiToken, "add"), FIELDS).content.decode()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tenants": []}, "Choose the tenants"),
        ({"every_tenant": "on"}, "Choose the tenants"),
        ({"tenants": ["nowhere"]}, "Select a valid choice"),
        ({"scopes": []}, "required"),
        ({"scopes": ["runs:approve"]}, "Select a valid choice"),
        ({"days": "367"}, "less than or equal to 366"),
        ({"days": ""}, "required"),
        ({"name": "Nightly!"}, "lower-case letters"),
        ({"reason": " "}, "required"),
    ],
)
def test_a_refused_token_comes_back_as_it_was(adam: User, client: Client, changed: dict[str, Any], words: str) -> None:
    shown = client.post(url(ApiToken, "add"), FIELDS | changed).content.decode()
    assert words in shown
    assert 'value="runs:create"' in shown
    assert not ApiToken.objects.exists()


def test_every_tenant_is_said_and_never_assumed(adam: User, client: Client) -> None:
    answer = client.post(url(ApiToken, "add"), FIELDS | {"tenants": [], "every_tenant": "on"})
    assert answer.context["secret"]
    assert ApiToken.objects.get().account.tenants == []
    assert "every tenant" in client.get(url(ApiToken, "changelist")).content.decode()


def test_before_each_of_the_three_one_shows_who_one_is(adam: User, client: Client) -> None:
    token = made(adam)
    grow_stale(client)
    for page, fields in (
        (url(ApiToken, "add"), FIELDS | {"name": "other"}),
        (url(ApiToken, "replace", token.pk), {"days": "30", "overlap": "24", "reason": "R"}),
        (url(ApiToken, "revoke", token.pk), {"reason": "R"}),
    ):
        assert "Is it still you?" in client.post(page, fields).content.decode(), page
    assert (ApiToken.objects.count(), ApiToken.objects.live().count()) == (1, 1)
    answer = client.post(url(ApiToken, "add"), FIELDS | {"name": "other", "proof-password": "correct horse"})
    assert answer.context["secret"]


def test_a_token_is_replaced_and_then_revoked_on_its_page(adam: User, client: Client) -> None:
    old = made(adam)
    page = url(ApiToken, "replace", old.pk)
    assert page in client.get(url(ApiToken, "change", old.pk)).content.decode()
    answer = client.post(page, {"days": "30", "overlap": "0", "reason": "It was in a chat."})
    new = apitokens.authenticate(f"Bearer {answer.context['secret']}")
    shown = client.get(url(ApiToken, "change", old.pk)).content.decode()
    assert "revoked" in shown
    assert url(ApiToken, "change", new.pk) in shown
    assert page not in shown
    assert "revoked for ever" in client.post(page, {"days": "3", "overlap": "0", "reason": "R"}).content.decode()
    answer = client.post(url(ApiToken, "revoke", new.pk), {"reason": "Gone."}, follow=True)
    assert "it opens nothing any more" in answer.content.decode()
    assert [each.action for each in AuditEvent.objects.order_by("pk")] == [
        "token.created", "token.replaced", "token.created", "token.revoked",
    ]  # fmt: skip


def test_the_list_says_how_it_stands_with_each_in_as_many_queries_for_ten(adam: User, client: Client) -> None:
    rows = {name: made(adam, name) for name in ("opens", "soon", "expired", "revoked", "replaced")}
    end = {"soon": timedelta(days=3), "expired": timedelta()}
    for name, ahead in end.items():
        ApiToken.objects.filter(pk=rows[name].pk).update(created_at=Now() - timedelta(days=9), expires_at=Now() + ahead)
    apitokens.revoke(token=rows["revoked"], by=adam, reason="R")
    apitokens.replace(token=rows["replaced"], days=9, by=adam, reason="R")
    with CaptureQueriesContext(connection) as few:
        page = client.get(url(ApiToken, "changelist")).content.decode()
    for words in (">valid<", "expires soon", ">expired<", ">revoked<", "replaced, still valid"):
        assert words in page, words
    for number in range(5):
        made(adam, f"more-{number}")
    with CaptureQueriesContext(connection) as many:
        client.get(url(ApiToken, "changelist"))
    assert len(few) == len(many)
    found = client.get(url(ApiToken, "changelist"), {"q": "program:soon"}).context["cl"].result_list
    assert [each.pk for each in found] == [rows["soon"].pk]


def test_an_administrator_of_one_tenant_makes_and_sees_tokens_of_that_one(
    adam: User, person: Callable[..., User], client: Client
) -> None:
    theirs, other, whole = made(adam, "a"), made(adam, "z", tenants=["zenith"]), made(adam, "w", tenants=[])
    client.force_login(person("zoe", roles.ADMINISTRATOR, tenants=["acme"]))
    shown = client.get(url(ApiToken, "changelist")).context["cl"].result_list
    assert [each.pk for each in shown] == [theirs.pk]
    for token in (other, whole):
        for page in ("change", "revoke", "replace"):
            assert client.get(url(ApiToken, page, token.pk)).status_code == 404
    form = client.get(url(ApiToken, "add")).content.decode()
    assert 'value="acme"' in form
    assert "zenith" not in form
    assert "every_tenant" not in form
    assert (
        "Select a valid choice" in client.post(url(ApiToken, "add"), FIELDS | {"tenants": ["zenith"]}).content.decode()
    )
    assert (
        "Choose the tenants"
        in client.post(url(ApiToken, "add"), FIELDS | {"tenants": [], "every_tenant": "on"}).content.decode()
    )
    assert client.post(url(ApiToken, "add"), FIELDS).context["secret"]


def test_an_auditor_reads_tokens_and_decides_nothing(adam: User, person: Callable[..., User], client: Client) -> None:
    token = made(adam)
    client.force_login(person("olga", roles.AUDITOR))
    shown = client.get(url(ApiToken, "change", token.pk)).content.decode()
    assert "program:nightly" in shown
    for page in ("replace", "revoke"):
        assert url(ApiToken, page, token.pk) not in shown
        assert client.post(url(ApiToken, page, token.pk), {"reason": "R"}).status_code == 403


def test_the_page_of_a_token_leads_to_what_its_program_did(adam: User, client: Client) -> None:
    token = made(adam)
    with transaction.atomic():
        audit.record(action="run.opened", subject=token, by=token.account)
    (link,) = re.findall(r'href="([^"]*who=[^"]*)"', client.get(url(ApiToken, "change", token.pk)).content.decode())
    events = client.get(html.unescape(link)).context["cl"].result_list
    assert [(each.action, each.actor) for each in events] == [("run.opened", token.account)]


def test_programs_are_not_among_people(adam: User, client: Client) -> None:
    account = made(adam).account
    assert "program:nightly" not in client.get(url(User, "changelist")).content.decode()
    for page in (url(User, "change", account.pk), reverse("admin:auth_user_password_change", args=[account.pk])):
        assert client.get(page).status_code == 404
    assert client.post(url(User, "end-sessions", account.pk), {"reason": "R"}).status_code == 404
