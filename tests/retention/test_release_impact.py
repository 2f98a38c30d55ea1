"""What a release would do: the figures agree with a recount by definition, and admit where they were cut short."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings

from cleanup_project.base.models import User
from retention import coverage, governing, holds, release_impact
from retention.eligibility import Reason, judge
from retention.models import Bucket, LegalHold, ObjectVersion, Tenant
from tests.retention.test_eligibility_agreement import Built, World, build, worlds
from tests.world import EPOCH, hold, published, release, version

pytestmark = pytest.mark.django_db


def recount(built: Built, released: LegalHold, as_of: Any) -> dict[str, Any]:
    """By definition: each version that the hold covers, and each object that it alone keeps."""
    (own,) = [each for each in holds.in_force(released.tenant_id) if each.id == released.pk]
    others = [each for each in holds.in_force(released.tenant_id) if each.id != released.pk]
    rules = governing.of_tenant(released.tenant, as_of)
    covered = [one for one in built.facts if one.present and own.covers(one)]
    freed = [one for one in covered if not any(other.covers(one) for other in others)]
    eligible = 0
    for one in built.facts:
        with_it = judge(one, built.around(one), rules, [*others, own], as_of)
        without = judge(one, built.around(one), rules, others, as_of)
        eligible += with_it.reason is Reason.HELD and without.reason is Reason.ELIGIBLE
    return {
        "covered": len(covered),
        "freed": len(freed),
        "still_held": Counter(other.id for one in covered for other in others if other.covers(one)),
        "eligible": eligible,
    }


def with_a_second_hold(world: World) -> World:
    wide = {"bucket_ids": [0, 1], "prefixes": ["a"], "retention_classes": ["*"], "stored_from": None, "stored_to": None}
    return replace(world, holds=[*world.holds, wide | {"released": False}])


def figures(found: release_impact.Impact) -> dict[str, Any]:
    said = {name: getattr(found, name) for name in ("covered", "freed", "still_held")}
    return said | {"eligible": len(found.eligible)}


def test_the_figures_agree_with_a_recount(person: Callable[..., User]) -> None:
    author, publisher = person("author"), person("publisher")
    seen: Counter[str] = Counter()

    @settings(
        max_examples=80,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(worlds.map(with_a_second_hold))
    def agree(world: World) -> None:
        with transaction.atomic(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(release_impact.clock, "now", lambda: world.as_of)
            patch.setattr(coverage, "PAGE", 3)
            built = build(world, author, publisher)
            for row in LegalHold.objects.in_force():
                expected = recount(built, row, world.as_of)
                assert figures(release_impact.of_release(row)) == expected
                seen.update(name for name, value in expected.items() if value)
            transaction.set_rollback(True)

    agree()
    assert set(seen) == {"covered", "freed", "still_held", "eligible"}


@pytest.fixture
def case(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, compliance: User) -> LegalHold:
    published(tenant, bucket, author=manager, publisher=second_manager, prefixes=["case/", "film/"])
    for n in range(4):
        version(bucket, tenant, f"case/{n}", size=10)
    version(bucket, tenant, "case/gone", gone_at=EPOCH, gone_reason="vanished")
    version(bucket, tenant, "case/other", retention_class="audio")
    return hold(tenant, bucket, "case/", by=compliance, retention_classes=[""])


def test_the_figures_in_numbers(case: LegalHold, tenant: Tenant, bucket: Bucket, compliance: User) -> None:
    other = hold(tenant, bucket, "case/3", by=compliance, matter="Roe v. Acme")
    film = version(bucket, tenant, "film/1", size=100)
    version(
        bucket, tenant, "case/thumb", original_key="film/1", stored_at=film.stored_at + timedelta(seconds=1), size=1
    )
    said = release_impact.as_json(release_impact.of_release(case))
    assert said["covers"] == {"versions": 5, "bytes": 41}
    assert said["frees"] == {"versions": 4, "bytes": 31}
    assert said["still_held"] == [{"hold": other.pk, "matter": "Roe v. Acme", "versions": 1}]
    assert said["freed_by_reason"] == {"travels": 1, "eligible": 3}
    assert said["eligible_at_once"] == {"objects": 4, "bytes": 131}, "the film goes with its thumbnail"
    assert [sample["key"] for sample in said["samples"]] == ["case/0", "case/1", "case/2", "film/1"]
    assert said["whole"]


@pytest.mark.parametrize(("days", "past"), [(None, 0), (36_500, 0), (1, 4)])
def test_what_is_past_its_maximum_is_told(
    days: int | None, past: int, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, compliance: User
) -> None:
    published(tenant, bucket, author=manager, publisher=second_manager, destroy_within_days=days)
    for n in range(4):
        version(bucket, tenant, f"case/{n}")
    said = release_impact.as_json(release_impact.of_release(hold(tenant, bucket, "case/", by=compliance)))
    assert (said["eligible_at_once"]["objects"], said["past_maximum"]) == (4, {"objects": past})


def test_figures_that_are_cut_short_say_so(case: LegalHold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "PAGE", 2)
    monkeypatch.setattr(release_impact, "READ_AT_MOST", 3)
    found = release_impact.of_release(case)
    assert (found.whole, found.covered) == (False, 4)
    monkeypatch.setattr(release_impact, "READ_AT_MOST", 1000)
    monkeypatch.setattr(release_impact, "SECONDS", -1)
    assert not release_impact.of_release(case).whole


def test_looking_changes_nothing_and_locks_nothing(case: LegalHold) -> None:
    before = list(ObjectVersion.objects.order_by("pk").values())
    release_impact.of_release(case)
    assert list(ObjectVersion.objects.order_by("pk").values()) == before
    release(case)


def test_a_count_is_exact_up_to_its_bound(case: LegalHold, monkeypatch: pytest.MonkeyPatch) -> None:
    scope = holds.facts_of(case)
    assert coverage.count(scope) == coverage.Count(4, 40, whole=True)
    assert coverage.count(replace(scope, stored_from=EPOCH + timedelta(days=1))).versions == 0
    assert coverage.count(replace(scope, stored_to=EPOCH)).versions == 0
    assert coverage.count(replace(scope, tenant_id=scope.tenant_id + 1)).versions == 0
    assert coverage.count(replace(scope, prefixes=("case/", "case/1", "none/"))).versions == 4
    monkeypatch.setattr(coverage, "COUNT_PAGE", 2)
    monkeypatch.setattr(coverage, "COUNTED_AT_MOST", 3)
    assert coverage.count(scope) == coverage.Count(4, 40, whole=False)
