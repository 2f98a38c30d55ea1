"""Manifests as files: exact for machines, harmless in spreadsheets, on record before the first byte."""

import csv
import io
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from cleanup_project.base import roles
from cleanup_project.base.csvcells import guarded
from cleanup_project.base.models import AuditEvent, User
from ledger import downloads
from ledger.downloads import COLUMNS
from ledger.models import CleanupRun, ManifestItem
from retention.models import Bucket, PolicyRevision, Tenant
from tests import world
from tests.web import places_taken, quick_pages  # noqa: F401

KEYS = ["plain", "=1+1", " -2", "@x", "+1", "\t=1", "＝1", "a,b\"c'", "line\r\nbreak", "日本語", "'=1"]


@pytest.fixture
def revision(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> PolicyRevision:
    for number, key in enumerate(KEYS):
        world.version(bucket, tenant, key, asset=str(number))
    world.version(bucket, tenant, "plain.webm", asset="0", original_key="plain")
    return world.published(tenant, bucket, author=manager, publisher=second_manager, code="clips")


@pytest.fixture
def run(revision: PolicyRevision) -> CleanupRun:
    return world.sealed_run(revision)


@pytest.fixture
def auditor(person: Callable[..., User], client: Client) -> User:
    user = person("auditor", roles.AUDITOR)
    client.force_login(user)
    return user


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "CHUNK", 3)


def address(run: CleanupRun, form: str) -> str:
    return reverse("admin:ledger_cleanuprun_manifest", args=[run.pk, form])


def body(response: Any) -> bytes:
    return b"".join(response.streaming_content)


def rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def test_digests_can_be_computed_again_from_jsonl(run: CleanupRun, auditor: User, client: Client) -> None:
    content = body(client.get(address(run, "jsonl")))
    assert content.endswith(b"\n")
    lines = content.removesuffix(b"\n").split(b"\n")
    items = list(ManifestItem.objects.filter(run=run).order_by("ordinal"))
    digests = [sha256(line).digest() for line in lines]
    assert digests == [bytes(item.digest) for item in items]
    root = sha256()
    for part in run.parts.order_by("number"):
        own, digests = digests[: part.item_count], digests[part.item_count :]
        assert sha256(b"".join(own)).hexdigest() == part.digest
        root.update(bytes.fromhex(part.digest))
    assert digests == []
    assert root.hexdigest() == run.manifest_root


def test_the_file_says_which_manifest_it_is(run: CleanupRun, auditor: User, client: Client) -> None:
    response = client.get(address(run, "csv"))
    assert response.headers["X-Run-Key"] == run.key
    assert response.headers["X-Manifest-Root"] == run.manifest_root
    assert response.headers["X-Manifest-Items"] == str(len(KEYS))
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert "no-store" in response.headers["Cache-Control"]
    name = f"{run.key.replace(':', '_')}_{run.manifest_root[:16]}.csv"
    assert response.headers["Content-Disposition"] == f'attachment; filename="{name}"'


def test_csv_has_a_row_for_each_target(run: CleanupRun, auditor: User, client: Client) -> None:
    content = body(client.get(address(run, "csv")))
    assert content.startswith(",".join(COLUMNS).encode() + b"\r\n")
    found = rows(content)
    assert [row["role"] for row in found if row["ordinal"] == "1"] == ["original", "derivative"]
    assert len(found) == len(KEYS) + 1
    assert {row["stored_at"] for row in found} == {"2020-01-01T00:00:00.000000Z"}
    assert {row["eligible_since"] for row in found} == {"2020-01-31T00:00:00.000000Z"}
    digests = {bytes(item.digest).hex() for item in ManifestItem.objects.filter(run=run)}
    assert {row["item_sha256"] for row in found} == digests


def test_csv_is_guarded_for_people_and_can_be_read_back(run: CleanupRun, auditor: User, client: Client) -> None:
    shown = [row["key"] for row in rows(body(client.get(address(run, "csv"))))]
    assert {"'=1+1", "' -2", "'@x", "'+1", "'\t=1", "'＝1", "''=1", "plain", "日本語"} <= set(shown)
    assert {key.removeprefix("'") for key in shown} == {*KEYS, "plain.webm"}


