"""Tokens of the API: what opens and what does not, what is kept of them, and who makes, replaces and revokes them."""

import hashlib
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import authenticate as sign_in
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from structlog.testing import capture_logs

from cleanup_project.base import apitokens, clock, roles
from cleanup_project.base.apitokens import TokenRefused, Unauthenticated
from cleanup_project.base.models import Alarm, ApiToken, AuditEvent, User
from cleanup_project.base.scopes import SCOPES
from tests.web import quick_pages  # noqa: F401

pytestmark = pytest.mark.django_db


@pytest.fixture
def adam(person: Callable[..., User]) -> User:
    return person("adam", roles.ADMINISTRATOR)


def create(by: User, **fields: Any) -> tuple[ApiToken, str]:
    wanted = {"name": "nightly", "scopes": ["runs:read"], "tenants": ["acme"], "days": 90, "reason": "Reports."}
    return apitokens.create(by=by, **wanted | fields)


def opened(text: str, address: str | None = "192.0.2.7") -> ApiToken:
    return apitokens.authenticate(f"Bearer {text}", address)


def refused(header: str | None) -> tuple[str, str]:
    """(what the caller is told, what the log says)."""
    with capture_logs() as lines, pytest.raises(Unauthenticated) as told:
        apitokens.authenticate(header, "192.0.2.7")
    (line,) = lines
    assert line["event"] == "token refused"
    return str(told.value), line["reason"]


def end(token: ApiToken, **changed: Any) -> None:
    ApiToken.objects.filter(pk=token.pk).update(**changed)


def test_a_token_opens_and_only_its_digest_is_kept(adam: User) -> None:
    token, text = create(adam)
    assert re.fullmatch(apitokens.PATTERN, text)
    assert opened(text) == token
    secret = text.rpartition("_")[2]
    assert bytes(ApiToken.objects.get().digest) == hashlib.sha256(secret.encode()).digest()
    with connection.cursor() as cursor:
        cursor.execute("SELECT t::text, u::text FROM base_apitoken t JOIN base_user u ON u.id = t.account_id")
        assert secret not in str(cursor.fetchall())
    event = AuditEvent.objects.get()
    assert (event.action, event.actor, event.reason, event.tenant) == ("token.created", adam, "Reports.", "acme")
    assert secret not in str(event.after)
    assert event.after["scopes"] == ["runs:read"]


def test_whatever_is_wrong_the_caller_is_told_the_same_and_the_log_why(adam: User) -> None:
    _token, text = create(adam)
    expired, expired_text = create(adam, name="expired")
    end(expired, created_at=Now() - timedelta(days=2), expires_at=Now())
    revoked, revoked_text = create(adam, name="revoked")
    apitokens.revoke(token=revoked, by=adam, reason="Lost.")
    shut, shut_text = create(adam, name="shut")
    User.objects.filter(pk=shut.account_id).update(is_active=False)
    other = text[:-1] + ("0" if text[-1] != "0" else "1")
    cases = {
        None: "no header",
        "": "no header",
        text: "no token of ours",
        f"Basic {text}": "no token of ours",
        f"Bearer  {text}": "no token of ours",
        f"Bearer {text}\n": "no token of ours",
        f"Bearer {text.upper()}": "no token of ours",
        f"Bearer {other}": "unknown",
        f"Bearer cleanup_{'0' * 12}_{'0' * 64}": "unknown",
        f"Bearer {expired_text}": "expired",
        f"Bearer {revoked_text}": "revoked",
        f"Bearer {shut_text}": "its account is not active",
    }
    answers = {header: refused(header) for header in cases}
    assert {header: why for header, (_, why) in answers.items()} == cases
    assert len({words for words, _ in answers.values()}) == 1
    assert opened(text)
    assert not any(row.last_used_at for row in (expired, revoked, shut))


def test_neither_answer_nor_log_holds_a_secret(adam: User) -> None:
    _token, text = create(adam)
    secret = text.rpartition("_")[2]
    with capture_logs() as lines, pytest.raises(Unauthenticated) as told:
        opened(text.replace("cleanup_", f"cleanup_{'f' * 12}_")[: len(text)])
    with capture_logs() as more, pytest.raises(Unauthenticated):
        opened(f"cleanup_{'f' * 12}_{secret}")
    assert secret not in f"{told.value}{lines}{more}"


