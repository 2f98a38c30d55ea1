"""What each role does all day, from page to page, in a browser: by mouse, and the main ways by keyboard alone."""

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Page, expect

from cleanup_project.base import jobwork, roles
from cleanup_project.base.models import BulkJob, User
from ledger import bulk
from ledger.models import CleanupCommand, DeadLetter, Receipt, ReceiptExport
from retention import releases
from retention.models import Bucket, HoldRelease, LegalHold, PolicyRevision, RetentionPolicy
from retention.storage import VersionRef
from retention.storage.memory import Fault
from tests import world
from tests.browser.conftest import SignedIn
from tests.browser.keys import tab_to
from tests.ledger import parking
from tests.ledger.acting import Acting, build
from tests.ledger.parking import DENIED
from tests.web import url

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
MANY = 5000


@pytest.fixture
def acting(transactional_db: None) -> Acting:
    return build()


def heading(page: Page) -> Any:
    return expect(page.get_by_role("heading", level=1))


@pytest.mark.parametrize("role", sorted(roles.MATRIX))
def test_each_role_signs_in_at_the_door_and_comes_to_its_work(
    role: str, stranger: Page, person: Callable[..., User], transactional_db: None
) -> None:
    person("robin", role)
    stranger.goto("/")
    stranger.get_by_label("Username").fill("robin")
    stranger.get_by_label("Password").fill("wrong horse")
    stranger.get_by_role("button", name="Sign in").click()
    expect(stranger.get_by_text(re.compile("is not right"))).to_be_visible()
    stranger.get_by_label("Password").fill("correct horse")
    stranger.get_by_role("button", name="Sign in").click()
    heading(stranger).to_have_text("My work")


def asked_for(acting: Acting) -> HoldRelease:
    held = world.hold(acting.tenant, acting.bucket, "case/", by=acting.people["compliance"])
    return releases.request(hold=held, by=acting.people["compliance"], reason="Settled out of court.")


def test_a_release_is_refused_to_whoever_asked_for_it_and_approved_by_another(
    signed_in: SignedIn, acting: Acting
) -> None:
    asked = asked_for(acting)
    first = signed_in(roles.COMPLIANCE, "compliance")
    first.goto(url(HoldRelease, "change", asked.pk))
    expect(first.get_by_role("link", name="Approve")).to_have_count(0)
    first.goto(url(HoldRelease, "approve", asked.pk))
    fill_approval(first, asked.hold)
    first.get_by_role("button", name="Approve").click()
    expect(first.locator(".errornote, .errorlist").first).to_be_visible()
    assert LegalHold.objects.get().released_at is None

    second = signed_in(roles.COMPLIANCE, "compliance2")
    second.goto(reverse("my-work"))
    second.get_by_role("link", name=re.compile(re.escape(asked.hold.matter))).first.click()
    second.get_by_role("link", name="Approve").click()
    fill_approval(second, asked.hold)
    second.get_by_role("button", name="Approve").click()
    expect(second.locator(".messagelist")).to_contain_text("is released")
    assert LegalHold.objects.get().released_at is not None


def fill_approval(page: Page, hold: LegalHold) -> None:
    page.get_by_label("Matter").fill(hold.matter)
    page.get_by_label("Reason").fill("The court has closed the case.")


def test_by_keyboard_alone_a_second_person_approves_a_release(signed_in: SignedIn, acting: Acting) -> None:
    asked = asked_for(acting)
    page = signed_in(roles.COMPLIANCE, "compliance2")
    page.goto(url(HoldRelease, "change", asked.pk))
    tab_to(page, "Approve")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/approve/$"))
    tab_to(page, "Matter")
    page.keyboard.type(asked.hold.matter)
    tab_to(page, "Reason")
    page.keyboard.type("The court has closed the case.")
    tab_to(page, "Approve")
    page.keyboard.press("Enter")
    expect(page.locator(".messagelist")).to_contain_text("is released")


def test_by_keyboard_alone_a_run_is_approved(signed_in: SignedIn, transactional_db: None) -> None:
    acting = build(authorisation=PolicyRevision.Authorisation.APPROVAL)
    acting.put("clips/one", asset="one")
    run = acting.run()
    assert run.state == "needs_approval"
    page = signed_in(roles.RETENTION_MANAGER, "manager2")
    page.goto(display_url(run))
    tab_to(page, "Approve")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/approve/$"))
    tab_to(page, "Root of what remains")
    page.keyboard.type(run.remaining_root[:8])
    tab_to(page, "Items to destroy")
    page.keyboard.type(str(run.remaining_count))
    tab_to(page, "Reason")
    page.keyboard.type("Read and found right.")
    tab_to(page, "Approve the run")
    page.keyboard.press("Enter")
    expect(page.locator(".messagelist")).to_contain_text("approved")
    run.refresh_from_db()
    assert run.authorised_by == acting.people["manager2"]


def display_url(run: Any) -> str:
    return url(type(run), "change", run.pk)


def quarantined(acting: Acting, number: int) -> None:
    Bucket.objects.update(breaker_percent=None)
    rows = acting.fill([f"clips/{n:05}" for n in range(number)])
    acting.run()
    acting.store.inject(
        Fault("delete_versions", DENIED, frozenset(VersionRef(row.key, row.version_id) for row in rows)), times=number
    )
    acting.drain(budget_seconds=300)
    assert DeadLetter.objects.filter(resolved_at=None).count() == number


