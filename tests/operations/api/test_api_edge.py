"""What every answer of the API has in common, also where it is an error that the framework would answer with a page."""

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cleanup_project.base import apitokens
from cleanup_project.base.models import ApiToken, AuditEvent, User
from cleanup_project.operations.api import runs
from ledger import exceptions as ledger_exceptions
from retention import catalogue
from tests.operations.api.calling import PLACE, administrator, given, problem, program

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "place", ["/api", "/api/", "/api/v1", "/api/v1/", "/api/v1/nothing", "/api/v1/runs/", "/api/v2/runs"]
)
@pytest.mark.parametrize("method", ["get", "post", "delete"])
def test_an_unknown_address_is_a_problem_and_no_page(place: str, method: str) -> None:
    answer = getattr(Client(enforce_csrf_checks=True), method)(place)
    assert "/api/v1/docs" in problem(answer, 404, "not-found")["detail"]


def test_another_method_is_told_which_there_are() -> None:
    answer = program().client.delete(f"{PLACE}/runs")
    problem(answer, 405, "method-not-allowed")
    assert {each.strip() for each in answer["Allow"].split(",")} == {"GET", "POST"}


def test_a_host_that_is_not_ours_is_a_problem_and_no_page() -> None:
    problem(Client().get(f"{PLACE}/runs", headers={"Host": "elsewhere.example"}), 400, "malformed")


