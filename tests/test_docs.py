"""The documents lead nowhere that is not there, and say nothing to type that is not understood."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from tests import documents

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


def test_the_readme_lists_each_command_of_ours() -> None:
    listed = documents.prose(documents.ROOT / "README.md").partition("## Commands")[2].partition("\n## ")[0]
    first = {word.split()[0] for line in listed.splitlines() for word in re.findall(r"`([^`]+)`", line.split(" | ")[0])}
    ours = {name for name, app in get_commands().items() if app.split(".")[0] in APPS}
    assert first - ours == set(), "no such command"
    assert ours - first == {"states", "schemas", "dictionary"}, "missing from the README"


APPS = ("cleanup_project", "ledger", "retention", "webhooks")


def test_the_readme_is_short() -> None:
    assert len((documents.ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
