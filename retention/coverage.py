"""How much a hold's scope covers now: present versions and delete markers, read by key in short statements."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from django.db import connection

from retention.eligibility import HoldFacts
from retention.prefixes import minimal, successor

PAGE: Final = 1000
COUNT_PAGE: Final = 10_000
COUNTED_AT_MOST: Final = 200_000

# What the scope asks besides bucket and key; of rows that the catalogue keeps after their end, none.
COVERED: Final = """
    gone_at IS NULL AND tenant_id = %(tenant)s
    AND (retention_class = ANY (%(classes)s) OR '*' = ANY (%(classes)s))
    AND (%(stored_from)s::timestamptz IS NULL OR stored_at >= %(stored_from)s)
    AND (%(stored_to)s::timestamptz IS NULL OR stored_at < %(stored_to)s)
"""


class Stretch(NamedTuple):
    """One bucket and one prefix of a scope; those of a scope do not overlap."""

    bucket_id: int
    prefix: str


class Page(NamedTuple):
    """`read` rows of a stretch up to the position `end`, of which `ids` are covered, with `bytes` in all."""

    read: int
    ids: list[int]
    bytes: int
    end: tuple[str, str, str] | None


@dataclass(frozen=True, slots=True)
class Count:
    """Present versions and bytes; `whole` is False where counting stopped at its bound, so that there may be more."""

    versions: int
    bytes: int
    whole: bool


def stretches(scope: HoldFacts) -> list[Stretch]:
    return [
        Stretch(bucket_id, prefix) for bucket_id in sorted(set(scope.bucket_ids)) for prefix in minimal(scope.prefixes)
    ]


def pages(scope: HoldFacts, size: int) -> Iterator[Page]:
    """Every row under the scope's prefixes, `size` of them a page, and which of them it covers.

    Rows that are not covered are read as well, so that the cost of a page is bounded whatever the scope asks besides.
    """
    for stretch in stretches(scope):
        after: tuple[str, str, str] | None = None
        while True:
            page = read(scope, stretch, after, size)
            yield page
            if page.read < size:
                break
            after = page.end


def read(scope: HoldFacts, stretch: Stretch, after: tuple[str, str, str] | None, size: int) -> Page:
    end = successor(stretch.prefix)
    where = "bucket_id = %(bucket)s AND key >= %(prefix)s"
    where += " AND key < %(prefix_end)s" if end is not None else ""
    where += " AND (key, version_id, incarnation) > (%(key)s, %(version_id)s, %(incarnation)s)" if after else ""
    key, version_id, incarnation = after or ("", "", "")
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT
                count(*), coalesce(array_agg(id) FILTER (WHERE covered), '{{}}'),
                coalesce(sum(size) FILTER (WHERE covered), 0)::bigint,
                (array_agg(key))[count(*)], (array_agg(version_id))[count(*)], (array_agg(incarnation))[count(*)]
            FROM (
                SELECT id, size, key, version_id, incarnation, {COVERED} AS covered
                FROM retention_objectversion WHERE {where} ORDER BY key, version_id, incarnation LIMIT %(size)s
            ) found
            """,  # noqa: S608 - composed of our own literals
            {
                "tenant": scope.tenant_id,
                "classes": list(scope.retention_classes),
                "stored_from": scope.stored_from,
                "stored_to": scope.stored_to,
                "bucket": stretch.bucket_id,
                "prefix": stretch.prefix,
                "prefix_end": end,
                "key": key,
                "version_id": version_id,
                "incarnation": incarnation,
                "size": size,
            },
        )
        rows, ids, total, *position = cursor.fetchone()
    return Page(rows, ids, total, (position[0], position[1], position[2]) if rows else None)


def count(scope: HoldFacts) -> Count:
    """How much the scope covers now, of at most `COUNTED_AT_MOST` rows under its prefixes."""
    versions = total = rows = 0
    for page in pages(scope, COUNT_PAGE):
        versions, total, rows = versions + len(page.ids), total + page.bytes, rows + page.read
        if rows >= COUNTED_AT_MOST:
            return Count(versions, total, whole=False)
    return Count(versions, total, whole=True)
