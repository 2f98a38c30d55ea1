"""/livez and /readyz: for machines that have no session and call us by an address, honest about what each means."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.cache import caches
from django.db import OperationalError, connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cleanup_project.base.models import Heartbeat
from cleanup_project.operations.watch import readiness
from tests.operations.trouble import DAY, troubled_world
from tests.webhooks.world import sql

STRANGER = "10.4.0.17:8000"  # how a container is asked: by an address that is no host of ours


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    caches["process"].clear()
    yield
    caches["process"].clear()


def asked(address: str) -> tuple[int, list[str]]:
    answer = Client(headers={"Host": STRANGER}).get(address)
    assert (answer["Content-Type"], answer["Cache-Control"]) == ("text/plain; charset=utf-8", "no-store")
    assert not answer.cookies
    return answer.status_code, answer.content.decode().splitlines()


def alive(**fields: Any) -> Heartbeat:
    """A cluster of each queue; `fields`: of the one that ticks."""
    Heartbeat.objects.create(host="secret-host", queue="work")
    return Heartbeat.objects.create(**{"host": "secret-host", "queue": "cleanup", "last_tick_at": Now()} | fields)


def test_livez_touches_nothing_and_minds_no_host(settings: Any) -> None:
    """Without `django_db`, a query would fail the test."""
    settings.SECURE_SSL_REDIRECT = True
    assert asked("/livez") == (200, ["alive"])


@pytest.mark.parametrize("address", ["/livez", "/readyz", "/metrics"])
def test_they_are_asked_with_get(address: str) -> None:
    assert Client().post(address).status_code == 405
    assert Client().get(f"{address}/", headers={"Host": STRANGER}).status_code == 400  # everything else is as it was


@pytest.mark.django_db
def test_the_web_is_ready_although_no_worker_runs_and_the_work_is_not() -> None:
    status, lines = asked("/readyz")
    assert (status, lines[0]) == (200, "ready")
    assert [line.split(":")[0] for line in lines[1:]] == ["ok database", "ok migrations", "fault workers", "ok queue"]
    assert "manage.py worker" in lines[3]
    status, lines = asked("/readyz?workers")
    assert (status, lines[0]) == (503, "not ready")


@pytest.mark.django_db
def test_with_workers_that_are_seen_and_tick_the_work_goes_on() -> None:
    alive()
    assert asked("/readyz?workers")[0] == 200
    ago = {name: Now() - timedelta(minutes=minutes) for name, minutes in (("seen_at", 2), ("last_tick_at", 6))}
    for wrong in (*({name: at} for name, at in ago.items()), {"stopped_at": Now()}):
        caches["process"].clear()
        Heartbeat.objects.all().delete()
        alive(**wrong)
        assert asked("/readyz?workers")[0] == 503, wrong
        assert asked("/readyz")[0] == 200


@pytest.mark.django_db
def test_a_command_that_has_been_due_for_too_long_is_told_without_its_name() -> None:
    troubled_world()
    alive()
    status, lines = asked("/readyz?workers")
    assert (status, lines[4].split(":")[0]) == (503, "fault queue")
    told = "\n".join(lines)
    assert not any(word in told for word in ("secret-host", "acme", "clips", "media", str(DAY.days * 1440)))


@pytest.mark.django_db
def test_without_its_migrations_it_is_not_ready() -> None:
    sql("DELETE FROM django_migrations WHERE app = 'ledger'")
    status, lines = asked("/readyz")
    assert (status, lines[-1]) == (503, "fault migrations: Some are not applied. Run `manage.py migrate`.")


@pytest.mark.django_db
def test_without_a_database_it_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> datetime:
        raise OperationalError("connection refused to secret-host")

    monkeypatch.setattr(readiness.clock, "now", away)
    status, lines = asked("/readyz")
    assert (status, lines) == (503, ["not ready", f"fault database: {readiness.NO_DATABASE.words}"])


@pytest.mark.django_db
def test_a_database_that_is_slow_is_one_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "ANSWERS_WITHIN", 0.1)
    monkeypatch.setattr(readiness, "migrated", lambda: sql("SELECT pg_sleep(3)"))
    assert asked("/readyz")[0] == 503


@pytest.mark.django_db
def test_while_one_question_waits_for_the_database_no_other_joins_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "ANSWERS_WITHIN", 0.05)
    with readiness._asking["serving"], CaptureQueriesContext(connection) as captured:
        assert asked("/readyz")[0] == 503
    assert len(captured) == 0


@pytest.mark.django_db
def test_a_queue_that_cannot_be_read_takes_no_page_away(monkeypatch: pytest.MonkeyPatch) -> None:
    alive()
    monkeypatch.setattr(readiness, "ANSWERS_WITHIN", 0.2)
    monkeypatch.setattr(readiness.vitals, "due", lambda: sql("SELECT pg_sleep(3)"))
    status, lines = asked("/readyz")
    assert (status, lines[4]) == (200, f"fault queue: {readiness.unread('queue').words}")
    assert lines[3].startswith("ok workers")
    assert asked("/readyz?workers")[0] == 503


@pytest.mark.django_db
def test_while_somebody_waits_for_the_queue_others_hear_at_once_that_the_web_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "ANSWERS_WITHIN", 0.2)
    with readiness._asking["working"]:
        assert asked("/readyz")[0] == 200


@pytest.mark.django_db
def test_what_is_asked_again_at_once_is_not_looked_at_again() -> None:
    asked("/readyz")
    with CaptureQueriesContext(connection) as captured:
        assert asked("/readyz")[0] == 200
    assert len(captured) == 0
