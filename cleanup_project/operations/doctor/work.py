"""Whether work goes on: the queue, the schedule, the clusters of workers, and the secrets that they need."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from allauth.mfa.models import Authenticator
from django.db import connection, transaction
from django.db.models import Max

from cleanup_project.base import clock, display, heartbeats, limits, queue, vault
from cleanup_project.base.models import Heartbeat
from cleanup_project.operations.doctor.findings import Finding, fault, not_asked, ok, warning
from ledger import exportfiles, schedule
from ledger import vitals as of_ledger
from ledger.models import ReceiptExport, TenantSalt
from retention.models import RetentionPolicy
from webhooks.models import EndpointSecret

POLICIES: Final = 1000  # looked at
EXPORTS: Final = 20  # the newest that are looked for on the disk
START: Final = "Start `manage.py worker`; docs/operations.md says how it is kept running."


def broker() -> Iterator[Finding]:
    """A message is written and taken back, where it commits with what it tells of; another broker is rung, and keeps it."""
    if not queue.is_in_ledger():
        yield rung()
        return
    with transaction.atomic():
        queue.wake(queue.TICK)
        transaction.set_rollback(True)
    yield ok("queue", "A message could be queued, and was taken back with its transaction.")
    now = clock.now()
    for key in queue.all_keys():
        since = queue.oldest(key)
        waited = now - since if since else timedelta()
        if waited > timedelta(seconds=limits.STALL):
            words = f"The oldest message of {key} has waited for {display.duration(waited)} and nobody took it."
            yield fault("queue", words, f"{START} If it runs: look at *Workers*, and at its log.")


def rung() -> Finding:
    """Each queue, by a message that asks for nothing: a worker takes it and drops it."""
    if all(queue.offer(queue.PULSE, key=key) for key in queue.all_keys()):
        return ok(
            "queue", f"The broker took a message for {' and for '.join(queue.all_keys())}, which asks for nothing."
        )
    words = (
        "The broker that BROKER names did not take a message; until it does, workers hear of work by the sweep alone."
    )
    advice = "Start it, or correct BROKER; SQS gets its queues from the first `manage.py worker`. The log says more."
    return fault("queue", words, advice)


def tick() -> Iterator[Finding]:
    """The one row that django-q2's scheduler reads. Somebody else's rows are a system check, queue.W001."""
    if queue.is_scheduled():
        yield ok("schedule", "The tick is scheduled, once a minute.")
    else:
        words = "The row of the tick is missing, doubled, changed or put off."
        yield warning(
            "schedule", words, "Start `manage.py worker`, which writes it anew; let nobody edit django_q_schedule."
        )


def workers() -> Iterator[Finding]:
    """Whether each queue has a cluster that lives, and a tick has come."""
    clusters = list(Heartbeat.objects.filter(stopped_at=None).order_by("queue", "host"))
    if not clusters:
        yield warning("workers", "No cluster of workers is running: nothing is opened, destroyed or sent.", START)
        return
    now = clock.now()
    alive = [each for each in clusters if now - each.seen_at <= heartbeats.ALIVE]
    for each in clusters:
        if each not in alive:
            words = f"The cluster of {each.queue} on {each.host} was last seen {display.age(each.seen_at, now)} ago."
            yield warning(
                "workers", words, "Look at that host: its supervisor was killed, or cannot reach the database."
            )
    unserved = [key for key in queue.all_keys() if key not in {each.queue for each in alive}]
    if unserved:
        yield fault("workers", f"No cluster serves {' and '.join(unserved)}.", START)
        return
    hosts = {each.host for each in alive}
    yield ok("workers", f"{display.count(alive, 'cluster')} at work, on {display.count(hosts, 'host')}.")
    yield from last_tick(now)


def last_tick(now: datetime) -> Iterator[Finding]:
    last = Heartbeat.objects.aggregate(at=Max("last_tick_at"))["at"]
    if last is not None and now - last <= schedule.GRACE:
        yield ok("tick", f"It came {display.age(last, now)} ago.")
    else:
        words = f"It last came {display.age(last, now)} ago." if last else "It has never come."
        advice = "Look at the log of `manage.py worker`: the supervisor restarts a cluster that does not tick."
        yield (fault if last else warning)("tick", words, advice)


def slots() -> Iterator[Finding]:
    """Whether every policy's schedule was answered."""
    overdue = [
        each.policy.code
        for each in schedule.outlook(RetentionPolicy.objects.filter(erasure=False), POLICIES)
        if each.overdue
    ]
    if overdue:
        named = ", ".join(overdue[:5])
        words = f"{display.count(overdue, 'policy', 'policies')} with a slot that nobody has answered: {named}."
        yield fault("schedules", words, START)
    number, newest = of_ledger.missed()
    if newest is not None:
        words = f"{display.counted(number, 'slot')} missed within 24 hours, the newest at {newest:%Y-%m-%d %H:%M} UTC."
        yield warning(
            "schedules", words, "See *Schedule slots*: each was answered as its policy says; find out what stood still."
        )
    if not overdue and newest is None:
        yield ok("schedules", "Every slot was answered, and none was missed within 24 hours.")


