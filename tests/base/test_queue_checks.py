"""Each check of the queue's settings finds the setting that breaks it."""

import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from django.conf import LazySettings
from django.core.checks import run_checks
from django.db import connection
from django_q.models import Schedule

from cleanup_project.base import brokers, limits, queue, queue_checks


def found() -> list[str]:
    return [each.id for each in queue_checks.queue_settings() if each.id]


@pytest.fixture
def cluster(settings: LazySettings) -> dict[str, Any]:
    """The settings of the default cluster, to break."""
    settings.Q_CLUSTER = deepcopy(settings.Q_CLUSTER)
    return settings.Q_CLUSTER


def test_the_settings_as_shipped_are_right() -> None:
    assert found() == []


@pytest.mark.parametrize("name", ["drain", "dispatch"])
@pytest.mark.parametrize("link", range(4))
def test_a_chain_of_limits_must_ascend(name: str, link: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = list(limits.CHAINS[name])
    broken[link] = broken[link - 1] if link else broken[1]
    monkeypatch.setitem(limits.CHAINS, name, tuple(broken))
    assert "queue.E001" in found()


@pytest.mark.parametrize("setting", ["timeout", "retry"])
def test_a_cluster_keeps_to_the_chains(setting: str, cluster: dict[str, Any]) -> None:
    cluster[setting] += 1
    assert "queue.E002" in found()


@pytest.mark.parametrize(("queue_limit", "errors"), [(8, 0), (16, 1)])
def test_retry_must_cover_what_waits_inside_a_cluster(queue_limit: int, errors: int, cluster: dict[str, Any]) -> None:
    cluster["ALT_CLUSTERS"]["work"] |= {"workers": 4, "queue_limit": queue_limit}
    assert found() == ["queue.E003"] * errors


def test_a_guard_that_steps_over_the_end_of_a_task_is_found(cluster: dict[str, Any]) -> None:
    cluster["guard_cycle"] = 0.4
    assert "queue.E004" in found()


@pytest.mark.parametrize(("setting", "value"), [("ack_failures", False), ("max_attempts", 0), ("max_attempts", 2)])
def test_the_queue_must_not_repeat_what_failed(setting: str, value: object, cluster: dict[str, Any]) -> None:
    cluster["ALT_CLUSTERS"]["work"][setting] = value
    assert found() == ["queue.E005"]


@pytest.mark.parametrize("broker", [{"orm": "other"}, {"broker_class": "their.Broker"}, {"redis": {}}, {}])
def test_a_broker_is_one_that_is_told_in_the_ledgers_database_or_after_the_commit(
    broker: dict[str, Any], cluster: dict[str, Any]
) -> None:
    del cluster["orm"]
    cluster |= broker
    assert found() == ["queue.E006"]


@pytest.fixture
def outside(cluster: dict[str, Any]) -> Iterator[Callable[[str], None]]:
    """Has the settings name a broker outside of the ledger."""

    def named(url: str) -> None:
        cluster.pop("orm", None)
        cluster.update(brokers.options(url))

    queue.broker_of.cache_clear()
    yield named
    queue.broker_of.cache_clear()


@pytest.mark.parametrize("url", ["redis://127.0.0.1:9/0", "sqs://eu-central-1/prod"])
def test_brokers_outside_of_the_ledger_are_right_though_they_are_away(url: str, outside: Callable[[str], None]) -> None:
    outside(url)
    assert found() == []


def test_a_broker_whose_package_is_missing_is_found(
    outside: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "cleanup_project.base.brokers.redis", raising=False)
    monkeypatch.setitem(sys.modules, "redis", None)
    outside("redis://127.0.0.1:9/0")
    assert found() == ["queue.E009"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [("bulk", 11), ("retry", 12 * 3600 + 1), ("wait_seconds", 0), ("wait_seconds", 21), ("read_seconds", 5)],
)
def test_sqs_is_asked_for_what_it_allows(
    setting: str, value: int, outside: Callable[[str], None], cluster: dict[str, Any]
) -> None:
    outside("sqs://eu-central-1/prod")
    cluster["queue_limit"] = cluster["ALT_CLUSTERS"]["work"]["queue_limit"] = 1
    (cluster["sqs"] if setting in cluster["sqs"] else cluster)[setting] = value
    assert "queue.E010" in found()


@pytest.mark.parametrize(
    ("command", "web", "errors"), [("migrate", True, 0), ("worker", True, 1), ("migrate", False, 1)]
)
def test_a_pool_is_refused_in_workers(
    command: str, web: bool, errors: int, settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.DATABASES["default"]["OPTIONS"], "pool", {"max_size": 8})
    monkeypatch.setattr(sys, "argv", ["manage.py", command])
    settings.WEB_PROCESS = web
    assert found() == ["queue.E007"] * errors


@pytest.mark.parametrize(("setting", "value"), [("CONN_MAX_AGE", 0), ("CONN_HEALTH_CHECKS", False), ("OPTIONS", {})])
def test_connections_are_kept_tested_and_bounded(
    setting: str, value: object, settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], setting, value)
    assert found() == ["queue.E008"]


@pytest.mark.django_db
def test_a_foreign_schedule_is_reported() -> None:
    assert not [each for each in run_checks(databases=["default"]) if each.id == "queue.W001"]
    Schedule.objects.create(name="theirs", func="their.function", schedule_type=Schedule.DAILY)
    (warning,) = [each for each in run_checks(databases=["default"]) if each.id == "queue.W001"]
    assert "their.function" in warning.msg


@pytest.mark.django_db
def test_the_schedule_is_not_asked_for_before_it_exists() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE django_q_schedule RENAME TO elsewhere")
    assert queue_checks.queue_schedule(databases=["default"]) == []
