"""Quarantine by the API: listed, counted, replayed and closed as bulk jobs, each by a scope of its own."""

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from cleanup_project.base import jobwork
from cleanup_project.base.models import BulkJob
from cleanup_project.operations.api.quarantine import by_number
from ledger import bulk
from ledger.models import DeadLetter
from retention.models import Tenant
from tests.ledger.acting import Acting
from tests.ledger.parking import parked
from tests.operations.api.calling import Program, given, problem, program

pytestmark = pytest.mark.django_db
SCOPES = ("quarantine:read", "quarantine:replay", "quarantine:close", "jobs:read")


@pytest.fixture
def caller(db: None) -> Program:
    return program(*SCOPES)


def chosen(*rows: DeadLetter, **more: Any) -> dict[str, Any]:
    return {"ids": [each.pk for each in rows], "expected": len(rows), "reason": "Credentials repaired."} | more


def test_an_entry_is_told_with_what_failed_and_what_to_do(world: Acting, caller: Program) -> None:
    (row,) = parked(world, "a")
    (told,) = given(caller.get("/quarantine"))["items"]
    assert (told["id"], told["failure_class"], told["storage_code"]) == (row.pk, "permission", "AccessDenied")
    assert (told["tenant"], told["bucket"], told["policy"], told["key"]) == ("acme", "media", "originals", "clips/a")
    assert told["command_key"] == row.command.key
    assert told["next_action"] == row.next_action
    assert told["resolved_at"] is None


def test_the_list_is_narrowed_by_names_and_nothing_matches_by_chance(world: Acting, caller: Program) -> None:
    one, two = parked(world, "a", "b")
    both = [one.pk, two.pk]
    for query, expected in (
        ({}, both),
        ({"prefix": "clips/b"}, [two.pk]),
        ({"failure_class": "permission"}, both),
        ({"failure_class": "throttled"}, []),
        ({"storage_code": "AccessDenied"}, both),
        ({"storage_code": "-"}, []),
        ({"tenant": "acme", "bucket": "media", "policy": "originals"}, both),
        ({"run": one.run.key}, both),
        ({"run": f"{one.run.key}x"}, []),
        ({"failed_before": "2020-01-01T00:00:00Z"}, []),
        ({"failed_from": "2020-01-01T00:00:00Z"}, both),
        ({"attempts": 99}, []),
        ({"command_key": two.command.key}, [two.pk]),
        ({"entries": "resolved"}, []),
        ({"entries": "all"}, both[::-1]),
    ):
        assert [each["id"] for each in given(caller.get("/quarantine", **query))["items"]] == expected, query


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"bucket": "nowhere"}, "bucket"),
        ({"tenant": "nowhere"}, "tenant"),
        ({"policy": "nowhere"}, "policy"),
        ({"failure_class": "bad luck"}, "failure_class"),
        ({"failed_from": "2020-01-01"}, "failed_from"),
        ({"failed_from": "2020-01-01T00:00:00"}, "failed_from"),
        ({"attempts": "-1"}, "attempts"),
    ],
)
def test_a_filter_that_names_nothing_is_told_which(world: Acting, caller: Program, query: Any, field: str) -> None:
    assert field in problem(caller.get("/quarantine", **query), 422, "invalid")["errors"]


def test_pages_of_entries_cost_the_same_whatever_their_number(world: Acting, caller: Program) -> None:
    rows = parked(world, "a", "b", "c")
    costs = []
    for limit in (1, 3):
        with CaptureQueriesContext(connection) as counted:
            told = given(caller.get("/quarantine", limit=limit))
        costs.append(len(counted))
    assert costs[0] == costs[1]
    assert told["next"] is None
    first = given(caller.get("/quarantine", limit=2))
    rest = given(caller.get("/quarantine", limit=2, cursor=first["next"]))
    assert [each["id"] for each in first["items"] + rest["items"]] == [each.pk for each in rows]


