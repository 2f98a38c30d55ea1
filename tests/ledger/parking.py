"""Brings commands to rest in each of the ways in which they may: dead, held by us or by the store, withdrawn, deleted."""

from datetime import datetime

from django.db.models.functions import Now

from ledger import closing, runs
from ledger.models import CleanupCommand, DeadLetter
from retention.models import Enforcement, LegalHold
from retention.storage import Failure, FailureClass, VersionRef
from retention.storage.memory import Fault
from tests.ledger.acting import Acting
from tests.world import enforced, hold, release

DENIED = Failure.of(FailureClass.PERMISSION, "AccessDenied", "No.")


def dead(world: Acting, key: str = "clips/dead") -> CleanupCommand:
    """In quarantine, since the store denies it."""
    row = world.put(key, asset=key.replace("/", "-"))
    world.run()
    world.store.inject(Fault("delete_versions", DENIED, frozenset({VersionRef(row.key, row.version_id)})))
    return drained(world, key, "dead")


def parked(world: Acting, *names: str, failure: Failure = DENIED) -> list[DeadLetter]:
    """Quarantine entries of one run, in the order of the names."""
    rows = [world.put(f"clips/{name}", asset=name) for name in names]
    world.run()
    world.store.inject(
        Fault("delete_versions", failure, frozenset(VersionRef(row.key, row.version_id) for row in rows))
    )
    world.drain()
    closing.close_drained()
    found = {entry.key: entry for entry in DeadLetter.objects.filter(resolved_at=None)}
    return [found[row.key] for row in rows]


def held(world: Acting, key: str = "clips/held") -> tuple[CleanupCommand, LegalHold]:
    world.put(key, asset=key.replace("/", "-"))
    world.run()
    placed = hold(world.tenant, world.bucket, key, by=world.people["compliance"])
    return drained(world, key, "held"), placed


def locked(world: Acting, until: datetime | None, key: str = "clips/locked") -> CleanupCommand:
    """Held, since the store retains it until then; None: a legal hold of the store's."""
    row = world.put(key, asset=key.replace("/", "-"))
    world.run()
    mode = "COMPLIANCE" if until else None
    world.store.lock(
        world.place, VersionRef(row.key, row.version_id), mode=mode, retain_until=until, legal_hold=not until
    )
    return drained(world, key, "held")


def withdrawn(world: Acting, key: str = "clips/withdrawn") -> CleanupCommand:
    """Taken back, since enforcement was off for a moment."""
    world.put(key, asset=key.replace("/", "-"))
    world.run()
    Enforcement.objects.update(switched_off_at=Now())
    command = drained(world, key, "withdrawn")
    enforced(world.tenant, world.bucket, "", by=world.people["manager"], approver=world.people["manager2"])
    return command


def cancelled(world: Acting, key: str = "clips/cancelled") -> CleanupCommand:
    """Taken back with its run."""
    world.put(key, asset=key.replace("/", "-"))
    runs.cancel(run=world.run(), by=world.people["operator"], reason="Wrong month.")
    closing.withdraw()
    return world.command(key)


def deleted(world: Acting, key: str = "clips/deleted") -> CleanupCommand:
    world.put(key, asset=key.replace("/", "-"))
    world.run()
    return drained(world, key, "deleted")


def drained(world: Acting, key: str, state: str) -> CleanupCommand:
    world.drain()
    closing.close_drained()
    command = world.command(key)
    assert command.state == state, (command.state, command.failure_class, command.reason)
    return command


def released(placed: LegalHold) -> None:
    release(placed)
