"""Every operation, every scope, every tenant: from the description itself, so that an operation cannot be forgotten."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from django.test import Client

from cleanup_project.base import jobwork, roles
from cleanup_project.base.scopes import SCOPES
from cleanup_project.operations.api import site
from ledger.models import DeadLetter, Receipt
from retention import releases
from retention.models import HoldRelease, LegalHold, Tenant
from tests.ledger.acting import Acting
from tests.ledger.parking import deleted, parked
from tests.operations.api.calling import PLACE, Program, given, problem, program
from tests.operations.api.test_api_catalogue import AT, HEADER, ROW
from tests.operations.api.test_api_holds import EVENT, HOLD
from tests.world import hold

pytestmark = pytest.mark.django_db(transaction=True)

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


@dataclass
class Operation:
    id: str
    method: str
    path: str
    scope: str
    answers: list[str]


def operations() -> Iterator[Operation]:
    for path, methods in json.loads(site.openapi())["paths"].items():
        for method, each in methods.items():
            ((scope,),) = [scheme["token"] for scheme in each["security"]]
            yield Operation(each["operationId"], method, path, scope, list(each["responses"]))


@dataclass
class Sample:
    """A request that is right for whoever sees the tenant acme. `everybody`: it takes an account of every tenant."""

    path: dict[str, Any] = field(default_factory=dict)
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    media: str = "application/json"
    everybody: bool = False


def samples(world: Acting) -> dict[str, Sample]:
    command = deleted(world)
    one, two, three, four = parked(world, "a", "b", "c", "d")
    placed = hold(world.tenant, world.bucket, "held/", by=world.people["compliance"])
    run = {"run_id": command.run.key}
    chosen = {"expected": 1, "reason": "Looked at."}
    return {
        "listRuns": Sample(query={"policy": "originals"}),
        "openRun": Sample(body={"policy": "originals", "mode": "dry_run"}),
        "getRun": Sample(run),
        "getManifest": Sample(run),
        "explainCommand": Sample(query={"key": command.key}),
        "listQuarantine": Sample(query={"bucket": "media"}),
        "countQuarantine": Sample(query={"policy": "originals"}),
        "replayQuarantine": Sample(body=chosen | {"ids": [one.pk]}),
        "closeQuarantine": Sample(body=chosen | {"ids": [two.pk]}),
        "listHolds": Sample(query={"tenant": "acme"}),
        "placeHold": Sample(body=HOLD),
        "requestRelease": Sample({"number": placed.pk}, body={"reason": "Over."}),
        "postEvent": Sample(body=EVENT),
        "listPolicies": Sample(),
        "getPolicy": Sample({"code": "originals"}),
        "listReceipts": Sample(query={"bucket": "media"}),
        "exportReceipts": Sample(query={"run": command.run.key}),
        "getReceipt": Sample({"number": Receipt.objects.get().pk}),
        "explainObject": Sample(query={"bucket": "media", "key": "clips/a"}),
        "uploadCatalogue": Sample(
            {"bucket": "media"}, {"observed_at": AT}, f"{HEADER}\n{ROW.format('up')}\n", "text/csv", everybody=True
        ),
        "getJob": Sample({"number": job_of(three)}),
        "listJobItems": Sample({"number": job_of(four)}),
    }


def called(caller: Program, operation: Operation, sample: Sample) -> Any:
    path = operation.path.removeprefix(PLACE).format(**sample.path)
    if operation.method == "get":
        return caller.get(path, **sample.query)
    query = "&".join(f"{name}={value}" for name, value in sample.query.items())
    return caller.post(f"{path}?{query}" if query else path, sample.body, content_type=sample.media)


def is_nothing(answer: Any, sample: Sample) -> bool:
    """Whether it tells a stranger of nothing that they did not say themselves."""
    if answer.status_code in {403, 404, 409, 422}:
        said = answer.content.decode().replace("There is no tenant acme", "")
        for value in sample.query.values():
            said = said.replace(value, "")
        return "acme" not in said
    if answer.streaming:
        return len(b"".join(answer.streaming_content).splitlines()) <= 1
    told = answer.json()
    return told in ({"items": [], "next": None}, {"total": 0, "whole": True, "by_cause": []})


NAMES = {"bucket", "code", "ids", "key", "number", "policy", "run", "run_id", "tenant"}


def nowhere(sample: Sample) -> Sample:
    """The same request about what nobody has."""

    def instead(given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {name: nothing(value) if name in NAMES else value for name, value in given.items()}

    def nothing(value: Any) -> Any:
        return [1 << 40] if isinstance(value, list) else 1 << 40 if isinstance(value, int) else "nowhere"

    return replace(sample, path=instead(sample.path), query=instead(sample.query), body=instead(sample.body))


def told(answer: Any, sample: Sample) -> tuple[int, str]:
    """What is answered, apart from the names that were sent."""
    if answer.streaming:
        return answer.status_code, ""
    body = answer.json()
    body.pop("request_id", None)
    text = json.dumps(body, ensure_ascii=False)
    sent = {**sample.path, **sample.query, **(sample.body if isinstance(sample.body, dict) else {})}
    for value in (str(value) for name, value in sent.items() if name in NAMES):
        text = re.sub(rf"\b{re.escape(value)}\b", "·", text)
    return answer.status_code, text


def test_a_stranger_is_answered_as_about_what_nobody_has(world: Acting) -> None:
    Tenant.objects.create(code="other", name="Other")
    known = samples(world)
    wrong = []
    for each in operations():
        sample, elsewhere = known[each.id], nowhere(known[each.id])
        stranger = program(each.scope, tenants=["other"])
        here, there = (told(called(stranger, each, one), one) for one in (sample, elsewhere))
        if here != there:
            wrong.append((each.id, here, there))
    assert wrong == []


def test_every_operation_takes_its_scope_alone_and_shows_nothing_to_strangers(world: Acting) -> None:
    Tenant.objects.create(code="other", name="Other")
    known = samples(world)
    wrong = []
    made = list(operations())
    assert {each.id for each in made} == set(known), "say here with which request each operation is tried"
    for each in made:
        sample = known[each.id]
        without = program(*sorted(set(SCOPES) - {each.scope}))
        refused = called(without, each, sample)
        if refused.status_code != 403 or each.scope not in refused.json()["detail"]:
            wrong.append((each.id, "without its scope", refused.status_code))
        stranger = called(program(each.scope, tenants=["other"]), each, sample)
        if not is_nothing(stranger, sample):
            wrong.append((each.id, "to a stranger", stranger.status_code, stranger.content[:200]))
        own = called(program(each.scope, tenants=[] if sample.everybody else ["acme"]), each, sample)
        own.close()  # what is streamed is not read to its end
        if not 200 <= own.status_code < 300 or str(own.status_code) not in each.answers:
            wrong.append((each.id, "with its scope", own.status_code))
        problem(getattr(Client(), each.method)(each.path.format(**sample.path)), 401, "unauthenticated")
    assert wrong == []


def job_of(entry: DeadLetter) -> int:
    """A job about it, done, so that another may be about the same class."""
    body = {"ids": [entry.pk], "expected": 1, "reason": "Looked at."}
    job = given(program("quarantine:close", tenants=["acme"]).post("/quarantine/close", body), 202)
    assert jobwork.work_slice(job["id"], budget_seconds=5, wait=lambda seconds: None)
    return int(job["id"])


def test_scopes_of_decisions_are_each_of_one_operation() -> None:
    used = [each.scope for each in operations()]
    assert set(used) == set(SCOPES)
    for scope in (
        "quarantine:replay",
        "quarantine:close",
        "holds:place",
        "holds:request-release",
        "events:post",
        "runs:create",
    ):
        assert used.count(scope) == 1, scope
        assert next(each for each in operations() if each.scope == scope).method == "post"


def test_nothing_is_approved_by_the_api(world: Acting) -> None:
    """Neither by an operation that there is, nor at an address where one might look for it, nor with every scope."""
    words = ("approve", "release/", "deny", "rearm", "resume", "exempt", "lift", "publish", "stop")
    for each in operations():
        assert not any(word in each.path.replace("release-requests", "") for word in words), each.path
    rights = {scope.right for scope in SCOPES.values()}
    assert rights.isdisjoint({"approve_run", "approve_release", "publish_policy", "rearm", "manage_settings"})
    placed = hold(world.tenant, world.bucket, "held/", by=world.people["compliance"])
    release = releases.request(hold=placed, by=world.people["compliance"], reason="Over.")
    world.put("clips/a")
    run = world.run()
    caller = program()
    for path in (
        f"/runs/{run.key}/approve", f"/runs/{run.key}/approval", f"/runs/{run.key}/resume", "/approvals",
        f"/holds/{placed.pk}/release", f"/holds/{placed.pk}/release-requests/{release.pk}/approve",
        f"/holds/{placed.pk}/release-requests/approve", f"/release-requests/{release.pk}/approve",
    ):  # fmt: skip
        problem(caller.post(path, {"reason": "R", "matter": placed.matter}), 404, "not-found")
    assert LegalHold.objects.get().released_at is None
    assert HoldRelease.objects.get().decision == ""
    assert not any(caller.account.has_perm(f"base.{right}") for right in ("approve_run", "approve_release"))


def test_the_account_of_a_token_is_nobody_in_a_browser(person: Any) -> None:
    caller = program()
    client = Client()
    client.force_login(caller.account)
    assert client.get("/admin/work/").status_code == 302
    client.force_login(person("auditor", roles.AUDITOR))
    assert client.get("/admin/work/").status_code == 200
