"""What the API says of single commands and objects, and the receipts that it lists and hands out."""

import csv
import io
import json
from collections.abc import Generator
from hashlib import sha256
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from cleanup_project.base.models import AuditEvent
from cleanup_project.operations.api import cursors, receipts
from ledger import copying, exports
from ledger.explain import explain
from ledger.models import CleanupRun, Receipt, ReceiptExport
from retention import why
from retention.models import Tenant
from tests.ledger.acting import Acting
from tests.ledger.exporting import KEYS, destroyed
from tests.ledger.parking import dead, deleted
from tests.operations.api.calling import given, problem, program
from tests.world import sealed_run, version

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)  # an export reads over a connection of its own


def test_a_command_has_its_six_answers_by_its_key_and_by_its_event(world: Acting) -> None:
    command = deleted(world)
    caller = program("commands:read", tenants=["acme"])
    told = given(caller.get("/commands", key=command.key))
    assert told == json.loads(json.dumps(explain(command.key).as_json()))
    assert (told["state"], told["deletion"]["confirmed"], told["next"]["turn"]) == ("deleted", True, "automatic")
    assert given(caller.get("/commands", key=command.event_id))["key"] == command.key


def test_a_key_with_any_characters_names_its_command(world: Acting) -> None:
    key = "clips/ä b%2F+&=#?\n"
    world.put(key, asset="a/b#c?d&e+f")
    world.run()
    command = world.command(key)
    assert command.key.startswith("acme:a/b#c?d&e+f:")
    assert given(program("commands:read").get("/commands", key=command.key))["selected"]["targets"][0]["key"] == key


def test_an_item_that_never_became_a_command_is_explained_too_and_others_are_not_there(world: Acting) -> None:
    world.put("clips/a")
    run = sealed_run(world.revision)
    key = run.items.get().command_key
    assert given(program("commands:read", tenants=["acme"]).get("/commands", key=key))["state"] == "no command"
    Tenant.objects.create(code="other", name="Other")
    stranger = program("commands:read", tenants=["other"])
    problem(stranger.get("/commands", key=key), 404, "not-found")
    problem(stranger.get("/commands", key="nothing"), 404, "not-found")
    problem(stranger.get("/commands"), 422, "invalid")


def test_why_an_object_is_kept_is_told_for_each_version(world: Acting) -> None:
    first, second = (world.put("clips/a b", body, asset="ab") for body in (b"x", b"again"))
    caller = program("objects:read", tenants=["acme"])
    told = given(caller.get("/objects/why", bucket="media", key="clips/a b"))
    assert [each["version_id"] for each in told["versions"]] == [second.version_id, first.version_id]
    assert told["versions"][0]["eligible"] is True
    one = given(caller.get("/objects/why", bucket="media", key="clips/a b", version=first.version_id))
    assert [each["version_id"] for each in one["versions"]] == [first.version_id]
    early = given(caller.get("/objects/why", bucket="media", key="clips/a b", as_of="2020-01-02T00:00:00Z"))
    assert early["versions"][0]["reason"] == "unscheduled"  # no policy was in force then
    assert early["more"] is False


def test_of_many_versions_the_newest_are_told_and_that_there_are_more(world: Acting) -> None:
    for _ in range(11):
        version(world.bucket, world.tenant, "clips/many")
    told = given(program("objects:read").get("/objects/why", bucket="media", key="clips/many"))
    assert (len(told["versions"]), told["more"]) == (10, True)


def test_of_more_around_an_object_than_is_read_for_an_answer_the_command_is_named(
    world: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = program("objects:read")
    version(world.bucket, world.tenant, "clips/a", series="s")
    version(world.bucket, world.tenant, "clips/b", series="s")
    for key in ("clips/c", "clips/c", "clips/d"):
        version(world.bucket, world.tenant, key)
    original = {"role": "derivative", "original_bucket": world.bucket}
    version(world.bucket, world.tenant, "clips/small", **original, original_key="clips/c")
    for name in ("d1", "d2"):
        version(world.bucket, world.tenant, name, **original, original_key="clips/d")
    version(world.bucket, world.tenant, "clips/e")
    version(world.bucket, world.tenant, "clips/e", gone_at=timezone.now(), gone_reason="vanished")
    version(world.bucket, world.tenant, "clips/tiny", **original, original_key="clips/e")
    monkeypatch.setattr(why, "READ", 1)
    for key in ("clips/a", "clips/c", "clips/small", "clips/d", "clips/tiny"):
        told = problem(caller.get("/objects/why", bucket="media", key=key), 409, "conflict")
        assert "manage.py why" in told["detail"], key
    monkeypatch.setattr(why, "READ", 2)
    for key in ("clips/a", "clips/c", "clips/small", "clips/d", "clips/tiny"):
        given(caller.get("/objects/why", bucket="media", key=key))


def test_of_many_versions_of_a_key_the_catalogue_is_read_as_often_as_of_one(world: Acting) -> None:
    caller, costs = program("objects:read"), []
    for _ in range(2):
        version(world.bucket, world.tenant, "clips/many")
        with CaptureQueriesContext(connection) as counted:
            given(caller.get("/objects/why", bucket="media", key="clips/many"))
        costs.append(
            [each["sql"].partition('"retention_objectversion"')[1] for each in counted].count(
                '"retention_objectversion"'
            )
        )
    assert costs[0] == costs[1] > 0


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [
        ({"bucket": "media"}, 422, "invalid"),
        ({"bucket": "nowhere", "key": "a"}, 422, "invalid"),
        ({"bucket": "media", "key": "nowhere"}, 404, "not-found"),
        ({"bucket": "media", "key": "clips/a", "version": "other"}, 404, "not-found"),
        ({"bucket": "media", "key": "clips/a", "as_of": "tomorrow"}, 422, "invalid"),
    ],
)
def test_an_object_that_is_not_named_exactly_is_not_there(world: Acting, query: Any, status: int, kind: str) -> None:
    world.put("clips/a")
    problem(program("objects:read").get("/objects/why", **query), status, kind)


