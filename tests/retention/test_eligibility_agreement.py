"""The pure rule and its SQL agree on generated worlds: objects, revisions, holds, dates, month ends and leap days."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanup_project.base.models import User
from retention import governing, holds, scan
from retention.eligibility import DispositionFacts, EventFacts, Reason, Surroundings, Verdict, VersionFacts, judge
from retention.models import (
    Bucket,
    Disposition,
    HoldPrefix,
    LegalHold,
    ObjectVersion,
    PolicyRevision,
    RetentionEvent,
    RetentionPolicy,
    Role,
    Tenant,
)
from retention.prefixes import minimal
from retention.why import dispositions_of, events_of, facts_of
from tests.world import release

DAYS = [
    datetime(2023, 1, 30, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(2023, 1, 31, tzinfo=UTC),
    datetime(2023, 2, 28, tzinfo=UTC),
    datetime(2023, 3, 31, 12, tzinfo=UTC),
    datetime(2023, 4, 1, tzinfo=UTC),
    datetime(2023, 12, 31, 23, 59, 59, tzinfo=UTC),
    datetime(2024, 1, 1, tzinfo=UTC),
    datetime(2024, 1, 31, tzinfo=UTC),
    datetime(2024, 2, 28, tzinfo=UTC),
    datetime(2024, 2, 29, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    datetime(2024, 3, 1, tzinfo=UTC),
    datetime(2024, 3, 31, tzinfo=UTC),
    datetime(2024, 8, 30, tzinfo=UTC),
]
BEFORE = datetime(2022, 1, 1, tzinfo=UTC)
KEYS = ["a/1", "a/2", "a/b/1", "ab", "é/1", "é/1"]
PREFIXES = ["", "a/", "a/b/", "a", "é/", "z/"]
CLASSES = ["", "video", "audio"]
TYPES = ["contract-ended", "contract-ended", "left"]

moments = st.sampled_from(DAYS) | st.datetimes(
    datetime(2023, 1, 1),  # noqa: DTZ001 - naive by contract
    datetime(2024, 6, 30),  # noqa: DTZ001
    timezones=st.just(UTC),
)
evaluation_times = st.builds(
    lambda day, years, nudge: day.replace(year=day.year + years, day=min(day.day, 28)) + timedelta(days=nudge),
    moments,
    st.sampled_from([0, 1, 2, 3, 3]),
    st.sampled_from([0, 0, 1, 2, 3, 45]),
) | st.just(datetime(2025, 2, 28, tzinfo=UTC))


@dataclass
class World:
    versions: list[dict[str, Any]]
    policies: list[tuple[bool, list[dict[str, Any]]]]
    holds: list[dict[str, Any]]
    dispositions: list[dict[str, Any]]
    events: list[dict[str, Any]]
    as_of: datetime


versions = st.fixed_dictionaries(
    {
        "bucket": st.integers(0, 1),
        "tenant": st.sampled_from([0, 0, 0, 1, None]),
        "key": st.sampled_from(KEYS),
        "retention_class": st.sampled_from(CLASSES),
        "series": st.sampled_from(["s0", "s1"]),
        "stored_at": moments,
        "dated_at": st.none() | moments,
        "gone": st.sampled_from([False, False, False, True]),
        "is_delete_marker": st.sampled_from([False, False, False, True]),
        "original": st.none()
        | st.tuples(st.integers(0, 1), st.sampled_from(KEYS), st.sampled_from(["", "", "v0", "v3"])),
    }
)
revisions = st.fixed_dictionaries(
    {
        "bucket_ids": st.sampled_from([[0], [1], [0, 1]]),
        "prefixes": st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=3, unique=True),
        "retention_classes": st.sampled_from([["*"], ["video"], ["", "audio"]]),
        "trigger": st.sampled_from(["stored_at"] * 5 + ["dated_at"] * 3 + ["event"] * 4),
        "event_type": st.sampled_from(TYPES),
        "period_number": st.sampled_from([0, 1, 2, 12, 30]),
        "period_unit": st.sampled_from(["days", "weeks", "months", "years"]),
        "cutoff": st.sampled_from(["none", "none", "month", "quarter", "year"]),
        "keep_newest": st.sampled_from([0, 0, 0, 1, 2]),
        "retain_permanently": st.sampled_from([False] * 9 + [True]),
        "remove_expired_markers": st.booleans(),
        "retroactive": st.booleans(),
        "effective_from": st.sampled_from([BEFORE, *DAYS]),
    }
)
hold_scopes = st.fixed_dictionaries(
    {
        "bucket_ids": st.sampled_from([[0], [1], [0, 1]]),
        "prefixes": st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=2, unique=True),
        "retention_classes": st.sampled_from([["*"], ["*"], ["video"]]),
        "stored_from": st.sampled_from([None, None, *DAYS[:3]]),
        "stored_to": st.sampled_from([None, None, *DAYS[8:]]),
        "released": st.sampled_from([False, False, True]),
    }
)
happenings = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from([0, 0, 0, 1]),
        "event_type": st.sampled_from(TYPES),
        "bucket_ids": st.sampled_from([[0], [1], [0, 1]]),
        "prefixes": st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=3, unique=True),
        "retention_classes": st.sampled_from([["*"], ["*"], ["video"], ["", "audio"]]),
        "occurred_at": moments,
        "posted": st.sampled_from(["before"] * 5 + ["then", "after"]),
        "withdrawn": st.sampled_from([None] * 5 + ["before", "then", "after"]),
    }
)
decisions = st.fixed_dictionaries(
    {
        "about": st.integers(0, 7),
        "kind": st.sampled_from(["exempt", "extend", "extend", "reclassify"]),
        "until": moments | evaluation_times,
        "ended": st.sampled_from([False, False, False, True]),
    }
)
worlds = st.builds(
    World,
    versions=st.lists(versions, min_size=8, max_size=40),
    policies=st.lists(
        st.tuples(st.sampled_from([False] * 14 + [True]), st.lists(revisions, min_size=1, max_size=3)),
        min_size=1,
        max_size=3,
    ),
    holds=st.lists(hold_scopes, max_size=3),
    events=st.lists(happenings, max_size=6),
    dispositions=st.lists(decisions, max_size=4, unique_by=lambda one: (one["about"], one["kind"], one["ended"])),
    as_of=evaluation_times,
)


@dataclass
class Built:
    tenants: list[Tenant]
    rows: list[ObjectVersion]
    policies: list[RetentionPolicy]
    facts: list[VersionFacts] = field(default_factory=list)
    dispositions: list[DispositionFacts] = field(default_factory=list)
    events: list[EventFacts] = field(default_factory=list)

    def around(self, one: VersionFacts) -> Surroundings:
        """The surroundings, by their definition and nothing cleverer."""
        standalone = {row.pk for row in self.rows if row.standalone and not row.is_delete_marker}
        present = [each for each in self.facts if each.present]
        return Surroundings(
            same_key=[e for e in self.facts if (e.bucket_id, e.key) == (one.bucket_id, one.key)],
            series=[
                e for e in present if (e.tenant_id, e.series) == (one.tenant_id, one.series) and e.id in standalone
            ],
            derivatives=[
                e
                for e in present
                if e.is_derivative and (e.original_bucket_id, e.original_key) == (one.bucket_id, one.key)
            ],
            originals=[
                e
                for e in present
                if one.is_derivative and (e.bucket_id, e.key) == (one.original_bucket_id, one.original_key)
            ],
            dispositions=self.dispositions,
            events=self.events,
        )


def build(world: World, author: User, publisher: User) -> Built:
    tenants = [Tenant.objects.create(code=f"t{n}", name="T") for n in range(2)]
    buckets = [Bucket.objects.create(name=f"b{n}") for n in range(2)]
    rows = [version_row(n, one, tenants, buckets) for n, one in enumerate(world.versions)]
    originals = {(r.bucket_id, r.key) for r in rows if r.gone_at is None and not r.is_delete_marker}
    for row in rows:
        row.standalone = (
            row.role == Role.ORIGINAL
            or row.is_delete_marker
            or (row.original_bucket_id, row.original_key) not in originals
        )
    ObjectVersion.objects.bulk_create(rows)
    made = [
        policy_row(n, suspended, chain, tenants[0], buckets, (author, publisher))
        for n, (suspended, chain) in enumerate(world.policies)
    ]
    for one in world.holds:
        hold_row(one, tenants[0], buckets, author)
    for one in world.events:
        event_row(one, tenants, buckets, author, world.as_of)
    for one in world.dispositions:
        disposition_row(one, rows[one["about"]], tenants[0], author)
    built = Built(tenants, rows, made)
    built.facts = [facts_of(row) for row in rows]
    built.dispositions = dispositions_of([row.pk for row in rows])
    built.events = [event for tenant in tenants for event in events_of(tenant.pk, [bucket.pk for bucket in buckets])]
    return built


def version_row(n: int, one: dict[str, Any], tenants: list[Tenant], buckets: list[Bucket]) -> ObjectVersion:
    bucket, key, explicit = one["original"] or (None, "", "")
    if (bucket, key) == (one["bucket"], one["key"]):
        bucket, key, explicit = None, "", ""  # nothing is its own original
    return ObjectVersion(
        bucket=buckets[one["bucket"]],
        tenant=None if one["tenant"] is None else tenants[one["tenant"]],
        key=one["key"],
        version_id=f"v{n}",
        size=1,
        stored_at=one["stored_at"],
        dated_at=one["dated_at"],
        is_latest=False,
        is_delete_marker=one["is_delete_marker"],
        asset="asset",
        series=one["series"],
        retention_class=one["retention_class"],
        role=Role.DERIVATIVE if key else Role.ORIGINAL,
        original_bucket=None if bucket is None else buckets[bucket],
        original_key=key,
        original_version_id=explicit,
        source="listing",
        first_observed_at=BEFORE,
        observed_at=BEFORE,
        gone_at=BEFORE if one["gone"] else None,
        gone_reason="vanished" if one["gone"] else "",
    )


def policy_row(
    n: int,
    suspended: bool,
    chain: list[dict[str, Any]],
    tenant: Tenant,
    buckets: list[Bucket],
    people: tuple[User, User],
) -> RetentionPolicy:
    policy = RetentionPolicy.objects.create(
        tenant=tenant,
        code=f"p{n}",
        suspended_at=BEFORE if suspended else None,
        suspended_reason="Under review" if suspended else "",
        suspended_by=people[0] if suspended else None,
    )
    for number, said in enumerate(chain, 1):
        PolicyRevision.objects.create(
            policy=policy,
            tenant=tenant,
            number=number,
            title="P",
            authority="A",
            author=people[0],
            published_by=people[1],
            published_at=BEFORE,
            submitted_by=people[0],
            submitted_at=BEFORE,
            in_force_from=max(BEFORE, said["effective_from"]),
            **said
            | {
                "bucket_ids": [buckets[b].pk for b in said["bucket_ids"]],
                "event_type": said["event_type"] if said["trigger"] == "event" else "",
            },
        )
    return policy


def hold_row(one: dict[str, Any], tenant: Tenant, buckets: list[Bucket], by: User) -> None:
    chosen = [buckets[b] for b in one["bucket_ids"]]
    hold = LegalHold.objects.create(
        tenant=tenant,
        matter="M",
        title="T",
        authority="A",
        reason="R",
        placed_by=by,
        bucket_ids=[bucket.pk for bucket in chosen],
        prefixes=one["prefixes"],
        retention_classes=one["retention_classes"],
        stored_from=one["stored_from"],
        stored_to=one["stored_to"],
    )
    for bucket in chosen:
        for prefix in minimal(one["prefixes"]):
            HoldPrefix.objects.create(hold=hold, bucket=bucket, prefix=prefix)
    if one["released"]:
        release(hold)


def event_row(one: dict[str, Any], tenants: list[Tenant], buckets: list[Bucket], by: User, as_of: datetime) -> None:
    times = {"before": as_of - timedelta(seconds=1), "then": as_of, "after": as_of + timedelta(seconds=1)}
    withdrawn = {"withdrawn_at": times.get(one["withdrawn"]), "withdrawn_by": by, "withdrawn_reason": "R"}
    RetentionEvent.objects.create(
        tenant=tenants[one["tenant"]],
        event_type=one["event_type"],
        bucket_ids=[buckets[b].pk for b in one["bucket_ids"]],
        prefixes=one["prefixes"],
        retention_classes=one["retention_classes"],
        occurred_at=min(one["occurred_at"], times[one["posted"]]),
        posted_at=times[one["posted"]],
        posted_by=by,
        reason="R",
        started_versions=0,
        started_bytes=0,
        counted_all=True,
        **withdrawn if one["withdrawn"] else {},
    )


def disposition_row(one: dict[str, Any], row: ObjectVersion, tenant: Tenant, by: User) -> None:
    ended = {"ended_at": BEFORE, "ended_by": by, "end_reason": "Over"}
    Disposition.objects.create(
        object_version=row,
        tenant=tenant,
        kind=one["kind"],
        until=one["until"] if one["kind"] == "extend" else None,
        new_class="other" if one["kind"] == "reclassify" else "",
        reason="R",
        by=by,
        **ended if one["ended"] and one["kind"] != "reclassify" else {},
    )


def compare(judged: scan.Judged, verdict: Verdict) -> None:
    assert judged.reason is verdict.reason
    if judged.reason not in {Reason.UNSCHEDULED, Reason.GONE, Reason.TRAVELS}:
        assert judged.since == verdict.eligible_since
        assert judged.revision_id == (verdict.governed_by.revision_id if verdict.governed_by else None)
        assert sorted(judged.considered) == sorted(f.rule.label for f in verdict.findings)
    assert (judged.hold_id is not None) == bool(verdict.holds)
    assert list(judged.taken_along) == [t.id for t in verdict.targets[1:]]


def scanned(policy: RetentionPolicy, rules: Sequence[governing.Governing], as_of: datetime) -> list[int]:
    """What the streams of a policy find, read in tiny pages."""
    own = [rule for rule in rules if rule.policy_id == policy.pk]
    found: list[int] = []
    for stream in scan.plan(own, as_of):
        rule = next(rule for rule in own if rule.revision_id == stream.revision_id)
        after = None
        while (page := scan.page(stream, rule, as_of, after, 3)).size:
            found += map(int, page.ids.strip("{}").split(","))
            after = page.end
    return found


@pytest.mark.django_db
def test_sql_and_python_agree_on_every_object_and_scans_miss_none(person: Callable[..., User]) -> None:
    author, publisher = person("author"), person("publisher")
    seen: set[Reason] = set()
    objects = started = 0

    @settings(
        max_examples=250,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(worlds)
    def agree(world: World) -> None:
        nonlocal objects, started
        verdicts = list[Verdict]()
        with transaction.atomic():
            built = build(world, author, publisher)
            rules = governing.of_tenant(built.tenants[0], world.as_of)
            holding = holds.in_force(built.tenants[0].pk)
            ids = [one.id for one in built.facts]
            due: dict[int, set[int]] = {policy.pk: set() for policy in built.policies}
            for judged, one in zip(scan.judge_page(ids, rules, world.as_of), built.facts, strict=True):
                verdict = judge(one, built.around(one), rules, holding, world.as_of)
                verdicts.append(verdict)
                compare(judged, verdict)
                seen.add(verdict.reason)
                if verdict.reason in {Reason.ELIGIBLE, Reason.HELD} and verdict.governed_by:
                    due[verdict.governed_by.policy_id].add(one.id)
            for policy in built.policies:
                candidates = scanned(policy, rules, world.as_of)
                assert len(candidates) == len(set(candidates))
                assert due[policy.pk] <= set(candidates)
            objects += len(ids)
            started += sum(1 for verdict in verdicts if verdict.eligible and verdict.findings[0].event)
            transaction.set_rollback(True)

    agree()
    assert objects > 2000
    assert started > 20
    assert seen == set(Reason), f"never generated: {set(Reason) - seen}"
