"""How much each hold and each policy of a page of them reaches: counted now, by index, and up to a bound.

A page costs a constant number of statements, and reads no more than TOGETHER rows with each, however much there is; but for
the one that finds classes, which skips along an index, PIECES steps for a bucket.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, NamedTuple

from django.db import connection

from cleanup_project.base import clock, sqlfiles
from retention import governing
from retention.duedate import latest_trigger
from retention.governing import Governing
from retention.models import LegalHold, PolicyRevision
from retention.models.scope import ANY_CLASS
from retention.prefixes import minimal, successor

AT_MOST: Final = 1000  # rows that are read for one number
TOGETHER: Final = 5000  # and for those of a whole page, in each statement: some 5 microseconds a row
PIECES: Final = 50  # prefixes, or classes, of one number
WITHIN: Final = (timedelta(days=30), timedelta(days=90))


class Number(NamedTuple):
    """`whole`: everything was counted; else there may be more."""

    value: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Extent:
    """Present versions that are covered, their bytes, and how many of them are due WITHIN each; none: at no known date."""

    versions: Number
    bytes: int
    due: tuple[Number, ...] = ()


def of_holds(holds: Iterable[LegalHold]) -> dict[int, Extent]:
    """Of each hold in force what it covers now, derivatives and delete markers included."""
    asked = {hold.pk: [scope_of(hold)] for hold in holds if hold.released_at is None}
    return {pk: replace(found, due=()) for pk, found in covered(asked, clock.now()).items()}


def of_policies(revisions: Mapping[int, Sequence[PolicyRevision]]) -> dict[int, Extent]:
    """Of each policy with a rule in force, by its published revisions, the originals that these govern."""
    now = clock.now()
    rules = {pk: own for pk, published in revisions.items() if (own := governing.in_force(published, now))}
    found = covered({pk: [scope_of(rule) | clock_of(rule) for rule in own] for pk, own in rules.items()}, now)
    dated = {pk: [rule for rule in own if clock_of(rule)["clock"]] for pk, own in rules.items()}
    by_date = due({pk: own for pk, own in dated.items() if own and not found[pk].versions.whole and few(own)}, now)
    return {
        pk: replace(extent, due=told(extent.due, by_date.get(pk, ()), rules[pk]) if dated[pk] else ())
        for pk, extent in found.items()
    }


def few(rules: Iterable[Governing]) -> bool:
    """Whether each of these has few prefixes: those stand with each stretch that is read by date."""
    return all(len(minimal(rule.prefixes)) <= PIECES for rule in rules)


def told(some: Sequence[Number], others: Sequence[Number], rules: Iterable[Governing]) -> tuple[Number, ...]:
    """Of two ways to count the same, the one that counted all, or else more; what is due soon is due later, too.

    What a rule has due that waits for events is known to none of them.
    """
    unknown = any(rule.waits and not rule.retain_permanently and not rule.suspended for rule in rules)
    numbers, least = list[Number](), 0
    for pair in zip(some, others or some, strict=True):
        value, whole = max(pair, key=lambda each: (each.whole, each.value))
        least = max(least, value)
        numbers.append(Number(least, whole and not unknown))
    return tuple(numbers)


def scope_of(rule: LegalHold | Governing) -> dict[str, Any]:
    return {
        "tenant_id": rule.tenant_id,
        "bucket_ids": sorted(set(rule.bucket_ids)),
        "prefixes": minimal(rule.prefixes),
        "retention_classes": list(rule.retention_classes),
        "stored_from": rule.stored_from and rule.stored_from.isoformat(),
        "stored_to": rule.stored_to and rule.stored_to.isoformat(),
        "originals": isinstance(rule, Governing),
    }


def clock_of(rule: Governing) -> dict[str, Any]:
    """What ends a retention; no clock where no date is known."""
    endless = rule.retain_permanently or rule.suspended or rule.waits
    return {"clock": None if endless else rule.trigger, "period": rule.period, "cutoff": rule.cutoff}


def covered(asked: Mapping[int, Sequence[dict[str, Any]]], now: datetime) -> dict[int, Extent]:
    """What lies in these scopes, read by key."""
    cut = {pk: pieces(each for scope in scopes for each in stretches(scope)) for pk, scopes in asked.items()}
    most = each_at_most(len(cut))
    found = {}
    for place, read, versions, size, *ends in rows(
        "extents.sql",
        [{"place": pk, "stretches": own[:PIECES]} for pk, own in cut.items()],
        most,
        soon=now + WITHIN[0],
        later=now + WITHIN[1],
    ):
        whole = read < most and len(cut[place]) <= PIECES
        found[place] = Extent(Number(versions, whole), size, tuple(Number(number, whole) for number in ends))
    return found


def pieces(all_of_them: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those to read; one more says that there are more."""
    return list(islice(all_of_them, PIECES + 1))


