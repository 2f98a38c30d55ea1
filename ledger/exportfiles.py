"""The files of exports: where they lie, how they come there whole, what tells of them, and until when."""

import json
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Final

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from cleanup_project.base import audit, canonical, streams, tenancy
from cleanup_project.base.models import User
from ledger import copying
from ledger.exceptions import LedgerError, NotPermitted
from ledger.models import ReceiptExport, ReceiptExportPart

FORMAT: Final = "cleanup receipts export 1"

log = structlog.get_logger(__name__)


def folder(export: ReceiptExport) -> Path:
    """Of its files alone."""
    return Path(settings.EXPORT_DIR) / f"export-{export.pk}"


def manifest_name(export: ReceiptExport) -> str:
    return f"export-{export.pk}.json"


@contextmanager
def unfinished(folder: Path) -> Iterator[IO[bytes]]:
    """A file without a name that anybody looks for; gone afterwards, unless it was placed."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for stale in folder.glob("*.unfinished"):
        stale.unlink(missing_ok=True)  # whoever wrote it was killed: this export is ours alone
    with NamedTemporaryFile(dir=folder, suffix=".unfinished", delete=False) as file:
        try:
            yield file
        finally:
            with suppress(FileNotFoundError):
                os.unlink(file.name)


def place(file: IO[bytes], path: Path) -> None:
    """Let the file appear under its name, once it is on the disk."""
    file.flush()
    os.fsync(file.fileno())
    os.replace(file.name, path)


def manifest(export: ReceiptExport) -> bytes:
    """What `manage.py receipts verify` reads beside the files of an export that is done: JSON, indented."""
    assert export.finished_at is not None
    told = {
        "format": FORMAT,
        "export": export.pk,
        "requested_by": export.requested_by.get_username() if export.requested_by else None,
        "requested_at": canonical.instant(export.requested_at),
        "finished_at": canonical.instant(export.finished_at),
        "form": export.form,
        "selection": export.selection,
        "tenants": export.tenants,
        "last_receipt_number": export.upto,
        "receipts": export.rows,
        "bytes": export.bytes,
        "sha256_of_parts": export.digest,
        "parts": [
            {
                "file": part.file_name,
                "receipts": part.rows,
                "bytes": part.bytes,
                "sha256": part.sha256,
                "first_receipt": part.first_receipt,
                "last_receipt": part.last_receipt,
            }
            for part in export.parts.all()
        ],
        "columns": {
            each.name: each.meaning for each in copying.columns(exact=export.form == ReceiptExport.Form.MACHINES)
        },
    }
    return f"{json.dumps(told, indent=2)}\n".encode()


def send(part: ReceiptExportPart, *, by: User) -> Generator[bytes]:
    """The file of a part as the answer to a request. Raises LedgerError as `download` does, and streams.Busy before."""
    return streams.send(lambda: pieces(download(part, by=by)))


def pieces(file: IO[bytes]) -> Generator[bytes]:
    with file:
        while piece := file.read(copying.PIECE):
            yield piece


def download(part: ReceiptExportPart, *, by: User) -> IO[bytes]:
    """The file of a part, once it is on record who fetched it. Raises LedgerError where it is not to be had."""
    export = part.export
    if not by.has_perm("base.export_receipts"):
        raise NotPermitted(f"{by} may not fetch exports of receipts: it needs the right to export them.")
    if not tenancy.within(export.tenants, by):
        raise NotPermitted(
            f"{by} may fetch exports of {', '.join(by.tenants)} alone: {export} holds receipts of others."
        )
    if export.way != ReceiptExport.Way.FILES:
        raise LedgerError(f"{export} was sent when it was asked for; no file of it is kept.")
    if export.removed_at is not None:
        raise LedgerError(f"The files of {export} expired and were removed: ask for it anew.")
    try:
        file = (folder(export) / part.file_name).open("rb")
    except FileNotFoundError:
        raise LedgerError(
            f"{part.file_name} does not lie in {folder(export)} here. EXPORT_DIR must be one and the same place for the web "
            "process and for every worker."
        ) from None
    with transaction.atomic():
        audit.record(
            action="export.downloaded", subject=export, by=by, after={"file": part.file_name, "sha256": part.sha256}
        )
    return file


def remove(export: ReceiptExport) -> None:
    """Remove the files of an export that has expired; its record stays. What cannot be removed is tried again later."""
    path = folder(export)
    try:
        shutil.rmtree(path)
    except OSError as trouble:
        if not isinstance(trouble, FileNotFoundError) or path.exists():
            log.error("files of an export were not removed", export=export.pk, trouble=str(trouble))
            return
    with transaction.atomic():
        if ReceiptExport.objects.filter(pk=export.pk, removed_at=None).update(removed_at=Now()):
            audit.record(action="export.removed", subject=export, by=None, reason="Its files had expired.")
