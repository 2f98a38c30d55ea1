"""A run over a cap waits for a person, whatever was authorised, with the exact numbers; nothing of it goes ahead."""

from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test import Client

from ledger import caps, manifest, publish, runs
from ledger.models import CleanupCommand, CleanupRun
from ledger.states import RunState
from retention import census as counting
from retention import governing
from retention.census import Census, census
from retention.models import Bucket, ObjectVersion
from tests.ledger.acting import Acting, build
from tests.web import quick_pages, url  # noqa: F401
from tests.world import EPOCH, published, version

pytestmark = pytest.mark.django_db

UNDER = {"cap_objects": 10**6, "cap_bytes": 10**12, "cap_share_percent": 100}


def frozen(acting: Acting) -> CleanupRun:
    run, _new = runs.open_run(policy=acting.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    return manifest.freeze(run)


def over(run: CleanupRun) -> list[tuple[str, str, int, int, int | None]]:
    return [(each["revision"], each["cap"], each["limit"], each["actual"], each["of"]) for each in run.guards["over"]]


def put(acting: Acting, number: int, *, size: int = 10, **fields: Any) -> None:
    for n in range(number):
        version(acting.bucket, acting.tenant, f"o/{n:04d}-{len(fields)}-{size}", size=size, **fields)


@pytest.mark.parametrize(
    ("cap", "at_the_cap", "below", "found"),
    [
        ("cap_objects", 4, 3, ("originals/1", "objects", 3, 4, None)),
        ("cap_bytes", 37, 36, ("originals/1", "bytes", 36, 37, None)),
    ],
)
def test_a_run_over_an_absolute_cap_waits_for_a_person_and_one_at_it_does_not(
    cap: str, at_the_cap: int, below: int, found: tuple[Any, ...]
) -> None:
    acting = build(**{**UNDER, cap: below})
    put(acting, 3)
    version(acting.bucket, acting.tenant, "t/1", original_key="o/0001-0-10", size=7, stored_at=EPOCH)
    run = frozen(acting)
    assert run.state == RunState.NEEDS_APPROVAL
    assert run.authorised_at is None
    assert over(run) == [found], "the derivative counts"
    assert publish.publish(run.pk) == []
    assert not CleanupCommand.objects.exists(), "not even the first few go ahead"
    runs.cancel(run=run, by=acting.people["manager"], reason="Again with another cap.")

    raised = published(
        acting.tenant, acting.bucket, author=acting.people["manager"], publisher=acting.people["manager2"],
        code="originals", authorisation="standing", **{**UNDER, cap: at_the_cap},
    )  # fmt: skip
    acting.revision = raised
    run = frozen(acting)
    assert (run.state, run.guards["over"]) == (RunState.AUTHORISED, [])


@pytest.mark.parametrize(("recent", "state"), [(900, RunState.AUTHORISED), (899, RunState.NEEDS_APPROVAL)])
def test_the_share_is_of_all_present_originals_in_scope(recent: int, state: RunState) -> None:
    acting = build(**{**UNDER, "cap_share_percent": 10})
    put(acting, 100)
    put(acting, recent, size=20, stored_at=Now())
    elsewhere(acting)
    run = frozen(acting)
    assert run.state == state
    if state is RunState.NEEDS_APPROVAL:
        assert over(run) == [("originals/1", "share", 10, 100, 999)]
    assert run.guards["revisions"] == [
        {
            "revision": "originals/1", "items": 100, "objects": 100, "bytes": 1000, "original_bytes": 1000,
            "present": 100 + recent, "present_bytes": 1000 + 20 * recent, "whole": True,
        }
    ]  # fmt: skip


def elsewhere(acting: Acting) -> None:
    """What is no present original of the policy's scope, however much there is of it."""
    for n in range(20):
        version(acting.bucket, None, f"unscheduled/{n}", stored_at=Now())
        version(acting.bucket, acting.tenant, f"gone/{n}", gone_at=EPOCH, gone_reason="vanished")
        version(acting.bucket, acting.tenant, f"markers/{n}", is_delete_marker=True)
        version(acting.bucket, acting.tenant, f"later/{n}", first_observed_at="2100-01-01T00:00Z")
        version(acting.bucket, acting.tenant, f"thumbs/{n}", original_key="o/0900", stored_at="2100-01-01T00:00Z")
    other = Bucket.objects.create(name="other")
    version(other, acting.tenant, "o/1")


def test_the_share_of_bytes_is_of_originals_without_what_is_taken_along() -> None:
    acting = build(**{**UNDER, "cap_share_percent": 50})
    put(acting, 100, size=10)
    version(acting.bucket, acting.tenant, "t/1", original_key="o/0001-0-10", size=10**6, stored_at=EPOCH)
    put(acting, 101, size=9, stored_at=Now())
    run = frozen(acting)
    assert over(run) == [("originals/1", "share_of_bytes", 50, 1000, 1909)]


def test_a_share_of_less_than_a_hundred_items_says_nothing() -> None:
    acting = build(**{**UNDER, "cap_share_percent": 1})
    put(acting, 99)
    run = frozen(acting)
    assert (run.state, run.guards["revisions"][0]["present"]) == (RunState.AUTHORISED, None)


def test_what_has_gone_since_the_run_opened_still_counts() -> None:
    acting = build(**{**UNDER, "cap_share_percent": 10})
    put(acting, 100)
    put(acting, 900, size=20, stored_at=Now())
    run, _new = runs.open_run(policy=acting.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (now,) = cursor.fetchone()
    ObjectVersion.objects.filter(size=20).update(gone_at=now, gone_reason="vanished")
    put(acting, 50, size=30, stored_at=Now(), first_observed_at=now)
    assert manifest.freeze(run).state == RunState.AUTHORISED


def test_each_revision_has_its_own_caps_and_the_run_the_strictest() -> None:
    acting = build(**{**UNDER, "cap_objects": 5})
    since = EPOCH.replace(year=2021)
    published(
        acting.tenant, acting.bucket, author=acting.people["manager"], publisher=acting.people["manager2"],
        code="originals", authorisation="standing", retroactive=False, effective_from=since,
        **{**UNDER, "cap_objects": 4},
    )  # fmt: skip
    put(acting, 3)
    put(acting, 3, size=20, stored_at=since)
    assert over(frozen(acting)) == [("all revisions", "objects", 4, 6, None)]
    CleanupRun.objects.all().update(state="cancelled", ended_at=Now())
    put(acting, 2, size=30, stored_at=since)
    assert over(frozen(acting)) == [
        ("originals/2", "objects", 4, 5, None),
        ("all revisions", "objects", 4, 8, None),
    ]


def test_a_dry_run_finds_the_same_and_closes() -> None:
    acting = build(cap_objects=2)
    put(acting, 3)
    run, _new = runs.open_run(policy=acting.revision.policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    run = manifest.freeze(run)
    assert (run.state, over(run)) == (RunState.CLOSED, [("originals/1", "objects", 2, 3, None)])


def test_nothing_is_counted_while_the_runs_row_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    acting = build()
    put(acting, 1)
    depth = len(connection.savepoint_ids)
    measure, seen = caps.measure, []

    def measured(run: CleanupRun) -> dict[str, Any]:
        seen.append(len(connection.savepoint_ids))
        return measure(run)

    monkeypatch.setattr(caps, "measure", measured)
    frozen(acting)
    assert seen == [depth], "the test's own transaction, and none inside of it"


def test_what_is_found_after_the_counting_is_frozen_and_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold was released, say, and a version is no longer parked."""
    monkeypatch.setattr(manifest, "PART_SIZE", 1)
    acting = build(cap_objects=1)
    put(acting, 1)
    measure = caps.measure

    def measured(run: CleanupRun) -> dict[str, Any]:
        found = measure(run)
        if not ObjectVersion.objects.filter(size=20).exists():
            put(acting, 1, size=20)
        return found

    monkeypatch.setattr(caps, "measure", measured)
    run = frozen(acting)
    assert (run.item_count, over(run)) == (2, [("originals/1", "objects", 1, 2, None)])


def test_a_census_goes_page_by_page_through_every_prefix_once(monkeypatch: pytest.MonkeyPatch) -> None:
    acting = build(prefixes=["o/", "o/deep/", "p/"], retention_classes=["", "video"], trigger="dated_at")
    for key, fields in (
        ("o/1", {}),
        ("o/1", {"version_id": "another", "is_latest": False}),
        ("o/deep/1", {"retention_class": "video"}),
        ("o/deep/2", {"retention_class": "audio"}),
        ("p/1", {"dated_at": EPOCH, "size": 5}),
        ("q/1", {}),
    ):
        version(acting.bucket, acting.tenant, key, **fields)
    (rule,) = governing.of_tenant(acting.tenant, EPOCH.replace(year=2100))
    whole = census(rule, EPOCH)
    assert whole == Census(4, 305, 3)
    for page in (1, 2, 3):
        monkeypatch.setattr(counting, "PAGE", page)
        assert census(rule, EPOCH) == whole


@pytest.mark.parametrize(("percent", "present", "whole", "state"), [
    (50, 200, False, RunState.AUTHORISED), (20, 300, True, RunState.NEEDS_APPROVAL),
])  # fmt: skip
def test_present_originals_are_counted_until_the_share_is_known(
    percent: int, present: int, whole: bool, state: RunState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "PAGE", 50)
    monkeypatch.setattr(caps, "LOOK", 0)
    acting = build(**{**UNDER, "cap_share_percent": percent})
    put(acting, 100)
    put(acting, 200, stored_at=Now())
    run = frozen(acting)
    counted = run.guards["revisions"][0]
    assert (run.state, counted["present"], counted["whole"]) == (state, present, whole)


def test_bytes_are_counted_until_their_share_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "PAGE", 50)
    monkeypatch.setattr(caps, "LOOK", 0)
    acting = build(**{**UNDER, "cap_share_percent": 50})
    put(acting, 100, size=10)
    put(acting, 200, size=1, stored_at=Now())
    assert over(frozen(acting)) == [("originals/1", "share_of_bytes", 50, 1000, 1200)]


def test_markers_count_where_the_revision_removes_them() -> None:
    acting = build(remove_expired_markers=True)
    version(acting.bucket, acting.tenant, "o/1", is_delete_marker=True, size=0)
    (rule,) = governing.of_tenant(acting.tenant, EPOCH.replace(year=2100))
    assert census(rule, EPOCH) == Census(1, 0, 0)


def test_unknown_dates_are_reported_and_refuse_nothing() -> None:
    acting = build(trigger="dated_at")
    put(acting, 2)
    put(acting, 1, size=20, dated_at=EPOCH)
    run = frozen(acting)
    assert run.guards["undated"] == [
        {"revision": "originals/1", "actual": 2, "present": 3, "present_bytes": 40, "whole": True}
    ]
    assert (run.state, run.item_count) == (RunState.AUTHORISED, 1)


def test_a_run_and_its_approval_show_what_is_over(client: Client) -> None:
    acting = build(cap_objects=2, cap_bytes=29, cap_share_percent=10)
    put(acting, 120, size=1 << 20)
    client.force_login(acting.people["compliance"])
    run = frozen(acting)
    for page in ("change", "approve"):
        shown = client.get(url(CleanupRun, page, run.pk)).content.decode()
        assert "originals/1: 120 object versions, and the cap is 2." in shown
        assert shown.count("over a cap") == 4
        assert "originals/1: 120.0 MiB, and the cap is 29 bytes." in shown
        assert "originals/1: 120 of 120 present originals, 100.0 %, and the cap is 10 %." in shown
        assert "originals/1: 120.0 MiB of 120.0 MiB of originals, 100.0 %, and the cap is 10 %." in shown


def test_what_another_worker_froze_while_one_was_counting_is_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "PART_SIZE", 1)
    acting = build(cap_objects=1)
    put(acting, 1)
    measure = caps.measure

    def measured(run: CleanupRun) -> dict[str, Any]:
        found = measure(run)
        if not ObjectVersion.objects.filter(size=20).exists():
            put(acting, 1, size=20)
            assert manifest.freeze_part(run) is not None
        return found

    monkeypatch.setattr(caps, "measure", measured)
    run = frozen(acting)
    assert (run.item_count, over(run)) == (2, [("originals/1", "objects", 1, 2, None)])
