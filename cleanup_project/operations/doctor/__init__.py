"""`manage.py doctor`: is everything as it has to be, before the first run and whenever something seems wrong?

Each check yields findings. It changes nothing: what the database is asked happens in a transaction that is taken back, and
stores, receivers and servers are asked in ways that leave nothing behind. Redis and SQS keep a message that asks for nothing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from django.db import connection, transaction

from cleanup_project.operations.doctor import buckets, clocks, configuration, database, outside, work
from cleanup_project.operations.doctor.findings import Finding, Verdict, not_asked

Check = Callable[[], Iterable[Finding]]

OF_THIS_PROCESS: Final[tuple[Check, ...]] = (
    configuration.environment,
    configuration.static_files,
    configuration.export_folder,
)
OF_THE_DATABASE: Final[tuple[Check, ...]] = (
    database.migrations,
    database.role,
    database.durability,
    database.waits,
    database.pooler,
    database.encryption,
    database.connections,
    clocks.database,
    work.broker,
    work.tick,
    work.workers,
    work.slots,
    work.webhook_secrets,
    work.salts,
    work.second_factors,
    work.exports,
)
OUTSIDE: Final[tuple[Check, ...]] = (outside.identity_provider, outside.mail_server, outside.endpoints)


def examine(names: Sequence[str] = (), *, offline: bool = False, probe: bool = False) -> Iterator[Finding]:
    """Every finding, as soon as it is known. `names`: of the buckets to look at; none: all of them.

    `offline`: nothing but the database is asked over the network. `probe`: `buckets.probe` asks whether we may delete.
    """
    answered = database.answers()
    there = answered.verdict is Verdict.OK
    databases = [connection.alias] if there else []
    yield from kept(lambda: configuration.system_checks(databases=databases), "settings")
    for check in OF_THIS_PROCESS:
        yield from kept(check, name(check))
    yield answered
    if not there:
        return
    for check in OF_THE_DATABASE:
        yield from kept(undone(check), name(check))
    if not offline:
        for check in OUTSIDE:
            yield from kept(check, name(check))
        yield from kept(lambda: buckets.examine(names, probe=probe), "buckets")


def name(check: Check) -> str:
    return str(getattr(check, "__name__", "check")).replace("_", " ")


def undone(check: Check) -> Check:
    """The same in a transaction that is taken back, so that nothing stays, whatever happens in it."""

    def asked() -> list[Finding]:
        with transaction.atomic():
            found = list(check())
            transaction.set_rollback(True)
        return found

    return asked


def kept(check: Check, subject: str) -> Iterator[Finding]:
    """A check that breaks off is a finding itself, and hides no other."""
    try:
        yield from check()
    except Exception as error:  # noqa: BLE001 - whatever it was, it is told
        words = f"The check broke off: {type(error).__name__}: {' '.join(str(error).split())}"
        yield not_asked(
            subject, words, "Correct what the lines above say, and ask again; if it stays, report this line."
        )
