"""A preview's exact figures are what counting object by object gives; its estimate and its progress say what they are."""

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django_q.models import OrmQ
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cleanup_project.base.models import User
from ledger import sweep
from retention import governing, holds, impact, policies, preview, tasks
from retention.eligibility import Reason, Verdict, judge
from retention.governing import Governing
from retention.models import Bucket, ImpactPreview, ObjectVersion, PolicyRevision, Tenant
from tests.retention.test_eligibility_agreement import Built, World, build, revisions, worlds
from tests.retention.test_policies import next_draft
from tests.retention.test_verbs import draft
from tests.world import days_ago, hold, published, version

pytestmark = pytest.mark.django_db


def end(verdict: Verdict) -> Any:
    ending = verdict.reason in {Reason.NOT_YET, Reason.HELD, Reason.ELIGIBLE}
    return verdict.eligible_since if ending else None


def sooner(one: Verdict, other: Verdict) -> bool:
    return end(one) is not None and (end(other) is None or end(one) < end(other))


def counted(built: Built, drafted: PolicyRevision, as_of: Any) -> dict[str, Any]:
    """The figures, one object at a time, by the pure rule."""
    figures = impact.nothing(3)
    sizes = dict(ObjectVersion.objects.values_list("pk", "size"))
    holding = holds.in_force(drafted.tenant_id)
    standalone = {row.pk for row in built.rows if row.standalone}
    sides = [rules_of(drafted, as_of + ahead) for ahead in preview.HORIZONS]
    own = [rule for pair in sides for rules in pair for rule in rules if rule.policy_id == drafted.policy_id]
    for one in built.facts:
        covered = any(rule.in_scope(one.tenant_id, one.bucket_id, one.key, one.retention_class) for rule in own)
        if not (covered and one.present and one.id in standalone):
            continue
        figures["objects"] += 1
        for number, (ahead, pair) in enumerate(zip(preview.HORIZONS, sides, strict=True)):
            today, with_draft = (judge(one, built.around(one), rules, holding, as_of + ahead) for rules in pair)
            total = [1, sum(sizes[target.id] for target in today.targets)]
            for side, verdict in (("today", today), ("draft", with_draft)):
                if verdict.eligible:
                    figures[side][number] = impact.plus(figures[side][number], total)
        for name, differs in {
            "sooner": sooner(with_draft, today),
            "later": sooner(today, with_draft),
            "newly_held": with_draft.reason is Reason.HELD and today.reason is not Reason.HELD,
            "newly_unscheduled": with_draft.reason is Reason.UNSCHEDULED and today.reason is not Reason.UNSCHEDULED,
        }.items():
            if differs:
                figures[name] = impact.plus(figures[name], total)
    return figures


def rules_of(drafted: PolicyRevision, moment: Any) -> tuple[list[Governing], list[Governing]]:
    """Today's rules at that moment, and with the draft as if it had always been in force."""
    today = governing.of_tenant(drafted.tenant, moment)
    chain = [each for each in drafted.policy.revisions.all() if each.published_at is not None]
    assumed = PolicyRevision.objects.get(pk=drafted.pk)
    assumed.in_force_from = preview.BEFORE_ALL
    others = [rule for rule in today if rule.policy_id != drafted.policy_id]
    return today, others + governing.in_force([*chain, assumed], moment)


