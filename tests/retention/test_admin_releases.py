"""Releasing a hold, the register and the count, through the admin."""

import csv
import io
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from cleanup_project.base import clock, roles
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import AuditEvent, User
from retention import coverage, register, release_impact, releases
from retention.admin import releases as pages
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, HoldRelease, LegalHold, Tenant
from tests import world
from tests.retention.test_admin_verbs import hold_fields
from tests.web import places_taken, quick_pages, url  # noqa: F401


@pytest.fixture
def second(person: Callable[..., User]) -> User:
    return person("second", roles.COMPLIANCE)


@pytest.fixture
def hold(tenant: Tenant, bucket: Bucket, compliance: User) -> LegalHold:
    world.version(bucket, tenant, "case/1", size=2048)
    return world.hold(tenant, bucket, "case/", by=compliance)


@pytest.fixture
def asked(hold: LegalHold, compliance: User) -> HoldRelease:
    return releases.request(hold=hold, by=compliance, reason="Settled out of court")


def shown(client: Client, page: str) -> str:
    return client.get(page).content.decode()


def seen(client: Client, page: str) -> str:
    return str(client.get(page).context["adminform"].form["seen"].value())


def test_a_release_is_requested_and_approved_by_two_people(
    hold: LegalHold, compliance: User, second: User, client: Client
) -> None:
    client.force_login(compliance)
    page = url(LegalHold, "release", hold.pk)
    assert page in shown(client, url(LegalHold, "change", hold.pk))
    assert client.post(page, {"why_release": "Settled"}).status_code == 302
    asked = HoldRelease.objects.get()
    approve = url(HoldRelease, "approve", asked.pk)
    assert approve not in shown(client, url(HoldRelease, "change", asked.pk))
    assert "is requested already" in client.post(page, {"why_release": "Again"}).content.decode()
    own = client.post(approve, {"why": "Mine", "matter": hold.matter, "seen": seen(client, approve)})
    assert "a second person must decide" in own.content.decode()

    client.force_login(second)
    assert approve in shown(client, url(HoldRelease, "change", asked.pk))
    figures = client.get(approve).content.decode()
    assert "2.0 KiB" in figures
    assert "No retention policy in force covers it." in figures
    decision = {"why": "Confirmed", "seen": seen(client, approve)}
    mistyped = client.post(approve, decision | {"matter": "Doe v. Acme "})
    (refused,) = mistyped.context["adminform"].form.errors["matter"]
    assert "type it exactly" in refused
    assert client.post(approve, decision | {"matter": "Doe v. Acme"}).status_code == 302
    hold.refresh_from_db()
    asked.refresh_from_db()
    assert hold.released_at is not None
    assert (asked.impact["covers"], asked.impact["whole"]) == ({"versions": 1, "bytes": 2048}, True)
    history = shown(client, url(LegalHold, "change", hold.pk))
    assert "Confirmed" in history
    assert page not in history
    assert "hold.released" in shown(client, url(LegalHold, "history", hold.pk))


def test_a_denial_keeps_the_figures_and_the_hold(
    hold: LegalHold, asked: HoldRelease, second: User, client: Client
) -> None:
    client.force_login(second)
    page = url(HoldRelease, "deny", asked.pk)
    assert client.post(page, {"why": "Appeal", "seen": seen(client, page)}).status_code == 302
    asked.refresh_from_db()
    hold.refresh_from_db()
    assert (asked.decision, hold.released_at) == ("denied", None)
    assert asked.impact["frees"] == {"versions": 1, "bytes": 2048}
    assert client.get(page).status_code == 302, "there is nothing left to decide"


def test_the_figures_kept_are_those_that_were_shown(
    asked: HoldRelease, tenant: Tenant, bucket: Bucket, compliance: User, second: User, client: Client
) -> None:
    client.force_login(second)
    page = url(HoldRelease, "deny", asked.pk)
    before = seen(client, page)
    world.version(bucket, tenant, "case/2")
    assert "is required" in client.post(page, {"why": " ", "seen": before}).content.decode()
    client.post(page, {"why": "No", "seen": before})
    asked.refresh_from_db()
    assert asked.impact["covers"]["versions"] == 1