def test_what_we_did_not_foresee_is_a_problem_and_no_page_with_its_request_id(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = program("runs:read")

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(runs, "seen", broken)
    caller.client.raise_request_exception = False
    told = problem(caller.get("/runs"), 500, "internal-error")
    assert "ZeroDivisionError" not in json.dumps(told)


def test_a_database_that_does_not_answer_in_time_is_to_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = program("runs:read")

    def slow(*_: Any) -> Any:
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr(runs, "seen", slow)
    answer = caller.get("/runs")
    problem(answer, 503, "busy")
    assert int(answer["Retry-After"]) > 0


def test_a_statement_that_the_database_cancels_is_such_a_one(monkeypatch: pytest.MonkeyPatch) -> None:
    caller = program("runs:read")

    def asleep(*_: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 1")
            cursor.execute("SELECT pg_sleep(5)")

    monkeypatch.setattr(runs, "seen", asleep)
    problem(caller.get("/runs"), 503, "busy")


def test_what_was_to_be_changed_when_the_database_gave_way_is_to_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: Any, **__: Any) -> Any:
        raise OperationalError("canceling statement due to statement timeout")

    monkeypatch.setattr(runs, "tenancy", SimpleNamespace(scoped=slow))
    caller = program("runs:read", "runs:create")
    told = problem(caller.post("/runs", {"policy": "originals"}), 503, "busy")["detail"]
    assert "not known" in told
    assert "Idempotency-Key" in told
    for each in (told, problem(caller.get("/runs"), 503, "busy")["detail"]):
        assert "othing was changed" not in each


@pytest.mark.parametrize(
    "refusal", [catalogue.BucketBusy("It is being synced."), ledger_exceptions.TryLater("Two are being read.")]
)
def test_what_passes_by_itself_says_when_to_come_again(refusal: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: Any) -> Any:
        raise refusal

    monkeypatch.setattr(runs, "seen", busy)
    answer = program("runs:read").get("/runs")
    told = problem(answer, 503, "busy")
    assert told["detail"] == f"Nothing was changed. {refusal}"
    assert int(answer["Retry-After"]) > 0


def test_over_plain_http_nothing_is_answered_where_https_is_set(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    caller = program()
    assert "replaced" in problem(caller.get("/runs"), 403, "https-required")["detail"]
    assert caller.client.get(f"{PLACE}/runs", headers=caller.headers(), secure=True).status_code == 200


def test_nobody_comes_in_with_a_session(person: Any) -> None:
    client = Client()
    client.force_login(person("manager-1", "Retention manager"))
    answer = client.get(f"{PLACE}/runs")
    problem(answer, 401, "unauthenticated")
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert not answer.cookies


def test_every_answer_has_a_request_id_which_is_not_the_callers_and_stands_in_the_audit_record(person: Any) -> None:
    caller = program("receipts:read", "runs:read")
    answer = caller.client.get(f"{PLACE}/runs", headers=caller.headers() | {"X-Request-ID": "x" * 100})
    assert given(answer) == {"items": [], "next": None}
    assert answer["X-Request-ID"] != "x" * 100
    page = Client()
    page.force_login(person("manager-1", "Retention manager"))
    assert page.get("/admin/work/", headers={"X-Request-ID": "x" * 100})["X-Request-ID"] != "x" * 100


def test_what_a_program_did_is_in_the_audit_record_under_its_account_and_request(world: Any) -> None:
    caller = program("holds:place")
    body = {
        "tenant": "acme", "matter": "Doe", "title": "T", "authority": "Court", "reason": "Letter", "buckets": ["media"],
        "prefixes": [""], "retention_classes": ["*"],
    }  # fmt: skip
    answer = caller.post("/holds", body)
    given(answer, 201)
    event = AuditEvent.objects.get(action="hold.placed")
    assert (event.actor, event.request_id) == (caller.account, answer["X-Request-ID"])


def refused_tokens() -> dict[str, str]:
    expired, revoked, inactive = program("runs:read"), program("runs:read"), program("runs:read")
    ApiToken.objects.filter(pk=expired.token.pk).update(
        created_at=Now() - timedelta(days=2), expires_at=Now() - timedelta(days=1)
    )
    apitokens.revoke(token=revoked.token, by=administrator(), reason="Lost.")
    User.objects.filter(pk=inactive.account.pk).update(is_active=False)
    known = program("runs:read").secret
    return {
        "expired": f"Bearer {expired.secret}",
        "revoked": f"Bearer {revoked.secret}",
        "of an inactive account": f"Bearer {inactive.secret}",
        "another secret": f"Bearer {known[:-1]}{'0' if known[-1] != '0' else '1'}",
        "no token": "Bearer no-token",
        "another scheme": f"Basic {known}",
        "nothing": "",
    }


def test_every_token_that_is_not_valid_gets_the_same_answer() -> None:
    answers = set()
    for what, header in refused_tokens().items():
        answer = Client().get(f"{PLACE}/runs", headers={"Authorization": header} if header else {})
        told = problem(answer, 401, "unauthenticated")
        assert answer["WWW-Authenticate"].startswith("Bearer"), what
        answers.add(told["detail"])
    assert len(answers) == 1


def test_a_token_in_the_address_opens_nothing() -> None:
    caller = program("runs:read")
    problem(Client().get(f"{PLACE}/runs", {"token": caller.secret}), 401, "unauthenticated")


def test_a_parameter_that_there_is_not_is_refused_since_it_would_narrow_nothing() -> None:
    told = problem(program("runs:read").get("/runs", polcy="originals"), 422, "invalid")
    assert "policy" in told["errors"]["polcy"][0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", "not JSON"),
        ('{"policy": "a", "policy": "b"}', "twice"),
        ('{"policy": NaN}', "NaN"),
        ('{"policy": "a\\u0000"}', "NUL"),
        ('{"policy": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_why(body: Any, words: str) -> None:
    told = problem(program("runs:create").post("/runs", body), 400, "malformed")
    assert words in told["detail"]


def test_a_name_with_nul_names_nothing() -> None:
    caller = program("runs:read", "commands:read")
    problem(caller.get("/commands", key="a\x00b"), 422, "invalid")
    problem(caller.get("/runs/a%00b"), 422, "invalid")


def test_a_body_of_another_media_type_is_told_which_are_taken() -> None:
    answer = program("runs:create").post("/runs", "policy=a", content_type="application/x-www-form-urlencoded")
    problem(answer, 415, "unsupported-media-type")
    assert answer["Accept-Post"] == "application/json"


def test_a_body_that_is_too_large_is_not_even_read() -> None:
    told = problem(program("runs:create").post("/runs", '"' + "x" * (1 << 20) + '"'), 413, "too-large")
    assert "1,048,576" in told["detail"]


def test_a_body_without_a_length_is_refused() -> None:
    caller = program("runs:create")
    answer = caller.client.post(
        f"{PLACE}/runs",
        "{}",
        content_type="application/json",
        headers=caller.headers(),
        HTTP_TRANSFER_ENCODING="chunked",
    )
    problem(answer, 411, "length-required")


def test_a_length_that_is_no_number_is_told() -> None:
    caller = program("runs:create")
    answer = caller.client.post(
        f"{PLACE}/runs", "{}", content_type="application/json", headers=caller.headers(), CONTENT_LENGTH="many"
    )
    assert "Content-Length" in problem(answer, 400, "malformed")["detail"]


def test_a_token_is_taken_also_where_no_server_says_from_which_address() -> None:
    caller = program("runs:read")
    assert caller.client.get(f"{PLACE}/runs", headers=caller.headers(), REMOTE_ADDR="").status_code == 200


def test_a_token_that_asks_too_often_is_told_how_long_to_wait_and_no_other_is(settings: Any) -> None:
    settings.API_READS_PER_MINUTE = 2
    settings.API_WRITES_PER_MINUTE = 1
    caller, other = program(), program()
    answers = [caller.get("/runs") for _ in range(3)]
    if [each.status_code for each in answers] == [200] * 3:
        answers = [caller.get("/runs") for _ in range(3)]  # a minute began in between
    assert answers[0]["RateLimit-Policy"] == '"token";q=2;w=60'
    told = problem(answers[-1], 429, "too-many-requests")
    assert "2 such requests a minute" in told["detail"]
    assert 1 <= int(answers[-1]["Retry-After"]) <= 60
    assert caller.post("/runs", {"policy": "none"}).status_code == 404  # writes are counted by themselves
    assert other.get("/runs").status_code == 200


def test_who_comes_in_costs_the_same_whatever_is_asked() -> None:
    caller = program("runs:read")
    caller.get("/runs")
    with CaptureQueriesContext(connection) as counted:
        caller.get("/runs")
    assert len(counted) == 3, [each["sql"] for each in counted.captured_queries]  # the token, its rate, the list