@pytest.mark.parametrize(
    "cell",
    [
        "=1",
        "+1",
        "-1",
        "@1",
        "\tx",
        "\rx",
        " =1",
        "\u00a0=1",
        "\ufeff=1",
        "\u200b=1",
        "＝1",
        "＋1",
        "－1",
        "＠1",
        "﹣1",
        "'x",
    ],
)
def test_what_a_spreadsheet_could_run_is_guarded(cell: str) -> None:
    assert guarded(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", ["", " ", "a=1", "1-2", "/=", "日本", '"=1"', "2020-01-01T00:00:00.000000Z"])
def test_what_is_harmless_stays(cell: str) -> None:
    assert guarded(cell) == cell


@given(st.text())
def test_a_guarded_cell_can_always_be_read_back(cell: str) -> None:
    assert guarded(cell).removeprefix("'") == cell


def test_the_record_stands_before_the_first_byte(run: CleanupRun, auditor: User, client: Client) -> None:
    response = client.get(address(run, "csv"))
    event = AuditEvent.objects.get(action="manifest.downloaded")
    assert (event.actor, event.subject_id) == (auditor, str(run.pk))
    assert event.after == {"format": "csv", "raw": False, "items": len(KEYS), "manifest_root": run.manifest_root}
    response.close()


@pytest.mark.parametrize(
    ("role", "status"),
    [
        (roles.RETENTION_MANAGER, 200),
        (roles.COMPLIANCE, 200),
        (roles.OPERATOR, 200),
        (roles.AUDITOR, 200),
        (roles.ADMINISTRATOR, 403),
    ],
)
def test_who_may_download(role: str, status: int, run: CleanupRun, person: Callable[..., User], client: Client) -> None:
    client.force_login(person("someone", role))
    response = client.get(address(run, "csv"))
    assert response.status_code == status
    assert AuditEvent.objects.filter(action="manifest.downloaded").exists() == (status == 200)
    response.close()


def test_nobody_downloads_without_a_login_or_by_post(
    run: CleanupRun, client: Client, person: Callable[..., User]
) -> None:
    assert client.get(address(run, "csv")).status_code == 302
    client.force_login(person("auditor", roles.AUDITOR))
    assert client.post(address(run, "csv")).status_code == 405
    assert client.get(address(run, "csv").replace(".csv", ".exe")).status_code == 404
    assert not AuditEvent.objects.filter(action="manifest.downloaded").exists()


def test_what_is_not_sealed_is_refused(revision: PolicyRevision, manager: User, auditor: User, client: Client) -> None:
    from ledger import runs

    unsealed, _new = runs.open_run(policy=revision.policy, by=manager, mode=CleanupRun.Mode.DRY_RUN)
    response = client.get(address(unsealed, "csv"))
    assert response.status_code == 409
    assert b"is not sealed" in response.content
    with pytest.raises(CommandError, match="is not sealed"):
        call_command("manifest", unsealed.key)


def test_an_empty_manifest_is_a_header_and_nothing_else(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, auditor: User, client: Client
) -> None:
    run = world.sealed_run(world.published(tenant, bucket, author=manager, publisher=second_manager))
    assert body(client.get(address(run, "jsonl"))) == b""
    assert body(client.get(address(run, "csv"))) == ",".join(COLUMNS).encode() + b"\r\n"


def test_the_command_writes_the_same_bytes(
    run: CleanupRun, auditor: User, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for form in ("csv", "jsonl"):
        served = body(client.get(address(run, form)))
        file = tmp_path / f"manifest.{form}"
        errors = io.StringIO()
        call_command("manifest", run.key, format=form, output=file, stderr=errors)
        assert file.read_bytes() == served
        assert run.manifest_root in errors.getvalue()
        standard = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", standard)
        call_command("manifest", run.key, "--format", form, stderr=errors)
        assert standard.buffer.getvalue() == served  # type: ignore[attr-defined]
    assert [path.name for path in tmp_path.iterdir()] != []
    assert not list(tmp_path.glob("*.part"))
    assert AuditEvent.objects.filter(action="manifest.downloaded", actor=None).count() == 4


def test_a_manifest_waits_for_a_place(run: CleanupRun, auditor: User, client: Client) -> None:
    with places_taken():
        assert client.get(address(run, "csv")).status_code == 429
    assert not AuditEvent.objects.filter(action="manifest.downloaded").exists()
    assert client.get(address(run, "csv")).status_code == 200


def test_raw_csv_holds_the_keys_as_they_are(run: CleanupRun, tmp_path: Path) -> None:
    file = tmp_path / "manifest.csv"
    call_command("manifest", run.key, raw=True, output=file, stderr=io.StringIO())
    assert {row["key"] for row in rows(file.read_bytes())} == {*KEYS, "plain.webm"}
    assert AuditEvent.objects.get(action="manifest.downloaded").after["raw"] is True


def test_the_command_says_what_is_wrong(run: CleanupRun) -> None:
    with pytest.raises(CommandError, match="There is no run missing"):
        call_command("manifest", "missing")
    with pytest.raises(CommandError, match="--raw is for CSV"):
        call_command("manifest", run.key, format="jsonl", raw=True)


def test_what_was_handed_over_whole_is_on_record_by_its_digest(run: CleanupRun, auditor: User, client: Client) -> None:
    delivered = AuditEvent.objects.filter(action="manifest.delivered")
    unfinished = client.get(address(run, "jsonl"))
    next(iter(unfinished.streaming_content))  # type: ignore[call-overload]
    assert not delivered.exists()
    content = body(client.get(address(run, "jsonl")))
    event = delivered.get()
    assert (event.after["sha256"], event.after["bytes"]) == (sha256(content).hexdigest(), len(content))
    assert downloads.digests(run) == {"jsonl": event.after["sha256"]}
    page = reverse("admin:ledger_cleanuprun_change", args=[run.pk])
    assert event.after["sha256"] in client.get(page).content.decode()


def test_another_tenants_manifest_is_not_there(run: CleanupRun, auditor: User, client: Client) -> None:
    User.objects.update(tenants=["globex"])
    assert client.get(address(run, "csv")).status_code == 404
    User.objects.update(tenants=["acme"])
    assert client.get(address(run, "csv")).status_code == 200
