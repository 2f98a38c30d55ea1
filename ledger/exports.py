"""Exports of receipts: on record before the first byte, and with its digests when it has ended, however it ended.

One of up to a million receipts is sent as the answer to a request. Whatever is asked for as files is made in the
background, part by part: a part is one COPY and one commit, so whatever is killed is begun again with the part that it was
in. Nobody works twice at an export at the same time, since its worker's connection holds a lock.
"""

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import OperationalError, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from cleanup_project.base import audit, queue, streams, tenancy
from cleanup_project.base.models import User
from cleanup_project.base.paginator import CappedPaginator
from ledger import copying, exportfiles
from ledger.copying import Source, Tally
from ledger.exceptions import IdempotencyConflict, LedgerError, NotPermitted, TryLater
from ledger.models import Receipt, ReceiptExport, ReceiptExportPart
from ledger.selection import Selection

TASK: Final = "ledger.tasks.export"
RIGHT: Final = "base.export_receipts"
PART_ROWS = 1_000_000
KEPT_FOR: Final = timedelta(days=7)
WENT_AWAY: Final = "The receiver went away after {:,} receipts."
STOPPED: Final = "What sent it was stopped before its end."
State, Way = ReceiptExport.State, ReceiptExport.Way

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """What a person asked for, and the token of their form: used twice, it makes one export."""

    selection: Selection
    form: str
    token: UUID


def permitted(by: User) -> None:
    if not by.has_perm(RIGHT):
        raise NotPermitted(f"{by} may not export receipts: it needs the right to.")


def permitted_to_order(order: Order, by: User) -> None:
    permitted(by)
    if not tenancy.within(order.selection.tenants, by):
        raise NotPermitted(f"{by} may export receipts of {', '.join(by.tenants)}, and of nobody else.")


def request_files(order: Order, *, by: User) -> ReceiptExport:
    """Have files made in the background. Raises LedgerError."""
    permitted_to_order(order, by)
    return begin(order, Way.FILES, by)[0]


def send(order: Order, *, by: User) -> tuple[ReceiptExport, Generator[bytes, None, None] | None]:
    """The export and its bytes; no bytes where the token has made it before. Raises LedgerError, and streams.Busy."""
    permitted_to_order(order, by)
    with ExitStack() as held:
        held.enter_context(streams.place())
        source = held.enter_context(copying.take_slot())
        export, new = begin(order, Way.SENT, by)
        if not new:
            return export, None
        source.claim(export.pk)
        content = sending(export, source, held.pop_all())
        next(content)  # from here on, closing it records how it ended
        return export, content


def begin(order: Order, way: str, by: User | None) -> tuple[ReceiptExport, bool]:
    """Put an export on record; whether it is new. Raises LedgerError."""
    upto = copying.last_number()
    expected = count(order.selection.rows().filter(pk__lte=upto))
    if way == Way.SENT and expected > PART_ROWS:
        raise LedgerError(
            f"More than {PART_ROWS:,} receipts match, which is more than is sent at once: narrow them, or have files made.",
            field="way",
        )
    said = {
        "form": order.form, "way": way, "selection": order.selection.said(), "tenants": order.selection.of_tenants(),
    }  # fmt: skip
    with transaction.atomic():
        export, new = ReceiptExport.objects.get_or_create(
            token=order.token, defaults=said | {"requested_by": by, "upto": upto, "expected": expected}
        )
        if not new:
            if export.requested_by != by or any(getattr(export, name) != value for name, value in said.items()):
                raise IdempotencyConflict("This form was used already, for another export: open it anew.")
            return export, False
        audit.record(action="export.begun", subject=export, by=by, after=said | {"upto": upto, "expected": expected})
        if way == Way.FILES:
            queue.wake(TASK, export.pk)
    return export, True


def count(rows: QuerySet[Receipt]) -> int:
    """How many, exactly up to a part's rows; above, the planner's estimate, and more than those."""
    counted = rows.order_by().values("pk")[: PART_ROWS + 1].count()
    return counted if counted <= PART_ROWS else max(CappedPaginator(rows, 1).count, counted)


def rows_of(export: ReceiptExport) -> QuerySet[Receipt]:
    """The receipts that it holds: the same ones whenever this is asked."""
    return Selection.recorded(export.selection, export.tenants).rows().filter(pk__lte=export.upto)


def is_exact(export: ReceiptExport) -> bool:
    return export.form == ReceiptExport.Form.MACHINES


def sending(export: ReceiptExport, source: Source, held: ExitStack) -> Generator[bytes, None, None]:
    """Begins with nothing, so that it can be begun before the first byte is asked for.

    How it ended is recorded before its claim is given back: else a sweep could take it for abandoned in between.
    """
    tally = Tally()
    with held:
        try:
            yield b""
            yield from streams.timely(source.pieces(rows_of(export), tally, exact=is_exact(export)))
            with transaction.atomic():
                add_part(export, 1, tally)
                finish(export)
        except streams.TooSlow as slow:
            end_early(export, State.ABORTED, f"After {tally.rows:,} receipts: {slow} Narrow it, or have files made.")
            raise
        except Exception as error:
            end_early(export, State.FAILED, f"After {tally.rows:,} receipts: {error}")
            raise
        except BaseException:  # closed by the server, since nobody receives it any more, or since it is stopped itself
            end_early(export, State.ABORTED, WENT_AWAY.format(tally.rows))
            raise


