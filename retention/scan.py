"""Pages of candidates, read from the catalogue by index. No writes and no network here.

A scan is a fixed sequence of streams: one bucket, one retention class, one prefix, objects or markers. Each is read in
the order of one index, so that its cost follows what is due, and a cursor says where to go on.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, LiteralString, NamedTuple

from django.db import connection

from cleanup_project.base import sqlfiles
from cleanup_project.base.arrays import array
from retention import governing
from retention.duedate import latest_trigger
from retention.eligibility import Reason
from retention.governing import Governing
from retention.models import RetentionEvent
from retention.models.scope import ANY_CLASS
from retention.prefixes import minimal, narrowed, successor

REASONS = list(Reason)


@dataclass(frozen=True, slots=True)
class Stream:
    """One stretch of a scan. `by_key` reads in key order, else in the order of the date that starts the clock.

    Where an event starts it, the class may be any (`*`), and the date is that of storing.
    """

    revision_id: int
    bucket_id: int
    retention_class: str
    prefix: str
    markers: bool
    by_key: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Page(NamedTuple):
    """The versions that a page found, as PostgreSQL reads a bigint[], and the position of the last one, as text.

    The ids stay text because they go straight back: a number each took a tenth of a freeze's time.
    """

    ids: str
    size: int
    end: tuple[str, ...]


class Judged(NamedTuple):
    """The verdict on one version: `revision_id` and `since` are those of the revision that governs it.

    `considered` are the labels of every revision that covers it, `taken_along` the ids of the derivatives that go with it.
    """

    id: int
    reason: Reason
    revision_id: int | None
    since: datetime | None
    considered: Sequence[str]
    hold_id: int | None
    taken_along: Sequence[int]


def plan(rules: Sequence[Governing], as_of: datetime) -> list[Stream]:
    """The streams that together cover everything that these revisions of one policy can make eligible."""
    streams = []
    for rule in rules:
        if rule.retain_permanently or rule.suspended:
            continue
        if rule.waits:
            streams += started_streams(rule, as_of)
            continue
        for bucket_id in sorted(set(rule.bucket_ids)):
            for retention_class in classes_of(rule, bucket_id):
                for prefix in minimal(rule.prefixes):
                    for markers in (False, True) if rule.remove_expired_markers else (False,):
                        stream = Stream(rule.revision_id, bucket_id, retention_class, prefix, markers, by_key=False)
                        by_key = bool(prefix) and key_order_is_cheaper(stream, rule, as_of)
                        streams.append(replace(stream, by_key=by_key))
    return streams


def started_streams(rule: Governing, as_of: datetime) -> list[Stream]:
    """The streams of a rule that waits for events: what lies under the prefixes of events that may be due by now.

    Read by key, whatever the class, so that the cost follows what the events cover; a whole bucket by class, since its keys
    are those of every tenant, and of what is gone.
    """
    bound = latest_trigger(as_of, number=rule.period_number, unit=rule.period_unit, cutoff=rule.cutoff)
    events = RetentionEvent.objects.known(as_of).filter(
        tenant=rule.tenant_id, event_type=rule.event_type, occurred_at__lte=bound
    )
    covered: dict[int, list[str]] = {bucket_id: [] for bucket_id in sorted(set(rule.bucket_ids))}
    for bucket_ids, prefixes in events.values_list("bucket_ids", "prefixes"):
        for bucket_id in covered.keys() & set(bucket_ids):
            covered[bucket_id] += narrowed(rule.prefixes, prefixes)
    streams = list[Stream]()
    for bucket_id, prefixes in covered.items():
        for prefix in minimal(prefixes):
            for retention_class in (ANY_CLASS,) if prefix else classes_of(rule, bucket_id):
                for markers in (False, True) if rule.remove_expired_markers else (False,):
                    streams.append(
                        Stream(rule.revision_id, bucket_id, retention_class, prefix, markers, by_key=bool(prefix))
                    )
    return streams


def classes_of(rule: Governing, bucket_id: int) -> list[str]:
    """The classes to read: those named, or each one that the bucket holds, found by skipping along the index.

    Also those of which everything is parked: what a released hold had parked is given back only before the first part.
    """
    if ANY_CLASS not in rule.retention_classes:
        return sorted(set(rule.retention_classes))
    found = list[str]()
    readable = [present(markers) for markers in ((False, True) if rule.remove_expired_markers else (False,))]
    for among in ("parked_by_id IS NOT NULL", *readable):
        with connection.cursor() as cursor:
            cursor.execute(
                f"""
                WITH RECURSIVE step AS (
                    (SELECT retention_class FROM retention_objectversion WHERE {among}
                        AND tenant_id = %(tenant)s AND bucket_id = %(bucket)s ORDER BY retention_class LIMIT 1)
                    UNION ALL
                    SELECT (SELECT v.retention_class FROM retention_objectversion v WHERE {among}
                        AND tenant_id = %(tenant)s AND bucket_id = %(bucket)s
                        AND v.retention_class > step.retention_class ORDER BY v.retention_class LIMIT 1)
                    FROM step WHERE step.retention_class IS NOT NULL
                )
                SELECT retention_class FROM step WHERE retention_class IS NOT NULL
                """,  # noqa: S608 - composed of our own literals
                {"tenant": rule.tenant_id, "bucket": bucket_id},
            )
            found += [row[0] for row in cursor.fetchall()]
    return sorted(set(found))


def present(markers: bool) -> LiteralString:
    """The predicate of the partial index that a stream reads, as literals so that the planner can prove it."""
    return (
        "gone_at IS NULL AND standalone AND parked_by_id IS NULL AND is_delete_marker"
        if markers
        else "gone_at IS NULL AND standalone AND parked_by_id IS NULL AND NOT is_delete_marker"
    )


def conditions(stream: Stream, rule: Governing, as_of: datetime) -> tuple[str, dict[str, Any]]:
    """What every candidate of the stream fulfils, whatever the order of reading."""
    bound = latest_trigger(as_of, number=rule.period_number, unit=rule.period_unit, cutoff=rule.cutoff)
    where = f"""{present(stream.markers)}
        AND tenant_id = %(tenant)s AND bucket_id = %(bucket)s AND first_observed_at <= %(as_of)s"""
    if not (rule.waits and stream.by_key):
        where += " AND retention_class = %(class)s"
    if not rule.waits:
        where += f" AND {rule.trigger} <= %(bound)s"
    if rule.stored_from is not None:
        where += " AND stored_at >= %(stored_from)s"
    if rule.stored_to is not None:
        where += " AND stored_at < %(stored_to)s"
    return where, {
        "tenant": rule.tenant_id,
        "bucket": stream.bucket_id,
        "class": stream.retention_class,
        "as_of": as_of,
        "bound": bound,
        "stored_from": rule.stored_from,
        "stored_to": rule.stored_to,
        "prefix": stream.prefix,
        "prefix_end": successor(stream.prefix),
    }


def key_range(stream: Stream) -> str:
    end = " AND key < %(prefix_end)s" if successor(stream.prefix) is not None else ""
    return f"key >= %(prefix)s{end}"


def key_order_is_cheaper(stream: Stream, rule: Governing, as_of: datetime) -> bool:
    """Whether fewer rows stand under the prefix than are due in the whole bucket and class, as the planner estimates."""
    where, parameters = conditions(stream, rule, as_of)
    by_key = f"SELECT FROM retention_objectversion WHERE bucket_id = %(bucket)s AND {key_range(stream)}"
    by_date = f"SELECT FROM retention_objectversion WHERE {where}"
    return estimate(by_key, parameters) < estimate(by_date, parameters)


def estimate(sql: str, parameters: Mapping[str, Any]) -> int:
    """The planner's estimate of the rows that a query returns; nothing is executed."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT json) {sql}", parameters)
        explained = cursor.fetchone()[0]
    found = explained if isinstance(explained, list) else json.loads(explained)
    return int(found[0]["Plan"]["Plan Rows"])


