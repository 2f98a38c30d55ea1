"""Runs django-q2's clusters, watches their progress from outside, and replaces one that makes none.

A cluster whose idle worker or monitor was killed stands still for ever while its own statistics say that all is well, and
one whose sentinel was killed exits with code 0 and leaves its workers behind. So each cluster runs in a session of its
own, which can be killed whole, and what counts as progress is what the database shows.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import structlog
from django.conf import settings
from django.db import Error, close_old_connections, connections

from cleanup_project.base import heartbeats, limits, queue
from cleanup_project.base.models import Heartbeat

log = structlog.get_logger(__name__)

STEP_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 2.0  # before a cluster is started again
START: Final = timedelta(seconds=60)  # what a new cluster gets at least, before its first task
TICKS_MISSED: Final = 4
PULSES: Final = 4  # that are rung within the time of a stall, where the broker does not show what waits
CROWD: Final = 4  # times as long may a cluster go without any of them that shares its queue with others
LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Stop:
    """How often we were asked to stop: once to let tasks end, twice to kill them."""

    def __init__(self) -> None:
        self.asked = 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.ask)

    def ask(self, *_: Any) -> None:
        self.asked += 1


def supervise(names: Sequence[str], *, stall: float = limits.STALL, stop_within: float = limits.STOP) -> None:
    """Keep a cluster running for each queue (`queue.CONTROL`, `queue.WORK`) until SIGTERM or SIGINT.

    `stall`: seconds without progress after which a cluster is killed and started again. `stop_within`: seconds that a
    stopping cluster may take to end its tasks.
    """
    stop = Stop()
    if LIBC:  # orphans of a killed cluster become our children, so that we see them end
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)
    clusters = [Cluster(key, stall) for key in dict.fromkeys(map(queue.key_of, names))]
    try:
        while not stop.asked:
            for cluster in clusters:
                cluster.step()
            time.sleep(STEP_SECONDS)
    finally:
        end_all(clusters, stop, stop_within)


class Cluster:
    """One `qcluster` process and all that it forks, with its row of heartbeats."""

    def __init__(self, key: str, stall: float) -> None:
        self.key = key
        self.stall = timedelta(seconds=stall)
        self.log = log.bind(queue=key)
        self.row: Heartbeat | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.reason = ""
        self.look_at = self.watched_since = self.pulse_at = time.monotonic()

    def step(self) -> None:
        """See whether the main process has ended, and every few seconds look at the database."""
        if self.process and self.process.poll() is not None:
            self.kill(f"its main process ended with code {self.process.returncode}")
        if time.monotonic() < self.look_at:
            return
        self.look_at = time.monotonic() + min(LOOK_SECONDS, self.stall.total_seconds() / 5)
        try:
            close_old_connections()
            if self.process is None:
                self.start()
            elif reason := self.find_stall():
                self.kill(reason)
        except Error as error:
            connections.close_all()
            self.watched_since = time.monotonic()  # what stood still with the database did not stall
            self.log.warning("the database cannot be used; trying again", error=str(error).strip())

    def start(self) -> None:
        if self.row is None:
            self.row = heartbeats.begin(self.key)
        elif self.reason:
            if heartbeats.is_alone(self.row):
                released = queue.release(self.key, since=self.row.started_at)
                self.log.info("messages of the dead cluster released", messages=released)
            self.row, self.reason = heartbeats.begin_again(self.row, self.reason), ""
        if self.key == queue.key_of(queue.CONTROL):
            queue.keep_schedule()
            queue.forget_failures()
            heartbeats.forget(but=queue.all_keys())
            queue.wake(queue.TICK)  # django-q2's scheduler waits for half a minute
        connections.close_all()
        self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
            [sys.executable, str(settings.BASE_DIR / "manage.py"), "qcluster", "--skip-checks"],  # ours have passed
            env={"RES_OPTIONS": "timeout:2 attempts:2"}
            | os.environ
            | {"Q_CLUSTER_NAME": self.key, heartbeats.VARIABLE: str(self.row.pk)},
            start_new_session=True,
            preexec_fn=end_with_supervisor,
        )
        self.watched_since = time.monotonic()
        self.log.info("cluster started", pid=self.process.pid)
        heartbeats.seen(self.row, self.process.pid)

    def find_stall(self) -> str:
        """Why the cluster counts as dead, or nothing."""
        assert self.row is not None
        assert self.process is not None
        heartbeats.seen(self.row, self.process.pid)
        self.ring_pulse()
        watched = timedelta(seconds=time.monotonic() - self.watched_since)
        begun = heartbeats.has_begun(self.row)
        if watched < (self.stall if begun else max(self.stall, START)):
            return ""
        if self.is_owed_a_task(self.row, watched):
            return "messages wait and no task begins"
        if heartbeats.is_unacknowledged(self.row, self.stall):
            return "tasks end and none is acknowledged"
        overdue = max(self.stall, TICKS_MISSED * queue.TICK_EVERY)
        ticks_here = self.key == queue.key_of(queue.CONTROL)
        if ticks_here and watched > overdue and not heartbeats.ticked(within=overdue):
            return "the tick is overdue"
        return ""

    def ring_pulse(self) -> None:
        """Where the broker does not show what waits, see to it that something does."""
        if queue.is_in_ledger() or time.monotonic() < self.pulse_at:
            return
        self.pulse_at = time.monotonic() + self.stall.total_seconds() / PULSES
        if not queue.offer(queue.PULSE, key=self.key):
            self.watched_since = time.monotonic()  # what stood still with the broker did not stall

    def is_owed_a_task(self, row: Heartbeat, watched: timedelta) -> bool:
        """Whether the cluster began no task for so long although messages waited for it.

        Each supervisor rings as often as its own cluster should answer. Of pulses that others may take as well, a living
        cluster gets none within CROWD times that long once in e^(PULSES * CROWD), nine million, times.
        """
        if queue.is_in_ledger():
            waiting = queue.is_waiting(self.key, since=row.started_at, longer_than=self.stall)
            return waiting and heartbeats.is_quiet(row, self.stall)
        patience = self.stall if heartbeats.is_alone(row) else CROWD * self.stall
        return watched >= patience and heartbeats.is_quiet(row, patience)

    def ask_to_end(self) -> None:
        """SIGTERM to the main process alone: sent to the others, it would cut their tasks and hang the cluster."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self, reason: str) -> None:
        self.log.error("cluster killed", reason=reason)
        self.end()
        self.reason = reason
        self.look_at = time.monotonic() + PAUSE_SECONDS

    def end(self) -> None:
        """Kill what is left of the session, and wait until nothing of it is."""
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with suppress(ChildProcessError):
            while True:
                os.waitpid(-self.process.pid, 0)
        self.process = None

    def sign_off(self) -> None:
        if self.row is not None:
            with suppress(Error):
                close_old_connections()
                heartbeats.end(self.row)


def end_all(clusters: Sequence[Cluster], stop: Stop, within: float) -> None:
    """Let every cluster end its tasks; kill what is not done in time, or when we are asked again."""
    until = time.monotonic() + within
    log.info("stopping", queues=[cluster.key for cluster in clusters])
    for cluster in clusters:
        cluster.ask_to_end()
    while any(cluster.process and cluster.process.poll() is None for cluster in clusters):
        if time.monotonic() > until or stop.asked > 1:
            log.warning("killed before its tasks ended: their leases expire, and the sweep rings again")
            break
        time.sleep(STEP_SECONDS)
    for cluster in clusters:
        cluster.end()
        cluster.sign_off()
    log.info("stopped")


def end_with_supervisor() -> None:
    """In the child: have the kernel send it SIGTERM when the supervisor is killed."""
    if LIBC:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
