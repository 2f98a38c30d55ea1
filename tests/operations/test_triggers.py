"""Triggers from outside: who may ring, what a bell does, and that ringing twice changes nothing."""

import base64
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django.http import HttpResponse
from django.test import Client
from django_q.models import OrmQ
from pytest_django.live_server_helper import LiveServer

from cleanup_project import environment
from cleanup_project.operations import triggers
from ledger import tasks
from ledger.models import CleanupRun
from retention.models import Bucket
from tests.ledger.acting import build
from tests.ledger.test_schedule import answers, begun, make_daily, newest_slot
from tests.web import quick_pages  # noqa: F401
from tests.world import sealed_run
from webhooks import signing

OLD, NEW = (signing.secret_text(bytes([number]) * 32) for number in (1, 2))
TICK, WAKE = "/triggers/tick", "/triggers/wake"
Send = Callable[..., HttpResponse]


@pytest.fixture(autouse=True)
def secrets(settings: Any) -> None:
    settings.TRIGGER_SECRETS = [NEW, OLD]


def slot(**ahead: float) -> dict[str, str]:
    return {"scheduled_for": (datetime.now(UTC) + timedelta(**ahead)).isoformat()}


def signed(path: str, body: object, *, secret: str = OLD, id: str = "t-1", at: float = 0, **more: Any) -> HttpResponse:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = signing.headers([signing.parse_secret(secret)], id, int(time.time() + at), content)
    return Client(enforce_csrf_checks=True).post(path, content, "application/json", headers=headers, **more)


def bearing(path: str, body: object = None, *, secret: str = NEW, **headers: str) -> HttpResponse:
    content = json.dumps(body) if body is not None else b""
    headers = {"Authorization": f"Bearer {secret}"} | headers
    return Client(enforce_csrf_checks=True).post(path, content, "application/json", headers=headers)


def rung() -> list[tuple[str, tuple[int, ...]]]:
    return [(each.task["func"], each.task["args"]) for each in OrmQ.objects.order_by("pk")]


@pytest.mark.django_db
@pytest.mark.parametrize("send", [signed, bearing])
@pytest.mark.parametrize("secret", [OLD, NEW])
def test_each_secret_rings_signed_or_borne_and_a_copy_changes_nothing(send: Send, secret: str) -> None:
    said = slot()
    first, again = send(TICK, said, secret=secret), send(TICK, said, secret=secret)
    assert [(each.status_code, each.json()["did"]) for each in (first, again)] == [(202, "rung"), (202, "already")]
    assert rung() == [("ledger.tasks.tick", ())]
    assert not first.cookies


@pytest.mark.django_db
def test_a_tick_answers_each_slot_once_however_often_it_is_rung() -> None:
    policy = make_daily(build().revision.policy)
    begun(policy, days_ago=2)
    for _ in range(2):
        assert bearing(TICK, {"scheduled_for": newest_slot().isoformat()}).json()["did"] == "rung"
        cache.clear()  # what is remembered only saves a look
    assert rung() == [("ledger.tasks.tick", ())] * 2
    for _ in rung():
        tasks.tick()
    assert answers(policy) == ["missed", "opened"]
    assert CleanupRun.objects.get().scheduled_for == newest_slot()


@pytest.mark.django_db
def test_a_slot_that_is_not_due_yet_is_rung_again_when_it_is() -> None:
    said = slot(seconds=200)
    assert [bearing(TICK, said).json()["did"] for _ in range(2)] == ["rung", "rung"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "said",
    [
        {},
        {"scheduled_for": None},
        {"scheduled_for": 1790000000},
        {"scheduled_for": "soon"},
        {"scheduled_for": "2026-13-30T10:00:00Z"},
        {"scheduled_for": "2026-11-30T10:00:00"},
        {"scheduled_for": "0001-01-01T00:00:00+14:00"},
        {"scheduled_for": "2026-11-30T10:00:00Z", "policy": 3},
        ["2026-11-30T10:00:00Z"],
        b"{",
        b"\xff",
        b"[" * 4000,
    ],
    ids=str,
)
def test_what_names_no_slot_is_refused_with_words(said: object) -> None:
    answer = signed(TICK, said)
    assert (answer.status_code, answer["Content-Type"]) == (422, "application/problem+json")
    assert "2026-11-30T10:00:00Z" in answer.json()["detail"]
    assert rung() == []


