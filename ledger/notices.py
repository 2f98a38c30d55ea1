"""What receivers are told of runs and of quarantine: names, counts and classes, and no word that a person wrote.

Each is built under the locks of the act that it tells of, and emitted by it, once and last in its transaction.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from cleanup_project.base import clock
from cleanup_project.base.canonical import instant
from ledger.models import CleanupRun, CommandTarget, DeadLetter
from ledger.states import RunState
from retention.models import Tenant
from webhooks.outbox import Notice, ObjectName, emit

ENTERED: Final = "quarantine.entered"
RESOLVED: Final = "quarantine.resolved"


def tell(tenant_id: int, notices: Sequence[Notice]) -> None:
    """Emit what a transaction has to tell, at the database's time."""
    if notices:
        emit(Tenant.objects.values_list("code", flat=True).get(pk=tenant_id), notices, at=clock.now())


def of_run(type: str, run: CleanupRun, occurrence: str = "", **data: Any) -> Notice:
    told = {"run": run.key, "policy": run.policy.code, **data}
    return Notice(type=type, subject=f"run:{run.key}", name=run.key, occurrence=occurrence, data=told)


def opened(run: CleanupRun) -> Notice:
    by = "system" if run.opened_by is None else "program" if run.opened_by.is_program else "person"
    erasure = run.policy.erasure
    return of_run("run.opened", run, mode=str(run.mode), as_of=instant(run.as_of), by=by, erasure=erasure)


def needs_approval(run: CleanupRun, because: str) -> Notice:
    """Of a sealed run, as it stands in the database now. It can need approval again only after more was exempted."""
    return of_run(
        "run.needs_approval",
        run,
        occurrence=str(run.exempt_count),
        mode=str(run.mode),
        because=because,
        bytes=run.bytes,
        caps=sorted({finding["cap"] for finding in run.guards["over"]}),
        exempt=run.exempt_count,
        items=run.item_count,
        manifest_root=run.manifest_root,
        targets=run.target_count,
    )


def tripped(run: CleanupRun, excess: Mapping[str, int]) -> Notice:
    """`run` as before the trip. It can trip again only after it was re-armed."""
    return of_run("run.tripped", run, occurrence=instant(run.rearmed_at) if run.rearmed_at else "", **excess)


def closed(run: CleanupRun, state: RunState, counts: Mapping[str, int]) -> Notice:
    """`run` with what sealing has written, if it was sealed."""
    return of_run(
        "run.closed",
        run,
        mode=str(run.mode),
        counts=dict(counts),
        items=run.item_count,
        manifest_root=run.manifest_root,
        state=str(state),
    )


def of_quarantine(type: str, entries: Sequence[int]) -> list[Notice]:
    """One notice for each quarantine entry, by their ids, in the order of their commands."""
    rows: list[Any] = list(
        DeadLetter.objects.filter(pk__in=entries)
        .order_by("command_id")
        .values_list(
            "command_id", "command__key", "command__asset", "command__bytes", "command__target_count",
            "command__revision__policy__code", "command__revision__number", "command__run__key",
            "cycle", "attempts", "failure_class", "resolution", named=True,
        )
    )  # fmt: skip
    names = Names([row.command_id for row in rows])
    return [quarantine_notice(type, row, names) for row in rows]


def quarantine_notice(type: str, row: Any, names: "Names") -> Notice:
    data = {
        "attempts": row.attempts,
        "bytes": row.command__bytes,
        "command_key": row.command__key,
        "cycle": row.cycle,
        "failure_class": row.failure_class,
        "policy": row.command__revision__policy__code,
        "revision": row.command__revision__number,
        "run": row.command__run__key,
        "targets": row.command__target_count,
    }
    if type == RESOLVED:
        data["resolution"] = row.resolution
    return Notice(
        type=type,
        subject=row.command__asset,
        name=row.command__key,
        occurrence=str(row.cycle),
        command_key=row.command__key,
        data=data,
        objects=lambda: names.of_commands[row.command_id],
    )


class Names:
    """The exact objects of some commands, read all at once when the first of them is asked for."""

    def __init__(self, commands: Sequence[int]) -> None:
        self.commands = commands

    @cached_property
    def of_commands(self) -> Mapping[int, list[ObjectName]]:
        found = defaultdict[int, list[ObjectName]](list)
        rows = CommandTarget.objects.filter(command_id__in=self.commands).order_by("command_id", "ordinal")
        for command, *name in rows.values_list("command_id", "bucket__name", "key", "version_id"):
            found[command].append(ObjectName(*name))
        return found