def test_a_count_says_how_many_are_expected_by_cause(world: Acting, caller: Program) -> None:
    parked(world, "a", "b")
    told = given(caller.get("/quarantine/count", prefix="clips/"))
    assert (told["total"], told["whole"]) == (2, True)
    assert told["by_cause"] == [
        {
            "failure_class": "permission",
            "storage_code": "AccessDenied",
            "bucket": "media",
            "tenant": "acme",
            "entries": 2,
        }
    ]
    assert given(caller.get("/quarantine/count", prefix="none/"))["total"] == 0


def test_reviewed_entries_are_replayed_as_a_job_with_an_outcome_for_each(world: Acting, caller: Program) -> None:
    one, two = parked(world, "a", "b")
    answer = given(caller.post("/quarantine/replay", chosen(one, two, repair="The role was given back.", rate=7)), 202)
    assert (answer["kind"], answer["state"], answer["total"], answer["rate"]) == ("replay", "running", 2, 7)
    assert answer["requested_by"] == caller.account.get_username()
    job = BulkJob.objects.get()
    assert (job.requested_by, job.details) == (caller.account, {"repair": "The role was given back."})
    assert jobwork.work_slice(job.pk, budget_seconds=5, wait=lambda seconds: None)
    told = given(caller.get(f"/jobs/{answer['id']}"))
    assert (told["state"], told["outcomes"]) == ("done", {"replayed": 2})
    items = given(caller.get(f"/jobs/{answer['id']}/items"))["items"]
    assert [(each["ordinal"], each["subject"], each["outcome"]) for each in items] == [
        (1, one.pk, "replayed"), (2, two.pk, "replayed"),
    ]  # fmt: skip
    assert given(caller.get(f"/jobs/{answer['id']}/items", outcome="refused"))["items"] == []
    assert world.command("clips/a").cycle == 1


def test_all_that_match_a_filter_are_closed_with_the_number_that_was_seen(world: Acting, caller: Program) -> None:
    parked(world, "a", "b")
    body = {"filter": {"prefix": "clips/"}, "expected": 1, "reason": "Gone by hand."}
    assert "You saw 1" in problem(caller.post("/quarantine/close", body), 409, "conflict")["detail"]
    answer = given(caller.post("/quarantine/close", body | {"expected": 2}), 202)
    assert (answer["total"], answer["selection"]) == (2, "open entries, with keys that begin with clips/")
    jobwork.work_slice(answer["id"], budget_seconds=5, wait=lambda seconds: None)
    assert not DeadLetter.objects.filter(resolved_at=None).exists()
    assert {each.resolved_by for each in DeadLetter.objects.all()} == {caller.account}


def test_a_request_that_is_sent_again_is_the_same_job_and_another_one_under_its_key_is_refused(
    world: Acting, caller: Program
) -> None:
    one, two = parked(world, "a", "b")
    key = str(uuid4())
    first = given(caller.post("/quarantine/close", chosen(one), key=key), 202)
    assert given(caller.post("/quarantine/close", chosen(one), key=key), 202)["id"] == first["id"]
    for body in (
        chosen(two), chosen(one, reason="Another reason."), chosen(one, rate=7), chosen(one) | {"expected": 2},
    ):  # fmt: skip
        problem(caller.post("/quarantine/close", body, key=key), 409, "idempotency-conflict")
    problem(caller.post("/quarantine/replay", chosen(one), key=key), 409, "idempotency-conflict")
    jobwork.work_slice(first["id"], budget_seconds=5, wait=lambda seconds: None)
    assert given(caller.post("/quarantine/close", chosen(one), key=key), 202)["state"] == "done"
    problem(
        program(*SCOPES).post("/quarantine/close", chosen(one), key=key), 409, "conflict"
    )  # its own key: none is open
    assert BulkJob.objects.count() == 1


