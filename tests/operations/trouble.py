"""One of everything that is watched, for tests of the dashboard and of what is told to other systems."""

from datetime import timedelta

from django.db.models.functions import Now

from cleanup_project.base import clock, rollups
from cleanup_project.base.rollups import Source
from ledger import schedule
from ledger.models import CleanupCommand, ScheduleSlot
from retention import control
from retention.models import StopSwitch
from retention.storage import VersionRef
from retention.storage.memory import Fault
from tests.ledger import parking
from tests.ledger.acting import Acting, build
from tests.webhooks.world import sql

DAY = timedelta(days=1)


def troubled_world() -> Acting:
    """One of everything that a tile counts."""
    world = build()
    world.subscribe()
    world.put("clips/due", asset="due")
    denied = world.put("clips/denied", asset="denied")
    world.run()
    due = CleanupCommand.objects.filter(pk=world.command("clips/due").pk)
    due.update(due_at=Now() + DAY)
    name = VersionRef(denied.key, denied.version_id)
    world.store.inject(Fault("delete_versions", parking.DENIED, frozenset({name})))
    world.drain()
    due.update(due_at=Now() - DAY)
    sql("UPDATE webhooks_endpoint SET failing_since = now()")
    control.press(by=world.people["operator"], scope=StopSwitch.Scope.EVERYTHING, reason="Wrong month.")
    policy = world.revision.policy
    schedule.record(policy, [clock.now() - DAY / 2], ScheduleSlot.Outcome.MISSED, "Late.")
    return world


def count(source: Source) -> None:
    """As if the present minute had closed."""
    now = clock.now()
    changed = rollups.count_between(source, now - timedelta(hours=1), now + timedelta(minutes=1))
    rollups.fold(source.metrics, changed[0], changed[-1])
