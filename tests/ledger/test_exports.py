"""Exports of receipts: exact, safe, on record before they begin, and one fixed set however long they take."""

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import psycopg
import pytest
from django.db import connection

from cleanup_project.base import streams
from cleanup_project.base.csvcells import guarded
from cleanup_project.base.models import AuditEvent
from ledger import copying, exports, receipts
from ledger.exceptions import IdempotencyConflict, LedgerError, NotPermitted, TryLater
from ledger.models import Receipt, ReceiptExport, ReceiptLocator
from retention.models import Bucket, Tenant
from tests.ledger.exporting import ANOTHER, KEYS, auditor, copies_running, destroyed, multiplied, order, rows, whole

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_is_sent_holds_every_receipt_exactly_and_ends_with_its_digest_on_record() -> None:
    destroyed()
    export, content = exports.send(order(), by=auditor())
    sent = whole(content)
    found = rows(sent)
    assert [row["key"] for row in found] == list(KEYS)
    for row, receipt in zip(found, Receipt.objects.order_by("issued_at", "pk"), strict=True):
        assert row["body"].encode() == bytes(receipt.body)
        assert row["sha256"] == bytes(receipt.digest).hex() == sha256(row["body"].encode()).hexdigest()
        assert int(row["receipt"]) == receipt.pk
    export.refresh_from_db()
    part = export.parts.get()
    assert (export.state, export.rows, export.bytes) == ("done", len(KEYS), len(sent))
    assert part.sha256 == sha256(sent).hexdigest()
    assert export.digest == sha256(sha256(sent).digest()).hexdigest()
    assert ReceiptExport.objects.count() == 1


def test_for_people_no_cell_is_a_formula_and_each_can_be_read_back() -> None:
    destroyed()
    _export, content = exports.send(order("people"), by=auditor())
    found = rows(whole(content))
    assert [row["key"] for row in found] == [guarded(key) for key in KEYS]
    assert [row["key"].removeprefix("'") for row in found] == list(KEYS)
    assert "body" not in found[0]
    assert {row["tenant"] for row in found} == {"acme"}


def test_names_beside_the_original_and_commitments_stand_in_the_row_and_stay_when_names_are_forgotten() -> None:
    world = destroyed(("plain", "other"))
    first, second = rows(whole(exports.send(order(), by=auditor())[1]))
    derivative = world.versions["plain.webm"][0]
    assert json.loads(first["further_names"]) == [["media", "plain.webm", derivative.version_id]]
    assert (first["targets"], second["targets"], second["further_names"]) == ("2", "1", "")
    salt = receipts.salt(world.tenant.pk)
    assert first["commitment"] == receipts.commitment(salt, "media", "plain", first["version_id"])
    assert (first["bucket"], first["policy"], first["revision"]) == ("media", "originals", "1")
    ReceiptLocator.objects.all().delete()
    forgotten = rows(whole(exports.send(order(), by=auditor("second"))[1]))
    assert [row["commitment"] for row in forgotten] == [first["commitment"], second["commitment"]]
    assert {(row["key"], row["version_id"], row["further_names"]) for row in forgotten} == {("", "", "")}


def test_the_record_stands_before_the_first_byte() -> None:
    destroyed(("a",))
    by = auditor()
    export, content = exports.send(order(policy="originals"), by=by)
    kept = ReceiptExport.objects.get(pk=export.pk)
    assert (kept.state, kept.requested_by, kept.selection) == ("running", by, {"policy": "originals"})
    event = AuditEvent.objects.get(action="export.begun")
    assert (event.actor, event.subject_id, event.after["expected"]) == (by, str(export.pk), 1)
    whole(content)
    assert AuditEvent.objects.get(action="export.done").after["receipts"] == 1


def test_a_receiver_that_goes_away_ends_the_copy_and_that_is_on_record() -> None:
    destroyed()
    multiplied(3000)  # more than a socket holds
    export, content = exports.send(order(), by=auditor())
    assert content is not None
    next(content)
    next(content)
    assert copies_running() == 1
    content.close()  # type: ignore[attr-defined]
    assert copies_running() == 0
    export.refresh_from_db()
    assert export.state == "aborted"
    assert "The receiver went away after" in export.trouble
    assert AuditEvent.objects.filter(action="export.aborted", subject_id=str(export.pk)).exists()


