"""Before a run is authorised, reviewers take items out of it; what remains is what is approved and carried out."""

import json
from collections.abc import Callable
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from ledger import dispositions, manifest, publish, runs, sweep
from ledger.dispositions import Chosen, Review
from ledger.exceptions import LedgerError, NotPermitted
from ledger.explain import explain
from ledger.models import CleanupCommand, CleanupRun, ItemDisposition, ManifestItem, Receipt
from ledger.states import RunState
from retention.models import Bucket, Disposition, ObjectVersion
from tests.ledger.acting import Acting, build
from tests.web import quick_pages, url  # noqa: F401
from tests.world import EPOCH, enforced, listed, published, version

pytestmark = pytest.mark.django_db

NOTHING = sha256().digest()
NEWER = EPOCH.replace(year=2021) + timedelta(days=30)
OLDER = {"go/0", "keep/1", "go/2", "go/3", "keep/4", "go/5", "go/6"}


@pytest.fixture
def acting(monkeypatch: pytest.MonkeyPatch) -> Acting:
    """Seven objects in parts of three, looked at in stretches of two."""
    monkeypatch.setattr(manifest, "PART_SIZE", 3)
    monkeypatch.setattr(dispositions, "CHUNK", 2)
    made = build(authorisation="approval")
    for n in range(7):
        made.put(f"{'keep' if n in (1, 4) else 'go'}/{n}", asset=f"clip-{n}")
    return made


