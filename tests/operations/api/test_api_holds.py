"""Holds, retention events and policies by the API: placed and posted with a scope that is always stated, never released."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from ledger.models import CleanupCommand
from retention.models import Bucket, HoldRelease, LegalHold, RetentionEvent, Tenant
from tests.ledger.acting import Acting
from tests.operations.api.calling import given, problem, program
from tests.world import hold, published

pytestmark = pytest.mark.django_db

HOLD: dict[str, Any] = {
    "tenant": "acme",
    "matter": "Doe v. Acme",
    "title": "Interview footage",
    "authority": "Court order",
    "reason": "Preservation letter",
    "custodian": "J. Roe",
    "buckets": ["media"],
    "prefixes": ["clips/"],
    "retention_classes": ["*"],
    "stored_from": "2019-01-01T00:00:00+02:00",
    "stored_to": None,
}
EVENT: dict[str, Any] = {
    "tenant": "acme",
    "event_type": "contract-ended",
    "occurred_at": "2020-01-01T00:00:00Z",
    "buckets": ["media"],
    "prefixes": [""],
    "retention_classes": ["*"],
    "reason": "The contract has ended",
    "reference": "Case 17",
}


def test_a_hold_is_placed_with_all_that_it_says_and_holds_at_once(world: Acting) -> None:
    world.put("clips/a")
    world.run()
    caller = program("holds:place", "holds:read")
    told = given(caller.post("/holds", HOLD), 201)
    placed = LegalHold.objects.get()
    assert told == {
        **HOLD,
        "id": placed.pk,
        "stored_from": "2018-12-31T22:00:00.000000Z",
        "placed_by": caller.account.get_username(),
        "placed_at": told["placed_at"],
        "released_at": None,
        "release": None,
    }
    assert placed.placed_by == caller.account
    world.drain()
    assert CleanupCommand.objects.get().state == "held"
    assert given(caller.get("/holds"))["items"] == [told]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"tenant": "nowhere"}, "tenant"),
        ({"buckets": ["nowhere"]}, "buckets"),
        ({"buckets": []}, "buckets"),
        ({"prefixes": []}, "prefixes"),
        ({"retention_classes": []}, "retention_classes"),
        ({"retention_classes": ["*", "gold"]}, "retention_classes"),
        ({"matter": ""}, "matter"),
        ({"reason": " "}, "reason"),
        ({"stored_from": 1_600_000_000}, "stored_from"),
        ({"stored_from": "0001-01-01T00:00:00+14:00"}, "stored_from"),
        ({"stored_from": "2020-01-01T00:00:00Z", "stored_to": "2019-01-01T00:00:00Z"}, "stored_to"),
        ({"released_at": "2020-01-01T00:00:00Z"}, "released_at"),
    ],
)
def test_a_hold_that_is_not_clear_is_told_by_field_and_not_placed(world: Acting, change: Any, field: str) -> None:
    assert field in problem(program("holds:place").post("/holds", HOLD | change), 422, "invalid")["errors"]
    assert not LegalHold.objects.exists()


def test_a_hold_over_a_name_that_two_stores_have_is_asked_which(world: Acting) -> None:
    Bucket.objects.create(name="media", endpoint_url="https://minio.example")
    caller = program("holds:place")
    told = problem(caller.post("/holds", HOLD), 422, "invalid")
    assert "media@https://minio.example" in told["errors"]["buckets"][0]
    given(caller.post("/holds", HOLD | {"buckets": ["media@aws"]}), 201)
    assert LegalHold.objects.get().bucket_ids == [world.bucket.pk]


def test_a_release_is_requested_and_waits_for_a_person(world: Acting) -> None:
    placed = hold(world.tenant, world.bucket, "clips/", by=world.people["compliance"])
    caller = program("holds:request-release", "holds:read")
    told = given(caller.post(f"/holds/{placed.pk}/release-requests", {"reason": "The matter is closed."}), 201)
    release = HoldRelease.objects.get()
    assert (told["id"], told["hold"], release.decision) == (release.pk, placed.pk, "")
    assert told["page"].endswith(f"/admin/retention/holdrelease/{release.pk}/change/")
    assert given(caller.get("/holds"))["items"][0]["release"] == release.pk
    assert given(caller.get("/holds", in_force="true"))["items"]
    again = problem(caller.post(f"/holds/{placed.pk}/release-requests", {"reason": "Again."}), 409, "conflict")
    assert "waits for another person" in again["detail"]
    problem(caller.post(f"/holds/{placed.pk + 1}/release-requests", {"reason": "R"}), 404, "not-found")


def test_holds_are_listed_by_tenant_and_matter_for_who_sees_them(world: Acting) -> None:
    other = Tenant.objects.create(code="other", name="Other")
    one = hold(world.tenant, world.bucket, "a/", by=world.people["compliance"], matter="A")
    two = hold(other, world.bucket, "b/", by=world.people["compliance"], matter="B")
    caller = program("holds:read")
    for query, expected in (
        ({}, [two, one]), ({"tenant": "acme"}, [one]), ({"matter": "B"}, [two]), ({"in_force": "false"}, []),
    ):  # fmt: skip
        found = given(caller.get("/holds", **query))["items"]
        assert [each["id"] for each in found] == [each.pk for each in expected], query
    stranger = program("holds:read", "holds:place", "holds:request-release", tenants=["other"])
    assert [each["id"] for each in given(stranger.get("/holds"))["items"]] == [two.pk]
    problem(stranger.get("/holds", tenant="acme"), 422, "invalid")
    problem(stranger.post(f"/holds/{one.pk}/release-requests", {"reason": "R"}), 404, "not-found")
    assert "tenant" in problem(stranger.post("/holds", HOLD), 422, "invalid")["errors"]
    told = problem(stranger.post("/holds", HOLD | {"tenant": "other"}), 422, "invalid")
    assert "Known buckets: none" in told["errors"]["buckets"][0]


def test_buckets_are_read_once_and_of_many_some_are_told(world: Acting) -> None:
    for number in range(25):
        Bucket.objects.create(name=f"more-{number:02}")
    caller, costs = program("holds:place"), []
    for names in (["media", "nowhere"], ["media", "more-01", "more-02", "nowhere"]):
        with CaptureQueriesContext(connection) as counted:
            told = problem(caller.post("/holds", HOLD | {"buckets": names}), 422, "invalid")
        costs.append(len(counted))
    assert costs[0] == costs[1]
    (words,) = told["errors"]["buckets"]
    assert words.endswith("more-18@aws and 6 more")


def test_pages_of_holds_cost_the_same_whatever_their_number(world: Acting) -> None:
    for letter in "abc":
        hold(world.tenant, world.bucket, f"{letter}/", by=world.people["compliance"])
    caller, costs = program("holds:read"), []
    for limit in (1, 3):
        with CaptureQueriesContext(connection) as counted:
            given(caller.get("/holds", limit=limit))
        costs.append(len(counted))
    assert costs[0] == costs[1]


def test_an_event_is_posted_and_tells_what_it_started(world: Acting) -> None:
    published(
        world.tenant, world.bucket, author=world.people["manager"], publisher=world.people["manager2"], code="contracts",
        trigger="event", event_type="contract-ended",
    )  # fmt: skip
    world.put("clips/a")
    caller = program("events:post")
    told = given(caller.post("/retention-events", EVENT), 201)
    event = RetentionEvent.objects.get()
    assert (told["id"], told["started_versions"], told["counted_all"]) == (event.pk, 1, True)
    assert event.posted_by == caller.account


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prefixes": []}, "prefixes"),
        ({"buckets": None}, "buckets"),
        ({"event_type": "Contract ended"}, "event_type"),
        ({"occurred_at": "2999-01-01T00:00:00Z"}, "occurred_at"),
        ({"occurred_at": "yesterday"}, "occurred_at"),
        ({"tenant": "nowhere"}, "tenant"),
    ],
)
def test_an_event_without_a_scope_or_ahead_of_time_is_not_posted(world: Acting, change: Any, field: str) -> None:
    assert field in problem(program("events:post").post("/retention-events", EVENT | change), 422, "invalid")["errors"]
    body = {name: value for name, value in EVENT.items() if name != field}
    if field != "occurred_at":
        assert field in problem(program("events:post").post("/retention-events", body), 422, "invalid")["errors"]
    assert not RetentionEvent.objects.exists()


def test_policies_are_read_with_their_revisions(world: Acting) -> None:
    caller = program("policies:read")
    (listed,) = given(caller.get("/policies"))["items"]
    assert (listed["code"], listed["tenant"], listed["suspended_at"]) == ("originals", "acme", None)
    told = given(caller.get("/policies/originals"))
    (revision,) = told["revisions"]
    assert (revision["number"], revision["buckets"], revision["prefixes"]) == (1, ["media"], [""])
    assert (revision["trigger"], revision["period_number"], revision["period_unit"]) == ("stored_at", 30, "days")
    assert revision["published_at"] is not None
    problem(caller.get("/policies/nowhere"), 404, "not-found")
    Tenant.objects.create(code="other", name="Other")
    stranger = program("policies:read", tenants=["other"])
    assert given(stranger.get("/policies"))["items"] == []
    problem(stranger.get("/policies/originals"), 404, "not-found")