def test_whoever_has_not_taken_everything_in_time_ends_the_copy_and_that_is_on_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    destroyed()
    multiplied(3000)
    monkeypatch.setattr(streams, "LONGEST", 0.0)
    export, content = exports.send(order(), by=auditor())
    with pytest.raises(streams.TooSlow):
        whole(content)
    assert copies_running() == 0
    export.refresh_from_db()
    assert (export.state, export.digest, export.parts.count()) == ("aborted", "", 0)
    assert "had not taken everything within 0 minutes. Narrow it, or have files made." in export.trouble
    monkeypatch.undo()
    whole(exports.send(order(), by=auditor("second"))[1])


def test_an_export_that_breaks_is_on_record_with_what_broke_it(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed(("a",))
    monkeypatch.setattr(copying, "DOCUMENT", copying.Column("body", "1 / (r.id - r.id)", "Breaks."))
    export, content = exports.send(order(), by=auditor())
    with pytest.raises(psycopg.errors.DivisionByZero):
        whole(content)
    export.refresh_from_db()
    assert (export.state, export.parts.count()) == ("failed", 0)
    assert "division by zero" in export.trouble


def test_two_are_read_at_once_and_a_third_is_told_to_wait() -> None:
    destroyed(("a",))
    by = auditor()
    contents = [exports.send(order(), by=by)[1] for _ in range(2)]
    with pytest.raises(TryLater, match="2 exports are being read already"):
        exports.send(order(), by=by)
    assert ReceiptExport.objects.count() == 2
    whole(contents[0])
    whole(exports.send(order(), by=by)[1])
    whole(contents[1])


def test_a_form_that_is_sent_twice_makes_one_export() -> None:
    destroyed(("a",))
    by, asked = auditor(), order()
    export, content = exports.send(asked, by=by)
    whole(content)
    assert exports.send(asked, by=by) == (export, None)
    with pytest.raises(IdempotencyConflict):
        exports.send(replace(asked, form="people"), by=by)
    with pytest.raises(IdempotencyConflict):
        exports.send(asked, by=auditor("another"))
    assert ReceiptExport.objects.count() == 1


def test_only_who_may_export_does() -> None:
    world = destroyed(("a",))
    for verb in (exports.send, exports.request_files):
        with pytest.raises(NotPermitted):
            verb(order(), by=world.people["operator"])
    assert not ReceiptExport.objects.exists()


def test_a_receipt_with_a_lower_number_that_commits_later_is_waited_for() -> None:
    """Numbers are handed out before they are committed: the highest that is seen is not the last that there will be."""
    destroyed(("a",))
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("SELECT FROM ledger_cleanupcommand FOR NO KEY UPDATE")
        other.execute(ANOTHER, {"name": "first", "number": 1})
        with psycopg.connect(**connection.get_connection_params(), autocommit=True) as third:
            third.execute(ANOTHER, {"name": "second", "number": 1})
        with pytest.raises(LedgerError, match="has been open for 0 seconds"):
            copying.last_number(wait=0)
        committing = threading.Timer(0.5, other.commit)
        committing.start()
        _export, content = exports.send(order(), by=auditor())
        committing.join()
    assert len(rows(whole(content))) == 3


def test_a_transaction_of_another_database_or_another_table_keeps_nobody_waiting() -> None:
    """Transaction numbers are the whole server's: by them, a stranger's long report would refuse every export."""
    destroyed(("a",))
    parameters = connection.get_connection_params()
    with psycopg.connect(**parameters) as here, psycopg.connect(**parameters | {"dbname": "postgres"}) as elsewhere:
        here.execute("SELECT FROM ledger_cleanupcommand FOR NO KEY UPDATE")
        for other in (here, elsewhere):
            other.execute("SELECT pg_current_xact_id()")
        assert copying.last_number(wait=0) == Receipt.objects.get().pk


def test_what_is_written_later_is_not_in_it() -> None:
    world = destroyed(("a", "b"))
    export = exports.request_files(order(), by=auditor())
    world.settled()
    world.put("c", asset="c")
    world.run()
    world.drain()
    assert exports.work_slice(export.pk, budget_seconds=60)
    export.refresh_from_db()
    assert (export.state, export.rows, Receipt.objects.count()) == ("done", 2, 3)


@pytest.mark.parametrize(
    ("parts", "number"),
    [
        ({}, 2),
        ({"tenant": "acme"}, 2),
        ({"bucket": "media"}, 2),
        ({"policy": "originals"}, 2),
        ({"outcome": "deleted"}, 2),
        ({"outcome": "already_absent"}, 0),
        ({"tenants": ("acme",)}, 2),
        ({"tenants": ("other",)}, 0),
        ({"issued_from": datetime(2020, 1, 1, tzinfo=UTC), "issued_before": datetime(2999, 1, 1, tzinfo=UTC)}, 2),
        ({"issued_before": datetime(2020, 1, 1, tzinfo=UTC)}, 0),
        ({"issued_from": datetime(2999, 1, 1, tzinfo=UTC)}, 0),
    ],
)
def test_what_narrows_an_export(parts: dict[str, Any], number: int) -> None:
    destroyed(("a", "b"))
    Tenant.objects.create(code="other", name="Other")
    _export, content = exports.send(order(**parts), by=auditor())
    assert len(rows(whole(content))) == number


@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ({"tenant": "nobody"}, "tenant"),
        ({"tenant": "acme", "tenants": ("other",)}, "tenant"),
        ({"bucket": "none"}, "bucket"),
        ({"policy": "none"}, "policy"),
        ({"run": "none"}, "run"),
        (
            {"issued_from": datetime(2021, 1, 1, tzinfo=UTC), "issued_before": datetime(2020, 1, 1, tzinfo=UTC)},
            "issued_before",
        ),
    ],
)
def test_a_name_that_nothing_has_is_said_and_nothing_begins(parts: dict[str, Any], field: str) -> None:
    destroyed(("a",))
    with pytest.raises(LedgerError) as refusal:
        exports.send(order(**parts), by=auditor())
    assert refusal.value.field == field
    assert not ReceiptExport.objects.exists()
    whole(exports.send(order(), by=auditor("second"))[1])  # and its slot is free again