def test_a_request_that_is_sent_again_counts_nothing(
    world: Acting, caller: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = parked(world, "a", "b")
    for verb, row in (("close", one), ("replay", two)):
        first = given(caller.post(f"/quarantine/{verb}", chosen(row), key=verb), 202)
        with monkeypatch.context() as patched:
            patched.setattr(bulk, "count", None)
            assert given(caller.post(f"/quarantine/{verb}", chosen(row), key=verb), 202)["id"] == first["id"]


def test_a_cursor_belongs_to_the_items_of_one_job(world: Acting, caller: Program) -> None:
    rows = parked(world, "a", "b", "c", "d")
    numbers = []
    for pair in (rows[:2], rows[2:]):
        numbers.append(given(caller.post("/quarantine/close", chosen(*pair)), 202)["id"])
        jobwork.work_slice(numbers[-1], budget_seconds=5, wait=lambda seconds: None)
    one, other = numbers
    cursor = given(caller.get(f"/jobs/{one}/items", limit=1))["next"]
    assert "cursor" in problem(caller.get(f"/jobs/{other}/items", limit=1, cursor=cursor), 422, "invalid")["errors"]
    assert given(caller.get(f"/jobs/{one}/items", limit=1, cursor=cursor))["items"]


@pytest.mark.parametrize(
    "body",
    [
        {"expected": 1, "reason": "R"},
        {"ids": [1], "filter": {}, "expected": 1, "reason": "R"},
        {"ids": [], "expected": 1, "reason": "R"},
        {"ids": ["1"], "expected": 1, "reason": "R"},
        {"ids": [2**63], "expected": 1, "reason": "R"},
        {"ids": [1], "reason": "R"},
        {"ids": [1], "expected": 1, "reason": " "},
        {"ids": [1], "expected": 1, "reason": "R", "rate": 0},
        {"filter": {"prefiks": "a"}, "expected": 1, "reason": "R"},
        {"filter": {"entries": "all"}, "expected": 1, "reason": "R"},
    ],
)
@pytest.mark.parametrize("verb", ["replay", "close"])
def test_a_decision_that_is_not_clear_is_none(world: Acting, caller: Program, verb: str, body: Any) -> None:
    problem(caller.post(f"/quarantine/{verb}", body), 422, "invalid")
    assert not BulkJob.objects.exists()


def test_without_a_key_nothing_is_decided(world: Acting, caller: Program) -> None:
    (row,) = parked(world, "a")
    problem(caller.post("/quarantine/close", chosen(row), key=None), 422, "invalid")
    assert not BulkJob.objects.exists()


def test_replaying_and_closing_are_scopes_of_their_own_and_in_no_other(world: Acting) -> None:
    (row,) = parked(world, "a")
    for verb, scope in (("replay", "quarantine:close"), ("close", "quarantine:replay")):
        told = problem(program("quarantine:read", scope).post(f"/quarantine/{verb}", chosen(row)), 403, "scope-missing")
        assert f"quarantine:{verb}" in told["detail"]


def test_entries_and_jobs_of_other_tenants_are_not_there(world: Acting, caller: Program) -> None:
    (row,) = parked(world, "a")
    Tenant.objects.create(code="other", name="Other")
    stranger = program(*SCOPES, tenants=["other"])
    assert given(stranger.get("/quarantine", entries="all"))["items"] == []
    assert given(stranger.get("/quarantine/count"))["total"] == 0
    problem(stranger.get("/quarantine", bucket="media"), 422, "invalid")
    problem(stranger.post("/quarantine/close", chosen(row)), 409, "conflict")
    problem(stranger.post("/quarantine/close", {"filter": {}, "expected": 1, "reason": "R"}), 409, "conflict")
    job = given(caller.post("/quarantine/close", chosen(row)), 202)
    problem(stranger.get(f"/jobs/{job['id']}"), 404, "not-found")
    problem(stranger.get(f"/jobs/{job['id']}/items"), 404, "not-found")


def test_many_numbers_are_told_in_few_words_that_no_other_choice_has(world: Acting, caller: Program) -> None:
    assert by_number([3, 1, 3]) == "chosen by number: 1, 3"
    many = list(range(1, 1001))
    assert by_number(many).startswith("1,000 entries chosen by number: 1, 2, ")
    assert len(by_number(many)) < 250
    assert by_number(many) != by_number([*many[:-1], 2000])