def webhook_secrets() -> Iterator[Finding]:
    """Whether the keys of this process open all that was sealed; so do the next two."""
    yield of_secrets(
        "webhook secrets", (bytes(each.key_encrypted) for each in EndpointSecret.objects.live().iterator())
    )


def salts() -> Iterator[Finding]:
    yield of_secrets("salts of tenants", (bytes(each.sealed) for each in TenantSalt.objects.iterator()))


def second_factors() -> Iterator[Finding]:
    """Of people who sign in. Workers have no use for them, and may not read them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_table_privilege(%s, 'SELECT')", [Authenticator._meta.db_table])
        (may_read,) = cursor.fetchone()
    if not may_read:
        seen = "This role may not read second factors, so nothing is known of their keys."
        yield not_asked(
            "encryption keys", seen, "Run manage.py doctor as the web process or as the owner of the tables, too."
        )
    else:
        kept = Authenticator.objects.values_list("data", flat=True).iterator()
        sealed = (str(data[name]).encode() for data in kept for name in ("secret", "seed") if name in data)
        yield of_secrets("second factors", sealed)


def of_secrets(name: str, sealed: Iterable[bytes]) -> Finding:
    count, aged, shut = opened(sealed)
    if shut:
        words = f"{shut} of {count} {name} cannot be opened with the keys of this process."
        advice = "Add the key that sealed them to ENCRYPTION_KEYS (or, where that was unset, set SECRET_KEY as it was)."
        return fault("encryption keys", words, advice)
    if aged:
        words = f"All {count} {name} can be opened, {aged} of them not by the first key ({vault.fingerprint()})."
        return warning("encryption keys", words, "Run manage.py reseal before any key is taken away.")
    return ok("encryption keys", f"All {count} {name} can be opened by the first key ({vault.fingerprint()}).")


def opened(sealed: Iterable[bytes]) -> tuple[int, int, int]:
    """(how many there are, how many another key than the first opens, how many none)."""
    count = aged = shut = 0
    for each in sealed:
        count += 1
        try:
            vault.unseal(each)
            aged += vault.is_aged(each)
        except vault.VaultError:
            shut += 1
    return count, aged, shut


def exports() -> Iterator[Finding]:
    """Whether files that another process made are here: the web process hands out what workers wrote."""
    made = ReceiptExport.objects.filter(way="files", state="done", removed_at=None).order_by("-pk")[:EXPORTS]
    lacking = [each for each in made if not exportfiles.folder(each).is_dir()]
    if lacking:
        words = f"The files of {display.count(lacking, 'export')} are not here, those of {lacking[0].pk} for example."
        yield fault("export folder", words, "Let EXPORT_DIR be one place that the web process and every worker share.")
