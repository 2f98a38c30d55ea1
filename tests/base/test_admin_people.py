"""Administrators manage people and settings: on record, and without becoming superusers."""

import html
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from cleanup_project.base import audit, modeladmin, roles
from cleanup_project.base.models import AuditEvent, User
from retention.models import Bucket, Tenant
from tests.base.test_signin_proof import grow_stale
from tests.web import quick_pages  # noqa: F401

DAY = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def administrator(person: Callable[..., User], client: Client) -> User:
    user = person("adam", roles.ADMINISTRATOR)
    client.force_login(user)
    return user


def page(user: User, name: str = "change") -> str:
    return reverse(
        "admin:auth_user_password_change" if name == "password" else f"admin:base_user_{name}", args=[user.pk]
    )


def fields(user: User, **changed: object) -> dict[str, object]:
    kept = {
        "username": user.username,
        "is_active": "on",
        "is_staff": "on",
        "first_name": "",
        "last_name": "",
        "email": "",
    }
    return kept | changed


def test_roles_given_are_on_record_by_name(administrator: User, person: Callable[..., User], client: Client) -> None:
    olaf = person("olaf", roles.OPERATOR)
    compliance = Group.objects.get(name=roles.COMPLIANCE)
    assert client.post(page(olaf), fields(olaf, groups=[compliance.pk], email="o@example.org")).status_code == 302
    event = AuditEvent.objects.get(action="settings.changed")
    assert (event.actor, event.subject_type, event.subject_id) == (administrator, "base.user", str(olaf.pk))
    assert event.before == {"groups": [roles.OPERATOR], "email": ""}
    assert event.after == {"groups": [roles.COMPLIANCE], "email": "o@example.org"}
    history = client.get(reverse("admin:base_user_history", args=[olaf.pk])).content.decode()
    assert "settings.changed" in history
    assert roles.COMPLIANCE in history


def test_a_form_that_changes_nothing_leaves_no_record(
    administrator: User, person: Callable[..., User], client: Client
) -> None:
    olaf = person("olaf")
    client.post(page(olaf), fields(olaf))
    assert not AuditEvent.objects.exists()


def test_an_administrator_makes_nobody_a_superuser(
    administrator: User, person: Callable[..., User], client: Client
) -> None:
    olaf = person("olaf")
    right = Group.objects.get(name=roles.COMPLIANCE).permissions.first()
    assert right is not None
    client.post(page(olaf), fields(olaf, is_superuser="on", user_permissions=[right.pk]))
    olaf.refresh_from_db()
    assert not olaf.is_superuser
    assert not olaf.user_permissions.exists()


@pytest.mark.parametrize("name", ["change", "password"])
def test_an_administrator_cannot_touch_a_superuser(
    name: str, administrator: User, person: Callable[..., User], client: Client
) -> None:
    root = person("root", is_superuser=True)
    secret = root.password
    attack = fields(root, is_active="", email="x@example.org", password1="n3w secret!", password2="n3w secret!")
    assert client.post(page(root, name), attack | {"usable_password": "true"}).status_code == 403
    root.refresh_from_db()
    assert (root.is_active, root.email, root.password) == (True, "", secret)


def test_a_superuser_may_make_another(person: Callable[..., User], client: Client) -> None:
    olaf = person("olaf")
    client.force_login(person("root", is_superuser=True))
    client.post(page(olaf), fields(olaf, is_superuser="on"))
    assert AuditEvent.objects.get().after == {"is_superuser": True}


def test_a_password_set_for_somebody_is_on_record_without_the_password(
    administrator: User, person: Callable[..., User], client: Client
) -> None:
    olaf = person("olaf")
    new = {"password1": "n3w secret!", "password2": "n3w secret!", "usable_password": "true", "set-password": "1"}
    assert client.post(page(olaf, "password"), new | {"password2": "other"}).status_code == 200
    assert not AuditEvent.objects.exists()
    assert client.post(page(olaf, "password"), new).status_code == 302
    assert AuditEvent.objects.get().after == {"password": "changed"}


