"""Importing files: what a row must look like, what happens to one that does not, and what a file may not overwrite."""

import gc
import gzip
import hashlib
import json
import os
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unicodedata import normalize
from urllib.parse import quote, quote_plus

import psycopg
import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from retention import catalogue
from retention.exceptions import RetentionError
from retention.models import Bucket, KeyRule, ObjectVersion, Role, Tenant
from retention.sources.files import BadRow, instant
from retention.sources.importing import Format, Imported, import_file
from retention.sources.inventory import decoded
from retention.sources.listing import sync
from tests.retention.catalogue_stores import Shows, listed

pytestmark = pytest.mark.django_db

ETAG = "d41d8cd98f00b204e9800998ecf8427e"
GOOD: dict[str, Any] = {
    "key": "a",
    "version_id": "v1",
    "etag": ETAG,
    "size": "100",
    "last_modified": "2020-05-17T10:30:00Z",
}
HEADER = ",".join(GOOD)
Import = Callable[..., Imported]


@pytest.fixture(params=["csv", "jsonl"])
def bring(request: pytest.FixtureRequest, bucket: Bucket, tmp_path: Path) -> Import:
    """Writes rows to a file of either format, with GOOD as what they do not say, and imports it."""

    def make(*rows: dict[str, Any], **options: Any) -> Imported:
        names = list(dict.fromkeys(name for row in ({**GOOD}, *rows) for name in row))
        whole = [{name: (GOOD | row).get(name, "") for name in names} for row in rows]
        path = tmp_path / f"rows.{request.param}"
        if request.param == "csv":
            lines = [",".join(names), *(",".join(csv_field(row[name]) for name in names) for row in whole)]
        else:
            lines = [json.dumps(row) for row in whole]
        path.write_bytes(("\n".join(lines) + "\n").encode(errors="surrogatepass"))
        return import_file(bucket, path, format=request.param, **options)

    return make


@pytest.fixture
def first_line(bring: Import, request: pytest.FixtureRequest) -> int:
    """The line of the first row: CSV has a header."""
    return 2 if request.node.callspec.params["bring"] == "csv" else 1


