"""Receipts: listed, exported as a stream, and each as its document."""

import io
import json
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import uuid4

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from ninja import Query, Router, Schema
from pydantic import Field

from cleanup_project.base import tenancy
from cleanup_project.base.models import User
from cleanup_project.base.verbpages import person
from cleanup_project.operations.api.cursors import Page, Paging, budget, page
from cleanup_project.operations.api.gate import JSON, Needs
from cleanup_project.operations.api.problems import Problem, not_found
from cleanup_project.operations.api.shapes import Number, Time
from ledger import exportcheck, exports
from ledger.exceptions import LedgerError
from ledger.models import CleanupCommand, Receipt, ReceiptExport
from ledger.selection import Selection

router = Router(tags=["Receipts"])
TYPES: Final = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson; charset=utf-8"}
NUMBERS: Final = frozenset({"receipt", "revision", "targets", "bytes"})
PIECE: Final = 1 << 16


class ReceiptsChosen(Schema):
    """By names, exactly; what is not given narrows nothing."""

    issued_from: Annotated[Time | None, Field(description="Gone then or later.")] = None
    issued_before: Annotated[Time | None, Field(description="Gone earlier.")] = None
    tenant: Annotated[str, Field(max_length=63)] = ""
    bucket: Annotated[str, Field(max_length=255)] = ""
    policy: Annotated[str, Field(max_length=63)] = ""
    run: Annotated[str, Field(max_length=120, description="The id of a run.")] = ""
    outcome: CleanupCommand.Outcome | None = None


class ReceiptsAsked(ReceiptsChosen, Paging):
    pass


class ExportAsked(ReceiptsChosen):
    format: Annotated[Literal["csv", "jsonl"], Field(description="Both exact, with each document in `body`.")] = "csv"


class ReceiptSummary(Schema):
    """`sha256` is that of the document, which names objects by keyed commitments (docs/receipts.md)."""

    id: int
    command_key: str
    tenant: str
    policy: str
    bucket: str
    run: str
    outcome: CleanupCommand.Outcome
    event_id: str
    targets: int
    bytes: int
    issued_at: datetime
    sha256: str


def selection(by: User, asked: ReceiptsChosen) -> Selection:
    given = {name: getattr(asked, name) for name in ReceiptsChosen.model_fields}
    return Selection(**{name: value for name, value in given.items() if value}, tenants=tuple(by.tenants))


def seen(request: HttpRequest) -> QuerySet[Receipt]:
    return tenancy.scoped(Receipt.objects.all(), person(request), "tenant__code")


def told(receipt: Receipt) -> dict[str, Any]:
    return {
        "id": receipt.pk,
        "command_key": receipt.command_key,
        "tenant": receipt.tenant.code,
        "policy": receipt.policy.code,
        "bucket": receipt.bucket.name,
        "run": receipt.run.key,
        "outcome": receipt.outcome,
        "event_id": receipt.event_id,
        "targets": receipt.target_count,
        "bytes": receipt.bytes,
        "issued_at": receipt.issued_at,
        "sha256": bytes(receipt.digest).hex(),
    }


@router.get(
    "", auth=Needs("receipts:read"), response=Page[ReceiptSummary], operation_id="listReceipts", summary="List receipts"
)
def list_receipts(request: HttpRequest, asked: Query[ReceiptsAsked]) -> Any:
    """The newest first, without their documents. For many, the export is made."""
    rows = selection(person(request), asked).narrow(seen(request))
    rows = rows.select_related("tenant", "policy", "bucket", "run").defer("body")
    with budget():
        found, following = page(request, rows, asked, "-issued_at", "-pk")
    return {"items": list(map(told, found)), "next": following}


@router.get(
    "/export",
    auth=Needs("receipts:read"),
    operation_id="exportReceipts",
    summary="Export receipts as a stream",
    openapi_extra={"x-streams": list(TYPES.values())},
)
def export_receipts(request: HttpRequest, asked: Query[ExportAsked]) -> Any:
    """Up to a million receipts, in the order of time, exact and with their documents.

    The export is on record before its first byte, and how it ended, with its digest, which is that of the CSV in either
    format. For more, 409: narrow them by time, or have files made by a person or with `manage.py receipts export`. Two
    exports are read at the same time, no more.
    """
    by = person(request)
    order = exports.Order(selection(by, asked), ReceiptExport.Form.MACHINES, uuid4())
    try:
        export, content = exports.send(order, by=by)
    except LedgerError as refusal:
        raise (Problem("conflict", str(refusal)) if refusal.field == "way" else refusal) from None
    assert content is not None
    body: Iterator[bytes] = content
    if asked.format == "jsonl":
        body = lines(content)
        next(body)  # from here on, closing it closes the export
    return StreamingHttpResponse(body, content_type=TYPES[asked.format], headers={"X-Export": str(export.pk)})


def lines(content: Generator[bytes, None, None]) -> Iterator[bytes]:
    """The rows of an export as JSON, one object a line. Begins with nothing; closed or broken, it ends the export so."""
    with closing(content):
        yield b""
        try:
            yield from pieces(exportcheck.reader(texts(content)))
        except Exception as error:  # noqa: BLE001 - raised again, once the export has recorded it
            content.throw(error)


def pieces(rows: Iterable[dict[str, str]]) -> Iterator[bytes]:
    waiting, size = list[str](), 0
    for row in rows:
        line = json.dumps(dict(members(row)), ensure_ascii=False)
        waiting.append(f"{line}\n")
        size += len(line)
        if size >= PIECE:
            yield "".join(waiting).encode()
            waiting, size = [], 0
    yield "".join(waiting).encode()


def texts(content: Iterator[bytes]) -> Iterator[str]:
    """Line by line, as `csv` takes them; a piece ends after a whole row."""
    for piece in content:
        yield from io.StringIO(piece.decode(), newline="")


def members(row: dict[str, str]) -> Iterator[tuple[str, Any]]:
    for name, cell in row.items():
        if name in NUMBERS:
            yield name, int(cell)
        elif name == "further_names":
            yield name, json.loads(cell) if cell else []
        else:
            yield name, cell


@router.get(
    "/{number}",
    auth=Needs("receipts:read"),
    operation_id="getReceipt",
    summary="The document of a receipt",
    openapi_extra={"x-streams": [JSON]},
)
def get_receipt(request: HttpRequest, number: Number) -> Any:
    """Byte for byte: its SHA-256 is the one that events and lists name. That it was fetched goes into the audit record."""
    receipt = seen(request).filter(pk=number).first()
    if receipt is None:
        raise not_found(f"receipt {number}")
    exports.hand_out(receipt, by=person(request))
    return HttpResponse(bytes(receipt.body), content_type=JSON)