def page_query(
    stream: Stream, rule: Governing, as_of: datetime, after: Sequence[Any] | None, limit: int
) -> tuple[str, dict[str, Any]]:
    """The query of one page: at most `limit` candidates of the stream, after a position."""
    where, parameters = conditions(stream, rule, as_of)
    date = "stored_at" if stream.markers or rule.waits else rule.trigger
    columns = ["key", "version_id", "incarnation"] if stream.by_key else [date, "id"]
    if stream.prefix:
        where += f" AND {key_range(stream)}"
    order = ", ".join(columns)
    if after:
        where += f" AND ({order}) > ({', '.join(f'%(after_{index})s' for index in range(len(columns)))})"
        parameters |= {f"after_{index}": value for index, value in enumerate(after)}
    parameters["limit"] = limit
    said = ", ".join(f"{column} AS position_{index}" for index, column in enumerate(columns))
    return (
        f"SELECT id, {said} FROM retention_objectversion WHERE {where} ORDER BY {order} LIMIT %(limit)s",  # noqa: S608
        parameters,
    )


def page(stream: Stream, rule: Governing, as_of: datetime, after: Sequence[Any] | None, limit: int) -> Page:
    """At most `limit` versions of a stream whose clock may have run out; fewer than asked means the stream's end.

    At a clamped month end some of them are a few days early: whether they are due, `judge_page` says.
    """
    sql, parameters = page_query(stream, rule, as_of, after, limit)
    last = (f"(array_agg(position_{index}))[count(*)]::text" for index in range(3 if stream.by_key else 2))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT coalesce(array_agg(id), '{{}}')::text, count(*), {', '.join(last)} FROM ({sql}) found",  # noqa: S608
            parameters,
        )
        ids, size, *end = cursor.fetchone()
        return Page(ids, size, tuple(end))


