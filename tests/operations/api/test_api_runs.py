"""Runs by the API: opened once for each key, never approved, told of with what they wait for, their manifests streamed."""

from hashlib import sha256
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_q.models import OrmQ

from cleanup_project.base import apitokens
from cleanup_project.base.models import AuditEvent
from ledger import manifest
from ledger.models import CleanupRun, ManifestItem
from retention import enforcement
from retention.models import Enforcement, PolicyRevision, RetentionPolicy, Tenant
from tests.ledger.acting import Acting, build
from tests.operations.api.calling import given, problem, program
from tests.web import places_taken
from tests.world import published, sealed_run

pytestmark = pytest.mark.django_db


def test_a_run_is_opened_once_and_workers_are_rung_for_it(world: Acting) -> None:
    world.put("clips/a")
    caller = program("runs:create", "runs:read")
    answer = given(caller.post("/runs", {"policy": "originals"}, key="night-1"), 202)
    run = CleanupRun.objects.get()
    assert (answer["id"], answer["mode"], answer["state"]) == (run.key, "enforce", "scanning")
    assert answer["next"]["turn"] == "automatic"
    assert answer["opened_by"] == caller.account.get_username()
    assert run.opened_by == caller.account
    assert [each.task["func"] for each in OrmQ.objects.all()].count("ledger.tasks.freeze") == 1
    again = given(caller.post("/runs", {"policy": "originals"}, key="night-1"), 200)
    assert again["id"] == answer["id"]
    assert CleanupRun.objects.count() == 1


def test_the_same_key_is_the_same_run_for_ever_also_where_the_mode_is_left_open_and_enforcement_went(
    world: Acting,
) -> None:
    caller = program("runs:create")
    first = given(caller.post("/runs", {"policy": "originals"}, key="k"), 202)
    enforcement.switch_off(row=Enforcement.objects.get(), by=world.people["manager"], reason="Look first.")
    assert given(caller.post("/runs", {"policy": "originals"}, key="k"), 200)["id"] == first["id"]
    told = problem(
        caller.post("/runs", {"policy": "originals", "mode": "dry_run"}, key="k"), 409, "idempotency-conflict"
    )
    assert "new key" in told["detail"]
    named = {"policy": "originals", "mode": "enforce"}  # as it was opened, and yet another body
    problem(caller.post("/runs", named, key="k"), 409, "idempotency-conflict")


def test_a_key_belongs_to_its_program(world: Acting) -> None:
    one, other = program("runs:create"), program("runs:create")
    first = given(one.post("/runs", {"policy": "originals", "mode": "dry_run"}, key="k"), 202)
    told = problem(other.post("/runs", {"policy": "originals", "mode": "dry_run"}, key="k"), 409, "run-open")
    assert told["run"] == first["id"]


def test_a_replaced_token_goes_on_with_the_keys_of_its_program(world: Acting) -> None:
    caller = program("runs:create")
    first = given(caller.post("/runs", {"policy": "originals"}, key="k"), 202)
    caller.token, caller.secret = apitokens.replace(
        token=caller.token, days=1, by=caller.token.created_by, reason="Yearly."
    )
    assert given(caller.post("/runs", {"policy": "originals"}, key="k"), 200)["id"] == first["id"]


def test_without_a_key_nothing_is_opened(world: Acting) -> None:
    caller = program("runs:create")
    for key in (None, " ", "x" * 151, "ä"):
        try:
            answer = caller.post("/runs", {"policy": "originals"}, key=key)
        except UnicodeEncodeError:
            continue  # no client could send it
        told = problem(answer, 422, "invalid")
        assert "Idempotency-Key" in told["errors"]
    assert not CleanupRun.objects.exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "policy"),
        ({"policy": "originals", "mode": "destroy"}, "mode"),
        ({"policy": "originals", "approve": True}, "approve"),
        ({"policy": 7}, "policy"),
        ([], "body"),
    ],
)
def test_a_body_that_is_wrong_is_told_by_field(world: Acting, body: Any, field: str) -> None:
    assert field in problem(program("runs:create").post("/runs", body), 422, "invalid")["errors"]
    assert not CleanupRun.objects.exists()


def test_a_policy_that_is_not_there_or_another_tenants_is_not_there(world: Acting) -> None:
    Tenant.objects.create(code="other", name="Other")
    stranger = program("runs:create", "runs:read", tenants=["other"])
    told = problem(stranger.post("/runs", {"policy": "originals"}), 404, "not-found")
    nowhere = problem(stranger.post("/runs", {"policy": "nowhere"}), 404, "not-found")
    assert told["detail"].replace("originals", "nowhere") == nowhere["detail"]


def test_a_policy_without_a_revision_in_force_is_told_what_is_missing(world: Acting) -> None:
    RetentionPolicy.objects.create(tenant=world.tenant, code="empty")
    assert "publish" in problem(program("runs:create").post("/runs", {"policy": "empty"}), 409, "conflict")["detail"]


def test_a_run_says_what_it_waits_for_and_where_a_person_decides(db: None) -> None:
    world = build(authorisation=PolicyRevision.Authorisation.APPROVAL)
    world.put("clips/a")
    caller = program("runs:create", "runs:read")
    opened = given(caller.post("/runs", {"policy": "originals"}), 202)
    manifest.freeze(CleanupRun.objects.get())
    told = given(caller.get(f"/runs/{opened['id']}"))
    assert (told["state"], told["items"], told["bytes"]) == ("needs_approval", 1, 1)
    assert told["next"]["turn"] == "person"
    assert told["next"]["page"].endswith(f"/admin/ledger/cleanuprun/{CleanupRun.objects.get().pk}/change/")
    assert told["progress"] == {"total": 1, "done": 0, "left": 1, "outcomes": {}}
    assert told["left_out"]["read"] == 1
    assert len(told["manifest_root"]) == 64