def stretches(scope: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """The scope by bucket and prefix, each from its first position to the one after its last."""
    said = {name: value for name, value in scope.items() if name not in {"bucket_ids", "prefixes"}}
    for bucket_id in scope["bucket_ids"]:
        for prefix in scope["prefixes"]:
            end = successor(prefix)
            beyond = (bucket_id + 1, "") if end is None else (bucket_id, end)
            bounds = {"bucket_id": bucket_id, "prefix": prefix, "end_bucket_id": beyond[0], "prefix_end": beyond[1]}
            yield said | bounds


def due(rules: Mapping[int, Sequence[Governing]], now: datetime) -> dict[int, tuple[Number, ...]]:
    """Of policies that cover too much to be counted by key, how much is due WITHIN each: read in the order of the dates."""
    if not rules:
        return {}
    classes = classes_of(rule for own in rules.values() for rule in own)
    cut = {
        (pk, until): pieces(each for rule in own for each in streams(rule, now + until, classes))
        for pk, own in rules.items()
        for until in WITHIN
    }
    keys, most = list(cut), each_at_most(len(cut))
    asked = [
        {"place": place, "until": (now + keys[place][1]).isoformat(), "streams": cut[keys[place]][:PIECES]}
        for place in range(len(keys))
    ]
    found = {
        keys[place]: Number(number, read < most and len(cut[keys[place]]) <= PIECES)
        for place, read, number in rows("extents_due.sql", asked, most)
    }
    return {pk: tuple(found[pk, until] for until in WITHIN) for pk in rules}


def classes_of(rules: Iterable[Governing]) -> dict[tuple[int, int], list[str]]:
    """The classes that are present of each tenant in each bucket, for the rules that cover any class."""
    pairs = sorted(
        {
            (rule.tenant_id, bucket_id)
            for rule in rules
            if ANY_CLASS in rule.retention_classes
            for bucket_id in rule.bucket_ids
        }
    )
    found: dict[tuple[int, int], list[str]] = {pair: [] for pair in pairs}
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "extents_classes.sql"),
            {
                "tenants": [tenant_id for tenant_id, _ in pairs],
                "buckets": [bucket_id for _, bucket_id in pairs],
                "most": PIECES + 1,
            },
        )
        for tenant_id, bucket_id, name in cursor.fetchall():
            found[tenant_id, bucket_id].append(name)
    return found


def streams(
    rule: Governing, until: datetime, classes: Mapping[tuple[int, int], Sequence[str]]
) -> Iterable[dict[str, Any]]:
    """The stretches of an index by date that hold whatever of the rule is due by then."""
    latest = latest_trigger(until, number=rule.period_number, unit=rule.period_unit, cutoff=rule.cutoff)
    for bucket_id in sorted(set(rule.bucket_ids)):
        named = classes.get((rule.tenant_id, bucket_id), ())
        for name in named if ANY_CLASS in rule.retention_classes else sorted(set(rule.retention_classes)):
            read = {"bucket_id": bucket_id, "retention_class": name, "latest": latest.isoformat()}
            yield scope_of(rule) | clock_of(rule) | read


def each_at_most(numbers: int) -> int:
    return min(AT_MOST, TOGETHER // max(1, numbers))


def rows(name: str, asked: Sequence[dict[str, Any]], most: int, **parameters: Any) -> list[tuple[Any, ...]]:
    """Planned anew each time: what a page asks for differs."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, name), {"asked": json.dumps(asked), "most": most, **parameters})
        return list(cursor.fetchall())