def csv_field(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'


def import_text(bucket: Bucket, tmp_path: Path, text: str, format: Format = "csv", **options: Any) -> Imported:
    path = tmp_path / "text"
    path.write_bytes(text.encode())
    return import_file(bucket, path, format=format, **options)


def row(key: str) -> ObjectVersion:
    return ObjectVersion.objects.get(key=key)


class TestRows:
    def test_become_versions_with_the_facts_of_the_rule(self, bring: Import, bucket: Bucket, tenant: Tenant) -> None:
        KeyRule.objects.create(bucket=bucket, position=1, pattern="{_*}", tenant=tenant, retention_class="video")
        done = bring({"key": "a", "storage_class": "GLACIER", "is_latest": "true"}, {"key": "b", "version_id": "null"})
        assert (done.rows, done.recorded, done.known, done.errors, done.stopped) == (2, 2, 0, [], False)
        found = row("a")
        assert (found.version_id, found.etag, found.size, found.storage_class) == ("v1", ETAG, 100, "GLACIER")
        assert (found.stored_at, found.is_latest) == (datetime(2020, 5, 17, 10, 30, tzinfo=UTC), True)
        assert (found.tenant, found.retention_class, found.source, found.listed_at) == (tenant, "video", "import", None)
        assert len(row("b").incarnation) == 32
        assert not row("b").is_latest, "unless the file says so"

    def test_may_state_every_fact(self, bring: Import, bucket: Bucket) -> None:
        other = Tenant.objects.create(code="other", name="Other")
        done = bring(
            {
                "key": "a",
                "tenant": "other",
                "asset": "A",
                "series": "S",
                "retention_class": "C",
                "role": "derivative",
                "original_key": "o",
                "original_version_id": "ov",
                "dated_at": "2019-01-01T00:00:00+02:00",
            }
        )
        found = row("a")
        assert done.errors == []
        assert (found.tenant, found.asset, found.series, found.retention_class) == (other, "A", "S", "C")
        assert (found.role, found.original_bucket, found.original_key) == (Role.DERIVATIVE, bucket, "o")
        assert (found.original_version_id, found.standalone) == ("ov", True)
        assert found.dated_at == datetime(2018, 12, 31, 22, tzinfo=UTC)

    def test_a_long_or_odd_asset_becomes_a_digest_and_its_series_with_it(self, bring: Import) -> None:
        bring({"asset": "two words"})
        assert row("a").asset.startswith("sha256-")
        assert row("a").series == row("a").asset

    def test_markers_need_neither_etag_nor_size(self, bring: Import) -> None:
        assert bring({"is_delete_marker": "true", "etag": "", "size": ""}).errors == []
        assert (row("a").is_delete_marker, row("a").size) == (True, 0)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"key": ""}, "the key is empty"),
            ({"key": "k" * 1025}, "the key has 1025 bytes; at most 1024"),
            (
                {"version_id": ""},
                "the version id is empty: write null for an object that was stored without versioning",
            ),
            ({"etag": ""}, "the etag is empty"),
            ({"size": "-1"}, "the size is '-1'; it must be a whole number of bytes, not negative"),
            ({"size": "1e3"}, "the size is '1e3'"),
            ({"size": "²"}, "the size is '²'"),
            ({"size": "9" * 19}, "the size is 9999999999999999999; it must be from 0"),
            ({"last_modified": "yesterday"}, "last_modified is 'yesterday', which is no date and time"),
            ({"last_modified": "2020-05-17T10:30:00"}, "last_modified is '2020-05-17T10:30:00', without a time zone"),
            ({"last_modified": "2020-05-17"}, "last_modified is '2020-05-17', without a time zone"),
            (
                {"last_modified": "0001-01-01T00:00:00+01:00"},
                "last_modified is '0001-01-01T00:00:00+01:00', out of range",
            ),
            ({"dated_at": "2020-02-30T00:00:00Z"}, "dated_at is '2020-02-30T00:00:00Z', which is no date"),
            ({"is_latest": "maybe"}, "is_latest is 'maybe'; write true or false"),
            ({"tenant": "nobody"}, "there is no tenant 'nobody': add it first, or correct its code"),
            ({"role": "copy"}, "the role is 'copy'; it must be original or derivative"),
            ({"role": "derivative"}, "a derivative needs original_key"),
            ({"original_key": "o"}, "it names an original, so its role must be derivative"),
            ({"role": "derivative", "original_key": "a"}, "it names itself as its original"),
            ({"retention_class": "c" * 201}, "its retention class has 201 characters"),
            ({"series": "s" * 1025}, "the series has 1025 bytes"),
            ({"asset": "a" * 1025}, "the asset has 1025 bytes"),
        ],
    )
    def test_that_are_wrong_are_reported_by_line_and_the_others_kept(
        self, wrong: dict[str, str], message: str, bring: Import, first_line: int
    ) -> None:
        done = bring({"key": "before"}, wrong, {"key": "after"})
        ((where, error),) = done.errors
        assert where == f"line {first_line + 1}"
        assert error.startswith(message)
        assert set(ObjectVersion.objects.values_list("key", flat=True)) == {"before", "after"}
        assert (done.rows, done.recorded, done.known) == (3, 2, 0)

    def test_duplicates_name_the_first_of_them_in_a_page_and_across_pages(
        self, bring: Import, first_line: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(catalogue, "PAGE", 2)
        done = bring({}, {}, {"key": "b"}, {"size": "7"}, {"version_id": "v2"})
        message = f"it names the same version as line {first_line}: remove one of the two"
        assert done.errors == [(f"line {first_line + 1}", message), (f"line {first_line + 3}", message)]
        assert (done.recorded, ObjectVersion.objects.get(key="a", version_id="v1").size) == (3, 100)

    def test_too_many_bad_ones_stop_the_file_and_good_ones_until_then_stay(self, bring: Import) -> None:
        done = bring({"key": "good"}, *[{"size": "-1"}] * 5, {"key": "never"}, max_errors=3)
        assert (done.stopped, len(done.errors), done.rows) == (True, 3, 4)
        assert list(ObjectVersion.objects.values_list("key", flat=True)) == ["good"]

    def test_refusals_stop_the_file_as_well(self, bring: Import, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalogue, "PAGE", 2)
        done = bring({"key": "good"}, {"key": ""}, {"key": "never"}, max_errors=1)
        assert (done.stopped, list(ObjectVersion.objects.values_list("key", flat=True))) == (True, ["good"])

    @pytest.mark.parametrize(
        "key",
        [
            *(
                "a+b",
                "a b",
                "a%2Bb",
                "a//b",
                "/a",
                "a/",
                ",",
                '"',
                "'",
                "\\",
                "line\nbreak",
                "carriage\rreturn",
                "\r\n",
            ),
            *(
                "\x01",
                "\x7f",
                "\t",
                " ",
                "k" * 1024,
                normalize("NFC", "é"),
                normalize("NFD", "é"),
                "\U0001f3ac",
                "\ufffe",
            ),
        ],
        ids=ascii,
    )
    def test_keys_are_kept_exactly(self, key: str, bring: Import) -> None:
        assert bring({"key": key}).errors == []
        assert list(ObjectVersion.objects.values_list("key", flat=True)) == [key]


class TestFiles:
    def test_lines_are_those_of_the_file_though_a_field_spans_some(self, bucket: Bucket, tmp_path: Path) -> None:
        text = f'{HEADER}\n"a\nb\nc",v1,e,1,2020-01-01T00:00:00Z\n\nb,v1,e,-1,2020-01-01T00:00:00Z\n'
        done = import_text(bucket, tmp_path, text)
        assert [where for where, _ in done.errors] == ["line 6"]

    @pytest.mark.parametrize(
        ("header", "message"),
        [
            ("key,version_id", "missing: etag, size, last_modified"),
            ("", "missing: key, version_id"),
            (f"{HEADER},tennant", "Unknown columns: tennant. Known: key, "),
            (f"{HEADER},key", "names a column twice"),
        ],
    )
    def test_a_wrong_header_is_an_error(self, header: str, message: str, bucket: Bucket, tmp_path: Path) -> None:
        with pytest.raises(RetentionError, match=message):
            import_text(bucket, tmp_path, header + "\n")

    def test_an_empty_file_is_an_error(self, bucket: Bucket, tmp_path: Path) -> None:
        with pytest.raises(RetentionError, match="The first line must name"):
            import_text(bucket, tmp_path, "")

    def test_a_missing_file_is_an_error(self, bucket: Bucket, tmp_path: Path) -> None:
        with pytest.raises(RetentionError, match=r"none\.csv cannot be read: No such file"):
            import_file(bucket, tmp_path / "none.csv", format="csv")

    def test_broken_csv_is_a_bad_row(self, bucket: Bucket, tmp_path: Path) -> None:
        good = "v1,e,1,2020-01-01T00:00:00Z"
        done = import_text(bucket, tmp_path, f'{HEADER}\n"a"x,{good}\nshort,v1\nb,{good}\n"open,{good}\n')
        assert [(where, error.partition(":")[0]) for where, error in done.errors] == [
            ("line 2", "it is not CSV"),
            ("line 3", "it has 2 fields where the header has 5"),
            ("line 5", "it is not CSV"),
        ]
        assert done.recorded == 1

    def test_bytes_that_are_not_utf_8_are_a_bad_row(self, bucket: Bucket, tmp_path: Path) -> None:
        path = tmp_path / "latin.csv"
        path.write_bytes(f"{HEADER}\ncaf".encode() + b"\xe9,v1,e,1,2020-01-01T00:00:00Z\n")
        assert import_file(bucket, path, format="csv").errors == [("line 2", "the key is not UTF-8 text")]

    def test_a_byte_order_mark_is_no_part_of_the_header(self, bucket: Bucket, tmp_path: Path) -> None:
        assert import_text(bucket, tmp_path, f"\ufeff{HEADER}\na,v1,e,1,2020-01-01T00:00:00Z\n").recorded == 1

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{", "it is not JSON"),
            ("[" * 100_000, "it is not JSON"),
            ("[]", "it is no JSON object"),
            (json.dumps(GOOD | {"tennant": "x"}), "unknown names: tennant"),
            (json.dumps(GOOD | {"key": 7}), "key must be a string, not 7"),
            (json.dumps(GOOD | {"size": True}), "size must be a string, not true"),
            (json.dumps(GOOD | {"key": "nul\x00"}), "the key contains NUL"),
            (json.dumps(GOOD | {"key": "lone\ud800"}), "the key is not UTF-8 text"),
            (json.dumps({"key": "a"}), "it lacks version_id, etag, size, last_modified"),
        ],
    )
    def test_broken_json_is_a_bad_row(self, line: str, message: str, bucket: Bucket, tmp_path: Path) -> None:
        done = import_text(bucket, tmp_path, f"\n{line}\n{json.dumps(GOOD)}\n", "jsonl")
        assert [(where, error[: len(message)]) for where, error in done.errors] == [("line 2", message)]
        assert done.recorded == 1

    def test_json_numbers_truth_and_null_are_taken(self, bucket: Bucket, tmp_path: Path) -> None:
        line = json.dumps(GOOD | {"size": 7, "is_latest": True, "asset": None})
        assert import_text(bucket, tmp_path, line, "jsonl").errors == []
        assert (row("a").size, row("a").is_latest, row("a").asset) == (7, True, "a")

    def test_hold_as_of_their_last_change_or_as_stated_but_never_later_than_now(
        self, bucket: Bucket, tmp_path: Path
    ) -> None:
        path = tmp_path / "rows.csv"
        path.write_text(f"{HEADER}\na,v1,e,1,2020-01-01T00:00:00Z\n")
        changed = datetime(2024, 5, 1, 12, tzinfo=UTC)
        os.utime(path, (changed.timestamp(), changed.timestamp()))
        assert import_file(bucket, path, format="csv").observed_at == changed
        assert row("a").observed_at == changed
        again = import_file(bucket, path, format="csv")
        assert (again.recorded, again.known) == (0, 1)
        stated = changed + timedelta(days=1)
        assert import_file(bucket, path, format="csv", observed_at=stated).recorded == 1
        future = import_file(bucket, path, format="csv", observed_at=datetime(2999, 1, 1, tzinfo=UTC))
        assert stated < future.observed_at <= catalogue.now()

    def test_memory_does_not_grow_with_the_file(self, bucket: Bucket, tmp_path: Path) -> None:
        def peak(rows: int) -> int:
            path = tmp_path / f"{rows}.csv"
            lines = (f"{rows}-{number},v1,e,1,2020-01-01T00:00:00Z" for number in range(rows))
            path.write_text("\n".join([HEADER, *lines]))
            gc.collect()
            tracemalloc.start()
            assert import_file(bucket, path, format="csv").recorded == rows
            found = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return found

        peak(10)
        # Four times the rows; what cycles the collector has not met yet differs by a third from run to run.
        assert peak(8000) < 2 * peak(2000)

    def test_an_import_waits_for_no_sync(self, bucket: Bucket, tmp_path: Path) -> None:
        with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as other:
            other.execute("SELECT pg_advisory_lock(%s, %s)", [catalogue.LOCK_CLASS, bucket.pk])
            with pytest.raises(catalogue.BucketBusy):
                import_text(bucket, tmp_path, f"{HEADER}\n")