def test_counts_by_outcome_are_told_while_it_runs_and_when_it_has_closed(world: Acting) -> None:
    for name in "abc":
        world.put(f"clips/{name}")
    run = world.run()
    caller = program("runs:read")
    assert given(caller.get(f"/runs/{run.key}"))["progress"]["left"] == 3
    world.drain()
    world.settled()
    told = given(caller.get(f"/runs/{run.key}"))
    assert (told["state"], told["progress"]["outcomes"], told["progress"]["left"]) == ("closed", {"deleted": 3}, 0)
    assert told["next"]["turn"] == "nobody"
    assert told["next"]["page"] is None


def test_runs_of_other_tenants_are_not_there(world: Acting) -> None:
    run = sealed_run(world.revision)
    Tenant.objects.create(code="other", name="Other")
    stranger = program("runs:read", "manifests:read", tenants=["other"])
    assert given(stranger.get("/runs"))["items"] == []
    problem(stranger.get(f"/runs/{run.key}"), 404, "not-found")
    problem(stranger.get(f"/runs/{run.key}/manifest"), 404, "not-found")
    assert given(program("runs:read", tenants=["acme", "other"]).get("/runs"))["items"][0]["id"] == run.key


def test_pages_follow_each_other_without_a_gap_and_cost_the_same(world: Acting) -> None:
    opened = [sealed_run(world.revision).key for _ in range(5)]
    caller = program("runs:read")
    found, cursor, costs = [], "", []
    while cursor is not None:
        with CaptureQueriesContext(connection) as counted:
            told = given(caller.get("/runs", limit=2, **({"cursor": cursor} if cursor else {})))
        costs.append(len(counted))
        found += [each["id"] for each in told["items"]]
        cursor = told["next"]
    assert found == opened[::-1]
    assert len(set(costs)) == 1
    with CaptureQueriesContext(connection) as counted:
        given(caller.get("/runs", limit=200))
    assert len(counted) == costs[0]


def test_a_cursor_that_was_made_up_or_is_of_another_list_is_refused(world: Acting) -> None:
    for _ in range(3):
        sealed_run(world.revision)
    caller = program("runs:read", "policies:read")
    cursor = given(caller.get("/runs", limit=1))["next"]
    for path, query in (
        ("/runs", {"cursor": cursor[:-1]}),
        ("/runs", {"cursor": "1"}),
        ("/runs", {"cursor": cursor, "mode": "dry_run"}),
        ("/policies", {"cursor": cursor}),
    ):
        assert "cursor" in problem(caller.get(path, **query), 422, "invalid")["errors"]
    assert given(caller.get("/runs", cursor=cursor, limit=1))["items"]


@pytest.mark.parametrize("limit", ["0", "201", "-1", "many"])
def test_a_page_has_one_to_two_hundred_items(limit: str, db: None) -> None:
    assert "limit" in problem(program("runs:read").get("/runs", limit=limit), 422, "invalid")["errors"]


def test_runs_are_narrowed_by_policy_state_and_mode(world: Acting) -> None:
    other = published(
        world.tenant, world.bucket, author=world.people["manager"], publisher=world.people["manager2"], code="second"
    )
    one, two = sealed_run(world.revision), sealed_run(other)
    caller = program("runs:read")
    assert [each["id"] for each in given(caller.get("/runs", policy="second"))["items"]] == [two.key]
    assert [each["id"] for each in given(caller.get("/runs", state="closed"))["items"]] == [two.key, one.key]
    assert given(caller.get("/runs", mode="enforce"))["items"] == []


def test_a_manifest_is_streamed_exactly_and_its_download_is_on_record(world: Acting) -> None:
    for name in ("a", "b\n", "=1"):
        world.put(f"clips/{name}", asset=f"asset-{len(name)}")
    run = sealed_run(world.revision)
    caller = program("manifests:read")
    answer = caller.get(f"/runs/{run.key}/manifest")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/x-ndjson; charset=utf-8")
    assert answer["X-Manifest-Root"] == run.manifest_root
    lines = b"".join(answer.streaming_content).splitlines()
    assert [sha256(line).digest() for line in lines] == [
        bytes(each.digest) for each in ManifestItem.objects.order_by("ordinal")
    ]
    event = AuditEvent.objects.get(action="manifest.downloaded")
    assert event.actor == caller.account
    sheet = caller.get(f"/runs/{run.key}/manifest", format="csv")
    assert sheet["Content-Type"].startswith("text/csv")
    assert len(b"".join(sheet.streaming_content).splitlines()) > 3


def test_downloads_beyond_the_places_of_a_process_are_told_to_wait_and_nothing_is_begun(world: Acting) -> None:
    world.put("clips/a")
    run = sealed_run(world.revision)
    caller = program("manifests:read", "receipts:read")
    with places_taken():
        for path in (f"/runs/{run.key}/manifest", "/receipts/export"):
            answer = caller.get(path)
            problem(answer, 429, "too-many-requests")
            assert answer["Retry-After"] == "30"
    assert not AuditEvent.objects.filter(action__in=["manifest.downloaded", "export.begun"]).exists()
    assert b"".join(caller.get(f"/runs/{run.key}/manifest").streaming_content)


def test_a_manifest_that_is_not_sealed_is_not_handed_out(world: Acting) -> None:
    world.put("clips/a")
    caller = program("manifests:read", "runs:create")
    opened = given(caller.post("/runs", {"policy": "originals"}), 202)
    problem(caller.get(f"/runs/{opened['id']}/manifest"), 409, "conflict")
    problem(caller.get(f"/runs/{opened['id']}/manifest", format="pdf"), 422, "invalid")
