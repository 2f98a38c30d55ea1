"""The documents lead nowhere that is not there, and say nothing to type that is not understood."""

import argparse
import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from django.core.management import get_commands, load_command_class

from tests import documents

APPS = ("cleanup_project", "ledger", "retention", "webhooks")
EACH_PAGE = pytest.mark.parametrize("page", documents.PAGES, ids=documents.name_of)
# What a page calls a file of this repository: it has a folder, or is a page, and its suffix is one that we use.
FILE = re.compile(r"(?:[\w.*-]+/)*[\w.*-]+\.(?:py|sql|md|json|yml|yaml|html|toml)")


@EACH_PAGE
def test_a_link_leads_to_a_file_and_to_a_heading_in_it(page: Path) -> None:
    for link in documents.links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in documents.anchors(target), f"{link}: there is no such heading"


def there(page: Path, name: str) -> bool:
    """Whether a file is where the page may mean: below the top, beside it, or below its own folder."""
    return any(next(folder.glob(name), None) is not None for folder in (documents.ROOT, page.parent))


@EACH_PAGE
def test_a_file_that_is_named_exists(page: Path) -> None:
    named = {word.split("::")[0] for word in documents.words(page)}
    files = {name for name in named if FILE.fullmatch(name) and ("/" in name or name.endswith(".md"))}
    assert {name for name in files if not there(page, name)} == set()


@EACH_PAGE
def test_a_test_that_is_named_exists(page: Path) -> None:
    for file, test in re.findall(r"(tests/[\w/]+\.py)::(\w+)", page.read_text(encoding="utf-8")):
        source = (documents.ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *def {test}\(", source, re.MULTILINE), f"{file} has no {test}"


def test_each_interleaving_is_walked_through() -> None:
    source = (documents.ROOT / "tests/ledger/test_interleavings.py").read_text(encoding="utf-8")
    page = (documents.ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    tests = re.findall(r"^def (test_\d+_\w+)\(", source, re.MULTILINE)
    assert len({name.split("_")[1] for name in tests}) == 12
    assert [name for name in tests if f"tests/ledger/test_interleavings.py::{name}`" not in page] == []


def test_each_decision_is_listed() -> None:
    page = documents.ROOT / "docs/architecture.md"
    decisions = {file.name for file in (documents.ROOT / "docs/adr").glob("*.md")}
    assert {link.removeprefix("adr/") for link in documents.links(page) if link.startswith("adr/")} == decisions


def parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """A command's own parser, under an empty name, and those of what it can be told to do."""
    yield "", parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def options(name: str, rest: str) -> set[str]:
    """Those that a command understands, with what the words behind its name tell it to do."""
    apps = get_commands()
    assert name in apps, f"there is no command {name}"
    app = apps[name]
    command = load_command_class(app, name) if isinstance(app, str) else app
    said = {"", *rest.split()}
    known = [each for told, each in parsers(command.create_parser("manage.py", name)) if told in said]
    return {option for parser in known for option in parser._option_string_actions}


@EACH_PAGE
def test_a_command_exists_with_the_options_that_are_given(page: Path) -> None:
    for typed in documents.commands(page):
        given = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", typed.rest))
        assert given <= options(typed.name, typed.rest), f"{typed.name}{typed.rest}"


@EACH_PAGE
def test_wherever_the_tables_are_migrated_what_the_roles_of_the_database_may_do_is_granted(page: Path) -> None:
    """A new table is nobody's until then: a paragraph, an item or a row that names the one command names the other."""
    parts = re.split(r"\n(?=\n|\||- |\d+\. )", page.read_text(encoding="utf-8"))
    assert [part for part in parts if "manage.py migrate" in part and "manage.py grants" not in part] == []


def test_the_readme_lists_each_command_of_ours() -> None:
    listed = documents.prose(documents.ROOT / "README.md").partition("## Commands")[2].partition("\n## ")[0]
    first = {word.split()[0] for line in listed.splitlines() for word in re.findall(r"`([^`]+)`", line.split(" | ")[0])}
    ours = {name for name, app in get_commands().items() if app.split(".")[0] in APPS}
    assert first - ours == set(), "no such command"
    assert ours - first == {"states", "schemas", "dictionary"}, "missing from the README"


def test_the_readme_is_short() -> None:
    assert len((documents.ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


RUNBOOK = documents.ROOT / "docs/runbook.md"


def kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def test_each_alert_has_its_section_in_the_runbook() -> None:
    """The file of rules leads to it by an anchor that is the alert's name."""
    told = documents.anchors(RUNBOOK)
    for rules in documents.ROOT.glob("docs/*.rules.yml"):
        text = rules.read_text(encoding="utf-8")
        named = re.findall(r"^ *- alert: *(\w+)$", text, re.MULTILINE)
        assert {name for name in named if kebab(name) not in told} == set()
        assert set(re.findall(r"docs/runbook\.md#([\w-]+)", text)) <= told


def raised() -> dict[str, set[str]]:
    """The kinds of alarms by the module that raises them: constants that a function names which calls `alarms.notice`, and
    those of what is listed in a constant of the module."""
    found = dict[str, set[str]]()
    for app in APPS:
        for file in (documents.ROOT / app).rglob("*.py"):
            source = file.read_text(encoding="utf-8")
            if "alarms.notice(" in source and "migrations" not in file.parts:
                module = import_module(".".join(file.relative_to(documents.ROOT).with_suffix("").parts))
                lists = [each for name, each in vars(module).items() if name.isupper() and isinstance(each, tuple)]
                listed = {str(each.kind) for some in lists for each in some if hasattr(each, "kind")}
                found[module.__name__] = {*kinds(module, ast.parse(source)), *listed}
    return found


def kinds(module: ModuleType, source: ast.Module) -> Iterator[str]:
    for function in ast.walk(source):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))
        if not any(isinstance(node, ast.Attribute) and ast.unparse(node) == "alarms.notice" for node in nodes):
            continue
        for node in nodes:
            named = ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
            value = value_of(module, named) if named.rpartition(".")[2].isupper() else None
            if isinstance(value, str) and re.fullmatch(r"[a-z_]+\.[a-z_-]+", value):
                yield value


def value_of(module: ModuleType, named: str) -> object:
    value: object = module
    for part in named.split("."):
        value = getattr(value, part, None)
    return value


def test_each_kind_of_alarm_is_in_the_runbook() -> None:
    found = raised()
    assert all(found.values()), "a module raises alarms whose kinds are not found"
    assert {kind for some in found.values() for kind in some} - set(documents.words(RUNBOOK)) == set()