@pytest.mark.django_db
def test_a_slot_far_ahead_is_refused() -> None:
    answer = signed(TICK, slot(seconds=320))
    assert (answer.status_code, "more than five minutes ahead" in answer.json()["detail"]) == (422, True)


@pytest.mark.django_db
def test_a_scheduler_that_sends_the_same_body_names_the_slot_in_its_header() -> None:
    headers = {triggers.SCHEDULE_TIME: "2026-11-30T10:00:00.5Z"}
    first, again = (bearing(TICK, {}, **headers).json() for _ in range(2))
    assert (first["did"], first["scheduled_for"], again["did"]) == (
        "rung",
        "2026-11-30T10:00:00.500000+00:00",
        "already",
    )


@pytest.mark.django_db
def test_each_bell_rings_its_task() -> None:
    acting = build()
    run, bucket = acting.run(), Bucket.objects.get()
    OrmQ.objects.all().delete()
    numbers = {Bucket: bucket.pk, CleanupRun: run.pk}
    for name, bell in triggers.BELLS.items():
        said = {"task": name} | ({"argument": numbers[bell.about]} if bell.about else {})
        assert signed(WAKE, said, id=name).json() == {"did": "rung", "task": bell.task}
    assert rung() == [(bell.task, (numbers[bell.about],) if bell.about else ()) for bell in triggers.BELLS.values()]


@pytest.mark.django_db
def test_a_copy_of_a_signed_wake_is_known_and_a_bearer_rings_each_time() -> None:
    said = {"task": "sweep"}
    assert [signed(WAKE, said).json()["did"] for _ in range(2)] == ["rung", "already"]
    assert signed(WAKE, said, id="t-2").json()["did"] == "rung"
    assert [bearing(WAKE, said).json()["did"] for _ in range(2)] == ["rung", "rung"]
    assert len(rung()) == 4


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "one of these tasks: sweep, drain"),
        ({"task": "tick"}, "one of these tasks"),
        ({"task": "ledger.tasks.drain", "argument": 1}, "one of these tasks"),
        ({"task": ["sweep"]}, "one of these tasks"),
        ({"task": "sweep", "more": 1}, "one of these tasks"),
        ({"task": "sweep", "argument": 1}, "takes no argument"),
        ({"task": "drain"}, "takes the number of a bucket"),
        ({"task": "drain", "argument": True}, "takes the number of a bucket"),
        ({"task": "drain", "argument": "1"}, "takes the number of a bucket"),
        ({"task": "drain", "argument": 2**63}, "takes the number of a bucket"),
        ({"task": "drain", "argument": 0}, "takes the number of a bucket"),
        ({"task": "drain", "argument": 77}, "There is no bucket 77"),
    ],
    ids=str,
)
def test_what_is_no_bell_is_refused_with_words(said: object, words: str) -> None:
    answer = signed(WAKE, said)
    assert (answer.status_code, words in answer.json()["detail"]) == (422, True)
    assert rung() == []


@pytest.mark.django_db
def test_whoever_may_not_ring_is_told_one_thing_and_costs_no_query(django_assert_num_queries: Any) -> None:
    said, foreign = slot(), signing.secret_text(b"3" * 32)
    with django_assert_num_queries(0):
        answers = [
            signed(TICK, said, secret=foreign),
            signed(TICK, said, at=-301),
            signed(TICK, said, at=301),
            signed(TICK, said, id="no id!"),
            bearing(TICK, said, secret=foreign),
            bearing(TICK, said, secret=NEW.lower()),
            bearing(TICK, said, secret="grün"),
            bearing(TICK, said, Authorization=f"Basic {NEW}"),
            bearing(TICK, said, Authorization=NEW),
            bearing(TICK, said, **{"webhook-signature": "v1,AAAA"}),  # what is signed wrongly is not let in as borne
            Client().post(TICK, json.dumps(said), "application/json"),
        ]
    assert {each.status_code for each in answers} == {401}
    assert len({json.dumps(each.json() | {"request_id": ""}) for each in answers}) == 1
    assert answers[0]["WWW-Authenticate"] == "Bearer"


@pytest.mark.django_db
def test_a_signature_holds_for_its_body_alone() -> None:
    headers = signing.headers([signing.parse_secret(NEW)], "t-1", int(time.time()), b'{"task": "sweep"}')
    answer = Client().post(WAKE, b'{"task": "dispatch"}', "application/json", headers=headers)
    assert answer.status_code == 401


