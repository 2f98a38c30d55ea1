"""Stretches of the catalogue, read in the order of the identity index: a page reads so many rows, whatever it finds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection

from retention.governing import Governing
from retention.models.scope import ANY_CLASS
from retention.prefixes import minimal, successor


@dataclass(frozen=True, slots=True)
class Stretch:
    """Versions of one bucket whose keys begin with a prefix."""

    bucket_id: int
    prefix: str

    def condition(self) -> tuple[str, dict[str, Any]]:
        end = successor(self.prefix)
        below = "" if end is None else " AND key < %(end)s"
        return f"bucket_id = %(bucket)s AND key >= %(begin)s{below}", {
            "bucket": self.bucket_id,
            "begin": self.prefix,
            "end": end,
        }

    def counted(self) -> tuple[str, dict[str, Any]]:
        """A query of all its rows, for the planner to estimate."""
        where, parameters = self.condition()
        return f"SELECT FROM retention_objectversion WHERE {where}", parameters


class Read(NamedTuple):
    """The ids of what was wanted, as PostgreSQL reads a bigint[]; how many rows were read; the position of the last."""

    ids: str
    rows: int
    end: Sequence[str]


def of_rules(rules: Iterable[Governing]) -> Iterator[Stretch]:
    """What these rules can cover, in bucket and key order, without overlap."""
    rules = list(rules)
    for bucket_id in sorted({bucket_id for rule in rules for bucket_id in rule.bucket_ids}):
        prefixes = [prefix for rule in rules if bucket_id in rule.bucket_ids for prefix in rule.prefixes]
        for prefix in minimal(prefixes):
            yield Stretch(bucket_id, prefix)


def covered_by(rules: Iterable[Governing]) -> tuple[str, dict[str, Any]]:
    """The condition that one of these rules has a version in its scope, and its parameters."""
    conditions, parameters = list[str](), dict[str, Any]()
    for number, rule in enumerate(rules):
        classes = (
            "" if ANY_CLASS in rule.retention_classes else f" AND retention_class = ANY (%(classes_{number})s::text[])"
        )
        conditions.append(
            f"(bucket_id = ANY (%(buckets_{number})s::bigint[]) AND key ^@ ANY (%(prefixes_{number})s::text[]){classes})"
        )
        parameters |= {
            f"buckets_{number}": list(rule.bucket_ids),
            f"prefixes_{number}": list(rule.prefixes),
            f"classes_{number}": list(rule.retention_classes),
        }
    return " OR ".join(conditions) or "false", parameters


def page(stretch: Stretch, wanted: str, parameters: Mapping[str, Any], after: Sequence[str] | None, limit: int) -> Read:
    """The next `limit` rows after a position; `wanted` is the condition, in SQL of our own, on what is looked for."""
    where, values = stretch.condition()
    if after is not None:
        where += " AND (key, version_id, incarnation) > (%(after_0)s, %(after_1)s, %(after_2)s)"
        values |= {f"after_{index}": value for index, value in enumerate(after)}
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT coalesce(array_agg(id) FILTER (WHERE wanted), '{{}}')::text, count(*),
                (array_agg(ARRAY[key, version_id, incarnation]))[count(*):count(*)]
            FROM (
                SELECT id, key, version_id, incarnation, {wanted} AS wanted FROM retention_objectversion WHERE {where}
                ORDER BY key, version_id, incarnation LIMIT %(limit)s
            ) read
            """,  # noqa: S608 - composed of our own literals
            {**values, **parameters, "limit": limit},
        )
        ids, rows, end = cursor.fetchone()
        return Read(ids, rows, end[0] if end else ())