def test_the_last_use_is_noted_once_a_minute_with_its_address(adam: User) -> None:
    token, text = create(adam)
    assert token.last_used_at is None
    opened(text)
    token.refresh_from_db()
    first = token.last_used_at
    assert (first is not None, token.last_used_from) == (True, "192.0.2.7")
    with CaptureQueriesContext(connection) as asked:
        opened(text, "192.0.2.8")
    assert len(asked) == 1
    apitokens.note_use(token, "192.0.2.8")  # another request that came at the same moment
    token.refresh_from_db()
    assert (token.last_used_at, token.last_used_from) == (first, "192.0.2.7")
    end(token, last_used_at=Now() - timedelta(seconds=61))
    opened(text, "fe80::1%eth0")
    token.refresh_from_db()
    assert token.last_used_from == "fe80::1"


@pytest.mark.parametrize("address", [None, "", "unix:", "1.2.3.4, 5.6.7.8"])
def test_an_address_that_is_none_shuts_nobody_out(adam: User, address: str | None) -> None:
    _token, text = create(adam)
    assert opened(text, address).allows("runs:read")
    assert ApiToken.objects.get().last_used_from is None


def test_a_token_allows_its_scopes_and_nothing_else(adam: User) -> None:
    token, _ = create(adam, scopes=["quarantine:read", "runs:read"])
    assert [name for name in SCOPES if token.allows(name)] == ["runs:read", "quarantine:read"]
    with pytest.raises(LookupError, match="no scope runs:approve"):
        token.allows("runs:approve")


def test_replaying_and_closing_are_scopes_of_their_own(adam: User) -> None:
    assert [name for name, scope in SCOPES.items() if scope.right == "operate"] == ["quarantine:replay"]
    assert [name for name, scope in SCOPES.items() if scope.right == "review_quarantine"] == ["quarantine:close"]


def test_a_program_has_the_rights_of_its_scopes_and_none_from_a_group_or_by_being_somebody(adam: User) -> None:
    token, _ = create(adam, scopes=["holds:place", "quarantine:replay"])
    account = User.objects.get(pk=token.account_id)
    account.groups.set(Group.objects.all())
    may = {right for right in roles.RIGHTS if account.has_perm(f"base.{right}")}
    assert may == {"place_hold", "operate"}
    assert not account.has_perm("ledger.view_cleanuprun")
    account.is_active = False
    assert not account.has_perm("base.place_hold")


@pytest.mark.parametrize(
    "changed",
    [
        {"is_staff": True},
        {"is_superuser": True},
        {"password": "argon2$x"},
        {"rights": ["approve_run"]},
        {"rights": ["approve_release"]},
        {"rights": ["publish_policy"]},
        {"rights": ["manage_settings"]},
        {"is_program": False},
    ],
    ids=str,
)
def test_the_database_lets_no_program_approve_or_become_a_person(adam: User, changed: dict[str, Any]) -> None:
    token, _ = create(adam, scopes=["holds:place"])
    with pytest.raises(IntegrityError, match="program_never_signs_in"), transaction.atomic():
        User.objects.filter(pk=token.account_id).update(**changed)


def test_the_database_gives_no_person_rights_beside_their_roles(adam: User) -> None:
    with pytest.raises(IntegrityError, match="program_never_signs_in"), transaction.atomic():
        User.objects.filter(pk=adam.pk).update(rights=["operate"])