def test_objects_of_other_tenants_are_not_there_also_in_a_bucket_that_is_shared(world: Acting) -> None:
    other = Tenant.objects.create(code="other", name="Other")
    world.put("clips/a")
    version(world.bucket, other, "own")
    stranger = program("objects:read", tenants=["other"])
    problem(stranger.get("/objects/why", bucket="media", key="clips/a"), 404, "not-found")
    assert given(stranger.get("/objects/why", bucket="media", key="own"))["versions"]


def test_receipts_are_listed_by_time_narrowed_and_in_pages_that_cost_the_same() -> None:
    world = destroyed()
    caller = program("receipts:read")
    costs, found, cursor = [], [], ""
    while cursor is not None:
        with CaptureQueriesContext(connection) as counted:
            told = given(caller.get("/receipts", limit=4, **({"cursor": cursor} if cursor else {})))
        costs.append(len(counted))
        found += [each["id"] for each in told["items"]]
        cursor = told["next"]
    assert found == list(Receipt.objects.order_by("-issued_at", "-pk").values_list("pk", flat=True))
    assert len(set(costs)) == 1
    run = CleanupRun.objects.get()
    for query, number in (
        ({"run": run.key}, len(KEYS)), ({"outcome": "deleted"}, len(KEYS)), ({"outcome": "already_absent"}, 0),
        ({"tenant": "acme", "bucket": "media", "policy": "originals"}, len(KEYS)),
        ({"issued_before": "2020-01-01T00:00:00Z"}, 0), ({"issued_from": "2020-01-01T00:00:00Z"}, len(KEYS)),
    ):  # fmt: skip
        assert len(given(caller.get("/receipts", **query))["items"]) == number, query
    for query, field in (
        ({"run": "nowhere"}, "run"), ({"bucket": "nowhere"}, "bucket"), ({"outcome": "gone"}, "outcome"),
        ({"issued_from": "2021-01-01T00:00:00Z", "issued_before": "2020-01-01T00:00:00Z"}, "issued_before"),
    ):  # fmt: skip
        assert field in problem(caller.get("/receipts", **query), 422, "invalid")["errors"], query
    assert world.tenant.code == "acme"