def write(order: Order, folder: Path, *, after_part: Callable[[ReceiptExportPart], object]) -> ReceiptExport:
    """All files into a folder at once, in the system's name. Raises LedgerError, OSError."""
    with copying.take_slot() as source:
        export, _new = begin(order, Way.COMMAND, None)
        source.claim(export.pk)
        try:
            more = True
            while more:
                more = not work_part(export, source, folder, until=None)
                after_part(export.parts.latest("number"))
        except Exception as error:
            end_early(export, State.FAILED, str(error) or type(error).__name__)
            raise
        except BaseException:
            end_early(export, State.ABORTED, STOPPED)
            raise
        export.refresh_from_db()
    return export


def work_slice(export_id: int, *, budget_seconds: float) -> bool:
    """Make parts of a file export for so long; whether nothing is left here: it has ended, or no slot or claim was free."""
    until = time.monotonic() + budget_seconds
    try:
        source = copying.take_slot()
    except TryLater:
        return True  # the sweep rings again
    with source:
        export = ReceiptExport.objects.filter(pk=export_id, way=Way.FILES, state=State.RUNNING).first()
        if export is None or not source.claim(export_id):
            return True
        try:
            while not work_part(export, source, exportfiles.folder(export), until=until):
                if time.monotonic() >= until:
                    return False
        except OperationalError:
            raise  # the database's trouble: the part comes again
        except Exception as error:
            log.exception("export failed", export=export_id)
            end_early(export, State.FAILED, f"{type(error).__name__}: {error}")
    return True


def work_part(export: ReceiptExport, source: Source, folder: Path, *, until: float | None) -> bool:
    """Make the next part; whether it was the last."""
    last = export.parts.last()
    rows = after(rows_of(export), last)
    number = last.number + 1 if last else 1
    tally = Tally()
    with exportfiles.unfinished(folder) as file:
        for piece in source.pieces(rows, tally, exact=is_exact(export), limit=PART_ROWS, until=until):
            file.write(piece)
        with transaction.atomic():
            part = add_part(export, number, tally)
            exportfiles.place(file, folder / part.file_name)
    if after(rows_of(export), part).exists():
        return False
    finish(export)
    return True


def after(rows: QuerySet[Receipt], part: ReceiptExportPart | None) -> QuerySet[Receipt]:
    """Those that follow a part, by time and number."""
    if part is None or part.last_issued_at is None:
        return rows
    later = Q(issued_at__gt=part.last_issued_at) | Q(pk__gt=part.last_receipt)
    return rows.filter(later, issued_at__gte=part.last_issued_at)


def add_part(export: ReceiptExport, number: int, tally: Tally) -> ReceiptExportPart:
    """Record a complete file, in the caller's transaction. Raises LedgerError where the export has ended meanwhile."""
    ReceiptExport.objects.select_for_update(no_key=True).get(pk=export.pk)
    changed = ReceiptExport.objects.filter(pk=export.pk, state=State.RUNNING).update(
        rows=F("rows") + tally.rows, bytes=F("bytes") + tally.size, worked_at=Now()
    )
    if not changed:
        raise LedgerError(f"{export} has ended already.")
    number_at = tally.last
    return ReceiptExportPart.objects.create(
        export=export,
        number=number,
        rows=tally.rows,
        bytes=tally.size,
        sha256=tally.hash.hexdigest(),
        first_receipt=tally.first_receipt,
        last_receipt=number_at[0] if number_at else None,
        last_issued_at=number_at[1] if number_at else None,
    )


def finish(export: ReceiptExport) -> None:
    """Every part is there: the digest over theirs, and until when files are kept."""
    with transaction.atomic():
        parts = list(export.parts.all())
        digest = sha256(b"".join(bytes.fromhex(part.sha256) for part in parts)).hexdigest()
        ReceiptExport.objects.filter(pk=export.pk).update(
            state=State.DONE, digest=digest, finished_at=Now(), worked_at=Now(), expires_at=expiry(export)
        )
        told = {"parts": len(parts), "receipts": sum(part.rows for part in parts), "digest": digest}
        audit.record(action="export.done", subject=export, by=export.requested_by, after=told)


def expiry(export: ReceiptExport) -> Any:
    """Until when files are kept, however it ended; nothing, where none are kept here."""
    return Now() + KEPT_FOR if export.way == Way.FILES else None


def end_early(export: ReceiptExport, state: str, trouble: str) -> None:
    """It does not come to its end. Nothing happens to one that has ended already."""
    ended = {"state": state, "trouble": trouble, "finished_at": Now(), "worked_at": Now(), "expires_at": expiry(export)}
    with transaction.atomic():
        running = ReceiptExport.objects.filter(pk=export.pk, state=State.RUNNING)
        if running.update(**ended):
            audit.record(action=f"export.{state}", subject=export, by=export.requested_by, after={"trouble": trouble})


def hand_out(receipt: Receipt, *, by: User) -> None:
    """Put on record that somebody fetches one document. Raises NotPermitted."""
    permitted(by)
    tenancy.permit(by, receipt, NotPermitted)
    with transaction.atomic():
        audit.record(action="receipt.downloaded", subject=receipt, by=by, after={"sha256": bytes(receipt.digest).hex()})


def ring() -> int:
    """For sweeps: ring for files that nobody makes, close what nobody sends any more, remove files that expired.

    Returns how many were rung for.
    """
    resting = ReceiptExport.objects.filter(state=State.RUNNING, worked_at__lt=Now() - queue.TICK_EVERY)
    for export in resting.exclude(way=Way.FILES):
        with transaction.atomic():
            if copying.is_abandoned(export.pk):
                end_early(export, State.ABORTED, STOPPED)
    waiting = list(resting.filter(way=Way.FILES))
    with transaction.atomic():
        for export in waiting:
            queue.wake(TASK, export.pk)
    for export in ReceiptExport.objects.filter(expires_at__lt=Now(), removed_at=None):
        exportfiles.remove(export)
    return len(waiting)
