"""The documents as their readers have them: where they lead, and what they tell people to type."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = tuple(sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]))

FENCED: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
INLINE: Final = re.compile(r"`([^`]+)`")
HEADING: Final = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
LINK: Final = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
COMMAND: Final = re.compile(r"manage\.py +([a-z][a-z_-]*)([^\n;|&]*)")


class Typed(NamedTuple):
    """A command that a page states, and what stands behind its name."""

    page: str
    name: str
    rest: str


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def words(page: Path) -> Iterator[str]:
    """What stands between backticks in the prose, on one line."""
    for found in INLINE.finditer(prose(page)):
        yield " ".join(found[1].split())


def anchors(page: Path) -> set[str]:
    """Of its headings: lower case, blanks become hyphens, and all signs but hyphens and underscores go."""
    plain = (heading.replace("`", "").lower() for heading in HEADING.findall(prose(page)))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def links(page: Path) -> Iterator[str]:
    """Where it leads within the repository; pictures included."""
    for target in LINK.findall(prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def commands(page: Path) -> Iterator[Typed]:
    """Every `manage.py X …` of a page, in backticks, fenced or indented."""
    text = page.read_text(encoding="utf-8")
    outside = INLINE.sub(
        lambda span: span[0] if "\n" not in span[0] else " ".join(span[0].split()), FENCED.sub("", text)
    )
    for part in (*FENCED.findall(text), outside):
        for found in COMMAND.finditer(part):
            yield Typed(name_of(page), found[1], found[2].split("`")[0])