def test_five_thousand_are_replayed_slowed_paused_resumed_and_cancelled(
    signed_in: SignedIn, transactional_db: None
) -> None:
    acting = build(breaker_percent=None)
    quarantined(acting, MANY)
    page = signed_in(roles.OPERATOR, "operator")
    page.goto(url(DeadLetter, "changelist"))
    expect(page.locator("main")).to_contain_text(f"{MANY:,} open entries")
    page.get_by_role("link", name=re.compile("^Replay")).first.click()
    expect(page.locator("#counted")).to_contain_text(f"{MANY:,}")
    page.get_by_label("Reason").fill("The grant was repaired.")
    page.get_by_role("button", name=f"Replay {MANY:,}").click()
    expect(page.locator(".errornote")).to_be_visible()  # the number was not typed
    assert not BulkJob.objects.exists()
    page.get_by_label("Reason").fill("The grant was repaired.")
    page.locator("input[name=typed]").fill(str(MANY))
    page.get_by_role("button", name=f"Replay {MANY:,}").click()
    expect(page.locator("#content-main")).to_contain_text(f"0 of {MANY:,}")
    (job,) = BulkJob.objects.all()
    assert job.kind == bulk.REPLAY

    decide(page, "Change the rate", rate="1000")
    work(job, 2)
    page.reload()
    decide(page, "Pause", reason="Let me look at the first ones.")
    assert jobwork.work_chunk(job.pk) is None
    done = DeadLetter.objects.filter(resolution="replayed").count()
    assert done == 400
    decide(page, "Resume")
    work(job, 1)
    page.reload()
    decide(page, "Cancel", reason="The grant was taken away again.")
    expect(page.locator("#content-main")).to_contain_text("What was not done is left as it was.")
    assert jobwork.work_chunk(job.pk) is None
    assert DeadLetter.objects.filter(resolution="replayed").count() == 600
    assert CleanupCommand.objects.filter(state="ready", cycle=1).count() == 600


def work(job: BulkJob, chunks: int) -> None:
    """What a worker would do, as if the rate had allowed the next chunk at once."""
    for _ in range(chunks):
        BulkJob.objects.filter(pk=job.pk).update(free_at="2020-01-01T00:00:00Z")
        assert jobwork.work_chunk(job.pk) is not None


def decide(page: Page, verb: str, **fields: str) -> None:
    page.get_by_role("link", name=verb, exact=True).click()
    for name, value in fields.items():
        page.locator(f"[name={name}]").fill(value)
    page.locator(".submit-row input.default").click()
    expect(page.locator(".messagelist")).to_be_visible()


def test_a_policy_is_drafted_previewed_submitted_and_published_by_another(signed_in: SignedIn, acting: Acting) -> None:
    policy = RetentionPolicy.objects.create(tenant=acting.tenant, code="clips")
    page = signed_in(roles.RETENTION_MANAGER, "manager")
    page.goto(f"{url(PolicyRevision, 'add')}?policy={policy.pk}")
    for name, value in {
        "title": "Clips", "authority": "Retention Act", "prefixes": "other/", "retention_classes": "*", "period_number": "3",
        "effective_from_0": "2026-01-01", "effective_from_1": "00:00:00",
    }.items():  # fmt: skip
        page.locator(f"[name={name}]").fill(value)
    page.locator("[name=trigger]").select_option("stored_at")
    page.locator("[name=period_unit]").select_option("years")
    page.get_by_label(acting.bucket.name).check()
    page.locator("input[name=retroactive][value=no]").check()
    page.get_by_role("button", name="Save draft").click()
    expect(page.locator(".messagelist")).to_contain_text("drafted")
    draft = PolicyRevision.objects.get(policy=policy)
    decide(page, "Preview")
    page.goto(url(PolicyRevision, "change", draft.pk))
    decide(page, "Submit")

    page = signed_in(roles.RETENTION_MANAGER, "manager2")
    page.goto(reverse("my-work"))
    page.get_by_role("link", name="clips/1").first.click()
    expect(page.locator("main")).to_contain_text("Retention Act")
    decide(page, "Publish", reason="Read against the act.")
    draft.refresh_from_db()
    assert draft.published_by == acting.people["manager2"]


def test_an_auditor_exports_receipts(signed_in: SignedIn, acting: Acting) -> None:
    acting.put("=cmd/one", asset="one")
    acting.put("clips/two", asset="two")
    acting.run()
    acting.drain()
    assert Receipt.objects.count() == 2
    page = signed_in(roles.AUDITOR)
    page.goto(url(Receipt, "changelist"))
    page.get_by_role("link", name="Export these").click()
    expect(page.locator("main")).to_contain_text("2 receipts match")
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Export", exact=True).click()
    text = downloading.value.path().read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["key"] for row in rows} == {"'=cmd/one", "clips/two"}
    kept = ReceiptExport.objects.get()
    assert (kept.state, kept.rows) == ("done", 2)


def test_what_lies_in_quarantine_is_looked_at_anew_and_closed(signed_in: SignedIn, acting: Acting) -> None:
    parking.dead(acting)
    page = signed_in(roles.COMPLIANCE, "compliance")
    page.goto(reverse("my-work"))
    page.get_by_role("link", name=re.compile("^Permission")).click()
    page.locator("tbody th a, tbody td a").filter(has_text="clips/dead").first.click()
    page.get_by_role("link", name="Close without retry").first.click()
    page.get_by_label("Reason").fill("It stays: the store's own policy keeps it.")
    page.get_by_role("button", name="Close without retry").click()
    expect(page.locator(".messagelist")).to_contain_text("Closed without retry.")
    assert DeadLetter.objects.get().resolution == "closed"