class TestAgainstListings:
    def test_what_an_import_stated_outlives_the_listings_that_follow(self, bucket: Bucket, bring: Import) -> None:
        other = Tenant.objects.create(code="other", name="Other")
        bring({"tenant": "other", "dated_at": "2019-01-01T00:00:00Z"})
        bring({"key": "t", "role": "derivative", "original_key": "a", "original_version_id": "v1"})
        KeyRule.objects.create(bucket=bucket, position=1, pattern="{_*}", retention_class="video")
        sync(bucket, store=Shows(listed("a", size=7), listed("t")))
        found = row("a")
        assert (found.tenant, found.dated_at) == (other, datetime(2019, 1, 1, tzinfo=UTC))
        assert (found.retention_class, found.size, found.source) == ("video", 7, "listing")
        assert (row("t").original_key, row("t").original_version_id, row("t").standalone) == ("a", "v1", False)
        assert sorted(found.stated) == ["dated_at", "tenant"]

    def test_a_later_import_states_anew(self, bring: Import, bucket: Bucket) -> None:
        bring({"retention_class": "one", "asset": "A"})
        bring({"retention_class": "two"}, observed_at=catalogue.now())
        assert (row("a").retention_class, row("a").asset) == ("two", "A")
        bring({"role": "derivative", "original_key": "o"}, observed_at=catalogue.now())
        bring({"role": "original"}, observed_at=catalogue.now())
        assert (row("a").role, row("a").original_key, row("a").standalone) == (Role.ORIGINAL, "", True)

    def test_an_import_adds_facts_but_does_not_overwrite_what_a_listing_showed(
        self, bring: Import, bucket: Bucket
    ) -> None:
        sync(bucket, store=Shows(listed("a")))
        before = row("a")
        bring(
            {"size": "1", "etag": "other", "last_modified": "1999-01-01T00:00:00Z", "is_latest": "false", "asset": "A"},
            observed_at=catalogue.now(),
        )
        after = row("a")
        assert (after.size, after.etag, after.stored_at) == (before.size, before.etag, before.stored_at)
        assert (after.is_latest, after.asset, after.listed_at) == (True, "A", before.listed_at)

    def test_a_file_older_than_the_listing_changes_nothing_and_says_so(self, bring: Import, bucket: Bucket) -> None:
        sync(bucket, store=Shows(listed("a")))
        done = bring({"asset": "A"}, observed_at=catalogue.now() - timedelta(days=1))
        assert (done.recorded, done.known, row("a").asset) == (0, 1, "a")