def joined(pages: Sequence[Page]) -> str:
    """The ids of these pages as one array; empty where they found nothing."""
    found = ",".join(page.ids.strip("{}") for page in pages if page.size)
    return found and f"{{{found}}}"


def lock_versions(ids: str) -> str:
    """Lock these versions until the transaction ends, and the derivatives that may go with them, whose ids it returns."""
    derivatives: str
    derivatives, _locked = sqlfiles.row(sqlfiles.read(__file__, "lock_versions.sql"), {"ids": ids})
    return derivatives


def derivatives_of(ids: str) -> str:
    """The ids of the derivatives that may go with these versions, without locking anything."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT coalesce(array_agg(d.id), '{}')::text FROM retention_objectversion o
            CROSS JOIN LATERAL (
                SELECT v.id FROM retention_objectversion v
                WHERE v.original_bucket_id = o.bucket_id AND v.original_key = o.key
                    AND v.role = 'derivative' AND v.gone_at IS NULL
                OFFSET 0
            ) d
            WHERE o.id = ANY(%s::bigint[])
            """,
            [ids],
        )
        found: str = cursor.fetchone()[0]
        return found


def judge_page(ids: Sequence[int], rules: Sequence[Governing], as_of: datetime) -> list[Judged]:
    """Judge these versions against every revision in force of their tenant, in the order of `ids`.

    An id that is not catalogued is left out.
    """
    asked = array(ids)
    judge, parameters = judging(asked, lock_versions(asked), rules, as_of)
    tail = """
        SELECT
            id, reason, revision_id, since, considered, hold_id, ARRAY(
                SELECT d.id FROM derivative d WHERE d.original_id = verdict.id ORDER BY d.bucket_id, d.key, d.version_id
            )
        FROM verdict ORDER BY place
    """
    with connection.cursor() as cursor:
        cursor.execute(judge + tail, parameters)
        return [
            Judged(id, REASONS[reason], revision_id, since, (considered or "").split('","'), hold_id, taken_along)
            for id, reason, revision_id, since, considered, hold_id, taken_along in cursor.fetchall()
        ]


def reasons(ids: Sequence[int], rules: Sequence[Governing], as_of: datetime) -> dict[int, tuple[Reason, int | None]]:
    """What the rules say of these versions, each by itself, and the revision that governs it.

    Without locks, and without what would go along.

    Runs inside the caller's transaction.
    """
    judge, parameters = judging(array(ids), "{}", rules, as_of)
    tail = "SELECT id, reason, revision_id FROM verdict"
    with connection.cursor() as cursor:
        # As in freezing, the planner takes a thousand versions for a handful.
        cursor.execute("SET LOCAL enable_nestloop = off")
        cursor.execute(judge + tail, parameters)
        found = {pk: (REASONS[reason], revision_id) for pk, reason, revision_id in cursor.fetchall()}
        cursor.execute("SET LOCAL enable_nestloop = on")
    return found


def judging(
    ids: str, derivatives: str, rules: Sequence[Governing], as_of: datetime, *, without: int = 0
) -> tuple[LiteralString, dict[str, Any]]:
    """The beginning of a query, up to `verdict`, that judges these versions, and its parameters.

    `derivatives` are those that may go with them (`lock_versions`), `without` is a hold that is taken for released.
    """
    ruled = sqlfiles.read(__file__, "ruled_by_one.sql" if len(rules) == 1 else "ruled_by_several.sql")
    return sqlfiles.read(__file__, "judge.sql").replace("{ruled}", ruled), {
        "ids": ids,
        "derivatives": derivatives,
        "rules": json.dumps(governing.as_json(rules)),
        "as_of": as_of,
        "without": without,
    }