def waiting(acting: Acting) -> CleanupRun:
    run, _new = runs.open_run(policy=acting.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    return manifest.freeze(run)


def exempt(acting: Acting, run: CleanupRun, reason: str = "Still needed.", **chosen: Any) -> CleanupRun:
    dispositions.exempt(run=run, chosen=Chosen(**chosen), by=acting.people["compliance"], reason=reason)
    run.refresh_from_db()
    return run


def approve(acting: Acting, run: CleanupRun, **said: Any) -> CleanupRun:
    named = {"root": run.remaining_root, "confirmation": str(run.remaining_count), "reason": "Read."}
    return runs.approve(run=run, by=acting.people["compliance"], **(named | said))


def rebuilt_root(run: CleanupRun) -> str:
    """As `docs/manifest.md` says, from the lines alone."""
    root = sha256()
    exempted = set(run.dispositions.values_list("ordinal", flat=True))
    for part in run.parts.order_by("number"):
        lines = part.items.exclude(ordinal__in=exempted).order_by("ordinal").values_list("line", flat=True)
        root.update(sha256(b"".join(sha256(line.encode()).digest() for line in lines)).digest())
    return root.hexdigest()


def test_where_nothing_is_exempted_everything_remains_under_the_manifests_root(acting: Acting) -> None:
    run = waiting(acting)
    assert (run.remaining_root, run.remaining_count, run.exempt_count) == (run.manifest_root, 7, 0)
    assert dispositions.remaining(run) == (run.manifest_root, 7)


def test_exempted_items_are_not_destroyed_and_the_counts_add_up(acting: Acting) -> None:
    run = exempt(acting, waiting(acting), prefix="keep/")
    assert (run.remaining_count, run.exempt_count) == (5, 2)
    assert run.remaining_root == rebuilt_root(run) != run.manifest_root
    run = approve(acting, run)
    publish.publish(run.pk)
    assert CleanupCommand.objects.count() == 5
    acting.drain()
    acting.settled()
    run.refresh_from_db()
    assert (run.state, run.counts) == (RunState.CLOSED, {"deleted": 5, "exempt": 2})
    assert [acting.there(rows[0]) for rows in acting.versions.values()] == [
        False,
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    told = json.loads(bytes(Receipt.objects.earliest("pk").body))
    assert told["approval"]["root"] == run.remaining_root
    assert told["manifest"]["root"] == run.manifest_root
    event = AuditEvent.objects.get(action="run.approved")
    assert (event.after["remaining_root"], event.after["remaining"], event.after["exempt"]) == (
        run.remaining_root,
        5,
        2,
    )


def test_a_part_of_which_all_is_exempted_counts_as_nothing(acting: Acting) -> None:
    run = waiting(acting)
    items = run.items.filter(ordinal__lte=3).values_list("pk", flat=True)
    run = exempt(acting, run, items=tuple(items))
    digests = [bytes.fromhex(part.digest) for part in run.parts.order_by("number")]
    assert run.remaining_root == sha256(NOTHING + digests[1] + digests[2]).hexdigest()
    assert (publish.publish(approve(acting, run).pk)[0].created, CleanupCommand.objects.count()) == (0, 4)


def test_extended_items_say_until_when(acting: Acting) -> None:
    run = waiting(acting)
    until = timezone.now() + timedelta(days=90)
    said = {"run": run, "by": acting.people["manager"], "reason": "Audit under way."}
    with pytest.raises(LedgerError, match="in the future"):
        dispositions.extend(chosen=Chosen(prefix="keep/"), until=timezone.now(), **said)
    assert dispositions.extend(chosen=Chosen(prefix="keep/"), until=until, **said) == 2
    row = ItemDisposition.objects.earliest("pk")
    assert (row.kind, row.until, row.by, row.reason) == ("extend", until, acting.people["manager"], "Audit under way.")
    run.refresh_from_db()
    assert (run.remaining_count, run.exempt_count) == (5, 2)
    explained = explain(row.item.command_key)
    assert explained.next.at == until
    assert "manager extended its retention: Audit under way." in explained.next.what
    assert any(moment.what.startswith("Extended until") for moment in explained.story)


@pytest.fixture
def mixed(acting: Acting) -> CleanupRun:
    """Two buckets, two revisions, several dates."""
    other = Bucket.objects.create(name="other")
    listed(other)
    enforced(acting.tenant, other, "", by=acting.people["manager"], approver=acting.people["manager2"])
    since = EPOCH.replace(year=2021)
    published(
        acting.tenant, acting.bucket, author=acting.people["manager"], publisher=acting.people["manager2"],
        code="originals", retroactive=False, effective_from=since, bucket_ids=[acting.bucket.pk, other.pk],
        cap_share_percent=100,
    )  # fmt: skip
    version(other, acting.tenant, "keep/8", stored_at=since)
    version(acting.bucket, acting.tenant, "keep/9", stored_at=since)
    version(acting.bucket, acting.tenant, "go/10", stored_at=since + timedelta(days=5))
    return waiting(acting)


@pytest.mark.parametrize(
    ("chosen", "keys"),
    [
        (lambda run, other, newer: {"bucket_id": other}, {"keep/8"}),
        (lambda run, other, newer: {"prefix": "keep/"}, {"keep/1", "keep/4", "keep/8", "keep/9"}),
        (lambda run, other, newer: {"prefix": "keep/", "revision_id": newer}, {"keep/8", "keep/9"}),
        (lambda run, other, newer: {"since_from": NEWER + timedelta(days=5)}, {"go/10"}),
        (lambda run, other, newer: {"since_to": NEWER}, OLDER),
        (lambda run, other, newer: {"items": (run.items.get(command_key__contains=":clip-0:").pk,)}, {"go/0"}),
    ],
)  # fmt: skip
def test_a_filter_means_what_fulfils_all_of_it(
    chosen: Callable[..., dict[str, Any]], keys: set[str], mixed: CleanupRun, acting: Acting
) -> None:
    other = Bucket.objects.get(name="other")
    newer = acting.revision.policy.revisions.get(number=2).pk
    run = exempt(acting, mixed, **chosen(mixed, other.pk, newer))
    lines = ItemDisposition.objects.values_list("item__line", flat=True)
    assert {json.loads(line)["targets"][0]["key"] for line in lines} == keys
    assert run.remaining_count == 10 - len(keys)


def test_what_is_taken_out_of_a_run_is_kept_by_later_runs(acting: Acting) -> None:
    run = waiting(acting)
    until = timezone.now() + timedelta(days=90)
    first = run.items.get(ordinal=1)
    by = acting.people["compliance"]
    dispositions.extend(run=run, chosen=Chosen(items=(first.pk,)), until=until, by=by, reason="Audit.")
    exempt(acting, run, prefix="keep/")
    kept = Disposition.objects.order_by("object_version_id").values_list(
        "object_version__key", "kind", "until", "reason"
    )
    assert list(kept) == [
        ("go/0", "extend", until, "Audit."),
        ("keep/1", "exempt", None, "Still needed."),
        ("keep/4", "exempt", None, "Still needed."),
    ]
    runs.cancel(run=run, by=by, reason="Later.")
    assert waiting(acting).item_count == 4


def test_what_no_tenant_owns_any_more_is_taken_out_all_the_same(acting: Acting) -> None:
    run = waiting(acting)
    ObjectVersion.objects.filter(key="keep/1").update(tenant=None)
    assert exempt(acting, run, prefix="keep/").exempt_count == 2
    assert Disposition.objects.get().object_version.key == "keep/4"


def test_who_may_and_what_is_refused(acting: Acting, person: Callable[..., User]) -> None:
    run = waiting(acting)
    with pytest.raises(NotPermitted, match="approve_run"):
        dispositions.exempt(run=run, chosen=Chosen(prefix="keep/"), by=person("olga", roles.OPERATOR), reason="R")
    with pytest.raises(LedgerError, match="State a reason"):
        exempt(acting, run, reason=" ", prefix="keep/")
    with pytest.raises(LedgerError, match="at least one condition"):
        exempt(acting, run)
    with pytest.raises(LedgerError, match="Nothing that remains"):
        exempt(acting, run, prefix="other/")
    with pytest.raises(LedgerError, match="Not all of these"):
        exempt(acting, run, items=(run.items.get(ordinal=1).pk, 987654))
    assert not ItemDisposition.objects.exists()
    exempt(acting, run, prefix="keep/")
    with pytest.raises(LedgerError, match="Nothing that remains"):
        exempt(acting, run, prefix="keep/")


def test_an_approval_names_what_remains_and_how_much_that_is(acting: Acting) -> None:
    run = exempt(acting, waiting(acting), prefix="keep/")
    for said, words in (
        ({"root": run.manifest_root}, "not the root of what remains"),
        ({"confirmation": "7"}, "Confirm with the number"),
        ({"confirmation": ""}, "Confirm with the number"),
        ({"confirmation": run.policy.code}, "Confirm with the number"),
        ({"reason": " "}, "State a reason"),
    ):
        with pytest.raises(LedgerError, match=words):
            approve(acting, run, **said)
    assert approve(acting, run, confirmation=run.key).state == RunState.AUTHORISED


def test_a_run_of_which_nothing_remains_cannot_be_approved(acting: Acting) -> None:
    run = exempt(acting, waiting(acting), bucket_id=acting.bucket.pk)
    assert run.remaining_count == 0
    with pytest.raises(LedgerError, match="Nothing remains"):
        approve(acting, run)


def test_the_database_refuses_an_opener_who_approves(acting: Acting) -> None:
    run, _new = runs.open_run(
        policy=acting.revision.policy, by=acting.people["compliance"], mode=CleanupRun.Mode.ENFORCE
    )
    run = manifest.freeze(run)
    with pytest.raises(LedgerError, match="a second person must approve"):
        approve(acting, run)
    with pytest.raises(IntegrityError, match="run_second_person"), transaction.atomic():
        CleanupRun.objects.filter(pk=run.pk).update(state="authorised", authorised_by=acting.people["compliance"])


def test_after_the_authorisation_nothing_is_exempted(acting: Acting) -> None:
    run = approve(acting, waiting(acting))
    with pytest.raises(LedgerError, match="before it is authorised"):
        exempt(acting, run, prefix="keep/")
    for change in ({"remaining_root": "0" * 64}, {"remaining_count": 1}, {"exempt_count": 1}):
        with pytest.raises(IntegrityError, match="before it is authorised"), transaction.atomic():
            CleanupRun.objects.filter(pk=run.pk).update(**change)


def test_in_its_cooling_off_time_an_exemption_voids_the_approval(acting: Acting) -> None:
    acting.revision = published(
        acting.tenant, acting.bucket, author=acting.people["manager"], publisher=acting.people["manager2"],
        code="originals", cooling_off_minutes=60, cap_share_percent=100,
    )  # fmt: skip
    run = approve(acting, waiting(acting))
    assert run.state == RunState.COOLING_OFF
    run = exempt(acting, run, prefix="keep/")
    assert (run.state, run.authorised_by, run.authorised_at, run.cooling_until) == (
        RunState.NEEDS_APPROVAL,
        None,
        None,
        None,
    )
    assert (run.authorisation, run.remaining_count) == ("", 5)
    assert runs.authorise_cooled() == 0
    assert publish.publish(run.pk) == []
    with pytest.raises(LedgerError, match="not the root of what remains"):
        approve(acting, run, root=run.manifest_root)
    assert approve(acting, run).state == RunState.COOLING_OFF


def test_a_run_that_cools_off_anew_while_the_sweep_comes_to_it_is_not_authorised(
    acting: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody exempted an item, and another approved the rest, after the sweep had read which runs have cooled."""
    acting.revision = published(
        acting.tenant, acting.bucket, author=acting.people["manager"], publisher=acting.people["manager2"],
        code="originals", cooling_off_minutes=60, cap_share_percent=100,
    )  # fmt: skip
    run = approve(acting, waiting(acting))
    CleanupRun.objects.filter(pk=run.pk).update(cooling_until=Now())
    locking = CleanupRun.objects.select_for_update

    def late(**options: Any) -> Any:
        CleanupRun.objects.filter(pk=run.pk).update(cooling_until=Now() + timedelta(hours=1))
        return locking(**options)

    monkeypatch.setattr(CleanupRun.objects, "select_for_update", late)
    assert runs.authorise_cooled() == 0
    run.refresh_from_db()
    assert run.state == RunState.COOLING_OFF


def test_an_exemption_that_was_cut_short_is_counted_by_the_sweep_before_anybody_approves(
    acting: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = waiting(acting)
    with monkeypatch.context() as broken:
        broken.setattr(dispositions, "reckon", lambda _pk: {}["gone"])
        with pytest.raises(KeyError):
            exempt(acting, run, prefix="keep/")
    run.refresh_from_db()
    assert (run.remaining_root, run.exempt_count) == ("", 2)
    with pytest.raises(LedgerError, match="still being counted"):
        approve(acting, run, root="")
    assert sweep.sweep()["reckoned"] == 1
    run.refresh_from_db()
    assert (run.remaining_root, run.remaining_count) == (rebuilt_root(run), 5)


def test_what_is_exempted_while_the_rest_is_counted_is_counted_again(
    acting: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = waiting(acting)
    first = Chosen(items=(run.items.get(ordinal=1).pk,))
    remaining = dispositions.remaining
    with monkeypatch.context() as meanwhile:

        def slowly(counted: CleanupRun) -> tuple[str, int]:
            found = remaining(counted)
            review = Review(ItemDisposition.Kind.EXEMPT, acting.people["manager"], "Too.")
            dispositions.dispose_stretch(run.pk, (1, dispositions.CHUNK), first, review)
            return found

        meanwhile.setattr(dispositions, "remaining", slowly)
        exempt(acting, run, prefix="keep/")
    run.refresh_from_db()
    assert (run.remaining_root, run.exempt_count) == ("", 3), "what was counted is out of date"
    assert dispositions.reckon_unfinished() == 1
    run.refresh_from_db()
    assert (run.remaining_root, run.remaining_count) == (rebuilt_root(run), 4)


def test_each_stretch_is_a_transaction_of_its_own(acting: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    run = waiting(acting)
    monkeypatch.setattr(dispositions, "CHUNK", 4)
    stretch, seen = dispositions.dispose_stretch, []

    def stretched(*given: Any) -> int:
        seen.append((given[1], len(connection.savepoint_ids), ItemDisposition.objects.count()))
        return stretch(*given)

    monkeypatch.setattr(dispositions, "dispose_stretch", stretched)
    depth = len(connection.savepoint_ids)
    exempt(acting, run, prefix="keep/")
    assert seen == [((1, 4), depth, 0), ((5, 8), depth, 1)]


def test_dispositions_are_append_only_and_one_for_an_item(acting: Acting) -> None:
    run = exempt(acting, waiting(acting), prefix="keep/")
    row = ItemDisposition.objects.earliest("pk")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        ItemDisposition.objects.update(reason="Changed.")
    same = {"run": run, "ordinal": row.ordinal, "item": row.item, "by": row.by, "reason": "R"}
    with pytest.raises(IntegrityError, match="item_disposed_once"), transaction.atomic():
        ItemDisposition.objects.create(**same, kind="exempt")
    same["ordinal"] = 1
    for kind, until in (("extend", None), ("exempt", timezone.now())):
        with pytest.raises(IntegrityError, match="item_extended_until"), transaction.atomic():
            ItemDisposition.objects.create(**same, kind=kind, until=until)


def test_a_run_cancelled_in_its_cooling_off_time_has_no_effect(acting: Acting, client: Client) -> None:
    acting.revision = published(
        acting.tenant, acting.bucket, author=acting.people["manager"], publisher=acting.people["manager2"],
        code="originals", cooling_off_minutes=60, cap_share_percent=100, authorisation="standing",
    )  # fmt: skip
    run = waiting(acting)
    assert run.state == RunState.COOLING_OFF
    client.force_login(acting.people["operator"])
    shown = client.get(url(CleanupRun, "change", run.pk)).content.decode()
    assert f"{run.cooling_until:%Y-%m-%d %H:%M:%S} UTC" in shown
    assert url(CleanupRun, "cancel", run.pk) in shown
    client.post(url(CleanupRun, "cancel", run.pk), {"reason": "Wrong month."})
    CleanupRun.objects.filter(pk=run.pk).update(cooling_until=Now())
    assert runs.authorise_cooled() == 0
    assert publish.publish(run.pk) == []
    acting.drain()
    assert not CleanupCommand.objects.exists()
    assert acting.store.calls == []
    assert all(acting.there(rows[0]) for rows in acting.versions.values())


def counted(client: Client, page: str, **chosen: Any) -> dict[str, Any]:
    """What the page that counts sends along with its confirmation."""
    told = client.get(page, chosen).context
    return {**chosen, "counted": told["counted"], "expected": told["expected"], "token": told["token"]}


def test_pages_exempt_by_filter_and_one_by_one(acting: Acting, client: Client) -> None:
    run = waiting(acting)
    client.force_login(acting.people["manager"])
    page = url(CleanupRun, "exempt", run.pk)
    assert page in client.get(url(CleanupRun, "change", run.pk)).content.decode()
    uncounted = client.post(page, {"prefix": "keep/", "reason": "Needed."}).content.decode()
    assert "was not counted as it is now" in uncounted
    assert not run.dispositions.exists()
    shown = client.post(page, counted(client, page, prefix="keep/") | {"reason": "Needed."}, follow=True)
    assert "2 items exempted." in shown.content.decode()
    item = ManifestItem.objects.get(run=run, ordinal=1)
    extend = url(CleanupRun, "extend", run.pk)
    assert f"{extend}?item={item.pk}" in client.get(url(ManifestItem, "change", item.pk)).content.decode()
    assert item.command_key in client.get(extend, {"item": item.pk}).content.decode()
    said = {"item": item.pk, "until_0": "2100-01-01", "until_1": "00:00", "reason": "Audit."}
    assert "1 item extended." in client.post(extend, said, follow=True).content.decode()
    assert list(run.dispositions.order_by("ordinal").values_list("ordinal", "kind")) == [
        (1, "extend"), (2, "exempt"), (5, "exempt"),
    ]  # fmt: skip
    shown = client.get(url(ManifestItem, "change", item.pk)).content.decode()
    assert "extended until" in shown
    assert extend not in shown
    rows = client.get(url(ItemDisposition, "changelist"), {"run": run.pk}).context["cl"].result_list
    assert [row.ordinal for row in rows] == [1, 2, 5]
    client.force_login(acting.people["compliance"])
    assert "4 of 7 items." in client.get(url(CleanupRun, "approve", run.pk)).content.decode()


def test_an_item_in_the_address_does_not_stand_in_for_a_count(acting: Acting, client: Client) -> None:
    run = waiting(acting)
    client.force_login(acting.people["manager"])
    page = url(CleanupRun, "exempt", run.pk)
    item = ManifestItem.objects.get(run=run, ordinal=1)
    said = {"prefix": "keep/", "reason": "Needed."}
    seen = counted(client, page, prefix="keep/")
    for address, given in (
        (f"{page}?item={item.pk}", said),
        (page, said | {"item": f" {item.pk}"}),
        (page, said | {"item": 10**17}),
        (page, seen | said | {"expected": ""}),
    ):
        answer = client.post(address, given)
        assert "was not counted as it is now" in answer.content.decode()
    assert not run.dispositions.exists()


@pytest.mark.parametrize(("role", "status"), [(roles.OPERATOR, 403), (roles.AUDITOR, 403), (roles.COMPLIANCE, 302)])
def test_who_sees_the_pages(
    role: str, status: int, acting: Acting, person: Callable[..., User], client: Client
) -> None:
    run = waiting(acting)
    client.force_login(person("someone", role))
    address = url(CleanupRun, "exempt", run.pk)
    said = {"prefix": "keep/", "counted": "under 'keep/'", "expected": 2, "token": uuid4(), "reason": "R"}
    assert client.post(address, said).status_code == status
    assert (address in client.get(url(CleanupRun, "change", run.pk)).content.decode()) == (status == 302)
