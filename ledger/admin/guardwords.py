"""What the guards of a run found, as its page and the form of its approval show it."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from ledger import caps
from ledger.models import CleanupRun


def findings(run: CleanupRun) -> Iterator[SafeString | str]:
    for finding in run.guards.get("floors", ()):
        yield format_html("{} {}", display.pill("enforcing refused", "overdue"), finding["message"])
    for finding in run.guards.get("over", ()):
        yield format_html("{} {}", display.pill("over a cap", "overdue"), caps.told(finding))
    for finding in run.guards.get("undated", ()):
        yield (
            f"{finding['revision']}: {finding['actual']:,} of {'' if finding['whole'] else 'the first '}"
            f"{finding['present']:,} present originals have no date, so their retention never ends."
        )


def by_revision(run: CleanupRun) -> SafeString | str:
    headings = ("Revision", "Items", "Object versions", "Size", "Present originals", "Their size")
    rows = [
        (
            each["revision"],
            display.number(each["items"]),
            display.number(each["objects"]),
            display.size(each["bytes"]),
            "not counted" if each["present"] is None else at_least(each, display.number(each["present"])),
            "not counted" if each["present"] is None else at_least(each, display.size(each["present_bytes"])),
        )
        for each in run.guards.get("revisions", ())
    ]
    return display.table(headings, rows) if rows else ""


def at_least(counted: Mapping[str, Any], shown: SafeString | str) -> SafeString | str:
    return shown if counted["whole"] else format_html("at least {}", shown)


def by_bucket(run: CleanupRun) -> SafeString | str:
    rows = [
        (each["bucket"], display.number(each["items"]), display.number(each["objects"]), display.size(each["bytes"]))
        for each in run.guards.get("buckets", ())
    ]
    return display.table(("Bucket", "Items", "Object versions", "Size"), rows) if rows else ""
