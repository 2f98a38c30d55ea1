"""What a release does, as a table."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from retention.eligibility import WORDS, Reason

Row = tuple[Any, Any]


def impact_table(figures: Mapping[str, Any]) -> SafeString:
    """The figures of `release_impact.as_json`; "at least" where they were cut short."""
    return display.table((), rows(figures))


def rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    least = "" if figures["whole"] else "at least "
    yield "As of", display.moment(datetime.fromisoformat(figures["at"]))
    for name, words in (("covers", "The hold covers"), ("frees", "No other hold covers")):
        found = figures[name]
        yield words, amount(least, found["versions"], "version", found["bytes"])
    for other in figures["still_held"]:
        yield f"Still held by {other['matter']} (hold {other['hold']})", amount(least, other["versions"], "version")
    for reason, number in figures["freed_by_reason"].items():
        if reason != Reason.ELIGIBLE:
            yield WORDS[Reason(reason)], amount(least, number, "version")
    eligible = figures["eligible_at_once"]
    yield "Eligible at once", amount(least, eligible["objects"], "object", eligible["bytes"])
    past = figures["past_maximum"]["objects"]
    if past:
        yield "Past maximum: should be destroyed already", amount(least, past, "object")
    for sample in figures["samples"]:
        yield (
            "for example",
            format_html("{} {} @ {}", sample["bucket"], *map(display.exact, (sample["key"], sample["version_id"]))),
        )
    if not figures["whole"]:
        yield "Cut short", "There is more than could be read at once, so each figure is the least that it can be."


def amount(least: str, number: int, one: str, size: int | None = None) -> SafeString:
    words = f"{least}{number:,} {one if number == 1 else one + 's'}"
    return format_html("{}", words) if size is None else format_html("{}, {}", words, display.size(size))
