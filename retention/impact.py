"""Judge the same versions twice, by today's rules and by those with a draft, and say what differs."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, Final, LiteralString

from django.db import connection

from cleanup_project.base import sqlfiles
from retention import scan
from retention.eligibility import Reason
from retention.governing import Governing

SAMPLES: Final = 20


def number(reason: Reason) -> int:
    """As judge.sql writes it."""
    return scan.REASONS.index(reason)


ELIGIBLE: Final = number(Reason.ELIGIBLE)
# When a version is out of the bucket, were it for time alone: never, where anything but time and holds keeps it.
ENDING: Final = ", ".join(str(number(reason)) for reason in (Reason.NOT_YET, Reason.HELD, Reason.ELIGIBLE))
TODAY_END: Final = f"CASE WHEN {{today}}.reason IN ({ENDING}) THEN {{today}}.since ELSE 'infinity' END"
DRAFT_END: Final = f"CASE WHEN {{draft}}.reason IN ({ENDING}) THEN {{draft}}.since ELSE 'infinity' END"
# What differs, judged at the last horizon.
CONDITIONS: Final = {
    "sooner": f"{DRAFT_END} < {TODAY_END}",
    "later": f"{DRAFT_END} > {TODAY_END}",
    "newly_held": f"{{draft}}.reason = {number(Reason.HELD)} AND {{today}}.reason <> {number(Reason.HELD)}",
    "newly_unscheduled": (
        f"{{draft}}.reason = {number(Reason.UNSCHEDULED)} AND {{today}}.reason <> {number(Reason.UNSCHEDULED)}"
    ),
}
DIFFERENCES: Final = tuple(CONDITIONS)
SAMPLE: Final = f"""jsonb_build_object(
    'bucket', {{today}}.bucket_id, 'key', {{today}}.key, 'version_id', {{today}}.version_id, 'id', {{today}}.id,
    'today', nullif({TODAY_END}, 'infinity'), 'draft', nullif({DRAFT_END}, 'infinity')
)"""
VERDICT: Final = """
    SELECT v.id, v.place, v.bucket_id, v.key, v.version_id, v.reason, v.since, v.size + coalesce(d.size, 0) AS size
    FROM verdict v
    LEFT JOIN (SELECT original_id, sum(size) AS size FROM derivative GROUP BY original_id) d ON d.original_id = v.id
"""

# {"objects": n, "today": [[items, bytes] a horizon], "draft": as today, and [items, bytes] for each of DIFFERENCES}; bytes
# are those of the versions and of the derivatives that would go along.
Figures = dict[str, Any]
Samples = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Sides:
    """The rules that govern at each of `times`: as published, and with the draft."""

    times: Sequence[datetime]
    today: Sequence[Sequence[Governing]]
    draft: Sequence[Sequence[Governing]]


def nothing(horizons: int) -> Figures:
    return {
        "objects": 0,
        "today": [[0, 0] for _ in range(horizons)],
        "draft": [[0, 0] for _ in range(horizons)],
        **{name: [0, 0] for name in DIFFERENCES},
    }


def added(one: Figures, other: Figures) -> Figures:
    return {name: plus(one[name], other[name]) for name in one}


def plus(one: Any, other: Any) -> Any:
    if isinstance(one, list):
        return [plus(mine, theirs) for mine, theirs in zip(one, other, strict=True)]
    return one + other


def scaled(figures: Figures, factor: float) -> Figures:
    return {name: times(value, factor) for name, value in figures.items()}


def times(value: Any, factor: float) -> Any:
    return [times(each, factor) for each in value] if isinstance(value, list) else round(value * factor)


def joined(one: Samples, other: Samples) -> Samples:
    """At most SAMPLES of each difference, the first ones."""
    return {name: [*one.get(name, []), *other.get(name, [])][:SAMPLES] for name in DIFFERENCES}


def judged(ids: str, sides: Sides) -> tuple[Figures, Samples]:
    """Judge these versions (a PostgreSQL array of ids) by both sides at every horizon, inside the caller's transaction.

    One judgement serves all horizons at which the same rules govern, at the last of them: with the same rules, what is
    eligible then was eligible from the end of its retention on.
    """
    statement, parameters = comparison(ids, sides)
    with connection.cursor() as cursor:
        # As in freezing, the planner takes thousands of versions for a handful.
        cursor.execute("SET LOCAL enable_nestloop = off")
        objects, counted, *samples = sqlfiles.row(statement, parameters)
        cursor.execute("SET LOCAL enable_nestloop = on")
    pairs = [list(pair) for pair in zip(counted[::2], counted[1::2], strict=True)]
    horizons = len(sides.times)
    figures = {"objects": objects, "today": pairs[:horizons], "draft": pairs[horizons : 2 * horizons]}
    differences = zip(DIFFERENCES, pairs[2 * horizons :], strict=True)
    return figures | dict(differences), dict(zip(DIFFERENCES, map(json.loads, samples), strict=True))


def comparison(ids: str, sides: Sides) -> tuple[LiteralString, dict[str, Any]]:
    """The statement that judges every span of both sides and compares them, and its parameters."""
    derivatives = scan.derivatives_of(ids)
    parameters: dict[str, Any] = {f"time_{number}": at for number, at in enumerate(sides.times)}
    judgements, flags, last = list[str](), list[str](), dict[str, str]()
    for side, per_time in (("today", sides.today), ("draft", sides.draft)):
        for number, (rules, horizons) in enumerate(spans(per_time)):
            name = last[side] = f"{side}_{number}"
            judge, values = scan.judging(ids, derivatives, rules, sides.times[horizons[-1]])
            judgements.append(f"{name} AS ({judge.replace('%(', f'%({name}_')} {VERDICT})")
            parameters |= {f"{name}_{key}": value for key, value in values.items()}
            flags += [f"{name}.reason = {ELIGIBLE} AND {name}.since <= %(time_{horizon})s" for horizon in horizons]
    today, draft = last["today"], last["draft"]
    flags += [condition.format(today=today, draft=draft) for condition in CONDITIONS.values()]
    joins = " ".join(f"JOIN {each.partition(' ')[0]} USING (id)" for each in judgements[1:])
    counted = ", ".join(
        f"count(*) FILTER (WHERE flag_{n}), coalesce(sum(size) FILTER (WHERE flag_{n}), 0)::bigint"
        for n in range(len(flags))
    )
    samples = ", ".join(
        f"to_jsonb(coalesce((array_agg(sample ORDER BY place) FILTER (WHERE flag_{n}))[1:{SAMPLES}], '{{}}'))"
        for n in range(len(flags) - len(DIFFERENCES), len(flags))
    )
    return (
        f"""
        WITH {", ".join(judgements)},
        compared AS (
            SELECT {today}.place, {today}.size, {SAMPLE.format(today=today, draft=draft)} AS sample,
                {", ".join(f"{flag} AS flag_{n}" for n, flag in enumerate(flags))}
            FROM {judgements[0].partition(" ")[0]} {joins}
        )
        SELECT count(*), ARRAY[{counted}], {samples} FROM compared
        """,  # noqa: S608 - composed of our own literals
        parameters,
    )


def spans(per_time: Sequence[Sequence[Governing]]) -> Iterator[tuple[Sequence[Governing], list[int]]]:
    """Horizons in a row at which the same rules govern, by their numbers."""
    numbered = enumerate(per_time)
    for _rules, group in groupby(numbered, key=lambda pair: list(pair[1])):
        found = list(group)
        yield found[0][1], [number for number, _rules in found]
