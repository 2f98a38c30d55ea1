"""After the stop switch was pressed: what may still be executed although it is on.

The switch is on before any of this (`retention.control.press`): whoever sends reads the control row first. But a claim that
had read it before the press may be on its way to a request that it will not send, or may have sent one already. So the
report waits, tenant by tenant, until no such claim is at work any more, and then reads in a later statement who has what.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.db import OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable

from cleanup_project.base import clock, limits, sqlfiles
from ledger.inflight import BARRIER_SECONDS
from ledger.models import StopReport
from retention import control, holds
from retention.models import StopSwitch

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A claim that might still be executed when the switch was pressed; `ended_as` is empty while its end is not known."""

    command_id: int
    key: str
    token: int
    ended_as: str
    ended_at: datetime | None


def pressed(switch_id: int) -> StopReport:
    """Report what was under way; may be called again, wherever it stopped.

    Raises OperationalError where claims keep the barrier from being granted: the sweep asks again.
    """
    made = StopReport.objects.filter(pk=switch_id).first()
    if made is not None:
        return made
    switch = StopSwitch.objects.select_related("policy").get(pk=switch_id)
    until = time.monotonic() + limits.DRAIN_BUDGET
    found = [claim for tenant in control.concerned(switch) for claim in seen_patiently(switch, tenant, until)]
    values = {
        "reported_at": clock.now(),
        "commands": [command for command, _token in found],
        "tokens": [token for _command, token in found],
    }
    made, _new = StopReport.objects.get_or_create(switch=switch, defaults=values)
    log.info("stop reported", switch=switch_id, in_flight=len(made.commands))
    return made


def seen_patiently(switch: StopSwitch, tenant_id: int, until: float) -> list[tuple[int, int]]:
    while True:
        try:
            return seen_behind_barrier(switch, tenant_id)
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable) or time.monotonic() >= until:
                raise


def seen_behind_barrier(switch: StopSwitch, tenant_id: int) -> list[tuple[int, int]]:
    """(command, token) of the tenant's claims under way, once every claim that may have missed the switch has ended."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{BARRIER_SECONDS}s"])
        # Claims hold this lock, shared, from before they read what is stopped until they commit.
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [holds.LOCK_CLASS, tenant_id])
        named: dict[str, Any] = {"tenant": tenant_id, "bucket": switch.bucket_id, "policy": switch.policy_id}
        cursor.execute(sqlfiles.read(__file__, "stop_under_way.sql"), named)
        return list(cursor.fetchall())


def ends(report: StopReport, limit: int) -> tuple[list[UnderWay], int]:
    """How what was under way has ended by now, those first that have not; and how many of all have not."""
    parameters: dict[str, Any] = {"commands": report.commands, "tokens": report.tokens, "limit": limit}
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "stop_ended.sql"), parameters)
        rows = cursor.fetchall()
    return [UnderWay(*row[:-1]) for row in rows], rows[0][-1] if rows else 0


def unreported() -> list[int]:
    """Switches that are on and whose report is still to come."""
    return list(StopSwitch.objects.active().filter(report=None).order_by("pk").values_list("pk", flat=True))
