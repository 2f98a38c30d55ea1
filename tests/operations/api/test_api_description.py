"""The description of the API: committed as it is, a page without scripts, and true by schemathesis."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema
import pytest
import schemathesis
from django.conf import settings as configured
from django.core.management import CommandError, call_command
from django.core.wsgi import get_wsgi_application
from django.test import Client
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from cleanup_project.base import jobwork
from cleanup_project.base.scopes import SCOPES
from cleanup_project.operations.api import problems, site
from ledger import bulk
from ledger.models import DeadLetter, Receipt
from tests.ledger.acting import Acting
from tests.ledger.parking import deleted, parked
from tests.operations.api.calling import Program, program
from tests.operations.api.test_api_catalogue import AT, HEADER, ROW
from tests.world import hold


def test_the_committed_description_is_what_is_served(client: Client, db: None) -> None:
    committed = (Path(configured.BASE_DIR) / "docs" / "openapi.json").read_text(encoding="utf-8")
    assert client.get("/api/v1/openapi.json").content.decode() == committed, "run manage.py openapi --write"
    call_command("openapi", "--check")


def test_a_description_that_is_out_of_date_fails_its_check(tmp_path: Path, settings: Any) -> None:
    settings.BASE_DIR = tmp_path
    (tmp_path / "docs").mkdir()
    with pytest.raises(CommandError, match="out of date"):
        call_command("openapi", "--check")
    call_command("openapi", "--write")
    call_command("openapi", "--check")


def test_every_operation_says_what_it_does_which_scope_it_needs_and_what_may_come_of_it() -> None:
    for path, methods in json.loads(site.openapi())["paths"].items():
        for method, each in methods.items():
            ((scope,),) = [scheme["token"] for scheme in each["security"]]
            assert f"`{scope}`: {SCOPES[scope].words}" in each["description"], path
            assert each["description"].split("\n")[0].endswith("."), path
            assert {"401", "403", "422", "429", "503"} <= set(each["responses"])
            for status, answer in each["responses"].items():
                if int(status) >= 400:
                    assert answer == {"$ref": f"#/components/responses/Problem{status}"}, (path, method, status)
            for parameter in each["parameters"]:
                assert parameter["schema"], (path, parameter["name"])


def test_the_page_tells_of_every_operation_scope_and_problem_without_script_or_style(client: Client, db: None) -> None:
    answer = client.get("/api/v1/docs")
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/html; charset=utf-8")
    text = answer.content.decode()
    assert " style=" not in text
    assert "<style" not in text
    assert "'self'" in answer["Content-Security-Policy"]
    for methods in json.loads(site.openapi())["paths"].values():
        for each in methods.values():
            assert f'id="{each["operationId"]}"' in text
    for name in SCOPES:
        assert f"<code>{name}</code>" in text
    for name in problems.KINDS:
        assert f'id="{name}"' in text


GUIDE = (Path(configured.BASE_DIR) / "docs" / "api.md").read_text(encoding="utf-8")
# A command of the guide, with its continued lines.
CURL = re.compile(r"^    curl .*?(?:\n(?=\n|    curl)|\Z)", re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str, str]]:
    """(method, path, body) of every command in the guide."""
    found = []
    for command in CURL.findall(GUIDE):
        path = re.search(r"\$API(/[^\"?\s]*)", command)
        body = re.search(r"-d '(\{.*\})'", command, re.DOTALL)
        assert path, command
        found.append(("post" if "-X POST" in command else "get", path[1], body[1] if body else ""))
    return found


def test_every_command_of_the_guide_is_one_of_an_operation_with_a_body_that_it_takes() -> None:
    described = json.loads(site.openapi())
    used = set()
    for method, path, body in commands():
        (operation,) = [
            methods[method]
            for place, methods in described["paths"].items()
            if method in methods and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", place), f"/api/v1{path}")
            and not (place.endswith("}") and path.rpartition("/")[2] in {"export", "count", "why"})
        ]  # fmt: skip
        used.add(operation["operationId"])
        if body:
            shape = operation["requestBody"]["content"]["application/json"]["schema"]
            jsonschema.validate(json.loads(body), shape | {"components": described["components"]})
    every = {each["operationId"] for methods in described["paths"].values() for each in methods.values()}
    told = {
        "listHolds": "`/holds`",
        "listPolicies": "`/policies`",
        "getPolicy": "`/policies/originals`",
        "closeQuarantine": "`quarantine:close`",
    }
    assert every - used == set(told)
    assert all(words in GUIDE for words in told.values())


# What schemathesis cannot know. Ignored authentication: it takes our token for one that it made up itself; test_api_edge and
# test_api_matrix ask without and with wrong ones. Positive data acceptance: a name that nothing has is right by the
# description and is answered with 422, by field.
OFF = [ignored_auth, positive_data_acceptance]


@pytest.fixture
def caller(transactional_db: None, settings: Any) -> Program:
    """With every scope, and a rate that nobody reaches."""
    settings.API_READS_PER_MINUTE = settings.API_WRITES_PER_MINUTE = 1_000_000
    return program()


def names_of(world: Acting) -> dict[str, dict[str, Any]]:
    """Names and numbers that there are, by operation; "" for all of them."""
    run = deleted(world).run
    one, two = parked(world, "a", "b")
    placed = hold(world.tenant, world.bucket, "held/", by=world.people["compliance"])
    close = {"expected": 1, "token": uuid4(), "reason": "Looked at.", "selection": "one"}
    job = bulk.close_all(rows=DeadLetter.objects.filter(pk=two.pk), by=world.people["compliance"], **close)
    jobwork.work_slice(job.pk, budget_seconds=5, wait=lambda seconds: None)
    return {
        "": {
            "run_id": run.key, "run": run.key, "code": "originals", "policy": "originals", "bucket": "media",
            "tenant": "acme", "buckets": ["media"], "retention_classes": ["*"],
        },
        "explainCommand": {"key": run.commands.first().key},
        "explainObject": {"key": "clips/a"},
        "getJob": {"number": job.pk},
        "listJobItems": {"number": job.pk},
        "requestRelease": {"number": placed.pk},
        "getReceipt": {"number": Receipt.objects.get().pk},
        "replayQuarantine": {"ids": [one.pk], "expected": 1},
        "closeQuarantine": {"ids": [one.pk], "expected": 1},
        "postEvent": {"occurred_at": AT, "event_type": "contract-ended"},
        "placeHold": {"stored_from": None},
        "uploadCatalogue": {"whole body": f"{HEADER}\n{ROW.format('up')}\n"},
    }  # fmt: skip


def test_whatever_is_sent_the_answer_is_as_described(world: Acting, caller: Program) -> None:
    described = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", get_wsgi_application())
    names = names_of(world)
    silent = []
    for found in described.get_all_operations():
        operation = found.ok()
        known = names[""] | names.get(operation.definition.raw["operationId"], {})
        answers = sent(operation, GenerationMode.POSITIVE, caller, known)
        sent(operation, GenerationMode.NEGATIVE, caller, {})
        if not any(200 <= status < 300 for status in answers):
            silent.append((operation.label, sorted(answers)))
    assert silent == [], "with names that there are, each operation does what it is for"


def sent(operation: Any, mode: GenerationMode, caller: Program, known: dict[str, Any]) -> set[int]:
    """Send what schemathesis makes of the description; returns the statuses that came."""
    answers = set[int]()

    @settings(max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: Any) -> None:
        if known:
            with_names(case, known)
        answer = case.call(headers=caller.headers())
        answers.add(answer.status_code)
        case.validate_response(answer, excluded_checks=OFF)

    call()
    return answers


def with_names(case: Any, known: dict[str, Any]) -> None:
    """Names in place of texts that nothing is called by. A cursor cannot be made up, and of ids and filter one is sent."""
    case.query.pop("cursor", None)
    case.body = known.get("whole body", case.body)
    body = case.body if isinstance(case.body, dict) else {}
    if "ids" in known:
        body |= {"ids": known["ids"]}
        body.pop("filter", None)
    for place in (case.path_parameters, case.query, body):
        place |= {name: value for name, value in known.items() if name in place}
