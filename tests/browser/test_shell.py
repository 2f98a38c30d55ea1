"""What stands on every page: the way through it by keyboard alone, polling that rests, and the state of things on top."""

import re
from collections.abc import Callable

import pytest
from django.urls import reverse
from playwright.sync_api import Page, Request, expect

from cleanup_project.base import roles
from cleanup_project.base.models import BulkJob, User
from ledger.models import CleanupRun, DeadLetter
from retention import control
from tests.browser.conftest import SignedIn
from tests.browser.keys import tab_to
from tests.ledger.acting import build
from tests.ledger.parking import dead
from tests.web import url

pytestmark = pytest.mark.browser


def test_by_keyboard_alone_one_signs_in_finds_my_work_and_replays_one(
    stranger: Page, person: Callable[..., User], transactional_db: None
) -> None:
    acting = build()
    dead(acting)
    person("olga", roles.OPERATOR)
    page = stranger
    page.goto("/")
    page.keyboard.type("olga")
    tab_to(page, "Password")
    page.keyboard.type("correct horse")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("My work")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to main content"
    tab_to(page, "Quarantine")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Quarantine")
    tab_to(page, "clips/dead")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/change/$"))
    tab_to(page, "Replay")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/replay/$"))
    tab_to(page, "Reason")
    page.keyboard.type("The grant was repaired.")
    tab_to(page, "Replay it")
    page.keyboard.press("Enter")
    expect(page.locator(".messagelist")).to_be_visible()
    assert DeadLetter.objects.get().resolution == "replayed"


@pytest.fixture
def job(transactional_db: None, person: Callable[..., User]) -> BulkJob:
    by = person("olaf", roles.OPERATOR)
    return BulkJob.objects.create(
        token="00000000-0000-4000-8000-000000000001", kind="redelivery", selection="pending deliveries", reason="Repaired.",
        total=4, rate=1, requested_by=by, in_charge=by, subject_type="webhooks.delivery",
    )  # fmt: skip


def test_a_page_that_follows_a_job_rests_while_hidden_catches_up_and_ends_with_the_job(
    signed_in: SignedIn, job: BulkJob
) -> None:
    page = signed_in(roles.OPERATOR)
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request) if request.headers.get("hx-request") else None)
    page.clock.install()
    page.goto(url(BulkJob, "change", job.pk))
    expect(page.locator("#content-main")).to_contain_text("0 of 4")
    page.get_by_role("link", name="History").focus()

    hide(page, True)
    page.clock.run_for(60_000)
    assert not asked
    BulkJob.objects.update(done=2)
    hide(page, False)
    expect(page.locator("#content-main")).to_contain_text("2 of 4")
    assert len(asked) == 1
    assert page.evaluate("document.activeElement.textContent") == "History"

    BulkJob.objects.update(done=4, state="done", finished_at="2026-11-30T12:00:00Z")
    page.clock.run_for(6_000)
    expect(page.locator("#content-main")).to_contain_text("4 of 4")
    expect(page.get_by_role("link", name="Pause")).to_have_count(0)
    before = len(asked)
    page.clock.run_for(60_000)
    assert len(asked) == before


def hide(page: Page, hidden: bool) -> None:
    """As if the person had turned to another tab: Chromium without a window does not know of any."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_what_is_stopped_stands_in_the_header_of_every_page_at_every_width(
    signed_in: SignedIn, transactional_db: None
) -> None:
    page = signed_in(roles.AUDITOR)
    page.goto(reverse("dashboard"))
    expect(page.locator("#header")).to_contain_text("Nothing is stopped")
    control.press(scope="everything", by=None, reason="Look first.")  # type: ignore[arg-type]
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(reverse("my-work"))
    expect(page.locator("#header").get_by_role("link", name="Stopped: everything")).to_be_visible()
    expect(page.get_by_role("searchbox", name="Find anything by its exact name")).to_be_visible()
    expect(page.locator("#header time")).to_be_visible()
    assert page.locator("#header time").get_attribute("title")


def test_on_a_telephone_the_navigation_opens_from_the_header(signed_in: SignedIn) -> None:
    page = signed_in(roles.AUDITOR, viewport={"width": 400, "height": 800})
    page.goto(reverse("dashboard"))
    receipts = page.get_by_role("navigation", name="Tasks").get_by_role("link", name="Receipts")
    expect(receipts).to_be_hidden()
    page.get_by_role("link", name="Menu").click()
    receipts.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Receipts")
    expect(receipts).to_be_hidden()


def test_a_filter_unfolds_and_escape_folds_it_in_again(signed_in: SignedIn) -> None:
    page = signed_in(roles.AUDITOR)
    page.goto(url(CleanupRun, "changelist"))
    state = page.locator("details.choice").first
    state.locator("summary").press("Enter")
    expect(state.get_by_role("link", name="closed", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(state.get_by_role("link", name="closed", exact=True)).to_be_hidden()
    state.locator("summary").press("Enter")
    page.get_by_role("link", name="closed", exact=True).click()
    expect(state.locator("summary")).to_contain_text("closed")