SCHEMA = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass"
CREATED = datetime(2024, 5, 1, 1, tzinfo=UTC)


class Inventories:
    """Writes an inventory as S3 lays it out: destination/source/config/date/manifest.json and …/config/data/*.csv.gz."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "2024-05-01T01-00Z"
        self.data = root / "data"
        self.folder.mkdir()
        self.data.mkdir()

    def write(self, *files: list[list[str]], **changes: Any) -> Path:
        listed_files = []
        for number, rows in enumerate(files):
            text = "".join(",".join(f'"{field}"' for field in row) + "\n" for row in rows)
            path = self.data / f"part-{number}.csv.gz"
            path.write_bytes(gzip.compress(text.encode()))
            md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
            listed_files.append({"key": f"dest//media/daily/data/{path.name}", "size": 1, "MD5checksum": md5})
        manifest = {
            "sourceBucket": "media",
            "destinationBucket": "arn:aws:s3:::inventories",
            "version": "2016-11-30",
            "creationTimestamp": str(int(CREATED.timestamp() * 1000)),
            "fileFormat": "CSV",
            "fileSchema": SCHEMA,
            "files": listed_files,
        }
        path = self.folder / "manifest.json"
        path.write_text(json.dumps(manifest | changes))
        return path


def inventory_row(key: str, version_id: str = "v1", **changes: str) -> list[str]:
    row = {
        "Bucket": "media",
        "Key": key,
        "VersionId": version_id,
        "IsLatest": "true",
        "IsDeleteMarker": "false",
        "Size": "100",
        "LastModifiedDate": "2020-05-17T10:30:00.000Z",
        "ETag": ETAG,
        "StorageClass": "STANDARD",
    }
    return list((row | changes).values())


class TestInventory:
    @pytest.fixture
    def inventories(self, tmp_path: Path) -> Inventories:
        return Inventories(tmp_path)

    def test_is_read_through_its_manifest(self, inventories: Inventories, bucket: Bucket) -> None:
        path = inventories.write(
            [inventory_row("a"), inventory_row("b", "")],
            [inventory_row("c", "v9", IsLatest="false", IsDeleteMarker="true", Size="", ETag="")],
        )
        done = import_file(bucket, path, format="inventory")
        assert (done.rows, done.recorded, done.errors, done.observed_at) == (3, 3, [], CREATED)
        found = row("a")
        assert (found.source, found.observed_at, found.listed_at, found.is_latest) == ("inventory", CREATED, None, True)
        assert (row("b").version_id, row("c").is_delete_marker, row("c").is_latest) == ("null", True, False)

    @pytest.mark.parametrize(
        ("encoded", "key"),
        [
            ("a+b", "a b"),
            ("a%20b", "a b"),
            ("a%2Bb", "a+b"),
            ("a%25b", "a%b"),
            ("a%252Bb", "a%2Bb"),
            ("a%2Fb/c", "a/b/c"),
        ],
    )
    def test_keys_are_decoded(self, encoded: str, key: str, inventories: Inventories, bucket: Bucket) -> None:
        import_file(bucket, inventories.write([inventory_row(encoded)]), format="inventory")
        assert row(key).key == key

    @given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
    def test_decoding_undoes_either_encoding_of_a_space(self, key: str) -> None:
        assert decoded(quote_plus(key)) == key
        assert decoded(quote_plus(key, safe="/")) == key
        assert decoded(quote(key, safe="/")) == key

    @pytest.mark.parametrize("encoded", ["100%", "%zz", "a%2", "%FF"])
    def test_a_key_that_is_not_encoded_is_a_bad_row(
        self, encoded: str, inventories: Inventories, bucket: Bucket
    ) -> None:
        done = import_file(bucket, inventories.write([inventory_row(encoded), inventory_row("b")]), format="inventory")
        ((where, error),) = done.errors
        assert (where, done.recorded) == ("part-0.csv.gz line 1", 1)
        assert "encode" in error

    def test_rows_of_another_bucket_or_shape_are_bad(self, inventories: Inventories, bucket: Bucket) -> None:
        path = inventories.write([inventory_row("a", Bucket="other"), inventory_row("b")[:-1], inventory_row("c")])
        done = import_file(bucket, path, format="inventory")
        assert [error for _, error in done.errors] == [
            "it is about bucket 'other', the manifest about 'media'",
            "it has 8 fields where the manifest's fileSchema has 9",
        ]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"sourceBucket": "other"}, "about bucket other, not media"),
            ({"fileFormat": "Parquet"}, "in Parquet, which cannot be read. Configure the inventory"),
            ({"fileSchema": "Bucket, Key, Size"}, "lacks VersionId, IsLatest"),
            (
                {"files": [{"key": "x/gone.csv.gz", "MD5checksum": "0"}]},
                r"data file gone\.csv\.gz is missing; looked for",
            ),
            ({"creationTimestamp": "soon"}, "is no manifest of an S3 Inventory"),
            ({"files": None}, "is no manifest of an S3 Inventory"),
        ],
    )
    def test_a_manifest_that_cannot_be_used_says_why(
        self, changes: dict[str, Any], message: str, inventories: Inventories, bucket: Bucket
    ) -> None:
        path = inventories.write([inventory_row("a")], **changes)
        with pytest.raises(RetentionError, match=message):
            import_file(bucket, path, format="inventory")

    def test_nothing_is_recorded_when_any_file_is_damaged(self, inventories: Inventories, bucket: Bucket) -> None:
        path = inventories.write([inventory_row("a")], [inventory_row("b")])
        with (inventories.data / "part-1.csv.gz").open("ab") as file:
            file.write(b"x")
        with pytest.raises(RetentionError, match=r"part-1\.csv\.gz does not have the MD5 checksum"):
            import_file(bucket, path, format="inventory")
        assert not ObjectVersion.objects.exists()

    def test_a_file_that_is_no_gzip_is_an_error(self, inventories: Inventories, bucket: Bucket) -> None:
        (inventories.data / "plain.csv.gz").write_bytes(b"plain")
        md5 = hashlib.md5(b"plain", usedforsecurity=False).hexdigest()
        path = inventories.write(files=[{"key": "plain.csv.gz", "MD5checksum": md5}])
        with pytest.raises(RetentionError, match=r"plain\.csv\.gz cannot be unpacked"):
            import_file(bucket, path, format="inventory")

    def test_the_manifest_is_verified_where_its_checksum_is_there(
        self, inventories: Inventories, bucket: Bucket
    ) -> None:
        path = inventories.write([inventory_row("a")])
        checksum = path.with_name("manifest.checksum")
        checksum.write_text(hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() + "\n")
        assert import_file(bucket, path, format="inventory").recorded == 1
        checksum.write_text("0" * 32)
        with pytest.raises(RetentionError, match=r"does not match manifest\.checksum"):
            import_file(bucket, path, format="inventory")

    def test_data_files_may_lie_beside_the_manifest(self, inventories: Inventories, bucket: Bucket) -> None:
        path = inventories.write([inventory_row("a")])
        (inventories.data / "part-0.csv.gz").rename(inventories.folder / "part-0.csv.gz")
        assert import_file(bucket, path, format="inventory").recorded == 1


def test_times_are_read_in_any_zone_and_kept_in_utc() -> None:
    assert instant("x", "2020-01-01T00:00:00+05:30") == datetime(2019, 12, 31, 18, 30, tzinfo=UTC)
    with pytest.raises(BadRow):
        instant("x", "")
