"""`manage.py catalogue`: what it prints, and how it ends."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from retention import buckets
from retention.exceptions import RetentionError
from retention.management.commands import catalogue as command
from retention.models import Bucket, CatalogueSync, KeyRule, ObjectVersion, Tenant
from retention.rules import RuleError
from retention.rules_trial import fixed_beginning, try_rule
from retention.storage import Failure, FailureClass, StorageError
from retention.storage.memory import Fault, MemoryStore
from tests.retention.catalogue_stores import LONG_AGO
from tests.world import version

pytestmark = pytest.mark.django_db

HEADER = "key,version_id,etag,size,last_modified\n"
ROW = "a,v1,e,1,2020-01-01T00:00:00Z\n"


@pytest.fixture
def store(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """What every command takes for the bucket's store."""
    made = MemoryStore()
    made.create_bucket(buckets.ref(bucket))
    monkeypatch.setattr("retention.sources.listing.store_for", lambda place: made)
    monkeypatch.setattr(command, "store_for", lambda place: made)
    return made


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("catalogue", *arguments, stdout=out, stderr=out)
    return out.getvalue()


def fails(*arguments: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return caught.value


class TestSync:
    def test_says_what_it_found(self, bucket: Bucket, store: MemoryStore) -> None:
        store.put(buckets.ref(bucket), "a")
        assert run("sync", "media") == (
            "1 versions of media listed in 1 pages; 0 vanished, 0 refused, 0 survived their deletion.\n"
        )

    def test_prints_json_and_nothing_else(self, bucket: Bucket, store: MemoryStore) -> None:
        store.put(buckets.ref(bucket), "p/a")
        printed = json.loads(run("sync", "media", "--prefix", "p/", "--json"))
        assert (printed["bucket"], printed["prefix"], printed["versions"], printed["vanished"]) == ("media", "p/", 1, 0)
        assert printed["finished_at"] is not None

    def test_a_refusal_of_the_store_is_a_failure_that_says_how_to_go_on(
        self, bucket: Bucket, store: MemoryStore
    ) -> None:
        store.inject(Fault("list_versions", Failure.of(FailureClass.CREDENTIALS, "ExpiredToken")))
        error = fails("sync", "media")
        assert error.returncode == 1
        assert "ExpiredToken" in str(error)
        assert "run the sync again within 24 hours" in str(error)

    def test_an_interruption_by_the_keyboard_leaves_it_resumable(self, bucket: Bucket, store: MemoryStore) -> None:
        def interrupt(*call: Any) -> None:
            raise KeyboardInterrupt

        store.before_call = interrupt
        assert fails("sync", "media").returncode == 130
        assert CatalogueSync.objects.get().finished_at is None


class TestBuckets:
    def test_an_unknown_one_is_answered_with_those_there_are(self, bucket: Bucket) -> None:
        error = fails("sync", "medai")
        assert error.returncode == 2
        assert "There is no bucket 'medai' here. Known buckets: media@aws" in str(error)

    def test_without_any_the_answer_says_where_to_add_one(self) -> None:
        with pytest.raises(RetentionError, match="Known buckets: none; add one"):
            buckets.named("media")

    def test_two_of_one_name_are_told_apart_by_their_endpoint(self, bucket: Bucket) -> None:
        other = Bucket.objects.create(name="media", endpoint_url="http://127.0.0.1:9000")
        with pytest.raises(RetentionError, match="say which one: media@aws, media@http://127"):
            buckets.named("media")
        assert buckets.named("media@aws") == bucket
        assert buckets.named("media@http://127.0.0.1:9000") == other


class TestImport:
    def test_knows_the_format_by_the_name(self, bucket: Bucket, tmp_path: Path) -> None:
        path = tmp_path / "rows.CSV"
        path.write_text(HEADER + ROW)
        assert "1 rows read, 1 recorded" in run("import", str(path), "--bucket", "media")
        printed = json.loads(run("import", str(path), "--bucket", "media", "--json"))
        assert (printed["recorded"], printed["known"], printed["errors"]) == (0, 1, [])
        assert "say when they were true with --observed-at" in run("import", str(path), "--bucket", "media")
        later = run(
            "import", str(path), "--bucket", "media", "--observed-at", "2999-01-01T00:00:00Z", "--format", "csv"
        )
        assert "1 recorded" in later

    def test_an_unknown_format_is_a_usage_error(self, bucket: Bucket, tmp_path: Path) -> None:
        assert fails("import", str(tmp_path / "rows.txt"), "--bucket", "media").returncode == 2
        assert command.format_of(tmp_path / "manifest.json") == "inventory"
        assert command.format_of(tmp_path / "rows.ndjson") == "jsonl"

    def test_bad_rows_are_printed_with_their_line_and_fail(self, bucket: Bucket, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        path.write_text(HEADER + ROW + "b,,e,1,2020-01-01T00:00:00Z\n" * 2)
        out = io.StringIO()
        with pytest.raises(CommandError, match=r"1 bad rows were not recorded\. The file was left there") as caught:
            call_command(
                "catalogue", "import", str(path), "--bucket", "media", "--max-errors", "1", stdout=out, stderr=out
            )
        assert caught.value.returncode == 1
        assert "line 3: the version id is empty: write null" in out.getvalue()
        assert ObjectVersion.objects.get().key == "a"

    @pytest.mark.parametrize("option", ["--max-errors=0", "--observed-at=2020-01-01", "--format=parquet"])
    def test_wrong_options_are_usage_errors(self, option: str, bucket: Bucket) -> None:
        assert "argument" in str(fails("import", "x.csv", "--bucket", "media", option))


class TestTry:
    @pytest.fixture
    def keys(self, bucket: Bucket) -> None:
        for key in ("originals/2021/07/a.mp4", "originals/2021/13/b.mp4", "originals/odd", "zzz", "aaa"):
            version(bucket, None, key)
            version(bucket, None, key)

    def test_shows_what_a_rule_would_say(self, bucket: Bucket, tenant: Tenant, keys: None, store: MemoryStore) -> None:
        pattern = ["--pattern", "originals/{year}/{month}/{asset}.mp4", "--tenant", "acme", "--class", "video"]
        assert run("try", "media", *pattern) == (
            "'aaa': no match\n"
            "'originals/2021/07/a.mp4': tenant acme, asset a, role original, class video, date 2021-07-01T00:00:00+00:00\n"
            "'originals/2021/13/b.mp4': tenant acme, asset b, role original, class video, date none\n"
            "'originals/odd': no match\n"
            "'zzz': no match\n"
            "2 of 5 keys match.\n"
        )
        assert not KeyRule.objects.exists()

    def test_shows_the_original_of_a_derivative(self, bucket: Bucket, store: MemoryStore) -> None:
        store.put(buckets.ref(bucket), "thumbs/a.jpg")
        options = ["--pattern", "thumbs/{name}.jpg", "--role", "derivative", "--original-key", "{name}.mp4"]
        assert "original a.mp4, class (unclassified)" in run("try", "media", *options), "keys of the bucket itself"

    def test_a_rule_that_cannot_work_is_a_usage_error_that_names_the_field(
        self, bucket: Bucket, store: MemoryStore
    ) -> None:
        error = fails("try", "media", "--pattern", "{a}{b}")
        assert (error.returncode, str(error)) == (
            2,
            "pattern: Put some text between two placeholders: where one ends would be a guess.",
        )
        assert fails("try", "media", "--pattern", "{_*}", "--tenant", "nobody").returncode == 2

    def test_a_store_that_refuses_is_a_failure(self, bucket: Bucket, store: MemoryStore) -> None:
        store.inject(Fault("list_versions", Failure.of(FailureClass.PERMISSION, "AccessDenied")))
        assert "Bucket media: permission: AccessDenied" in str(fails("try", "media", "--pattern", "{_*}"))
        store.inject(Fault("list_versions", Failure.of(FailureClass.PERMISSION, "AccessDenied")))
        with pytest.raises(StorageError):
            try_rule(KeyRule(bucket=bucket, pattern="{_*}"), store=store)

    def test_takes_keys_from_under_the_pattern_and_some_from_elsewhere(self, bucket: Bucket) -> None:
        for number in range(30):
            for folder in ("a", "m", "z"):
                version(bucket, None, f"{folder}/{number:02d}")
        version(bucket, None, "m/gone", gone_at=LONG_AGO, gone_reason="vanished")
        found = [key for key, _ in try_rule(KeyRule(bucket=bucket, pattern="m/{_}"), limit=8)]
        assert found == ["a/00", *(f"m/{number:02d}" for number in range(6)), "z/00"]
        assert len(try_rule(KeyRule(bucket=bucket, pattern="{_*}"), limit=1)) == 1
        with pytest.raises(RuleError):
            try_rule(KeyRule(bucket=bucket, pattern=""))

    @pytest.mark.parametrize(
        ("pattern", "beginning"),
        [("plain", "plain"), ("a/{b}/c", "a/"), ("{{a}}/{b}", "{a}/"), ("{a}", ""), ("a{{b", "a{b"), ("", "")],
    )
    def test_the_fixed_beginning_of_a_pattern(self, pattern: str, beginning: str) -> None:
        assert fixed_beginning(pattern) == beginning


class TestStrays:
    @pytest.fixture
    def world(self, bucket: Bucket) -> None:
        """Two versions of one original, and thumbnails made before, between, after, by name, and of nothing."""
        day = [LONG_AGO.replace(day=number) for number in range(1, 10)]
        version(bucket, None, "o", version_id="o1", stored_at=day[2])
        version(bucket, None, "o", version_id="o2", stored_at=day[4], gone_at=day[8], gone_reason="vanished")
        for key, stored_at, stated in (
            ("before", day[1], ""),
            ("of-o1", day[3], ""),
            ("of-o2-gone", day[5], ""),
            ("stated", day[1], "o1"),
            ("stated-gone", day[3], "o2"),
        ):
            version(bucket, None, key, original_key="o", stored_at=stored_at, original_version_id=stated)
        version(bucket, None, "orphan", original_key="nothing", standalone=True)

    def test_are_those_that_no_present_version_takes_along(self, bucket: Bucket, world: None) -> None:
        assert run("strays", "media") == (
            "'before' @ {}: of no present version of 'o'\n"
            "'of-o2-gone' @ {}: of no present version of 'o'\n"
            "'stated-gone' @ {}: of no present version of 'o'\n"
            "3 stray derivatives: they are left alone until a person decides.\n"
        ).format(*(ObjectVersion.objects.get(key=key).version_id for key in ("before", "of-o2-gone", "stated-gone")))

    def test_are_printed_as_json_lines(self, bucket: Bucket, world: None) -> None:
        lines = [json.loads(line) for line in run("strays", "media", "--json").splitlines()]
        assert [line["key"] for line in lines] == ["before", "of-o2-gone", "stated-gone"]
        assert (lines[0]["original_key"], lines[2]["original_version_id"]) == ("o", "o2")
        assert lines[0]["stored_at"] == "2020-05-02T10:30:00+00:00"


def test_the_port_gets_the_bucket_as_it_is_configured(bucket: Bucket) -> None:
    bucket.endpoint_url, bucket.region, bucket.credential_profile = "http://127.0.0.1:1", "eu-west-1", "archive"
    place = buckets.ref(bucket)
    assert (place.name, place.endpoint_url, place.region) == ("media", "http://127.0.0.1:1", "eu-west-1")
    assert (place.addressing_style, place.credential_profile) == ("auto", "archive")