def test_a_person_added_is_on_record_without_the_password(administrator: User, client: Client) -> None:
    new = {"username": "new", "usable_password": "true", "password1": "n3w secret!", "password2": "n3w secret!"}
    assert client.post(reverse("admin:base_user_add"), new).status_code == 302
    event = AuditEvent.objects.get(action="settings.added")
    assert event.after == {"username": "new"}


def test_settings_leave_a_record_with_names_for_rows(administrator: User, bucket: Bucket, client: Client) -> None:
    acme, other = (Tenant.objects.create(code=code, name=code) for code in ("acme", "other"))
    rule = {"bucket": bucket.pk, "position": 1, "pattern": "{_*}", "role": "original", "tenant": acme.pk}
    client.post(reverse("admin:retention_keyrule_add"), rule)
    added = AuditEvent.objects.get(action="settings.added")
    assert added.after == {"bucket": "media", "position": 1, "pattern": "{_*}", "tenant": "acme"}
    client.post(reverse("admin:retention_keyrule_change", args=[added.subject_id]), rule | {"tenant": other.pk})
    changed = AuditEvent.objects.get(action="settings.changed")
    assert (changed.before, changed.after) == ({"tenant": "acme"}, {"tenant": "other"})


def test_what_evidence_names_a_row_by_stays(
    administrator: User, bucket: Bucket, tenant: Tenant, client: Client
) -> None:
    said = {"code": "stolen", "name": "Acme & Sons", "shortening_delay_hours": 24}
    client.post(reverse("admin:retention_tenant_change", args=[tenant.pk]), said)
    tenant.refresh_from_db()
    assert (tenant.code, tenant.name) == ("acme", "Acme & Sons")
    changed = {"name": "other", "endpoint_url": "https://elsewhere.example", "region": "eu-west-1",
               "addressing_style": "auto", "keys_per_second": 5, "settle_seconds": 60}  # fmt: skip
    client.post(reverse("admin:retention_bucket_change", args=[bucket.pk]), changed)
    bucket.refresh_from_db()
    assert (bucket.name, bucket.endpoint_url, bucket.keys_per_second) == ("media", "", 5)


@pytest.mark.parametrize("role", sorted(set(roles.MATRIX) - {roles.ADMINISTRATOR}))
def test_settings_need_their_right(role: str, person: Callable[..., User], tenant: Tenant, client: Client) -> None:
    client.force_login(person("someone", role))
    change = reverse("admin:retention_tenant_change", args=[tenant.pk])
    assert client.post(change, {"code": "acme", "name": "Other"}).status_code == 403
    assert client.post(reverse("admin:retention_tenant_add"), {"code": "new", "name": "New"}).status_code == 403


@pytest.mark.parametrize("administers", [True, False])
def test_nobody_changes_what_they_may_themselves(
    administers: bool, person: Callable[..., User], tenant: Tenant, client: Client
) -> None:
    """Not even a superuser: it takes two to give a role."""
    roles_now = [roles.ADMINISTRATOR] if administers else []
    ada = person("ada", *roles_now, is_superuser=not administers)
    client.force_login(ada)
    wanted = Group.objects.get(name=roles.COMPLIANCE).pk
    client.post(
        page(ada), fields(ada, groups=[wanted], tenants=["acme"], is_active="", is_superuser="on", email="a@b.org")
    )
    ada.refresh_from_db()
    assert (ada.email, ada.is_active, ada.is_superuser, ada.tenants) == ("a@b.org", True, not administers, [])
    assert [group.name for group in ada.groups.all()] == roles_now
    assert AuditEvent.objects.get().after == {"email": "a@b.org"}