def test_a_program_never_signs_in(adam: User, client: Client) -> None:
    token, text = create(adam)
    name = token.account.get_username()
    for password in ("", text, token.account.password, "!"):
        assert sign_in(username=name, password=password) is None
        client.post("/signin/", {"login": name, "password": password})
        assert "_auth_user_id" not in client.session
    client.force_login(token.account)  # were there ever a way in, it would lead to nothing
    assert client.get("/admin/work/").status_code == 302
    assert client.get("/admin/").status_code == 302


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "Nightly"}, "lower-case letters"),
        ({"name": "a:b"}, "lower-case letters"),
        ({"name": ""}, "lower-case letters"),
        ({"scopes": []}, "one or more of these scopes"),
        ({"scopes": ["runs:approve"]}, "one or more of these scopes"),
        ({"days": 0}, "1 to 366 days"),
        ({"days": 367}, "1 to 366 days"),
        ({"reason": " "}, "State a reason"),
    ],
)
def test_what_is_no_token_is_refused_and_leaves_nothing(adam: User, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(TokenRefused, match=words):
        create(adam, **changed)
    assert not ApiToken.objects.exists()
    assert not User.objects.filter(is_program=True).exists()


def test_a_name_is_one_program_for_ever(adam: User) -> None:
    token, _ = create(adam)
    apitokens.revoke(token=token, by=adam, reason="Gone.")
    with pytest.raises(TokenRefused, match="There is a program nightly already") as refusal:
        create(adam)
    assert refusal.value.field == "name"


@pytest.mark.parametrize(
    ("changed", "constraint"),
    [
        ({"expires_at": Now() + timedelta(days=400)}, "apitoken_expires"),
        ({"expires_at": Now() - timedelta(days=1)}, "apitoken_expires"),
        ({"scopes": []}, "apitoken_scopes"),
        ({"scopes": ["runs:approve"]}, "apitoken_scopes"),
        ({"revoked_at": Now()}, "apitoken_revoked_with_reason"),
        ({"revoked_reason": "Lost."}, "apitoken_revoked_with_reason"),
    ],
)
def test_the_database_refuses_a_token_that_is_none(adam: User, changed: dict[str, Any], constraint: str) -> None:
    token, _ = create(adam)
    said = {"account": token.account, "created_by": adam, "scopes": ["runs:read"], "expires_at": token.expires_at}
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        ApiToken.objects.create(public_id="0" * 12, digest=b"0" * 32, **said | changed)


def test_the_database_keeps_what_a_token_is_and_lets_it_end_earlier_and_never_later(
    adam: User, person: Callable[..., User]
) -> None:
    token, _ = create(adam)
    other, _ = create(adam, name="other")
    revoked = {"revoked_at": Now(), "revoked_by": adam, "revoked_reason": "Lost."}
    for changed in (
        {"created_by": person("eve", roles.ADMINISTRATOR)},
        {"account": other.account},
        {"digest": other.digest},
        {"scopes": [*token.scopes, "quarantine:replay"]},
        {"public_id": "0" * 12},
        {"replaces": other},
        {"expires_at": token.expires_at + timedelta(seconds=1)},
    ):
        with pytest.raises(IntegrityError, match="cannot be changed so"), transaction.atomic():
            end(token, **changed)
    end(token, expires_at=token.expires_at - timedelta(days=1))
    end(token, **revoked)
    with pytest.raises(IntegrityError, match="cannot be changed so"), transaction.atomic():
        end(token, revoked_at=None, revoked_by=None, revoked_reason="")
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        other.delete()


def test_the_longest_token_is_as_long_as_the_database_allows(adam: User) -> None:
    token, _ = create(adam, days=366)
    assert token.expires_at - token.created_at == timedelta(days=366)
    token.expires_at += timedelta(seconds=1)
    with pytest.raises(ValidationError, match="apitoken_expires"):
        token.full_clean()


@pytest.mark.parametrize("role", [role for role in roles.MATRIX if role != roles.ADMINISTRATOR])
def test_only_administrators_manage_tokens(adam: User, person: Callable[..., User], role: str) -> None:
    token, _ = create(adam)
    somebody = person("somebody", role)
    for act in (
        lambda: create(somebody, name="mine"),
        lambda: apitokens.replace(token=token, days=1, by=somebody, reason="R"),
        lambda: apitokens.revoke(token=token, by=somebody, reason="R"),
    ):
        with pytest.raises(TokenRefused, match="needs the role Administrator"):
            act()


def test_a_program_makes_no_programs(adam: User) -> None:
    token, _ = create(adam, scopes=sorted(SCOPES), tenants=[])
    with pytest.raises(TokenRefused, match="needs the role Administrator"):
        create(token.account, name="child")


def test_nobody_makes_a_token_that_sees_more_than_they_do(adam: User, person: Callable[..., User]) -> None:
    of_acme = person("of-acme", roles.ADMINISTRATOR, tenants=["acme"])
    assert create(of_acme)[0].account.tenants == ["acme"]
    whole, _ = create(adam, name="whole", tenants=[])
    for act in (
        lambda: create(of_acme, name="a", tenants=["acme", "zenith"]),
        lambda: create(of_acme, name="b", tenants=[]),
        lambda: apitokens.replace(token=whole, days=1, by=of_acme, reason="R"),
        lambda: apitokens.revoke(token=whole, by=of_acme, reason="R"),
    ):
        with pytest.raises(TokenRefused, match="for acme, and for nobody else"):
            act()


def test_a_replaced_token_opens_until_its_overlap_ends_and_both_are_one_program(adam: User) -> None:
    old, old_text = create(adam)
    new, text = apitokens.replace(token=old, days=30, by=adam, reason="A year has passed.")
    assert (new.account, new.scopes, new.replaces) == (old.account, old.scopes, old)
    assert {opened(old_text).account, opened(text).account} == {old.account}
    old.refresh_from_db()
    assert timedelta(hours=23) < old.expires_at - clock.now() <= timedelta(hours=24)
    actions = list(AuditEvent.objects.order_by("pk").values_list("action", flat=True))
    assert actions == ["token.created", "token.replaced", "token.created"]
    assert text.rpartition("_")[2] not in str(list(AuditEvent.objects.values_list("after", "before")))
    with pytest.raises(TokenRefused, match="replaced already"):
        apitokens.replace(token=old, days=30, by=adam, reason="Again.")


def test_an_overlap_never_prolongs_an_earlier_end(adam: User) -> None:
    old, _ = create(adam, days=1)
    ends = old.expires_at
    apitokens.replace(token=old, days=30, overlap=168, by=adam, reason="R")
    old.refresh_from_db()
    assert old.expires_at == ends
    fresh, _ = create(adam, name="fresh")
    with pytest.raises(TokenRefused, match="0 to 168 hours"):
        apitokens.replace(token=fresh, days=30, overlap=169, by=adam, reason="R")


def test_without_an_overlap_the_old_token_is_revoked_and_the_program_goes_on(adam: User) -> None:
    old, old_text = create(adam)
    _new, text = apitokens.replace(token=old, days=30, overlap=0, by=adam, reason="It was in a chat.")
    assert refused(f"Bearer {old_text}")[1] == "revoked"
    assert opened(text).account.is_active
    old.refresh_from_db()
    assert (old.revoked_by, old.revoked_reason) == (adam, "It was in a chat.")


def test_a_revoked_token_is_revoked_for_ever_and_ends_its_account_with_the_last_one(adam: User) -> None:
    old, _ = create(adam)
    new, text = apitokens.replace(token=old, days=30, by=adam, reason="R")
    apitokens.revoke(token=old, by=adam, reason="Not needed.")
    assert opened(text)
    apitokens.revoke(token=new, by=adam, reason="Gone.")
    assert not User.objects.get(pk=old.account_id).is_active
    assert AuditEvent.objects.latest("pk").reason == "Gone."
    for act in (
        lambda: apitokens.revoke(token=new, by=adam, reason="R"),
        lambda: apitokens.replace(token=new, days=1, by=adam, reason="R"),
    ):
        with pytest.raises(TokenRefused, match="revoked for ever"):
            act()


def test_expiry_ends_no_account_and_a_token_of_an_ended_account_is_not_replaced(adam: User) -> None:
    token, _ = create(adam)
    end(token, created_at=Now() - timedelta(days=2), expires_at=Now() - timedelta(days=1))
    apitokens.watch()
    assert User.objects.get(pk=token.account_id).is_active
    replaced, _ = apitokens.replace(token=token, days=30, by=adam, reason="R")
    User.objects.filter(pk=token.account_id).update(is_active=False)
    with pytest.raises(TokenRefused, match="is not active"):
        apitokens.replace(token=replaced, days=30, by=adam, reason="R")
    apitokens.revoke(token=replaced, by=adam, reason="Not needed.")


def test_an_alarm_stands_from_two_weeks_before_the_end_until_somebody_acts(adam: User) -> None:
    token, _ = create(adam, days=15)
    lasting, _ = create(adam, name="lasting", days=90)
    assert apitokens.watch() == 0
    end(token, created_at=Now() - timedelta(days=2), expires_at=Now() + timedelta(days=13))
    assert apitokens.watch() == apitokens.watch() == 1
    alarm = Alarm.objects.get()
    assert (alarm.kind, alarm.tenant, alarm.subject_id) == ("token.expiring", "acme", str(token.pk))
    assert "The token expires at" in alarm.message
    end(token, expires_at=Now())
    apitokens.watch()
    alarm.refresh_from_db()
    assert "The token has expired at" in alarm.message
    assert alarm.cleared_at is None
    new, _ = apitokens.replace(token=token, days=90, by=adam, reason="R")
    assert apitokens.watch() == 0
    assert not Alarm.objects.open().exists()
    end(new, expires_at=Now() + timedelta(days=1))
    apitokens.watch()
    apitokens.revoke(token=new, by=adam, reason="R")
    assert (apitokens.watch(), Alarm.objects.open().count()) == (0, 0)
    assert not Alarm.objects.filter(subject_id=str(lasting.pk)).exists()


def test_the_document_names_every_scope_with_its_right() -> None:
    text = (settings.BASE_DIR / "docs/api-tokens.md").read_text()
    rows = re.findall(r"^\| `([a-z:-]+)` \| .* \| (?:`(\w+)` )?\|$", text, re.MULTILINE)
    assert rows == [(name, scope.right) for name, scope in SCOPES.items()]
    assert apitokens.PATTERN in text
