"""Two sealed manifests beside each other: only here, only there, changed; asked for once, kept for ever."""

import json
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.test import Client

from cleanup_project.base import sqlfiles
from cleanup_project.base.models import Alarm, AuditEvent, User
from ledger import compare, manifest, runs, sweep
from ledger.admin import comparisons
from ledger.exceptions import LedgerError, NotPermitted
from ledger.models import CleanupRun, ManifestComparison, ManifestDifference, ManifestItem
from retention.models import ObjectVersion
from tests.ledger.acting import EPOCH, Acting, build
from tests.web import quick_pages, url  # noqa: F401
from tests.world import sealed_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def acting() -> Acting:
    made = build(authorisation="approval")
    for name in ("same", "larger", "later", "gone", "joined"):
        made.put(f"clips/{name}", asset=name)
    return made


def moved_on(acting: Acting) -> tuple[CleanupRun, CleanupRun]:
    """A dry run, and the enforcing run after it, before which the world has changed."""
    dry = sealed_run(acting.revision)
    rows = {row.asset: row for row in ObjectVersion.objects.all()}
    ObjectVersion.objects.filter(pk=rows["larger"].pk).update(size=50)
    ObjectVersion.objects.filter(pk=rows["later"].pk).update(stored_at=EPOCH.replace(month=2))
    ObjectVersion.objects.filter(pk=rows["gone"].pk).update(retention_class="kept", tenant=None)
    acting.put("clips/new", asset="new")
    joined = acting.put("thumbs/joined", asset="joined", original_key="clips/joined", role="derivative")
    ObjectVersion.objects.filter(pk=joined.pk).update(original_bucket=acting.bucket, standalone=False)
    return sealed_run(acting.revision, mode=CleanupRun.Mode.ENFORCE), dry


def names(made: ManifestComparison, kind: str) -> list[str]:
    rows = made.differences.filter(kind=kind).order_by("ordinal")
    items = ManifestItem.objects.in_bulk()
    return [json.loads(items[row.item_id or row.other_item_id or 0].line)["asset"] for row in rows]


def compared(run: CleanupRun, other: CleanupRun) -> ManifestComparison:
    asked = compare.ask(run=run, other=other, by=None)
    assert compare.carry_out(asked.pk)
    asked.refresh_from_db()
    return asked


def test_each_item_is_the_same_or_only_here_or_only_there_or_changed(acting: Acting) -> None:
    run, dry = moved_on(acting)
    made = compared(run, dry)
    assert (made.same, made.only_here, made.only_there, made.changed) == (1, 1, 1, 3)
    assert names(made, "here") == ["new"]
    assert names(made, "there") == ["gone"]
    assert set(names(made, "changed")) == {"larger", "later", "joined"}
    assert made.changes == {"revision": 0, "eligible_since": 1, "targets": 1, "bytes": 2, "other": 0}
    other_way = compared(dry, run)
    assert (other_way.only_here, other_way.only_there, other_way.changed) == (1, 1, 3)


def test_what_changed_is_told_of_each(acting: Acting) -> None:
    run, dry = moved_on(acting)
    told: dict[str, dict[str, Any]] = {}
    items = ManifestItem.objects.in_bulk()
    for row in compared(run, dry).differences.filter(kind="changed"):
        here, there = items[row.item_id or 0], items[row.other_item_id or 0]
        told[json.loads(here.line)["asset"]] = {
            what: (own, others) for what, own, others in compare.differences(here.line, there.line)
        }
    assert told["larger"] == {"bytes": ("50", "1"), "targets": ("the same versions", "catalogued otherwise")}
    assert told["later"]["trigger at"] == ("2020-02-01T00:00:00.000000Z", "2020-01-01T00:00:00.000000Z")
    assert {"eligible since", "trigger at"} <= set(told["later"])
    assert told["joined"]["targets"] == ("1 only here", "0 only there")


def test_it_is_made_once_and_never_changes(acting: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "LISTED", 2)
    run, dry = moved_on(acting)
    made = compared(run, dry)
    assert (made.changed, made.differences.filter(kind="changed").count()) == (3, 2)
    assert not compare.carry_out(made.pk)
    assert compare.ask(run=run, other=dry, by=acting.people["manager"]) == made
    assert AuditEvent.objects.filter(action="manifest.compared").count() == 1
    with pytest.raises(DatabaseError), transaction.atomic():
        ManifestDifference.objects.all().delete()


