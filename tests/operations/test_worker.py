"""The supervised clusters as real processes: whatever is killed, the next message is answered, and nothing is left over.

Each cluster has one worker, so that the one that is killed is the idle one that holds the queue's lock: the case in which
django-q2 alone would stand still for ever.
"""

import os
import signal
import subprocess
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django_q.models import OrmQ

from cleanup_project.base import queue
from cleanup_project.base.models import Heartbeat, User
from ledger import runs, schedule, sweep
from ledger.models import CleanupRun
from retention.models import Bucket, RetentionPolicy, Tenant
from tests.brokers import redis_server
from tests.operations.clusters import children, members, until, worker
from tests.world import published, version

pytestmark = pytest.mark.django_db(transaction=True)

SMALL = {"ONE_CLUSTER": "1", "WORKERS": "1"}
STALL = "5"


def cluster_at_rest() -> int:
    """The session of the one cluster, once it has answered what was asked."""

    def is_at_rest() -> bool:
        row = Heartbeat.objects.exclude(pid=None).exclude(last_ack_at=None).first()
        return row is not None and row.unacked_since is None and not OrmQ.objects.exists()

    until(is_at_rest, "a cluster at rest")
    session = Heartbeat.objects.get().pid
    assert session
    return session


def ring_and_wait(why: str) -> None:
    """Ring for the tick, and wait until it has begun since and its message is gone."""
    before = Heartbeat.objects.values_list(Now(), flat=True).first()
    queue.wake(queue.TICK)
    message = OrmQ.objects.latest("pk").pk
    until(lambda: not OrmQ.objects.filter(pk=message).exists(), f"acknowledgement after {why}")
    assert before is None or Heartbeat.objects.filter(last_tick_at__gt=before).exists()


def stop(process: subprocess.Popen[bytes], *sessions: int) -> None:
    """SIGTERM ends it in order, and nothing of any session is left."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert [members(session) for session in sessions] == [[] for _ in sessions]
    assert not Heartbeat.objects.filter(stopped_at=None).exists()


def parts(main: int) -> dict[str, int]:
    """The processes of a cluster, which its sentinel makes in this order."""
    (sentinel,) = children(main)
    idle_worker, monitor, pusher = children(sentinel)
    return {"main": main, "sentinel": sentinel, "idle worker": idle_worker, "monitor": monitor, "pusher": pusher}


def test_whichever_process_of_a_cluster_is_killed_the_next_message_is_answered_and_no_orphan_is_left() -> None:
    with worker("--stall", STALL, **SMALL) as process:
        sessions = [cluster_at_rest()]
        for victim in ("idle worker", "monitor", "sentinel", "main"):
            os.kill(parts(sessions[-1])[victim], signal.SIGKILL)
            ring_and_wait(f"the end of the {victim}")
            until(lambda: Heartbeat.objects.get().pid not in (None, sessions[-1]), f"a restart after that of {victim}")
            assert members(sessions[-1]) == []
            sessions.append(cluster_at_rest())
        assert Heartbeat.objects.get().restarts == 4
        stop(process, *sessions)


def test_a_killed_pusher_and_lost_sessions_need_no_restart_and_a_killed_supervisor_takes_its_cluster_along() -> None:
    with worker(**SMALL) as process:
        session = cluster_at_rest()
        os.kill(parts(session)["pusher"], signal.SIGKILL)
        ring_and_wait("the end of the pusher")
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        ring_and_wait("the loss of every session")
        assert Heartbeat.objects.get().restarts == 0
        process.kill()
        until(lambda: members(session) == [], "end of the cluster")


@pytest.mark.redis
def test_a_killed_idle_worker_is_noticed_though_redis_does_not_show_what_waits() -> None:
    with redis_server() as broker, worker("--stall", STALL, BROKER=broker, **SMALL) as process:
        a_moment_ago = Now() - timedelta(seconds=0.5)  # less than the time between two pulses
        idle = Heartbeat.objects.filter(last_start_at__lt=a_moment_ago, unacked_since=None).exclude(pid=None)
        until(idle.exists, "a moment in which nothing is done")
        session = Heartbeat.objects.get().pid
        assert session
        os.kill(parts(session)["idle worker"], signal.SIGKILL)
        until(lambda: Heartbeat.objects.get().restarts == 1, "a restart")
        assert "no task begins" in Heartbeat.objects.get().restart_reason
        until(lambda: Heartbeat.objects.filter(last_start_at__gt=F("started_at")).exists(), "a task of the new one")
        stop(process, session)


OBJECTS = 7


@pytest.fixture
def policies(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> list[RetentionPolicy]:
    """Each with objects of its own."""
    people = {"author": manager, "publisher": second_manager}
    for prefix in "abc":
        for number in range(OBJECTS):
            version(bucket, tenant, f"{prefix}/{number}")
    return [published(tenant, bucket, **people, prefixes=[f"{prefix}/"]).policy for prefix in "abc"]


def test_a_lost_late_doubled_or_reordered_message_changes_nothing_but_time(
    policies: list[RetentionPolicy], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ONE_CLUSTER", True)
    lost, late, doubled = (runs.open_run(policy=policy, by=None)[0] for policy in policies)
    for run in (doubled, late, lost):
        queue.wake(schedule.FREEZE, run.pk)
    messages = {message.task["args"][0]: message for message in OrmQ.objects.all()}
    messages[lost.pk].delete()
    OrmQ.objects.filter(pk=messages[late.pk].pk).update(lock=Now() + timedelta(seconds=10))
    for _ in range(4):
        OrmQ.objects.create(key="cleanup", payload=messages[doubled.pk].payload, lock=messages[doubled.pk].lock)
    queue.wake(queue.TICK)
    queue.wake(queue.TICK)
    with worker(ONE_CLUSTER="1", WORKERS="2") as process:
        until(lambda: is_sealed(late) and is_sealed(doubled), "sealed manifests")
        monkeypatch.setattr(queue, "TICK_EVERY", timedelta(0))  # as a minute later
        assert sweep.ring_each(schedule.FREEZE, sweep.unfinished_scans()) == 1
        until(lambda: is_sealed(lost), "a sealed manifest in spite of the lost message")
        until(lambda: not OrmQ.objects.exists(), "an empty queue")
        stop(process)
    for run in (lost, late, doubled):
        assert list(run.items.order_by("ordinal").values_list("ordinal", flat=True)) == list(range(1, OBJECTS + 1))
        assert run.items.values("object_version_id").distinct().count() == OBJECTS
        assert run.parts.count() == 1


def is_sealed(run: CleanupRun) -> bool:
    return CleanupRun.objects.filter(pk=run.pk, sealed_at__isnull=False).exists()
