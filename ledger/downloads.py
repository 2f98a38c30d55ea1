"""A sealed manifest as a file: JSONL for machines, CSV for people.

A line of JSONL is exactly the item's canonical line, so the SHA-256 of its bytes is the item's digest. CSV has a row for
each target; it is guarded against spreadsheets that would run a key as a formula, unless it is asked for raw.
Rows are read in chunks, each in a statement of its own: memory stays flat and no snapshot grows old.
"""

import csv
import io
import json
from collections.abc import Callable, Generator, Iterator
from hashlib import sha256
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET

from cleanup_project.base import audit, streams, tenancy
from cleanup_project.base.csvcells import guarded, unguarded
from cleanup_project.base.models import AuditEvent, User
from ledger.exceptions import LedgerError
from ledger.models import CleanupRun, ManifestItem

CHUNK: Final = 1000
DELIVERED: Final = "manifest.delivered"
LOOKED_AT: Final = 20  # of the deliveries on record
TYPES: Final = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson; charset=utf-8"}
COLUMNS: Final = (
    "ordinal", "command_key", "tenant", "policy", "revision", "asset", "eligible_since", "trigger", "trigger_at",
    "period", "cutoff", "role", "bucket", "key", "version_id", "incarnation", "etag", "size", "stored_at",
    "item_sha256",
)  # fmt: skip
ITEM_COLUMNS: Final = ("command_key", "tenant", "policy", "revision", "asset", "eligible_since")
WHY_COLUMNS: Final = ("trigger", "trigger_at", "period", "cutoff")
TARGET_COLUMNS: Final = ("role", "bucket", "key", "version_id", "incarnation", "etag", "size", "stored_at")


def may_download(user: Any) -> bool:
    return bool(user.has_perm("ledger.view_manifestitem") or user.has_perm("base.read_everything"))


@require_GET
def manifest(request: HttpRequest, run_id: int, form: str) -> HttpResponseBase:
    """The manifest of a run. The download is on record before its first byte is sent."""
    if form not in TYPES:
        raise Http404(f"Manifests come as {' or '.join(TYPES)}.")
    if not may_download(request.user):
        raise PermissionDenied
    assert isinstance(request.user, User)
    run = get_object_or_404(tenancy.scoped(CleanupRun.objects.all(), request.user, "tenant__code"), pk=run_id)
    try:
        content = send(run, form, by=request.user)
    except streams.Busy as busy:
        return streams.refused(busy)
    except LedgerError as refusal:
        return HttpResponse(str(refusal), status=409, content_type="text/plain; charset=utf-8")
    return StreamingHttpResponse(
        content,
        content_type=TYPES[form],
        headers={
            "Content-Disposition": f'attachment; filename="{file_name(run, form)}"',
            "X-Run-Key": run.key,
            "X-Manifest-Root": run.manifest_root,
            "X-Manifest-Items": str(run.item_count),
        },
    )


def send(run: CleanupRun, form: str, *, by: User) -> Generator[bytes]:
    """The same as the answer to a request. Raises streams.Busy as well, before anything is on record."""
    return streams.send(lambda: export(run, form, by=by))


def export(run: CleanupRun, form: str, *, by: User | None, raw: bool = False) -> Generator[bytes]:
    """The bytes of a sealed manifest, chunk by chunk; the audit record is written before this returns.

    Raises LedgerError where the manifest is not sealed: what is not whole could be taken for the whole.
    """
    if run.sealed_at is None:
        raise LedgerError(f"The manifest of {run} is not sealed, so there is no whole one to download.")
    with transaction.atomic():
        audit.record(
            action="manifest.downloaded",
            subject=run,
            by=by,
            after={"format": form, "raw": raw, "items": run.item_count, "manifest_root": run.manifest_root},
        )
    content = jsonl(run) if form == "jsonl" else csv_rows(run, unguarded if raw else guarded)
    return digested(run, form, raw, content, by)


def digested(run: CleanupRun, form: str, raw: bool, content: Iterator[bytes], by: User | None) -> Generator[bytes]:
    """The content as it is; once it has been handed over whole, its SHA-256 is on record: the same one each time."""
    whole, size = sha256(), 0
    for piece in content:
        whole.update(piece)
        size += len(piece)
        yield piece
    with transaction.atomic():
        told = {"format": form, "raw": raw, "sha256": whole.hexdigest(), "bytes": size}
        audit.record(action=DELIVERED, subject=run, by=by, after=told)


def digests(run: CleanupRun) -> dict[str, str]:
    """SHA-256 of the file of each format, guarded as people get it, of those that were ever handed over whole."""
    delivered = AuditEvent.objects.filter(
        subject_type=run._meta.label_lower, subject_id=str(run.pk), action=DELIVERED, after__raw=False
    )
    return {event.after["format"]: event.after["sha256"] for event in delivered.order_by("-id")[:LOOKED_AT]}


def file_name(run: CleanupRun, form: str) -> str:
    return f"{run.key.replace(':', '_')}_{run.manifest_root[:16]}.{form}"


def chunks(run: CleanupRun) -> Iterator[list[tuple[int, str, bytes | memoryview]]]:
    """(ordinal, line, digest) of every item in order, `CHUNK` at a time."""
    last = 0
    while True:
        rows = ManifestItem.objects.filter(run=run, ordinal__gt=last).order_by("ordinal")
        found = list(rows.values_list("ordinal", "line", "digest")[:CHUNK])
        if not found:
            return
        yield found
        last = found[-1][0]


def jsonl(run: CleanupRun) -> Iterator[bytes]:
    for found in chunks(run):
        yield "".join(f"{line}\n" for _ordinal, line, _digest in found).encode()


def csv_rows(run: CleanupRun, guard: Callable[[str], str]) -> Iterator[bytes]:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    for found in chunks(run):
        for ordinal, line, digest in found:
            writer.writerows(target_rows(ordinal, json.loads(line), bytes(digest).hex(), guard))
        yield buffer.getvalue().encode()
        buffer.seek(0)
        buffer.truncate()
    if buffer.tell():
        yield buffer.getvalue().encode()  # an empty manifest: the header alone


def target_rows(ordinal: int, item: dict[str, Any], digest: str, guard: Callable[[str], str]) -> Iterator[list[Any]]:
    shared = [item[name] for name in ITEM_COLUMNS] + [item["why"][name] for name in WHY_COLUMNS]
    for target in item["targets"]:
        cells = [ordinal, *shared, *(target[name] for name in TARGET_COLUMNS), digest]
        yield [guard(cell) if isinstance(cell, str) else cell for cell in cells]