def test_without_secrets_there_are_no_such_addresses(settings: Any) -> None:
    settings.TRIGGER_SECRETS = []
    for path in (TICK, WAKE):
        assert bearing(path, slot()).status_code == 404
        assert Client().get(path).status_code == 404


def test_only_a_short_post_is_read() -> None:
    answer = Client().get(TICK)
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    assert bearing(TICK, {"scheduled_for": "x" * triggers.LARGEST_BODY}).status_code == 413


@pytest.mark.django_db
def test_too_many_within_a_minute_are_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triggers, "MOST_A_MINUTE", 2)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    answers = [bearing(WAKE, {"task": "sweep"}) for _ in range(3)]
    assert [each.status_code for each in answers] == [202, 202, 429]
    assert 0 < int(answers[-1]["Retry-After"]) <= 60
    assert len(rung()) == 2


@pytest.mark.parametrize("given", ["sesame", "whsec_AAAA", f"{OLD},whsec_c2hvcnQ=", OLD.replace("=", "")])
def test_a_secret_that_is_none_is_refused_at_the_start_and_not_quoted(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRETS", given)
    with pytest.raises(ImproperlyConfigured, match="SECRETS must be a comma list of secrets; number") as refused:
        environment.env_trigger_secrets("SECRETS")
    assert given.rpartition(",")[2] not in str(refused.value)
    monkeypatch.setenv("SECRETS", f" {OLD}, {NEW} ")
    assert environment.env_trigger_secrets("SECRETS") == [OLD, NEW]


def documented() -> str:
    """The script of the document, word for word."""
    text = (configured.BASE_DIR / "docs/triggers.md").read_text()
    (script,) = re.findall(r"^```sh\n(#!/bin/sh\n.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return script


@pytest.mark.django_db(transaction=True)
def test_the_documented_script_rings_over_http(tmp_path: Path) -> None:
    for tool in ("curl", "openssl"):
        if shutil.which(tool) is None:
            pytest.skip(f"THE SCRIPT OF docs/triggers.md WAS NOT TESTED: apt-get install {tool}")
    script = tmp_path / "cleanup-tick"
    script.write_text(documented())
    live = LiveServer("127.0.0.1")

    def run(secret: str) -> subprocess.CompletedProcess[str]:
        variables = {"PATH": os.environ["PATH"], "CLEANUP_URL": live.url, "TRIGGER_SECRET": secret}
        return subprocess.run(["/bin/sh", script], env=variables, capture_output=True, text=True, check=False)

    try:
        ended = run(NEW)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
        assert rung() == [("ledger.tasks.tick", ())]
        assert run(OLD).returncode == 0  # a copy, or the next minute's
        stranger = run(signing.secret_text(base64.b64decode(OLD.removeprefix("whsec_"))[::-1][:31] + b"x"))
        assert stranger.returncode == 22
        assert "401" in stranger.stderr
    finally:
        live.stop()
    assert {func for func, _ in rung()} == {"ledger.tasks.tick"}


@pytest.mark.django_db
def test_over_plain_http_nothing_rings_and_no_scheduler_takes_the_answer_for_success(settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    for answer in (bearing(TICK, slot()), signed(WAKE, {"task": "sweep"})):
        assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json")
        assert "Use https" in answer.json()["detail"]
    assert rung() == []


@pytest.mark.django_db
def test_one_id_may_ring_different_bells() -> None:
    run = sealed_run(build().revision)
    asked = [{"task": "sweep"}, {"task": "freeze", "argument": run.pk}, {"task": "publish", "argument": run.pk}]
    assert [signed(WAKE, said, id="t-7").json()["did"] for said in asked * 2] == ["rung"] * 3 + ["already"] * 3


@pytest.mark.django_db
def test_whatever_goes_wrong_is_told_as_a_problem(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    def away(*_: object) -> None:
        raise OperationalError("the connection is closed")

    monkeypatch.setattr(triggers.queue, "wake", away)
    gone = bearing(WAKE, {"task": "sweep"})
    assert (gone.status_code, gone["Retry-After"]) == (503, "5")
    assert "twice changes nothing" in gone.json()["detail"]
    settings.ALLOWED_HOSTS = ["cleanup.example.org"]
    wrong = signed(TICK, slot(), id="t-8")
    astray = Client(headers={"host": "cleanup.example.org"}).post("/triggers/tock")
    for answer, status in ((gone, 503), (wrong, 400), (astray, 404)):
        assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
        assert answer.json()["request_id"] == answer["X-Request-ID"]
