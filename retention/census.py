"""How much there was in a revision's scope at an instant: what caps compare a run with. Reads only, a page at a time."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, LiteralString

from django.db import connection

from cleanup_project.base import sqlfiles
from retention.governing import Governing
from retention.models import PolicyRevision
from retention.models.scope import ANY_CLASS
from retention.prefixes import minimal, successor

PAGE: Final = 20_000
Position = tuple[str, str, str]  # key, version id, incarnation


@dataclass(frozen=True, slots=True)
class Census:
    """Present originals, their bytes, and how many of them lack the date that starts the clock.

    Where the revision removes delete markers, those that stand alone count as originals of no bytes. `whole`: nothing is
    left to count.
    """

    versions: int = 0
    bytes: int = 0
    undated: int = 0
    whole: bool = True

    def plus(self, versions: int, size: int, undated: int) -> "Census":
        return Census(self.versions + versions, self.bytes + size, self.undated + undated)

    def reaches(self, enough: "Census | None") -> bool:
        return enough is not None and self.versions >= enough.versions and self.bytes >= enough.bytes


def census(rule: Governing, as_of: datetime, enough: Census | None = None) -> Census:
    """Count what was present in the scope of a revision at `as_of`; all of it, or until there is enough.

    Each page is a statement of its own, along the identity index: call it outside of any transaction that holds locks.
    """
    total = Census()
    for bucket_id in sorted(set(rule.bucket_ids)):
        for prefix in minimal(rule.prefixes):
            total = counted(rule, as_of, bucket_id, prefix, total, enough)
    undated = total.undated if rule.trigger == PolicyRevision.Trigger.DATED_AT else 0
    return replace(total, undated=undated)


def counted(
    rule: Governing, as_of: datetime, bucket_id: int, prefix: str, total: Census, enough: Census | None
) -> Census:
    """The total so far, and what stands under one prefix of one bucket."""
    after: Position = ("", "", "")
    while total.whole:
        if total.reaches(enough):
            return replace(total, whole=False)
        with connection.cursor() as cursor:
            cursor.execute(*page_query(rule, as_of, bucket_id, prefix, after))
            versions, size, undated, read, *last = cursor.fetchone()
        total = total.plus(versions, size, undated)
        if read < PAGE:
            break
        after = (last[0], last[1], last[2])
    return total


def page_query(
    rule: Governing, as_of: datetime, bucket_id: int, prefix: str, after: Position
) -> tuple[LiteralString, dict[str, Any]]:
    """The query that counts the PAGE rows of a bucket after a position."""
    return sqlfiles.read(__file__, "census.sql"), {
        "bucket": bucket_id,
        "tenant": rule.tenant_id,
        "classes": None if ANY_CLASS in rule.retention_classes else list(rule.retention_classes),
        "markers": rule.remove_expired_markers,
        "as_of": as_of,
        "stored_from": rule.stored_from,
        "stored_to": rule.stored_to,
        "lowest": prefix,
        "highest": successor(prefix),
        "after_key": after[0],
        "after_version": after[1],
        "after_incarnation": after[2],
        "page": PAGE,
    }