def test_a_list_that_takes_too_long_is_given_up(world: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted(world)

    def slow(request: Any) -> Any:
        return Receipt.objects.extra(where=["pg_sleep(5)::text = ''"])

    monkeypatch.setattr(cursors, "BUDGET_MS", 50)
    monkeypatch.setattr(receipts, "seen", slow)
    answer = program("receipts:read").get("/receipts")
    assert "ask for less" in problem(answer, 503, "busy")["detail"]
    assert int(answer["Retry-After"]) > 0


def test_a_document_is_handed_out_byte_for_byte_and_that_is_on_record(world: Acting) -> None:
    deleted(world)
    receipt = Receipt.objects.get()
    caller = program("receipts:read", tenants=["acme"])
    answer = caller.get(f"/receipts/{receipt.pk}")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    assert answer.content == bytes(receipt.body)
    assert sha256(answer.content).hexdigest() == given(caller.get("/receipts"))["items"][0]["sha256"]
    assert AuditEvent.objects.get(action="receipt.downloaded").actor == caller.account
    problem(caller.get(f"/receipts/{receipt.pk + 1}"), 404, "not-found")


@committed
def test_an_export_is_on_record_exact_the_same_in_both_formats_and_of_ones_own_tenants() -> None:
    destroyed()
    caller = program("receipts:read")
    sheet = caller.get("/receipts/export")
    assert (sheet.status_code, sheet["Content-Type"]) == (200, "text/csv; charset=utf-8")
    sent = b"".join(sheet.streaming_content)
    export = ReceiptExport.objects.get(pk=int(sheet["X-Export"]))
    assert (export.state, export.rows, export.requested_by) == ("done", len(KEYS), caller.account)
    assert export.parts.get().sha256 == sha256(sent).hexdigest()
    rows = list(csv.DictReader(io.StringIO(sent.decode(), newline="")))
    assert [row["key"] for row in rows] == list(KEYS)
    lines = b"".join(caller.get("/receipts/export", format="jsonl").streaming_content).decode().split("\n")
    assert lines.pop() == ""
    told = [json.loads(line) for line in lines]
    assert [each["key"] for each in told] == list(KEYS)
    assert [each["body"].encode() for each in told] == [
        bytes(each.body) for each in Receipt.objects.order_by("issued_at", "pk")
    ]
    assert told[0]["further_names"][0][:2] == ["media", "plain.webm"]
    assert told[0]["targets"] == 2
    Tenant.objects.create(code="other", name="Other")
    nothing = b"".join(program("receipts:read", tenants=["other"]).get("/receipts/export").streaming_content)
    assert len(nothing.splitlines()) == 1  # the header
    assert ReceiptExport.objects.filter(state="done").count() == 3


@committed
def test_an_export_that_nobody_receives_ends_so_on_record_in_both_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed(("a", "b"))
    monkeypatch.setattr(copying, "PIECE", 1)
    monkeypatch.setattr(receipts, "PIECE", 1)
    caller = program("receipts:read")
    for form in ("csv", "jsonl"):
        answer = caller.get("/receipts/export", format=form)
        next(iter(answer))
        unread = caller.get("/receipts/export", format=form)
        for each in (answer, unread):
            each.close()
            assert ReceiptExport.objects.get(pk=int(each["X-Export"])).state == "aborted", form
    monkeypatch.setattr(exports, "PART_ROWS", 1)
    assert "have files made" in problem(caller.get("/receipts/export"), 409, "conflict")["detail"]


@committed
def test_an_export_that_breaks_on_its_way_to_json_ends_as_failed_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    destroyed(("a", "b"))

    def broken(row: Any) -> Any:
        raise ValueError("no such cell")

    monkeypatch.setattr(receipts, "members", broken)
    answer = program("receipts:read").get("/receipts/export", format="jsonl")
    with pytest.raises(ValueError, match="no such cell"):
        b"".join(answer.streaming_content)
    export = ReceiptExport.objects.get(pk=int(answer["X-Export"]))
    assert (export.state, "no such cell" in export.trouble) == ("failed", True)


def test_a_document_of_many_names_fits_into_a_line() -> None:
    csv.field_size_limit(131_072)  # as Python has it
    body = "x" * 200_000

    def content() -> Generator[bytes, None, None]:
        yield b"receipt,body\r\n"
        yield f"1,{body}\r\n".encode()

    assert json.loads(b"".join(receipts.lines(content()))) == {"receipt": 1, "body": body}


def test_receipts_of_other_tenants_are_not_there() -> None:
    destroyed(("a",))
    Tenant.objects.create(code="other", name="Other")
    stranger = program("receipts:read", tenants=["other"])
    assert given(stranger.get("/receipts"))["items"] == []
    problem(stranger.get("/receipts", tenant="acme"), 422, "invalid")
    problem(stranger.get("/receipts", run=CleanupRun.objects.get().key), 422, "invalid")
    problem(stranger.get(f"/receipts/{Receipt.objects.get().pk}"), 404, "not-found")


def test_a_bucket_that_others_use_is_no_more_there_than_one_that_nobody_has() -> None:
    destroyed(("a",))
    Tenant.objects.create(code="other", name="Other")
    stranger = program("receipts:read", tenants=["other"])
    for path in ("/receipts", "/receipts/export"):
        told = problem(stranger.get(path, bucket="media"), 422, "invalid")
        nowhere = problem(stranger.get(path, bucket="nowhere"), 422, "invalid")
        assert told["detail"].replace("media", "nowhere") == nowhere["detail"], path


def test_a_command_of_others_is_no_more_there_than_one_that_nobody_has(world: Acting) -> None:
    command = deleted(world)
    Tenant.objects.create(code="other", name="Other")
    stranger = program("commands:read", tenants=["other"])
    nowhere = problem(stranger.get("/commands", key="nowhere"), 404, "not-found")["detail"]
    for key in (command.key, command.event_id):
        assert problem(stranger.get("/commands", key=key), 404, "not-found")["detail"] == nowhere.replace(
            "nowhere", key
        )


def test_no_answer_of_a_dead_command_says_more_than_its_own_tenant_sees(world: Acting) -> None:
    command = dead(world)
    told = given(program("commands:read", tenants=["acme"]).get("/commands", key=command.key))
    assert told["next"]["turn"] == "person"