def test_only_two_sealed_manifests_of_one_policy_are_compared(acting: Acting) -> None:
    run = sealed_run(acting.revision)
    scanning, _new = runs.open_run(policy=acting.revision.policy, by=None)
    with pytest.raises(LedgerError, match="is not sealed"):
        compare.ask(run=scanning, other=run, by=None)
    with pytest.raises(LedgerError, match="another run of the same policy"):
        compare.ask(run=run, other=run, by=None)
    assert compare.default(scanning) == run
    assert not compare.candidates(run).exists()


def test_a_run_that_waits_for_an_approval_is_compared_by_itself(acting: Acting) -> None:
    dry = sealed_run(acting.revision)
    opened, _new = runs.open_run(policy=acting.revision.policy, by=None)
    assert compare.ask_for_waiting() == 0
    run = manifest.freeze(opened)
    assert (sweep.sweep()["compared"], sweep.sweep()["compared"]) == (1, 0)
    made = ManifestComparison.objects.get()
    assert (made.run, made.other, compare.unfinished()) == (run, dry, [made.pk])


def test_the_page_compares_with_the_last_dry_run_and_lists_by_kind(
    acting: Acting, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons, "PER_PAGE", 2)
    run, dry = moved_on(acting)
    page = url(CleanupRun, "compare", run.pk)
    client.force_login(acting.people["manager"])
    assert "Not compared yet." in client.get(page).content.decode()
    assert not ManifestComparison.objects.exists()
    waits = client.post(page, {"other": dry.pk}, follow=True).content.decode()
    assert "Being compared" in waits
    assert f'hx-get="{page}?other={dry.pk}" hx-trigger="every 5s"' in waits
    assert f'<a href="{url(CleanupRun, "change", run.pk)}"' in waits.partition('id="content-main"')[0]  # the trail
    compare.carry_out(ManifestComparison.objects.get().pk)
    shown = client.get(page).content.decode()
    assert "2 shown, 1 more." in shown
    assert "hx-get" not in shown.partition('id="content-main"')[2]
    assert f"{page}?other={dry.pk}&amp;kind=changed&amp;after=2" in shown
    assert "1 shown." in client.get(page, {"other": dry.pk, "kind": "changed", "after": 2}).content.decode()
    assert "clips/new" in client.get(page, {"other": dry.pk, "kind": "here"}).content.decode()
    assert client.get(page, {"other": "x", "after": "-1"}).status_code == 200
    assert client.get(page, {"kind": "nonsense"}).status_code == 200


def test_what_takes_too_long_is_given_up_with_an_alarm_until_somebody_asks_anew(
    acting: Acting, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, dry = moved_on(acting)
    asked = compare.ask(run=run, other=dry, by=None)
    monkeypatch.setattr(compare, "AT_MOST", 1)
    with monkeypatch.context() as patched:
        patched.setattr(sqlfiles, "read", lambda file, name: "SELECT pg_sleep(60)")
        for _ in range(compare.TRIES):
            assert compare.unfinished() == [asked.pk]
            assert not compare.carry_out(asked.pk)
    assert not Alarm.objects.open().exists()
    assert compare.unfinished() == [asked.pk]
    assert not compare.carry_out(asked.pk)
    assert (Alarm.objects.open().get().kind, compare.unfinished()) == (compare.GIVEN_UP, [])
    assert not compare.carry_out(asked.pk)
    page = url(CleanupRun, "compare", run.pk)
    client.force_login(acting.people["manager"])
    assert "Given up." in client.get(page, {"other": dry.pk}).content.decode()
    client.post(page, {"other": dry.pk})
    assert not Alarm.objects.open().exists()
    assert compare.carry_out(asked.pk)


def test_nobody_has_runs_of_another_tenant_compared(acting: Acting) -> None:
    run, dry = moved_on(acting)
    User.objects.filter(pk=acting.people["manager"].pk).update(tenants=["other"])
    with pytest.raises(NotPermitted):
        compare.ask(run=run, other=dry, by=User.objects.get(pk=acting.people["manager"].pk))
