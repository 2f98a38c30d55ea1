"""Many items taken out of a sealed manifest: counted, confirmed, then a bulk job, while which nobody approves the run."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from cleanup_project.base import jobs, jobwork
from cleanup_project.base.jobs import JobRefused
from cleanup_project.base.models import AuditEvent, BulkJob
from ledger import dispositions, manifest, reviewing, runs, standing
from ledger.dispositions import Chosen, Kind, Review
from ledger.exceptions import LedgerError
from ledger.models import CleanupRun, ItemDisposition, ManifestItem, ManifestReview
from ledger.next_action import Turn
from ledger.states import RunState
from retention import dispositions as kept
from retention.exceptions import RetentionError
from retention.models import Disposition
from tests.ledger.acting import Acting, build
from tests.ledger.test_reviews import counted, rebuilt_root
from tests.web import quick_pages, url  # noqa: F401
from tests.world import sealed_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def acting() -> Acting:
    made = build(authorisation="approval")
    made.fill([*(f"keep/{n}" for n in range(5)), "go/1", "go/2"])
    return made


@pytest.fixture
def run(acting: Acting) -> CleanupRun:
    return sealed_run(acting.revision, mode=CleanupRun.Mode.ENFORCE)


def begin(acting: Acting, run: CleanupRun, expected: int = 5, **said: Any) -> BulkJob:
    review = Review(said.pop("kind", Kind.EXEMPT), acting.people["manager"], "Needed.", said.pop("until", None))
    fields: dict[str, Any] = {"chosen": Chosen(prefix="keep/"), "token": uuid4()} | said
    return reviewing.begin(run=run, review=review, expected=expected, **fields)


def work(job: BulkJob) -> BulkJob:
    assert jobwork.work_slice(job.pk, budget_seconds=60, wait=lambda seconds: None)
    job.refresh_from_db()
    return job


def test_a_job_takes_out_what_was_chosen_and_then_what_remains_is_counted(acting: Acting, run: CleanupRun) -> None:
    job = begin(acting, run)
    assert (job.total, run.dispositions.count()) == (5, 1)  # the first went with the job itself
    assert dispositions.reckon_unfinished() == 0
    assert work(job).outcomes == {"exempted": 5}
    assert dispositions.reckon_unfinished() == 1
    run.refresh_from_db()
    assert (run.remaining_count, run.exempt_count) == (2, 5)
    assert run.remaining_root == rebuilt_root(run) != run.manifest_root
    assert Disposition.objects.filter(kind="exempt").count() == 5
    said = AuditEvent.objects.get(action="run.review")
    assert (said.after["items"], said.after["job"], said.reason) == (5, job.pk, "Needed.")
    assert not AuditEvent.objects.filter(action="run.exempt").exists()  # the job is on record once, not chunk by chunk


def test_nobody_approves_it_before_the_job_has_ended(acting: Acting, run: CleanupRun) -> None:
    root = run.remaining_root
    job = begin(acting, run)
    said = {"by": acting.people["compliance"], "root": root, "confirmation": "7", "reason": "Read."}
    with pytest.raises(LedgerError, match="A bulk job is still taking items out"):
        runs.approve(run=run, **said)
    run.refresh_from_db()
    following = standing.of_run(run, standing.Progress(0))
    assert (following.turn, f"Bulk job {job.pk}" in following.what) == (Turn.AUTOMATIC, True)
    with pytest.raises(LedgerError, match="already: let it end"):
        begin(acting, run)
    jobs.cancel(job=job, by=acting.people["manager"], reason="Too many.")
    assert dispositions.reckon(run.pk)
    run.refresh_from_db()
    assert run.remaining_count == 6
    approved = runs.approve(run=run, **(said | {"root": run.remaining_root, "confirmation": "6"}))
    assert approved.state == RunState.AUTHORISED


def test_what_cools_off_must_be_approved_anew_as_soon_as_the_job_begins() -> None:
    acting = build(authorisation="standing", cooling_off_minutes=60)
    acting.fill(["keep/1", "go/1"])
    run = sealed_run(acting.revision, mode=CleanupRun.Mode.ENFORCE)
    assert run.state == RunState.COOLING_OFF
    begin(acting, run, expected=1)
    run.refresh_from_db()
    assert (run.state, run.authorised_at, run.remaining_root) == (RunState.NEEDS_APPROVAL, None, "")


def test_extended_items_say_until_when(acting: Acting, run: CleanupRun) -> None:
    until = timezone.now().replace(year=2100)
    job = work(begin(acting, run, kind=Kind.EXTEND, until=until))
    assert job.outcomes == {"extended": 5}
    assert set(ItemDisposition.objects.values_list("kind", "until")) == {("extend", until)}


def test_a_run_that_ended_meanwhile_refuses_what_is_left(acting: Acting, run: CleanupRun) -> None:
    job = begin(acting, run)
    runs.cancel(run=run, by=acting.people["operator"], reason="Wrong month.")
    assert work(job).outcomes == {"exempted": 1, "refused": 4}  # the first went with the job itself
    assert "is cancelled" in job.items.latest("ordinal").detail


def test_what_is_told_of_an_item_is_so_where_another_one_is_refused(
    acting: Acting, run: CleanupRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = begin(acting, run)
    last = ManifestItem.objects.get(pk=job.items.latest("ordinal").subject_id)
    exempt = kept.exempt

    def refusing(ids: Sequence[int], **said: Any) -> int:
        if last.object_version_id in ids:
            raise RetentionError("It was moved to nobody.")
        return exempt(ids, **said)

    monkeypatch.setattr(dispositions, "CHUNK", 1)  # of the ordinals that are looked at together
    monkeypatch.setattr(kept, "exempt", refusing)
    assert work(job).outcomes == {"exempted": 4, "refused": 1}
    assert not run.dispositions.filter(item=last).exists()
    assert run.dispositions.count() == 4


def test_a_chunk_takes_one_lock_of_its_originals_however_far_apart_its_items_are(
    acting: Acting, run: CleanupRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispositions, "CHUNK", 1)  # of the ordinals that are looked at together
    job = begin(acting, run)
    with CaptureQueriesContext(connection) as asked:
        work(job)
    locks = [each["sql"] for each in asked if "FOR NO KEY UPDATE" in each["sql"] and "objectversion" in each["sql"]]
    bumps = [each["sql"] for each in asked if "INSERT INTO retention_control" in each["sql"]]
    assert (len(locks), len(bumps)) == (1, 1)


def test_the_same_form_again_is_the_same_job_and_another_number_is_refused(acting: Acting, run: CleanupRun) -> None:
    token = uuid4()
    job = begin(acting, run, token=token)
    assert begin(acting, run, token=token) == job
    work(job)
    with pytest.raises(JobRefused, match="Nothing matches any more"):
        begin(acting, run)
    with pytest.raises(JobRefused, match="You saw 9, and 2 match now"):
        begin(acting, run, expected=9, chosen=Chosen(prefix="go/"))
    assert ManifestReview.objects.count() == 1


def test_the_page_counts_and_has_many_typed_before_a_job_begins(
    acting: Acting, run: CleanupRun, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledger.admin.reviews.TYPED_ABOVE", 4)
    monkeypatch.setattr(reviewing, "AT_ONCE", 4)
    client.force_login(acting.people["manager"])
    page = url(CleanupRun, "exempt", run.pk)
    said = counted(client, page, prefix="keep/") | {"reason": "Needed."}
    assert "Type 5, the number of items" in client.post(page, said).content.decode()
    assert "was not counted as it is now" in client.post(page, said | {"prefix": "", "typed": 5}).content.decode()
    assert not BulkJob.objects.exists()
    again = client.post(page, said | {"_count": "Count"})
    assert again.context["expected"] == 5
    assert "Needed." in again.content.decode()
    response = client.post(page, said | {"typed": 5}, follow=True)
    assert f"5 items to be taken out of {run}" in response.content.decode()
    assert BulkJob.objects.get().total == 5
    assert "Nothing that remains in the run matches." in client.get(page, {"prefix": "none/"}).content.decode()


def test_ticked_items_lead_to_their_confirmation(
    acting: Acting, run: CleanupRun, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(acting.people["manager"])
    page = f"{url(ManifestItem, 'changelist')}?run={run.pk}"
    assert "Exempt the selected" in client.get(page).content.decode()
    ids = list(run.items.order_by("ordinal").values_list("pk", flat=True)[:2])
    ticked = {"action": "exempt_selected", ACTION_CHECKBOX_NAME: ids}
    confirmation = client.post(page, ticked, follow=True)
    assert confirmation.context["expected"] == 2
    items = ",".join(map(str, ids))
    exempt = url(CleanupRun, "exempt", run.pk)
    client.post(exempt, counted(client, exempt, items=items) | {"reason": "Needed."})
    assert set(run.dispositions.values_list("item_id", flat=True)) == set(ids)
    assert "exempted" in client.get(page).content.decode()
    monkeypatch.setattr("ledger.admin.reviews.TICKED", 1)
    every = {**ticked, "select_across": "1"}
    assert "Tick at most 1" in client.post(page, every, follow=True).content.decode()
    overdue = client.post(f"{page}&overdue=30", every, follow=True)
    assert overdue.context["expected"] == 5
    client.force_login(acting.people["operator"])
    assert "Exempt the selected" not in client.get(page).content.decode()


def test_the_longest_overdue_come_first(acting: Acting, client: Client) -> None:
    run = manifest.freeze(runs.open_run(policy=acting.revision.policy, by=None)[0])
    client.force_login(acting.people["operator"])
    page = url(ManifestItem, "changelist")
    assert len(client.get(page, {"run": run.pk, "overdue": "365"}).context["cl"].result_list) == 7
    assert client.get(page, {"run": run.pk, "overdue": "x"}, follow=True).status_code == 200
    assert client.get(page, {"overdue": "30"}, follow=True).status_code == 200