def test_tenants_are_chosen_among_those_that_there_are_and_on_record(
    administrator: User, person: Callable[..., User], tenant: Tenant, client: Client
) -> None:
    olaf = person("olaf")
    refused = client.post(page(olaf), fields(olaf, tenants=["nowhere"]))
    assert "nowhere is not one of the available choices" in refused.content.decode()
    assert client.post(page(olaf), fields(olaf, tenants=["acme"])).status_code == 302
    olaf.refresh_from_db()
    assert olaf.tenants == ["acme"]
    event = AuditEvent.objects.get()
    assert (event.before, event.after) == ({"tenants": []}, {"tenants": ["acme"]})
    assert "acme" in client.get(reverse("admin:base_user_changelist")).content.decode()


def test_an_administrator_of_some_tenants_sees_settings_and_changes_none(
    person: Callable[..., User], tenant: Tenant, client: Client
) -> None:
    """Settings hold for every tenant; and whoever could change people could widen what they see."""
    olaf = person("olaf", tenants=["acme"])
    client.force_login(person("adam", roles.ADMINISTRATOR, tenants=["acme"]))
    assert client.get(page(olaf)).status_code == 200
    assert client.post(page(olaf), fields(olaf, tenants=[])).status_code == 403
    assert client.post(reverse("admin:retention_tenant_add"), {"code": "new", "name": "New"}).status_code == 403
    elsewhere = person("elsewhere", tenants=["acme", "other"])
    everywhere = person("everywhere")
    assert client.get(page(elsewhere)).status_code == 404
    assert client.get(page(everywhere)).status_code == 200


@pytest.fixture
def acts(administrator: User, person: Callable[..., User]) -> None:
    """Four acts of two people and of the system, a day apart from each other, the last one now."""
    olaf = person("olaf")
    for days, (actor, action, number) in enumerate(
        [
            (olaf, "hold.placed", "1"),
            (None, "run.sealed", "2"),
            (administrator, "run.paused", "2"),
            (olaf, "run.resumed", "2"),
        ]
    ):
        AuditEvent.objects.create(
            actor=actor, actor_name=str(actor or "system"), action=action, subject_type="ledger.cleanuprun",
            subject_id=number, subject_label="a run", at=DAY + timedelta(days=days), request_id=f"r{days}",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"who": "olaf"}, ["run.resumed", "hold.placed"]),
        ({"who": "system"}, ["run.sealed"]),
        ({"act": "run."}, ["run.resumed", "run.paused", "run.sealed"]),
        ({"act": "run.", "who": "olaf"}, ["run.resumed"]),
        ({"item": "ledger.cleanuprun:1"}, ["hold.placed"]),
        ({"request": "r2"}, ["run.paused"]),
        ({"since": "2026-03-02T00:00", "until": "2026-03-03T00:00"}, ["run.sealed"]),
        ({"who": "ola"}, []),
        ({"item": "12"}, []),
        ({"since": "soon"}, []),
    ],
)
def test_the_audit_record_is_searched(asked: dict[str, str], found: list[str], acts: None, client: Client) -> None:
    shown = client.get(reverse("admin:base_auditevent_changelist"), asked).context["cl"].result_list
    assert [event.action for event in shown] == found


def test_what_cannot_be_searched_for_is_said(acts: None, client: Client) -> None:
    address = reverse("admin:base_auditevent_changelist")
    assert "Nobody has this username." in client.get(address, {"who": "ola"}).content.decode()
    assert "Write its type, a colon and its number" in client.get(address, {"item": "12"}).content.decode()
    assert client.get(address, {"reason__regex": "x"}).status_code == 400


def test_a_difference_names_what_changed_and_nothing_else(administrator: User, client: Client) -> None:
    event = AuditEvent.objects.create(
        actor_name="system", action="policy.edited", subject_type="x", subject_id="1", subject_label="x",
        before={"title": "Clips", "period": 1, "same": "kept"}, after={"title": "Clips\u202e", "period": 2, "same": "kept"},
    )  # fmt: skip
    shown = client.get(reverse("admin:base_auditevent_change", args=[event.pk])).content.decode()
    assert "Clips\\u202e" in shown
    assert "kept" not in shown


