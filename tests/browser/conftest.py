"""Headless Chromium before the real pages, served over HTTP by a thread of the test, with a person signed in by cookie.

A page fails its test, at the end, by any violation of the content security policy, any error of a script, and any request to
another host.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.cache import cache
from django.test import Client, override_settings
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

from cleanup_project.base.models import User
from cleanup_project.operations.demo.shots import BROWSERS, chromium

PATIENCE = 30_000  # milliseconds for whatever a page is waited for: the machine may be busy

TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
    console.error(`CSP: ${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
});
"""

SignedIn = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip(f"NO PAGE WAS TESTED: none of {', '.join(BROWSERS)} is installed, and CHROMIUM names none.")
    # Playwright waits in an event loop of its own, in which Django would refuse every query of the test.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the product, over plain http as in the demo."""
    with override_settings(
        SECURE_SSL_REDIRECT=False,
        SESSION_COOKIE_SECURE=False,
        SESSION_COOKIE_NAME="cleanup-session",
        CSRF_COOKIE_SECURE=False,
        CSRF_COOKIE_NAME="cleanup-csrf",
        MFA_REQUIRED=False,
        STATIC_ROOT=tmp_path_factory.mktemp("static"),
    ):
        live = LiveServer("localhost")
        yield live.url
        live.stop()


class Faults(list[str]):
    """What a page did that no page may do."""

    def __init__(self, server: str) -> None:
        super().__init__()
        self.server = server

    def watch(self, page: Page) -> None:
        page.on("console", lambda message: self.said(page, message))
        page.on("pageerror", lambda error: self.append(f"{page.url}: script error: {error}"))
        page.on("request", self.asked)

    def said(self, page: Page, message: ConsoleMessage) -> None:
        refused_page = "Failed to load resource" in message.text and message.location["url"] == page.url
        if message.type == "error" and not refused_page:
            self.append(f"{page.url}: {message.text}")

    def asked(self, request: Request) -> None:
        if not request.url.startswith((self.server, "data:", "blob:")):
            self.append(f"{request.frame.url} asked another host: {request.url}")


@pytest.fixture
def faults(server: str) -> Iterator[Faults]:
    found = Faults(server)
    yield found
    assert not found, "\n".join(found)


@pytest.fixture
def signed_in(
    transactional_db: None, server: str, browser: Browser, faults: Faults, person: Callable[..., User]
) -> Iterator[SignedIn]:
    """`signed_in(roles.OPERATOR)`: a page of somebody with that role, made if need be. Addresses may begin with `/`.

    Keywords are those of Playwright's `new_context`: `color_scheme="dark"`, `viewport={"width": 400, "height": 800}`.
    """
    contexts: list[BrowserContext] = []

    def open_page(role: str, name: str = "", **options: object) -> Page:
        name = name or f"some {role}".lower()
        client = Client()
        client.force_login(User.objects.filter(username=name).first() or person(name, role))
        context = browser.new_context(base_url=server, **options)  # type: ignore[arg-type]
        contexts.append(context)
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": server}])
        return opened(context, faults)

    yield open_page
    for context in contexts:
        context.close()


def opened(context: BrowserContext, faults: Faults) -> Page:
    context.set_default_timeout(PATIENCE)
    context.add_init_script(TELL_VIOLATIONS)
    page = context.new_page()
    faults.watch(page)
    return page


@pytest.fixture
def stranger(transactional_db: None, server: str, browser: Browser, faults: Faults) -> Iterator[Page]:
    """A page of somebody who has not signed in. Attempts of tests before it, whose rows no rollback took, do not count."""
    cache.clear()
    with browser.new_context(base_url=server) as context:
        yield opened(context, faults)


@pytest.fixture(autouse=True)
def pictures(request: pytest.FixtureRequest) -> Path | None:
    """Where BROWSER_PICTURES says, each page that is walked leaves a picture, to be looked at."""
    folder = os.environ.get("BROWSER_PICTURES")
    return Path(folder) if folder else None
