"""Every page of the product, as it looks to whoever may open it: no violation of WCAG, of the content security policy, no
script error, no other host, nothing wider than a telephone, and a title of its own."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import NoReverseMatch, URLPattern, reverse
from playwright.sync_api import Page, expect

from cleanup_project import urls
from cleanup_project.base import roles
from cleanup_project.base.models import User
from tests.browser.conftest import SignedIn
from tests.browser.looks import WIDE, looks, theme
from tests.everything import make
from tests.web import url

pytestmark = pytest.mark.browser

READS_ALL = (roles.AUDITOR, roles.ADMINISTRATOR, roles.OPERATOR, roles.COMPLIANCE, roles.RETENTION_MANAGER)
TOOLS = re.compile(r'<ul class="object-tools".*?</ul>', re.DOTALL)
# What is downloaded is no page; every history is one page, and every list that a link narrows is the list.
ALIKE = re.compile(r"\.(csv|jsonl?)$|/history/$|^/admin/[a-z]+/[a-z]+/\?")


def records() -> list[str]:
    """Each list, with the first and the last of its rows."""
    found = []
    for model in sorted(admin.site._registry, key=lambda model: model._meta.label):
        rows = model._default_manager.order_by("pk")
        pks = {row.pk: None for row in (rows.first(), rows.last()) if row is not None}
        found += [url(model, "changelist"), *(url(model, "change", pk) for pk in pks)]
        found += [url(model, "history", pk) for pk in list(pks)[:1] if model._meta.label == "ledger.CleanupRun"]
    return found


def own_pages() -> list[str]:
    """Every address of urls.py that names nothing, and the pages that stand in no list."""
    found = [*map(reverse, ("admin:index", "admin:password_change"))]
    for pattern in urls.urlpatterns:
        if isinstance(pattern, URLPattern) and pattern.name:
            try:
                found.append(reverse(pattern.name))
            except NoReverseMatch:
                continue
    return [address for address in found if not ALIKE.search(address)]


def readers(person: Callable[..., User]) -> dict[str, str]:
    """Each page, with a role that may open it: the records, and whatever their tools lead to for anybody."""
    found: dict[str, str] = {}
    for role in READS_ALL:
        client = Client()
        client.force_login(person(f"some {role}".lower(), role))
        for address in [*own_pages(), *records()]:
            answer = client.get(address)
            if answer.status_code != 200:
                continue
            found.setdefault(address, role)
            for tools in TOOLS.findall(answer.content.decode()):
                for led in re.findall(r'href="([^"]+)"', tools):
                    if not ALIKE.search(led):
                        found.setdefault(led.replace("&amp;", "&"), role)
    return found


def picture(page: Page, folder: Path | None, number: int) -> None:
    """As a telephone shows it, and as a desktop does, every other one in the dark."""
    if folder is not None:
        name = re.sub(r"\W+", "-", page.url.split("/admin/", 1)[-1]).strip("-")[:70]
        page.screenshot(path=folder / f"{number:03}-{name}-narrow.png")
        page.set_viewport_size(WIDE)  # type: ignore[arg-type]
        theme(page, "dark" if number % 2 else "light")
        page.screenshot(path=folder / f"{number:03}-{name}-wide.png")


def test_every_page_looks_right_to_everybody(
    signed_in: SignedIn, person: Callable[..., User], pictures: Path | None, settings: object
) -> None:
    make()
    wrong: list[str] = []
    titles: dict[str, str] = {}
    found = readers(person)
    assert len(found) > 100
    pages = {role: signed_in(role) for role in READS_ALL}
    for number, (address, role) in enumerate(sorted(found.items(), key=lambda each: each[0])):
        page = pages[role]
        answer = page.goto(address)
        assert answer is not None
        if answer.status != 200:
            wrong.append(f"{address} ({role}): {answer.status}")
            continue
        wrong += [f"{address} ({role}): {each}" for each in looks(page)]
        picture(page, pictures, number)
        title = page.title()
        if titles.setdefault(title, address).split("?")[0] != address.split("?")[0]:
            wrong.append(f"{address} and {titles[title]} have one title: {title}")
    assert not wrong, "\n".join(wrong)


def test_pages_of_errors_and_the_way_in_look_right(signed_in: SignedIn, stranger: Page) -> None:
    wrong = []
    page = signed_in(roles.OPERATOR)
    for address, status in (("/admin/nothing/", 404), ("/admin/base/user/", 403)):
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == status
        wrong += [f"{address}: {each}" for each in looks(page)]
    page.goto(reverse("admin:retention_stopswitch_add"))
    page.locator(".submit-row input").click()
    expect(page.locator(".errornote")).to_contain_text("Please correct the error")
    wrong += [f"a form with errors: {each}" for each in looks(page)]
    stranger.goto("/")
    wrong += [f"the way in: {each}" for each in looks(stranger)]
    assert not wrong, "\n".join(wrong)
