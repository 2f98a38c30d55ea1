"""What counts as a stall, and what does not, told from rows alone."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.conf import LazySettings
from django.db.models.functions import Now
from django_q.models import OrmQ

from cleanup_project.base import heartbeats, limits, queue
from cleanup_project.base.models import Heartbeat
from cleanup_project.operations.supervisor import Cluster

pytestmark = pytest.mark.django_db

STALL = 240
LONG, SHORT = timedelta(seconds=300), timedelta(seconds=60)
RETRY = timedelta(seconds=limits.QUEUE_RETRY)


@pytest.fixture
def cluster() -> Cluster:
    """A work cluster that has run for an hour and been watched all the time."""
    made = Cluster("work", STALL)
    made.row = heartbeats.begin("work")
    made.process = SimpleNamespace(pid=4711)  # type: ignore[assignment]
    made.watched_since -= 3600
    told(started_at=Now() - timedelta(hours=1))
    made.row.refresh_from_db()
    return made


def told(**values: object) -> None:
    Heartbeat.objects.update(**values)


def message(lock: object, key: str = "work") -> None:
    OrmQ.objects.create(key=key, payload="", lock=lock)


def test_an_idle_cluster_is_not_stalled(cluster: Cluster) -> None:
    told(last_start_at=Now() - LONG)
    assert cluster.find_stall() == ""
    message(Now() - LONG, key="cleanup")  # another queue's
    assert cluster.find_stall() == ""


@pytest.mark.parametrize(
    ("lock", "stalled"),
    [
        (Now() - LONG, True),  # visible for so long, and taken by nobody
        (Now() - SHORT, False),
        (Now() + RETRY - LONG, True),  # taken so long ago, and not acknowledged
        (Now() + RETRY - SHORT, False),
    ],
)
def test_messages_that_wait_while_no_task_begins_are_a_stall(cluster: Cluster, lock: object, stalled: bool) -> None:
    message(lock)
    assert bool(cluster.find_stall()) == stalled
    told(last_start_at=Now() - SHORT)  # as soon as it begins tasks, it is only busy
    assert cluster.find_stall() == ""


def test_messages_that_an_earlier_cluster_took_are_not_held_against_this_one(cluster: Cluster) -> None:
    told(started_at=Now() - timedelta(seconds=270))
    assert cluster.row
    cluster.row.refresh_from_db()
    message(Now() + RETRY - LONG)
    assert cluster.find_stall() == ""
    message(Now() - LONG)
    assert cluster.find_stall() != ""


@pytest.fixture
def outside(settings: LazySettings, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A broker that does not show what waits; the queues at which was rung for a pulse. It may be taken away."""
    settings.Q_CLUSTER = {name: value for name, value in settings.Q_CLUSTER.items() if name != "orm"}
    rung = list[str]()

    def offer(task: str, *, key: str) -> bool:
        assert task == queue.PULSE
        rung.append(key)
        return "away" not in rung

    monkeypatch.setattr(queue, "offer", offer)
    return rung


def test_where_the_broker_does_not_show_what_waits_a_pulse_is_owed(cluster: Cluster, outside: list[str]) -> None:
    told(last_start_at=Now() - SHORT)
    assert cluster.find_stall() == ""
    cluster.find_stall()
    assert outside == ["work"], "once within a quarter of the time of a stall"
    told(last_start_at=Now() - LONG)
    assert "no task begins" in cluster.find_stall()


def test_a_pulse_may_go_to_another_cluster_of_the_queue_for_a_while(cluster: Cluster, outside: list[str]) -> None:
    Heartbeat.objects.create(host="elsewhere", queue="work")
    told(last_start_at=Now() - 3 * LONG)
    assert cluster.find_stall() == ""
    told(last_start_at=Now() - 4 * LONG)
    assert "no task begins" in cluster.find_stall()


def test_what_stands_still_with_the_broker_did_not_stall(cluster: Cluster, outside: list[str]) -> None:
    told(last_start_at=Now() - LONG)
    outside.append("away")
    assert cluster.find_stall() == ""
    outside.remove("away")
    assert cluster.find_stall() == "", "it gets as long again"
    cluster.watched_since -= LONG.total_seconds()
    assert "no task begins" in cluster.find_stall()


def test_ends_without_acknowledgement_are_a_stall_even_while_tasks_begin(cluster: Cluster) -> None:
    told(last_start_at=Now(), unacked_since=Now() - SHORT)
    assert cluster.find_stall() == ""
    told(unacked_since=Now() - LONG)
    assert "acknowledged" in cluster.find_stall()


def test_the_control_cluster_must_tick_wherever_that_happens(cluster: Cluster) -> None:
    cluster.key = "cleanup"
    assert "tick" in cluster.find_stall()
    Heartbeat.objects.create(host="elsewhere", queue="cleanup", last_tick_at=Now() - SHORT)
    assert cluster.find_stall() == ""
    cluster.key = "work"
    Heartbeat.objects.update(last_tick_at=None)
    assert cluster.find_stall() == ""


def test_nothing_is_judged_before_it_was_watched_for_long_enough(cluster: Cluster) -> None:
    message(Now() - LONG)
    cluster.watched_since += 3600  # as after an outage of the database
    assert cluster.find_stall() == ""


def test_a_look_leaves_its_time_and_a_host_takes_its_old_row_away(cluster: Cluster) -> None:
    told(seen_at=Now() - timedelta(minutes=2))
    cluster.find_stall()
    assert Heartbeat.objects.filter(seen_at__gt=Now() - timedelta(minutes=1), pid=4711).exists()
    told(seen_at=Now() - timedelta(minutes=2))
    fresh = heartbeats.begin("work")
    assert list(Heartbeat.objects.all()) == [fresh]


def test_what_ended_is_remembered_until_another_serves_its_queue(cluster: Cluster) -> None:
    assert cluster.row
    told(last_tick_at=Now() - SHORT)
    heartbeats.end(cluster.row)
    ended = Heartbeat.objects.get()
    assert (ended.stopped_at is not None, ended.pid) == (True, None)
    assert heartbeats.served(["work"]) == [("work", 0, ended.seen_at)]
    told(seen_at=Now() - timedelta(days=3))
    other = heartbeats.begin("cleanup")
    heartbeats.forget(but=["cleanup", "work"])
    assert set(Heartbeat.objects.all()) == {ended, other}
    fresh = heartbeats.begin("work")
    assert set(Heartbeat.objects.all()) == {fresh, other}
    assert fresh.last_tick_at == ended.last_tick_at
    told(seen_at=Now() - timedelta(days=3))
    heartbeats.forget(but=["cleanup"])
    assert set(Heartbeat.objects.all()) == {other}


def test_messages_of_a_dead_cluster_are_released_unless_another_serves_the_queue(cluster: Cluster) -> None:
    assert cluster.row
    message(Now() + RETRY - SHORT)
    message(Now() + RETRY - timedelta(hours=2))
    assert heartbeats.is_alone(cluster.row)
    Heartbeat.objects.create(host="elsewhere", queue="work")
    assert not heartbeats.is_alone(cluster.row)
    assert queue.release("work", since=cluster.row.started_at) == 1
    assert not OrmQ.objects.filter(lock__gt=Now()).exists()
