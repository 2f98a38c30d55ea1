"""The data dictionary knows every table, every column and every module that writes it."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import CheckConstraint, F, Q, UniqueConstraint

from cleanup_project.base.models import Alarm, BulkJob
from cleanup_project.operations.dictionary import conditions, page, tables
from ledger.models import CleanupRun, ManifestPart
from retention.models import Bucket

WRITES = re.compile(r"\b(?:INSERT INTO|UPDATE|DELETE FROM|COPY) ((?:base|ledger|retention|webhooks)_[a-z]+)\b")
FOLDERS = ("cleanup_project/base", "retention", "ledger", "webhooks", "cleanup_project/operations")
NO_PART = {"migrations", "bench", "demo"}


def sources() -> dict[str, str]:
    """By its file, the text of each module that runs in an installation, with that of the SQL files that it names."""
    found = dict[str, str]()
    for name in FOLDERS:
        for module in (Path(settings.BASE_DIR) / name).rglob("*.py"):
            if not NO_PART & set(module.parts):
                text = module.read_text(encoding="utf-8")
                files = [module.parent / "sql" / file for file in re.findall(r'"(\w+\.sql)"', text)]
                found[str(module.relative_to(settings.BASE_DIR))] = text + "".join(
                    file.read_text(encoding="utf-8") for file in files if file.exists()
                )
    return found


def written() -> set[tuple[str, str]]:
    """(table, file) of every module whose SQL writes the table."""
    return {(table, place) for place, text in sources().items() for table in WRITES.findall(text)}


def test_the_page_is_what_the_models_say() -> None:
    call_command("dictionary", "--check")


def test_an_older_page_is_refused(settings, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    settings.BASE_DIR = tmp_path
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "data-dictionary.md").write_text("# Data dictionary\n")
    page.guarded.cache_clear()
    with pytest.raises(CommandError, match=r"run manage\.py dictionary --write"):
        call_command("dictionary", "--check")
    page.guarded.cache_clear()


def test_a_column_that_nobody_described_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(tables.COMMON, "reason")
    with pytest.raises(CommandError, match="has no words"):
        call_command("dictionary", "--check")


def test_no_words_are_left_over() -> None:
    """Of columns that are gone, or that say it themselves by now."""
    used, left = set(), set()
    for model in page.own_models():
        told = page.table_of(model)
        fields = {field.name: field for field in model._meta.concrete_fields}
        left |= {f"{model._meta.label}.{name}" for name in {*told.column_words(), *told.personal} - fields.keys()}
        left |= {
            f"{model._meta.label}.{name}" for name in told.column_words() if getattr(fields.get(name), "help_text", "")
        }
        used |= {name for name, field in fields.items() if not field.help_text and name not in told.column_words()}
    assert left == set()
    assert set(tables.COMMON) - used == set()
    known = {(app, name) for app, told in page.APPS.items() for name in told}
    assert known - {(model._meta.app_label, model.__name__) for model in page.own_models()} == set()


def test_whoever_writes_a_table_by_sql_stands_with_it() -> None:
    told = set()
    for model in page.own_models():
        for module in page.table_of(model).writers.split():
            assert (Path(settings.BASE_DIR) / page.file_of(module)).exists(), f"{model._meta.label}: {module}"
            told.add((model._meta.db_table, page.file_of(module)))
    assert written() - told == set()


def test_a_writer_names_what_it_writes() -> None:
    """The model, or its table, stands in the module itself or in SQL that it names."""
    texts = sources()
    strangers = set()
    for model in page.own_models():
        for module in page.table_of(model).writers.split():
            text = texts[page.file_of(module)]
            if model.__name__ not in text and model._meta.db_table not in text:
                strangers.add(f"{module} and {model._meta.label}")
    assert strangers == set()


@pytest.mark.django_db
def test_every_table_of_the_database_is_there() -> None:
    told = {model._meta.db_table for model in page.own_models()} | {each.table for each in tables.FOREIGN}
    assert set(connection.introspection.table_names()) == told


def test_what_the_database_demands_stands_in_words() -> None:
    found = {each.name: conditions.told(model, each) for model in page.own_models() for each in model._meta.constraints}
    assert found["run_second_person"] == "`run_second_person`: `authorised_by_id` is not `opened_by_id`."
    assert found["part_size"] == "`part_size`: `item_count` is 1,000 at most and `read` is 1,000 at most."
    assert found["alarm_once"].endswith(
        "one row for each `kind`, `subject_type`, `subject_id`, where `cleared_at` is null."
    )
    assert "(`breaker_percent` is null, or `breaker_percent` is from 1 to 99)" in found["revision_breaker"]


def test_a_condition_without_words_is_refused() -> None:
    with pytest.raises(TypeError, match="iendswith"):
        conditions.condition(Alarm, Q(kind__iendswith="stale"))
    with pytest.raises(TypeError, match="SAID"):
        conditions.condition(Alarm, ~Q(object()))


def test_brackets_keep_what_belongs_together() -> None:
    asked = Q(done=1) & (Q(total=2) | ~Q(reason=""))
    assert conditions.condition(BulkJob, asked) == "`done` is 1 and (`total` is 2, or `reason` is not empty)"
    assert conditions.condition(BulkJob, ~(Q(done=1) | Q(total=2))) == "not (`done` is 1, or `total` is 2)"


def test_each_way_of_comparing_has_its_words() -> None:
    asked = Q(kind__startswith="catalogue.", cleared_at__lte=F("raised_at") + timedelta(days=3))
    words = "`cleared_at` is `raised_at` + 3 days at most and `kind` begins with `catalogue.`"
    assert conditions.condition(Alarm, asked) == words
    asked = Q(tenants__contained_by=["acme", "other"]) & ~Q(lanes=[])
    assert (
        conditions.condition(BulkJob, asked) == "`tenants` holds nothing but `acme`, `other` and `lanes` is not empty"
    )


def test_types_are_those_of_the_database() -> None:
    rows = {model: [page.row(model, field) for field in model._meta.concrete_fields] for model in (Bucket, CleanupRun)}
    assert any(row.startswith("| `keys_per_second` | integer |  | Deletions a second") for row in rows[Bucket])
    assert any(
        "| `mode` | varchar(7) |  |" in row and "One of `dry_run`, `enforce`." in row for row in rows[CleanupRun]
    )
    assert "`append_only`, which refuses UPDATE, DELETE and TRUNCATE" in page.guards(ManifestPart)


def test_constraints_are_of_kinds_that_have_words() -> None:
    kinds = {type(each) for model in page.own_models() for each in model._meta.constraints}
    assert kinds == {CheckConstraint, UniqueConstraint}
