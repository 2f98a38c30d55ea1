"""Exports as files: parts, their digests, what a kill leaves, who works at one, and the check that an auditor runs."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError
from django.db.models.functions import Now

from cleanup_project.base.models import AuditEvent
from ledger import copying, exportcheck, exportfiles, exports
from ledger.exceptions import LedgerError, NotPermitted
from ledger.models import ReceiptExport
from tests.ledger.exporting import KEYS, auditor, destroyed, order, rows

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(exports, "PART_ROWS", 4)
    settings.EXPORT_DIR = tmp_path / "exports"


def made(**parts: Any) -> ReceiptExport:
    export = exports.request_files(order(**parts), by=auditor())
    assert exports.work_slice(export.pk, budget_seconds=60)
    export.refresh_from_db()
    return export


def directory(export: ReceiptExport) -> Path:
    """What an auditor has after fetching everything."""
    folder = exportfiles.folder(export)
    (folder / exportfiles.manifest_name(export)).write_bytes(exportfiles.manifest(export))
    return folder


def keys(export: ReceiptExport) -> list[str]:
    folder = exportfiles.folder(export)
    return [row["key"] for part in export.parts.all() for row in rows((folder / part.file_name).read_bytes())]


def test_parts_hold_every_receipt_once_and_in_order() -> None:
    destroyed()
    export = made()
    assert [part.rows for part in export.parts.all()] == [4, 4, 3]
    assert (export.state, export.rows, keys(export)) == ("done", len(KEYS), list(KEYS))
    assert exportcheck.check(directory(export)) == []
    assert AuditEvent.objects.get(action="export.done").after["parts"] == 3


def test_a_full_last_part_is_followed_by_none() -> None:
    destroyed(KEYS[:8])
    assert [part.rows for part in made().parts.all()] == [4, 4]


def test_an_export_of_nothing_is_one_part_with_its_heading() -> None:
    destroyed(("a",))
    export = made(outcome="already_absent")
    part = export.parts.get()
    assert (part.rows, part.first_receipt, export.state) == (0, None, "done")
    assert (exportfiles.folder(export) / part.file_name).read_text().startswith("receipt,issued_at,outcome")
    assert exportcheck.check(directory(export)) == []


def test_what_was_killed_goes_on_with_the_part_that_it_was_in(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed()
    export = exports.request_files(order(), by=auditor())
    place = exportfiles.place

    def killed(file: Any, path: Path) -> None:
        """As a kill -9 between the last byte of the second part and its name."""
        if path.name.endswith("00002.csv"):
            (path.parent / "left.unfinished").write_bytes(b"half")
            raise KeyboardInterrupt
        place(file, path)

    monkeypatch.setattr(exportfiles, "place", killed)
    with pytest.raises(KeyboardInterrupt):
        exports.work_slice(export.pk, budget_seconds=60)
    export.refresh_from_db()
    assert (export.state, export.rows, export.parts.count()) == ("running", 4, 1)
    monkeypatch.undo()
    monkeypatch.setattr(exports, "PART_ROWS", 4)
    assert exports.work_slice(export.pk, budget_seconds=60)
    export.refresh_from_db()
    assert (export.state, keys(export)) == ("done", list(KEYS))
    assert sorted(path.name for path in exportfiles.folder(export).iterdir()) == [
        part.file_name for part in export.parts.all()
    ]


def test_a_slice_ends_in_time_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed()
    monkeypatch.setattr(copying, "PIECE", 1)  # so that it may end after any row
    export = exports.request_files(order(), by=auditor())
    slices = 1
    while not exports.work_slice(export.pk, budget_seconds=0):
        slices += 1
    export.refresh_from_db()
    assert [part.rows for part in export.parts.all()] == [1] * len(KEYS)
    assert (slices, export.state, keys(export)) == (len(KEYS), "done", list(KEYS))
    assert exportcheck.check(directory(export)) == []


def test_nobody_works_at_it_twice_at_the_same_time() -> None:
    destroyed()
    export = exports.request_files(order(), by=auditor())
    with copying.take_slot() as other:
        assert other.claim(export.pk)
        assert exports.work_slice(export.pk, budget_seconds=60)
        assert export.parts.count() == 0
    assert exports.work_slice(export.pk, budget_seconds=60)
    assert export.parts.count() == 3


def test_a_full_disk_is_said_on_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed(("a",))

    def full(file: Any, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exportfiles, "place", full)
    export = made()
    assert (export.state, export.rows) == ("failed", 0)
    assert "No space left on device" in export.trouble
    assert list(exportfiles.folder(export).iterdir()) == []
    assert (export.expires_at, export.finished_at) == (export.finished_at + exports.KEPT_FOR, export.finished_at)


def test_what_one_part_of_a_failed_export_holds_is_removed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed()
    placed, place = [], exportfiles.place

    def full(file: Any, path: Path) -> None:
        if placed:
            raise OSError(28, "No space left on device")
        placed.append(path)
        place(file, path)

    monkeypatch.setattr(exportfiles, "place", full)
    export = made()
    assert (export.state, export.parts.count(), placed[0].exists()) == ("failed", 1, True)
    ReceiptExport.objects.update(expires_at=Now() - timedelta(seconds=1))
    exports.ring()
    assert not exportfiles.folder(export).exists()


def test_files_that_cannot_be_removed_are_not_said_to_be_and_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed(("a",))
    export = made()
    ReceiptExport.objects.update(expires_at=Now() - timedelta(seconds=1))

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", refuse)
        exports.ring()
    export.refresh_from_db()
    assert export.removed_at is None
    assert not AuditEvent.objects.filter(action="export.removed").exists()
    exports.ring()
    export.refresh_from_db()
    assert export.removed_at is not None
    assert not exportfiles.folder(export).exists()


def test_who_took_what_out_never_changes_nor_how_it_ended() -> None:
    destroyed(("a",))
    export = made()
    asked = exports.request_files(order(), by=auditor("second"))
    row = ReceiptExport.objects.filter(pk=export.pk)
    other = ReceiptExport.objects.filter(pk=asked.pk)
    for changed in ({"requested_by": None}, {"tenants": ["acme"]}, {"selection": {"bucket": "x"}}, {"upto": 0}):
        for rows_of in (row, other):
            with pytest.raises(DatabaseError, match="cannot be changed so"):
                rows_of.update(**changed)
    for changed in ({"rows": 7}, {"worked_at": Now()}, {"digest": "0" * 64}):
        with pytest.raises(DatabaseError, match="cannot be changed so"):
            row.update(**changed)
    row.update(removed_at=Now())
    for changed in ({"removed_at": None}, {"expires_at": Now()}):
        with pytest.raises(DatabaseError, match="cannot be changed so"):
            row.update(**changed)


def test_the_sweep_rings_for_files_that_nobody_makes_and_closes_what_nobody_sends(rung: list[tuple[str, Any]]) -> None:
    destroyed(("a",))
    by = auditor()
    files = exports.request_files(order(), by=by)
    rung.clear()
    sent, content = exports.send(order(), by=by)
    assert exports.ring() == 0  # they have only begun
    ReceiptExport.objects.update(worked_at=Now() - timedelta(minutes=2))
    assert exports.ring() == 1
    assert rung == [("ledger.tasks.export", files.pk)]
    sent.refresh_from_db()
    assert sent.state == "running"  # its process still holds it
    killed, _new = exports.begin(order(), "sent", by)
    ReceiptExport.objects.filter(pk=killed.pk).update(worked_at=Now() - timedelta(minutes=2))
    exports.ring()
    killed.refresh_from_db()
    assert (killed.state, killed.trouble) == ("aborted", exports.STOPPED)
    assert content is not None
    b"".join(content)
    sent.refresh_from_db()
    assert sent.state == "done"


def test_files_are_removed_when_they_expire_and_the_record_stays() -> None:
    destroyed(("a",))
    export = made()
    assert export.expires_at is not None
    assert export.finished_at is not None
    assert export.expires_at - export.finished_at == exports.KEPT_FOR
    exports.ring()
    assert exportfiles.folder(export).exists()
    ReceiptExport.objects.update(expires_at=Now() - timedelta(seconds=1))
    exports.ring()
    exports.ring()
    assert not exportfiles.folder(export).exists()
    export.refresh_from_db()
    assert export.removed_at is not None
    assert AuditEvent.objects.filter(action="export.removed").count() == 1
    with pytest.raises(LedgerError, match="expired and were removed"):
        exportfiles.download(export.parts.get(), by=auditor("second"))


def test_each_download_is_on_record() -> None:
    world = destroyed(("a",))
    export = made()
    part = export.parts.get()
    other = auditor("second")
    with exportfiles.download(part, by=other) as file:
        assert rows(file.read())[0]["key"] == "a"
    event = AuditEvent.objects.get(action="export.downloaded")
    assert (event.actor, event.after) == (other, {"file": part.file_name, "sha256": part.sha256})
    with pytest.raises(NotPermitted):
        exportfiles.download(part, by=world.people["operator"])
    (exportfiles.folder(export) / part.file_name).unlink()
    with pytest.raises(LedgerError, match="EXPORT_DIR must be one and the same place"):
        exportfiles.download(part, by=other)
    assert AuditEvent.objects.filter(action="export.downloaded").count() == 1


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content.replace(old, new, 1)


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (replaced(b"plain", b"other"), "its SHA-256 is"),
        (lambda content: content[: content.rindex(b"\n", 0, -1) + 1], "receipts is 3, and the manifest says 4"),
        (lambda content: content + content.splitlines(keepends=True)[1], "it does not come after the one before it"),
        (replaced(b',""worker"":', b',""worked"":'), "its document has another SHA-256 than the row states"),
        (replaced(b"receipt,issued_at", b"receipt,issued"), "its columns are not those of the manifest"),
        (lambda content: content + b'"', "it cannot be read"),
    ],
)
def test_the_check_finds_what_was_changed(spoil: Callable[[bytes], bytes], finding: str) -> None:
    destroyed(("plain", "b", "c", "d"))
    folder = directory(made())
    (file,) = folder.glob("*.csv")
    before = file.read_bytes()
    assert spoil(before) != before
    file.write_bytes(spoil(before))
    found = exportcheck.check(folder)
    assert any(finding in each for each in found), found


def test_the_check_finds_a_part_that_is_missing_and_a_manifest_that_was_changed(tmp_path: Path) -> None:
    destroyed()
    folder = directory(made())
    second = sorted(folder.glob("*.csv"))[1]
    second.unlink()
    assert any("it is not in the directory" in each for each in exportcheck.check(folder))
    (manifest,) = folder.glob("*.json")
    told = json.loads(manifest.read_text())
    del told["parts"][1]
    manifest.write_text(json.dumps(told))
    found = exportcheck.check(folder)
    assert any("sha256_of_parts" in each for each in found)
    assert any("do not add up" in each for each in found)
    assert exportcheck.check(tmp_path) == [f"There is no manifest (export-N.json) in {tmp_path}."]


def test_the_check_finds_a_row_that_is_not_its_documents(tmp_path: Path) -> None:
    """Its digests are all made anew: only the document itself can tell."""
    destroyed(("a", "b"))
    folder = directory(made())
    (file,) = folder.glob("*.csv")
    first, second = rows(file.read_bytes())
    for name in ("event_id", "commitment", "command_key"):
        changed = io.StringIO(newline="")
        writer = csv.DictWriter(changed, list(first), lineterminator="\n")
        writer.writeheader()
        writer.writerows([first | {name: "another"}, second])
        seen = exportcheck.Seen(("", 0), list(first))
        (tmp_path / "changed.csv").write_text(changed.getvalue(), encoding="utf-8", newline="")
        (finding,) = seen.findings(tmp_path / "changed.csv")
        assert f"the {name} of its document is another than the row's" in finding


def test_the_command_writes_files_that_python_alone_can_check(tmp_path: Path) -> None:
    destroyed()
    said = io.StringIO()
    out = tmp_path / "taken"
    call_command("receipts", "export", "--policy", "originals", "--out", str(out), "--json", stdout=said)
    told = json.loads(said.getvalue())
    assert (told["receipts"], len(told["parts"])) == (len(KEYS), 3)
    export = ReceiptExport.objects.get()
    assert (export.way, export.state, export.requested_by, export.digest) == ("command", "done", None, told["digest"])
    assert AuditEvent.objects.get(action="export.begun").actor_name == "system"
    check = [sys.executable, "-I", "-S", "exportcheck.py", "."]
    checked = subprocess.run(check, cwd=out, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "All is as the manifests say.\n"), checked.stderr
    call_command("receipts", "verify", str(out), stdout=said)
    next(out.glob("*.csv")).unlink()
    with pytest.raises(CommandError, match="it is not in the directory"):
        call_command("receipts", "verify", str(out))
    checked = subprocess.run(check, cwd=out, capture_output=True, text=True, check=False)
    assert checked.returncode == 1


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    destroyed(("a",))
    for arguments, words in (
        (("--policy", "none"), "There is no policy none"),
        (("--from", "yesterday"), "yesterday is no time such as"),
        (("--from", "2026-02-01", "--to", "2026-01-01"), "The end must be later than the beginning"),
    ):
        with pytest.raises(CommandError, match=words):
            call_command("receipts", "export", *arguments, "--out", str(tmp_path / "none"))
    assert not ReceiptExport.objects.exists()


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    heard = list[tuple[str, Any]]()
    monkeypatch.setattr(exports.queue, "wake", lambda task, argument=None: heard.append((task, argument)))
    return heard
