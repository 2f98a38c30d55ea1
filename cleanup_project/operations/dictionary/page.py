"""The page of the data dictionary: docs/data-dictionary.md, written by `manage.py dictionary`."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.db import connection, models

from cleanup_project.base.models import User
from cleanup_project.operations.dictionary import base, conditions, ledger, retention, webhooks
from cleanup_project.operations.dictionary.tables import COMMON, FOREIGN, Personal, Table
from ledger import copying, downloads
from retention import register

APPS: Final[dict[str, dict[str, Table]]] = {
    "base": base.TABLES, "retention": retention.TABLES, "ledger": ledger.TABLES, "webhooks": webhooks.TABLES,
}  # fmt: skip
CHECK: Final = re.compile(r"ALTER TABLE (\w+) ADD CONSTRAINT (\w+) CHECK (.*);")
TRIGGER: Final = re.compile(r"CREATE TRIGGER (\w+) (BEFORE|AFTER) ([A-Z ]+?)\s+ON\s+(\w+)")
APPEND_ONLY: Final = re.compile(r"sqlfiles\.append_only\(([^)]*)\)")
FOLDERS: Final = {"base": "cleanup_project/base", "operations": "cleanup_project/operations"}


def page() -> str:
    return "\n\n".join([introduction(), personal_data(), tables(), foreign(), files()]) + "\n"


def introduction() -> str:
    return (Path(__file__).parent / "introduction.md").read_text(encoding="utf-8").strip()


def own_models() -> Iterator[type[models.Model]]:
    """Every model that has a table of ours, in the order of the dictionary."""
    for app in APPS:
        found = [each for each in apps.get_app_config(app).get_models() if each._meta.managed]
        yield from sorted(found, key=lambda each: each.__name__)


def table_of(model: type[models.Model]) -> Table:
    """Raises LookupError for a model that the dictionary does not know."""
    try:
        return APPS[model._meta.app_label][model.__name__]
    except KeyError:
        place = f"cleanup_project/operations/dictionary/{model._meta.app_label}.py"
        raise LookupError(f"{model._meta.label} is not in the data dictionary: add it to {place}.") from None


def tables() -> str:
    return "\n\n".join(["## Tables", *map(section, own_models())])


def section(model: type[models.Model]) -> str:
    told = table_of(model)
    about = " ".join((model.__doc__ or "").split())
    writers = ", ".join(f"`{file_of(each)}`" for each in told.writers.split())
    facts = [f"### {model._meta.db_table}", about, f"Written by {writers}. Kept {told.kept}.{guards(model)}"]
    rows = ["| column | type | null | what it says | personal |", "|---|---|---|---|---|"]
    rows += [row(model, field) for field in model._meta.concrete_fields]
    demands = [f"- {conditions.told(model, each)}" for each in model._meta.constraints]
    return "\n\n".join(filter(None, [*facts, "\n".join(rows), "\n".join(demands)]))


def file_of(module: str) -> str:
    app, _, rest = module.partition(".")
    return f"{FOLDERS.get(app, app)}/{rest.replace('.', '/')}.py"


def row(model: type[models.Model], field: Any) -> str:
    cells = [
        f"`{field.column}`",
        type_of(model, field),
        "yes" if field.null else "",
        meaning(model, field),
        personal(model, field),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def type_of(model: type[models.Model], field: Any) -> str:
    """As PostgreSQL has it; what it leads to, and whether it is the key or unique."""
    notes = [str(field.db_type(connection))]
    if field.is_relation:
        notes.append(f"→ `{field.related_model._meta.db_table}`")
    if field.primary_key:
        notes.append("key")
    elif field.unique:
        notes.append("unique")
    composite = getattr(model._meta.pk, "field_names", ())
    return ", ".join([*notes, *(["part of the key"] if {field.name, field.attname} & set(composite) else [])])


def meaning(model: type[models.Model], field: Any) -> str:
    """Raises LookupError for a column that nobody has described."""
    words = field.help_text or table_of(model).column_words().get(field.name) or COMMON.get(field.name)
    if not words:
        label = f"{model._meta.label}.{field.name}"
        raise LookupError(f"{label} has no words: give it a help text, or add it to the data dictionary.")
    return str(words) + choices(field)


def choices(field: Any) -> str:
    values = [str(value) for value, _words in field.flatchoices if value != ""]
    return f" One of {', '.join(f'`{value}`' for value in values)}." if values else ""


def personal(model: type[models.Model], field: Any) -> str:
    if field.is_relation and field.related_model is User:
        return Personal.WHO
    return table_of(model).personal.get(field.name, "")


@cache
def guarded() -> dict[str, list[str]]:
    """Of each table, what its triggers refuse or watch, and where that stands."""
    found: dict[str, list[str]] = {}
    for app in APPS:
        folder = Path(settings.BASE_DIR) / FOLDERS.get(app, app)
        for file in sorted((folder / "sql").glob("*.sql")):
            text = file.read_text(encoding="utf-8")
            for table, name, check in CHECK.findall(text):
                found.setdefault(table, []).append(f"`{name}`, which checks `{check}`")
            for name, when, events, table in TRIGGER.findall(text):
                words = f"`{name}` ({when.lower()} {events.lower()})"
                found.setdefault(table, []).append(f"{words} in `{file.relative_to(settings.BASE_DIR)}`")
        for migration in sorted((folder / "migrations").glob("0*.py")):
            for named in APPEND_ONLY.findall(migration.read_text(encoding="utf-8")):
                for table in re.findall(r'"(\w+)"', named):
                    found.setdefault(table, []).append("`append_only`, which refuses UPDATE, DELETE and TRUNCATE")
    return found


def guards(model: type[models.Model]) -> str:
    found = guarded().get(model._meta.db_table, [])
    return f" Guarded by {'; '.join(found)}." if found else ""


def personal_data() -> str:
    """The categories of personal data, with their columns and how long each is kept."""
    parts = [(Path(__file__).parent / "personal.md").read_text(encoding="utf-8").strip()]
    for kind in Personal:
        rows = ["| table | columns | kept |", "|---|---|---|", *places(kind)]
        parts += [f"### Where: {kind}", "\n".join(rows)]
    return "\n\n".join(parts)


def places(kind: Personal) -> Iterator[str]:
    for model in own_models():
        table = model._meta.db_table
        columns = [f"`{field.column}`" for field in model._meta.concrete_fields if personal(model, field) == kind]
        if columns:
            yield f"| [{table}](#{table}) | {', '.join(columns)} | {table_of(model).kept} |"


def foreign() -> str:
    rows = ["| table | what it is | kept | personal data |", "|---|---|---|---|"]
    rows += [f"| `{each.table}` | {each.what} | {each.kept} | {each.personal} |" for each in FOREIGN]
    return "\n\n".join(["## Tables of Django and of libraries", "\n".join(rows)])


def files() -> str:
    """The columns of what can be exported; members of JSON documents have pages of their own."""
    receipts = [f"| `{each.name}` | {each.meaning} |" for each in (*copying.COLUMNS, copying.DOCUMENT)]
    table = "\n".join(["| column | what it says |", "|---|---|", *receipts])
    return "\n\n".join([
        "## Files",
        "Members of receipts: [receipts.md](receipts.md). Members of a manifest's lines, and of its CSV: "
        "[manifest.md](manifest.md). Members of certificates: [certificates.md](certificates.md). Members of events: "
        "[events.md](events.md). Columns of imports: [catalogue.md](catalogue.md).",
        "### Exported receipts", "`body` stands in files for machines alone.", table,
        "### Manifest as CSV", ", ".join(f"`{name}`" for name in downloads.COLUMNS)
        + ". The members of the line of the same names; a row for each target; `item_sha256` is the digest of the line.",
        "### Hold register", ", ".join(f"`{name}`" for name in register.COLUMNS)
        + ". As the hold has them; lists as JSON, times in UTC, `as_of` the time of which the register speaks.",
    ])  # fmt: skip
