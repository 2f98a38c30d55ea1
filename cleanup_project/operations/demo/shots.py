"""Pictures of the demo's pages for the README and the documents, made anew by `manage.py screenshots`: they stay true."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.test import Client
from django.urls import reverse

from cleanup_project.base import display
from cleanup_project.base.modeladmin import list_url
from cleanup_project.base.models import User
from cleanup_project.operations.pages import distributions
from ledger.models import CleanupCommand, CleanupRun, DeadLetter, Receipt

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
COUNTED_SECONDS: Final = 240
VIEW: Final = {"width": 1440, "height": 900}


class Shot(NamedTuple):
    """One picture: the name of its file, who of the demo's people looks, and at which page."""

    name: str
    person: str
    address: Callable[[], str]


def chromium() -> str | None:
    """The browser of this machine; the variable CHROMIUM names another."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)


def newest(model: Any, **which: Any) -> str:
    """The page of the newest row of these."""
    return display.change_url(model.objects.filter(**which).order_by("-pk")[0])


SHOTS: Final = (
    Shot("dashboard", "operator", lambda: reverse("dashboard")),
    Shot("my-work", "compliance", lambda: reverse("my-work")),
    Shot("quarantine", "operator", lambda: list_url(DeadLetter)),
    Shot("command", "operator", lambda: newest(CleanupCommand, state="dead")),
    Shot("run", "manager", lambda: newest(CleanupRun, mode="enforce")),
    Shot("receipts", "auditor", lambda: list_url(Receipt)),
)


def wait_until_counted() -> bool:
    """Wait until the dashboard's figures tell of all that was done, which the sweep counts once its minute has closed."""
    until = time.monotonic() + COUNTED_SECONDS
    done = Receipt.objects.order_by("-pk")[0].issued_at
    while time.monotonic() < until:
        counted = distributions.counted_until()
        if counted is not None and counted > done:
            return True
        time.sleep(1)
    return False


def take(url: str, shots: tuple[Shot, ...], folder: Path, executable: str) -> Iterator[Path]:
    """A PNG file for each, in light. Each person is signed in by a session of their own: how one signs in is not shown."""
    from playwright.sync_api import sync_playwright

    signed_in = {shot.person: session(shot.person) for shot in shots}
    addresses = [(shot, shot.address()) for shot in shots]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for shot, address in addresses:
            context = browser.new_context(viewport=VIEW, color_scheme="light", base_url=url)  # type: ignore[arg-type]
            name = settings.SESSION_COOKIE_NAME
            context.add_cookies([{"name": name, "value": signed_in[shot.person], "url": url}])
            page = context.new_page()
            page.goto(address, wait_until="networkidle")
            path = folder / f"{shot.name}.png"
            page.screenshot(path=path)
            context.close()
            yield path
        browser.close()


def session(person: str) -> str:
    client = Client()
    client.force_login(User.objects.get(username=person))
    return client.cookies[settings.SESSION_COOKIE_NAME].value