def test_forged_old_and_foreign_figures_decide_nothing(
    asked: HoldRelease, compliance: User, second: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = url(HoldRelease, "deny", asked.pk)
    client.force_login(compliance)
    foreign = seen(client, page)
    client.force_login(second)
    own = seen(client, page)
    monkeypatch.setattr(pages, "FIGURES_FOR", -1)
    for stale in (own, foreign, "forged", ""):
        assert client.post(page, {"why": "No", "seen": stale}).status_code == 302
    monkeypatch.undo()
    assert client.post(page, {"why": "No", "seen": foreign}).status_code == 302
    asked.refresh_from_db()
    assert asked.decision == ""


@pytest.mark.parametrize("role", [roles.RETENTION_MANAGER, roles.OPERATOR, roles.AUDITOR, roles.ADMINISTRATOR])
def test_only_compliance_reaches_the_decision(
    role: str, hold: LegalHold, asked: HoldRelease, person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("someone", role))
    for page in (url(HoldRelease, "approve", asked.pk), url(HoldRelease, "deny", asked.pk)):
        assert client.get(page).status_code == 403
    assert client.get(url(LegalHold, "release", hold.pk)).status_code == 403


def test_figures_that_were_cut_short_are_shown_as_the_least(
    asked: HoldRelease, second: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_impact, "READ_AT_MOST", 1)
    client.force_login(second)
    assert "at least 1 version" in shown(client, url(HoldRelease, "approve", asked.pk))


def test_a_hold_can_be_counted_before_it_is_placed(
    tenant: Tenant, bucket: Bucket, compliance: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        world.version(bucket, tenant, f"case/{n}", size=1024)
    client.force_login(compliance)
    fields = hold_fields(tenant, bucket, prefixes="case/", _count="Count")
    response = client.post(url(LegalHold, "add"), fields)
    counted = response.content.decode()
    assert response.status_code == 200
    assert "<td>Present versions</td><td>3</td>" in counted
    assert "3.0 KiB" in counted
    assert "<td>Commands that wait</td><td>0</td>" in counted
    assert "Preservation letter" in counted, "the form is as it was"
    monkeypatch.setattr(coverage, "COUNTED_AT_MOST", 1)
    assert "more than 3: not all was counted" in client.post(url(LegalHold, "add"), fields).content.decode()
    assert (
        "Tick at least one bucket." in client.post(url(LegalHold, "add"), fields | {"bucket_ids": []}).content.decode()
    )
    assert not LegalHold.objects.exists()


def test_the_register_says_what_was_known_then(
    hold: LegalHold, asked: HoldRelease, tenant: Tenant, bucket: Bucket, compliance: User, second: User
) -> None:
    before = hold.placed_at - timedelta(seconds=1)
    while_asked = clock.now()
    releases.approve(release=asked, by=second, reason="Confirmed", matter=hold.matter)
    hold.refresh_from_db()
    later = world.hold(tenant, bucket, "b/", by=compliance)
    assert register.register(before, by=compliance) == []
    (entry,) = register.register(hold.placed_at, by=compliance)
    assert (entry.hold, entry.state) == (hold, "in force")
    (entry,) = register.register(while_asked, by=compliance)
    assert (entry.state, entry.requested, entry.release) == ("in force, release requested", asked, None)
    assert hold.released_at is not None
    (entry,) = register.register(hold.released_at, by=compliance)
    assert (entry.state, entry.release, entry.requested) == ("released", asked, None)
    assert [each.hold for each in register.register(clock.now(), by=second)] == [hold, later]
    with pytest.raises(RetentionError, match="a time that has passed"):
        register.register(clock.now() + timedelta(days=1), by=compliance)


def test_a_denied_request_leaves_the_register_at_in_force(hold: LegalHold, asked: HoldRelease, second: User) -> None:
    releases.deny(release=asked, by=second, reason="No")
    assert [each.state for each in register.register(clock.now(), by=second)] == ["in force"]


def test_the_register_is_downloaded_exactly_and_on_record(
    tenant: Tenant, bucket: Bucket, compliance: User, person: Callable[..., User], client: Client
) -> None:
    prefixes = ["=1+1", "é,\"'\n", "\u202e", ""]
    made = world.hold(tenant, bucket, "x", by=compliance, matter="=cmd", stored_from=world.EPOCH, custodian="Zoë")
    odd = world.hold(tenant, bucket, "x", by=compliance)
    client.force_login(person("auditor", roles.AUDITOR))
    at = instant(clock.now())
    with places_taken():
        assert client.get(url(LegalHold, "register"), {"as_of": at, "format": "csv"}).status_code == 429
    response = client.get(url(LegalHold, "register"), {"as_of": at, "format": "csv"})
    rows = list(csv.DictReader(io.StringIO(b"".join(response.streaming_content).decode(), newline="")))  # type: ignore[attr-defined]
    assert [row["hold"] for row in rows] == [str(made.pk), str(odd.pk)]
    first = rows[0]
    assert (first["matter"], first["custodian"], first["state"]) == ("'=cmd", "Zoë", "in force")
    assert (first["stored_from"], first["stored_to"]) == ("2020-01-01T00:00:00.000000Z", "")
    assert (json.loads(first["buckets"]), json.loads(first["prefixes"])) == (["media"], ["x"])
    assert first["placed_at"] == instant(made.placed_at)
    event = AuditEvent.objects.get(action="hold.register_exported")
    assert (event.actor_name, event.after) == ("auditor", {"as_of": at, "holds": 2})
    entry = register.Entry(made, None, None)
    made.prefixes = prefixes
    (_head, line) = register.lines([entry], made.placed_at)
    (row,) = csv.reader(io.StringIO(line.decode(), newline=""))
    assert json.loads(row[register.COLUMNS.index("prefixes")]) == prefixes


def test_the_register_page(hold: LegalHold, compliance: User, manager: User, client: Client) -> None:
    client.force_login(manager)
    page = url(LegalHold, "register")
    assert "1 hold as of" in shown(client, page)
    assert page in shown(client, url(LegalHold, "changelist"))
    assert "No hold had been placed by then." in shown(client, f"{page}?as_of=2020-01-01")
    assert "a time that has passed" in shown(client, f"{page}?as_of=2100-01-01T00:00")
    assert "Enter a valid date/time." in shown(client, f"{page}?as_of=yesterday")


def test_who_may_not_see_holds_may_not_see_the_register(
    hold: LegalHold, person: Callable[..., User], client: Client
) -> None:
    outsider = person("outsider")
    client.force_login(outsider)
    assert client.get(url(LegalHold, "register")).status_code == 403
    with pytest.raises(NotPermitted, match="may not read"):
        register.export(clock.now(), by=outsider)
    assert not AuditEvent.objects.filter(action="hold.register_exported").exists()
    client.logout()
    assert client.get(reverse("admin:retention_legalhold_register")).status_code == 302


def test_what_a_hold_would_cover_is_counted_while_its_scope_is_filled_in(
    tenant: Tenant, bucket: Bucket, compliance: User, client: Client
) -> None:
    world.version(bucket, tenant, "clips/1", size=7)
    world.version(bucket, tenant, "other/1", asset="other")
    client.force_login(compliance)
    scope = {"tenant": tenant.pk, "bucket_ids": [bucket.pk], "prefixes": "clips/", "retention_classes": "*"}
    asking: Any = {"headers": {"HX-Request": "true"}}
    counted = client.post(url(LegalHold, "add"), scope | {"_count": "1"}, **asking).content.decode()
    assert "<td>Present versions</td><td>1</td>" in counted
    assert "<html" not in counted
    unfinished = client.post(url(LegalHold, "add"), {"_count": "1", "tenant": tenant.pk}, **asking).content.decode()
    assert "is counted as soon as" in unfinished
    assert not LegalHold.objects.exists()