def test_every_bucket_of_a_name_is_meant() -> None:
    world = destroyed(("a",))
    Bucket.objects.create(name="media", endpoint_url="https://elsewhere.example")
    Bucket.objects.create(pk=0, name="media", endpoint_url="https://earlier.example")
    assert len(rows(whole(exports.send(order(bucket=world.bucket.name), by=auditor())[1]))) == 1


def test_a_policy_and_a_run_of_another_tenant_are_not_there() -> None:
    world = destroyed(("a",))
    Tenant.objects.create(code="other", name="Other")
    by = auditor(tenants=["other"])
    for parts in ({"policy": "originals"}, {"run": Receipt.objects.get().run.key}):
        with pytest.raises(LedgerError, match="There is no"):
            exports.send(order(tenants=("other",), **parts), by=by)
        assert len(rows(whole(exports.send(order(**parts), by=world.people["compliance"])[1]))) == 1


def test_nobody_exports_or_fetches_for_tenants_that_are_not_theirs() -> None:
    destroyed(("a",))
    by = auditor(tenants=["other"])
    with pytest.raises(NotPermitted, match="of nobody else"):
        exports.send(order(), by=by)
    with pytest.raises(NotPermitted, match="about nothing else"):
        exports.hand_out(Receipt.objects.get(), by=by)


def test_how_it_ended_is_on_record_before_its_claim_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed(("a",))
    states: list[str] = []

    def closing(source: copying.Source, *_: object) -> None:
        states.append(ReceiptExport.objects.get().state)
        source.connection.close()

    monkeypatch.setattr(copying.Source, "__exit__", closing)
    whole(exports.send(order(), by=auditor())[1])
    assert states == ["done"]


def test_more_than_a_part_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed(("a", "b", "c"))
    monkeypatch.setattr(exports, "PART_ROWS", 2)
    with pytest.raises(LedgerError, match="More than 2 receipts match") as refusal:
        exports.send(order(), by=auditor())
    assert refusal.value.field == "way"
