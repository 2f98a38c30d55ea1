"""A person without a mouse."""

import pytest
from playwright.sync_api import Page


def tab_to(page: Page, name: str, presses: int = 150) -> None:
    """Press Tab until the focus is on the link, button or field of this name, as a person without a mouse does."""
    page.wait_for_load_state()
    for _ in range(presses):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => {
                const at = document.activeElement;
                if (!at) return "";
                const name = at.getAttribute("aria-label") || at.labels?.[0]?.textContent;
                return (name || at.value || at.textContent || "").trim();
            }"""
        )
        if focused.rstrip(":") == name:
            return
    pytest.fail(f"Tab does not reach {name!r} on {page.url}")
