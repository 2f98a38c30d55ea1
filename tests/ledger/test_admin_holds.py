"""What was in flight when a hold was placed reaches whoever placed it, until they acknowledge how it ended."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from cleanup_project.base import clock, notices
from cleanup_project.base.models import AuditEvent, User
from ledger import claim, inflight
from ledger.exceptions import LedgerError, NotPermitted
from ledger.models import CleanupCommand, HoldReport, Request
from retention.models import Bucket, LegalHold, Tenant
from tests.ledger.acting import EPOCH, Acting, build
from tests.retention.test_admin_verbs import hold_fields
from tests.web import quick_pages, url  # noqa: F401
from tests.world import hold, program

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Acting:
    return build()


def placed_in_flight(world: Acting, by: User | None = None) -> HoldReport:
    """A hold that found one command leased, and one waiting."""
    world.fill(["case/1", "case/2"])
    world.run()
    claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60, 1)
    placed = hold(world.tenant, world.bucket, "case/", by=by or world.people["compliance"])
    return inflight.placed(placed.pk)


def ended(world: Acting) -> None:
    world.leases_expire()
    world.drain()
    assert inflight.ended() == 1


def noticed(user: User) -> list[str]:
    return [notice.text for notice in notices.notices(user) if "in flight" in notice.text]


def test_the_report_stands_on_top_of_the_pages_of_whoever_placed_the_hold(world: Acting, client: Client) -> None:
    report = placed_in_flight(world)
    person, other = world.people["compliance"], world.people["compliance2"]
    assert noticed(person) == ["Hold Doe v. Acme: Interview footage: 1 in flight: 1 not known yet."]
    assert noticed(other) == []
    client.force_login(person)
    acknowledge = url(HoldReport, "acknowledge", report.pk)
    index = client.get(reverse("admin:index")).content.decode()
    assert url(HoldReport, "change", report.pk) in index
    assert "Not all that was in flight has ended" in client.post(acknowledge).content.decode()

    ended(world)
    assert noticed(person) == ["Hold Doe v. Acme: Interview footage: 1 in flight: 1 held."]
    page = client.get(url(LegalHold, "change", report.pk)).content.decode()
    assert "1 in flight: 1 held." in page
    assert acknowledge in client.get(url(HoldReport, "change", report.pk)).content.decode()
    assert client.get(acknowledge).status_code == 200
    assert client.post(acknowledge).status_code == 302
    assert noticed(person) == []
    event = AuditEvent.objects.get(action="hold.report_acknowledged")
    assert (event.actor, event.after) == (person, {"in_flight": "1 in flight: 1 held."})
    assert "is acknowledged already" in client.post(acknowledge).content.decode()


def test_only_whoever_placed_the_hold_acknowledges(world: Acting, client: Client) -> None:
    report = placed_in_flight(world)
    ended(world)
    with pytest.raises(NotPermitted, match="who placed the hold"):
        inflight.acknowledge(report=report, by=world.people["compliance2"])
    client.force_login(world.people["compliance2"])
    acknowledge = url(HoldReport, "acknowledge", report.pk)
    assert acknowledge not in client.get(url(HoldReport, "change", report.pk)).content.decode()
    assert client.post(acknowledge).status_code == 403
    assert noticed(world.people["compliance"])


def test_the_report_of_a_hold_that_a_program_placed_is_for_whoever_might_have(world: Acting, client: Client) -> None:
    account = program(person=world.people["operator"], scopes=["holds:place"])
    report = placed_in_flight(world, by=account)
    ended(world)
    for name in ("compliance", "compliance2"):
        assert noticed(world.people[name])
    assert noticed(world.people["operator"]) == []
    for refused in (world.people["operator"], account):
        with pytest.raises(NotPermitted, match="who placed the hold"):
            inflight.acknowledge(report=report, by=refused)
    client.force_login(world.people["compliance2"])
    assert client.post(url(HoldReport, "acknowledge", report.pk)).status_code == 302
    assert noticed(world.people["compliance"]) == []


def test_whoever_sees_other_tenants_by_now_is_told_nothing_and_acknowledges_nothing(world: Acting) -> None:
    report = placed_in_flight(world)
    ended(world)
    person = world.people["compliance"]
    assert noticed(person)
    person.tenants = ["elsewhere"]
    person.save()
    assert noticed(person) == []
    with pytest.raises(NotPermitted, match="about nothing else"):
        inflight.acknowledge(report=report, by=User.objects.get(pk=person.pk))


def test_a_report_is_acknowledged_after_its_end_and_once(world: Acting) -> None:
    report = placed_in_flight(world)
    row = HoldReport.objects.filter(pk=report.pk)
    with pytest.raises(LedgerError, match="acknowledge the report when it has"):
        inflight.acknowledge(report=report, by=world.people["compliance"])
    with pytest.raises(IntegrityError, match="has not ended yet"), transaction.atomic():
        row.update(acknowledged_at=clock.now())
    ended(world)
    inflight.acknowledge(report=report, by=world.people["compliance"])
    for change in ({"acknowledged_at": None}, {"acknowledged_at": clock.now()}):
        with pytest.raises(IntegrityError, match="acknowledged once"), transaction.atomic():
            row.update(**change)


def test_where_nothing_was_in_flight_nobody_is_bothered(world: Acting, client: Client) -> None:
    placed = hold(world.tenant, world.bucket, "case/", by=world.people["compliance"])
    client.force_login(world.people["compliance"])
    page = url(LegalHold, "change", placed.pk)
    assert "not reported yet" in client.get(page).content.decode()
    inflight.placed(placed.pk)
    assert noticed(world.people["compliance"]) == []
    assert "Nothing was in flight." in client.get(page).content.decode()


def test_the_count_before_placing_knows_commands(world: Acting, client: Client) -> None:
    world.fill(["case/1", "case/2", "case/3", "b"])
    world.run()
    claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60, 1)
    client.force_login(world.people["compliance"])
    fields = hold_fields(world.tenant, world.bucket, prefixes="case/\r\ncase/1", _count="Count")
    counted = client.post(url(LegalHold, "add"), fields).content.decode()
    assert "<td>Present versions</td><td>3</td>" in counted
    assert "<td>Commands that wait</td><td>2</td>" in counted
    assert "<td>Commands in flight</td><td>1</td>" in counted
    none = fields | {"retention_classes": "audio"}
    assert "<td>Commands that wait</td><td>0</td>" in client.post(url(LegalHold, "add"), none).content.decode()
    none = fields | {"stored_from_0": "2021-01-01", "stored_from_1": "00:00"}
    assert "<td>Commands that wait</td><td>0</td>" in client.post(url(LegalHold, "add"), none).content.decode()


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("fields", "elsewhere", "waiting", "under_way"),
    [
        ({}, "", 2, 2),
        ({"stored_from": EPOCH, "stored_to": EPOCH + SECOND}, "", 2, 2),
        ({"stored_from": EPOCH + SECOND}, "", 0, 0),
        ({"stored_to": EPOCH}, "", 0, 0),
        ({"retention_classes": ["audio"]}, "", 0, 0),
        ({}, "bucket", 0, 0),
        ({}, "tenant", 0, 0),
    ],
)
def test_what_is_counted_before_placing_is_what_placing_finds(
    world: Acting, fields: dict[str, Any], elsewhere: str, waiting: int, under_way: int
) -> None:
    world.fill(["a", "b", "c", "d"])
    world.run()
    _leased, doubtful = claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60, 2).commands
    Request.objects.create(command_id=doubtful.id, token=doubtful.token, sent_before=clock.now(), worker="lost")
    CleanupCommand.objects.filter(pk=doubtful.id).update(lease_until=EPOCH)
    tenant = Tenant.objects.create(code="other", name="Other") if elsewhere == "tenant" else world.tenant
    bucket = Bucket.objects.create(name="other") if elsewhere == "bucket" else world.bucket
    placed = hold(tenant, bucket, "", by=world.people["compliance"], **fields)
    assert inflight.would_cover(placed) == (waiting, under_way)
    assert len(inflight.waiting(placed.pk)) == waiting
    assert inflight.report(placed.pk).in_flight == under_way
