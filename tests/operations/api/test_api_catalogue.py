"""Rows of the catalogue by the API: recorded as the command does, bad ones told by their line, whole or not at all."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test import RequestFactory

from cleanup_project.base.models import AuditEvent
from cleanup_project.operations.api import catalogue
from cleanup_project.operations.api.problems import Problem
from retention import freshness
from retention.models import Bucket, CatalogueSync, ObjectVersion, Tenant
from retention.sources import importing
from tests.operations.api.calling import Program, given, problem, program

pytestmark = pytest.mark.django_db

AT = "2026-01-01T00:00:00Z"
HEADER = "key,version_id,etag,size,last_modified,tenant"
ROW = "{},v1,d41d8cd98f00b204e9800998ecf8427e,100,2020-05-17T10:30:00Z,acme"


def send(caller: Program, text: str, media: str = "text/csv", observed_at: str = AT, bucket: str = "media") -> Any:
    return caller.post(f"/catalogue/{bucket}/upload?observed_at={observed_at}", text, content_type=media)


def test_rows_are_recorded_with_what_they_state_and_who_sent_them(tenant: Tenant, bucket: Bucket) -> None:
    caller = program("catalogue:write")
    told = given(send(caller, "\n".join([HEADER, ROW.format("a"), ROW.format("b/ü")]) + "\n"))
    assert told == {
        "observed_at": "2026-01-01T00:00:00.000000Z", "rows": 2, "recorded": 2, "known": 0, "errors": [], "stopped": False,
    }  # fmt: skip
    rows = ObjectVersion.objects.order_by("key")
    assert [(each.key, each.tenant, each.size) for each in rows] == [("a", tenant, 100), ("b/ü", tenant, 100)]
    begun, ended = AuditEvent.objects.filter(action__startswith="catalogue.").order_by("pk")
    assert (begun.action, ended.action) == ("catalogue.upload_begun", "catalogue.uploaded")
    assert begun.actor == ended.actor == caller.account
    assert (ended.after["recorded"], ended.after["sha256"]) == (2, begun.after["sha256"])


def test_an_upload_makes_no_catalogue_fresher_however_little_it_holds(tenant: Tenant, bucket: Bucket) -> None:
    caller = program("catalogue:write")
    for text, media in (
        (f"{HEADER}\n", "text/csv"),
        ("\n", "application/x-ndjson"),
        (f"{HEADER}\n{ROW.format('a')}\n", "text/csv"),
    ):
        given(send(caller, text, media, observed_at="2999-01-01T00:00:00Z"))
    assert not CatalogueSync.objects.exists()
    assert freshness.findings(bucket, [""])[0].kind == freshness.STALE


def test_good_rows_are_kept_and_bad_ones_told_by_their_line(tenant: Tenant, bucket: Bucket) -> None:
    good = {"key": "b", "version_id": "v", "etag": "e", "size": 1, "last_modified": AT}
    text = "\n".join(['{"key": "a"}', json.dumps(good)])
    told = given(send(program("catalogue:write"), text, "application/x-ndjson"))
    assert (told["rows"], told["recorded"]) == (2, 1)
    assert [each["where"] for each in told["errors"]] == ["line 1"]
    assert "version_id" in told["errors"][0]["error"]


def test_a_header_that_is_wrong_records_nothing_and_the_next_upload_works(tenant: Tenant, bucket: Bucket) -> None:
    caller = program("catalogue:write")
    assert "missing" in problem(send(caller, "key,size\na,1\n"), 409, "conflict")["detail"]
    assert given(send(caller, f"{HEADER}\n{ROW.format('a')}\n"))["recorded"] == 1


@pytest.mark.parametrize("header", ['"key,size\n', "x" * 200_000, "key,\0"])
def test_a_first_line_that_is_no_csv_is_refused_and_how_it_ended_is_on_record(
    tenant: Tenant, bucket: Bucket, header: str
) -> None:
    told = problem(send(program("catalogue:write"), header), 409, "conflict")
    assert "first line" in told["detail"]
    begun, failed = AuditEvent.objects.filter(action__startswith="catalogue.").order_by("pk")
    assert (begun.action, failed.action) == ("catalogue.upload_begun", "catalogue.upload_failed")
    assert failed.after["error"] == told["detail"]
    assert failed.after["sha256"] == begun.after["sha256"]


def test_an_import_that_breaks_leaves_nothing_behind_in_its_connection(
    tenant: Tenant, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = program("catalogue:write")
    caller.client.raise_request_exception = False

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(importing.catalogue, "record", broken)
        problem(send(caller, f"{HEADER}\n{ROW.format('a')}\n"), 500, "internal-error")
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('catalogue_named')")
        assert cursor.fetchone() == (None,)
    assert given(send(caller, f"{HEADER}\n{ROW.format('a')}\n"))["recorded"] == 1


def test_what_is_too_large_is_told_the_command_that_takes_it(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    told = problem(send(program("catalogue:write"), "x" * (catalogue.AT_MOST + 1)), 413, "too-large")
    assert "manage.py catalogue import" in told["detail"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"media": "application/json"}, 415),
        ({"media": "multipart/form-data; boundary=x"}, 415),
        ({"bucket": "nowhere"}, 422),
        ({"observed_at": "2026-01-01"}, 422),
        ({"observed_at": ""}, 422),
    ],
)
def test_a_file_that_does_not_say_what_it_is_is_refused(bucket: Bucket, options: Any, status: int) -> None:
    answer = send(program("catalogue:write"), HEADER, **options)
    problem(answer, status, "invalid" if status == 422 else "unsupported-media-type")
    assert not AuditEvent.objects.filter(action__startswith="catalogue.").exists()


def test_a_token_of_some_tenants_uploads_nothing(tenant: Tenant, bucket: Bucket) -> None:
    Tenant.objects.create(code="other", name="Other")
    limited = program("catalogue:write", tenants=["acme"])
    given(send(program("catalogue:write"), f"{HEADER}\n{ROW.format('a')}\n"))
    told = problem(send(limited, f"{HEADER}\n{ROW.format('b')}\n"), 403, "not-permitted")
    assert "every tenant" in told["detail"]
    assert ObjectVersion.objects.count() == 1


def test_a_body_that_ends_early_is_not_recorded_as_if_it_were_all() -> None:
    request = RequestFactory().post("/", b"half", content_type="text/csv")
    request.META["CONTENT_LENGTH"] = "5"
    with pytest.raises(Problem, match="ended before its length"), catalogue.received(request):
        pass