def test_exact_figures_are_those_of_the_pure_rule(
    person: Callable[..., User], manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    author, publisher = person("author"), person("publisher")
    monkeypatch.setattr(preview, "PAGE", 16)
    sums = impact.nothing(3)
    spans = 0

    @settings(
        max_examples=50,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],  # shrinking takes minutes: worlds are large
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(worlds, revisions, st.integers(0, 2))
    def agree(world: World, said: dict[str, Any], which: int) -> None:
        nonlocal sums, spans
        # What is posted or withdrawn later cannot be known.
        world.events = [each for each in world.events if "after" not in (each["posted"], each["withdrawn"])]
        with transaction.atomic():
            built = build(world, author, publisher)
            ObjectVersion.objects.update(size=F("id") % 7 + 1)
            policy = built.policies[which % len(built.policies)]
            bucket_ids = [sorted(Bucket.objects.values_list("pk", flat=True))[b] for b in said["bucket_ids"]]
            event_type = said["event_type"] if said["trigger"] == "event" else ""
            fixed = {"retroactive": which > 0, "bucket_ids": bucket_ids, "event_type": event_type}
            drafted = PolicyRevision.objects.create(
                policy=policy, tenant=policy.tenant, number=9, title="D", authority="A", author=author, **said | fixed
            )
            monkeypatch.setattr(preview, "clock", SimpleNamespace(now=lambda: world.as_of))
            row = preview.request(revision=drafted, by=manager)
            assert row.state == ImpactPreview.State.EXACT
            expected = counted(built, drafted, world.as_of)
            assert row.figures == expected
            for name in impact.DIFFERENCES:
                assert len(row.samples.get(name, [])) == min(impact.SAMPLES, expected[name][0])
            sums = impact.added(sums, expected)
            times = [world.as_of + ahead for ahead in preview.HORIZONS]
            spans += len({str(governing.of_tenant(policy.tenant, moment)) for moment in times}) > 1
            transaction.set_rollback(True)

    agree()
    assert sums["sooner"][0] > 0, sums
    assert all(pair[0] > 0 for side in ("today", "draft") for pair in sums[side]), sums
    assert spans > 0, "no rules came into force between the horizons"


@pytest.fixture
def drafted(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> PolicyRevision:
    """A draft that shortens 30 days to 10, over forty objects of one to forty days."""
    now = preview.clock.now()
    first = published(tenant, bucket, author=manager, publisher=second_manager, code="originals")
    for age in range(1, 41):
        version(bucket, tenant, f"o/{age:02d}", stored_at=days_ago(age, now))
    return next_draft(first, manager, period_number=10)


def test_the_figures_say_what_a_shortening_does(drafted: PolicyRevision, manager: User) -> None:
    row = preview.request(revision=drafted, by=manager)
    assert row.figures["today"] == [[11, 1100], [40, 4000], [40, 4000]]
    assert row.figures["draft"] == [[31, 3100], [40, 4000], [40, 4000]]
    assert (row.figures["sooner"], row.figures["later"]) == ([40, 4000], [0, 0])
    assert [each["key"] for each in row.samples["sooner"]] == [f"o/{age:02d}" for age in range(1, 21)]
    first = row.samples["sooner"][0]
    assert first["today"] > first["draft"]
    assert row.sampled is None
    assert not OrmQ.objects.exists()


def test_the_figures_name_what_is_held_and_what_is_left_without_a_policy(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, compliance: User
) -> None:
    now = preview.clock.now()
    first = published(tenant, bucket, author=manager, publisher=second_manager, period_number=400)
    for key in ("o/1", "o/2", "z/3"):
        version(bucket, tenant, key, stored_at=days_ago(40, now))
    hold(tenant, bucket, "o/1", by=compliance)
    narrower = next_draft(first, manager, period_number=10, prefixes=["o/"])
    figures = preview.request(revision=narrower, by=manager).figures
    assert (figures["today"], figures["draft"]) == ([[0, 0]] * 3, [[1, 100]] * 3)
    assert (figures["sooner"], figures["later"]) == ([2, 200], [1, 100])
    assert (figures["newly_held"], figures["newly_unscheduled"]) == ([1, 100], [1, 100])


def test_a_large_catalogue_is_estimated_at_once_and_counted_in_the_background(
    drafted: PolicyRevision, manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "SMALL", 0)
    monkeypatch.setattr(preview, "PAGE", 7)
    row = preview.request(revision=drafted, by=manager)
    assert (row.state, row.read, row.sampled) == (ImpactPreview.State.COUNTING, 0, 40)
    (message,) = OrmQ.objects.all()
    assert (message.task["func"], message.task["args"]) == ("retention.tasks.preview", (row.pk,))
    tasks.preview(row.pk)
    exact = ImpactPreview.objects.get(pk=row.pk)
    assert (exact.state, exact.read) == (ImpactPreview.State.EXACT, 40)
    assert exact.figures == row.estimate  # the sample was the whole table
    tasks.preview(row.pk)
    assert ImpactPreview.objects.get(pk=row.pk).figures == exact.figures


def test_an_estimate_is_scaled_by_what_was_left_out(
    drafted: PolicyRevision, manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "SMALL", 0)
    monkeypatch.setattr(preview, "SAMPLE", 100)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pg_class SET reltuples = 200 WHERE oid = 'retention_objectversion'::regclass")
    sampled, factors = set[int](), set[float]()
    for _ in range(12):  # every other sample meets a block
        row = preview.request(revision=drafted, by=manager)
        assert row.sampled is not None
        sampled.add(row.sampled)
        factors |= {row.estimate["objects"] / row.sampled} if row.sampled else set()
    assert factors == {2.0}
    assert max(sampled) <= 40


def test_counting_goes_on_where_it_stopped(
    drafted: PolicyRevision, manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = preview.request(revision=drafted, by=manager)
    monkeypatch.setattr(preview, "SMALL", 0)
    monkeypatch.setattr(preview, "PAGE", 7)
    row = preview.request(revision=drafted, by=manager)
    assert not preview.count_slice(row.pk, budget_seconds=-1)
    row.refresh_from_db()
    assert (row.read, row.cursor["after"][0]) == (7, "o/07")
    with monkeypatch.context() as broken:
        added = impact.added
        broken.setattr(impact, "added", lambda *given: {}[str(added(*given))])
        with pytest.raises(KeyError):
            preview.count_page(row.pk)
    assert preview.count_slice(row.pk, budget_seconds=60)
    row.refresh_from_db()
    assert (row.figures, row.samples, row.read) == (whole.figures, whole.samples, 40)


def test_the_sweep_rings_for_a_preview_that_nobody_counts(
    drafted: PolicyRevision, manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "SMALL", 0)
    row = preview.request(revision=drafted, by=manager)
    assert preview.unfinished() == []
    ImpactPreview.objects.filter(pk=row.pk).update(progressed_at=F("progressed_at") - timedelta(minutes=2))
    assert preview.unfinished() == [row.pk]
    OrmQ.objects.all().delete()
    sweep.sweep()
    assert "retention.tasks.preview" in [each.task["func"] for each in OrmQ.objects.all()]


@pytest.mark.parametrize("change", ["edit", "publish", "suspend"])
def test_a_preview_of_what_has_changed_meanwhile_ends_without_figures_to_publish_by(
    change: str, drafted: PolicyRevision, manager: User, second_manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as large:
        large.setattr(preview, "SMALL", 0)
        row = preview.request(revision=drafted, by=manager)
    if change == "edit":
        policies.edit(revision=drafted, by=manager, period_number=11)
    elif change == "publish":
        bucket = Bucket.objects.get()
        published(drafted.tenant, bucket, author=manager, publisher=second_manager, code="other")
    else:
        policies.suspend(policy=drafted.policy, by=manager, reason="R")
    assert preview.count_page(row.pk)
    row.refresh_from_db()
    assert row.state == ImpactPreview.State.OVERTAKEN


def test_a_finished_preview_never_changes(tenant: Tenant, bucket: Bucket, manager: User) -> None:
    preview.request(revision=draft(tenant, bucket, manager), by=manager)
    with pytest.raises(IntegrityError, match="is finished"), transaction.atomic():
        ImpactPreview.objects.update(figures={})


def test_a_wide_draft_is_read_once_and_other_tenants_objects_are_not_counted(
    drafted: PolicyRevision, tenant: Tenant, bucket: Bucket, manager: User
) -> None:
    other = Tenant.objects.create(code="other", name="Other")
    version(bucket, other, "o/foreign")
    version(bucket, tenant, "o/gone", gone_at=preview.clock.now(), gone_reason="vanished")
    overlapping = policies.edit(revision=drafted, by=manager, prefixes=["o/", "o/1", "o"])
    row = preview.request(revision=overlapping, by=manager)
    assert (row.figures["objects"], row.read) == (40, 42)