def test_djangos_own_log_is_shown_nowhere(administrator: User, person: Callable[..., User], client: Client) -> None:
    olaf = person("olaf")
    client.post(page(olaf), fields(olaf, email="o@example.org"))
    assert LogEntry.objects.exists()
    assert LogEntry not in admin.site._registry
    assert "Recent actions" not in client.get(reverse("admin:index")).content.decode()


def test_the_login_page_says_where_one_is(client: Client, db: None) -> None:
    shown = client.get(reverse("admin:login"), follow=True).content.decode()
    assert "<title>Sign in to Cleanup</title>" in shown
    assert "base/admin.css" in shown
    assert "style=" not in shown


def test_an_open_session_changes_nobody(administrator: User, person: Callable[..., User], client: Client) -> None:
    olaf = person("olaf", roles.OPERATOR)
    compliance = Group.objects.get(name=roles.COMPLIANCE)
    grow_stale(client)
    assert client.get(page(olaf)).status_code == 200
    wanted = fields(olaf, groups=[str(compliance.pk)])
    asked = client.post(page(olaf), wanted)
    assert "Is it still you?" in asked.content.decode()
    assert [each.name for each in olaf.groups.all()] == [roles.OPERATOR]
    assert client.post(page(olaf), wanted | {"proof-password": "correct horse"}).status_code == 302
    assert [each.name for each in olaf.groups.all()] == [roles.COMPLIANCE]


@pytest.mark.parametrize("name", ["add", "password"])
def test_a_password_is_asked_for_before_one_is_given_and_never_kept_in_a_page(
    name: str, administrator: User, person: Callable[..., User], client: Client
) -> None:
    olaf = person("olaf")
    secret = olaf.password
    address = page(olaf, name) if name == "password" else reverse("admin:base_user_add")
    new = {"username": "new", "usable_password": "true", "password1": "n3w secret!", "password2": "n3w secret!"}
    grow_stale(client)
    for answer in (client.get(address), client.post(address, new | {"set-password": "1"})):
        assert answer["Location"] == f"{reverse('account_reauthenticate')}?next={address.replace('/', '%2F')}"
    olaf.refresh_from_db()
    assert (olaf.password, User.objects.filter(username="new").exists()) == (secret, False)
    asked = client.get(answer["Location"]).content.decode()
    assert "it took too long" in asked
    assert "n3w" not in asked
    back = client.post(reverse("account_reauthenticate"), {"password": "correct horse", "next": address})
    assert back["Location"] == address
    assert client.get(address).status_code == 200


def test_a_long_history_shows_the_newest_and_leads_to_the_rest(
    administrator: User, person: Callable[..., User], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modeladmin, "HISTORY_SHOWN", 2)
    olaf = person("olaf")
    for reason in ("the first", "the second", "the third"):
        audit.record(action="settings.changed", subject=olaf, by=administrator, reason=reason)
    history = client.get(page(olaf, "history")).content.decode()
    assert "the second" in history and "the first" not in history  # noqa: PT018 - one page
    href = modeladmin.record_of(olaf)
    assert f'href="{href}"' in history
    rest = client.get(href).content.decode()
    assert all(reason in rest for reason in ("the first", "the second", "the third"))


def test_a_role_s_page_asks_for_its_permissions_once(administrator: User, client: Client) -> None:
    group = Group.objects.get(name=roles.COMPLIANCE)
    address = reverse("admin:auth_group_change", args=[group.pk])
    client.get(address)
    with CaptureQueriesContext(connection) as captured:
        shown = client.get(address).content.decode()
    assert all(str(each) in html.unescape(shown) for each in group.permissions.all())
    assert sum("auth_permission" in each["sql"] for each in captured) < 5
    assert sum('FROM "django_content_type" WHERE' in each["sql"] for each in captured) < 3
