"""What is judged of how a page looks: accessibility by axe, in light and dark, that no list is cut on a desktop, and that
nothing is wider than a telephone."""

from functools import cache
from importlib.resources import files
from typing import Any, Final

from playwright.sync_api import Page

TAGS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"]
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 400, "height": 800}
DESKTOP = {"width": 1440, "height": 900}
RUN = """
async ([tags, rules]) => (await axe.run(document, {
    runOnly: rules ? { type: "rule", values: rules } : { type: "tag", values: tags },
    resultTypes: ["violations"], preload: false,  // it would preload by a style element
})).violations.map((each) => [each.id, each.help, each.nodes.map((node) => node.html.slice(0, 160))])
"""


@cache
def axe_source() -> str:
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


def axe(page: Page, rules: list[str] | None = None) -> list[str]:
    """What axe finds against WCAG 2.2 A and AA, a line for each rule; `rules`: of these alone.

    Evaluated, since the pages' own policy lets no script in.
    """
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(axe_source())
    found: list[Any] = page.evaluate(RUN, [TAGS, rules])
    return [f"axe {rule}: {words} ({len(nodes)}): {' | '.join(nodes[:3])}" for rule, words, nodes in found]


def no_sideways(page: Page) -> list[str]:
    """What makes the document wider than its window, if it is."""
    wider = page.evaluate(
        """() => {
            const room = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= room) return [];
            return [...document.querySelectorAll("body *")]
                .filter((each) => each.getBoundingClientRect().right > room + 1)
                .map((each) => each.outerHTML.slice(0, 120)).slice(-4);
        }"""
    )
    return [f"wider than {page.viewport_size}: {' | '.join(wider)}"] if wider else []


def cut(page: Page) -> list[str]:
    """A list whose last columns lie beyond the edge of its box, with how wide each column is."""
    columns = page.evaluate(
        """() => [...document.querySelectorAll(".results")].filter((each) => each.scrollWidth > each.clientWidth).map(
            (each) => [...each.querySelectorAll("thead th")].map((head) => `${head.innerText} ${head.offsetWidth}`).join(", ")
        )"""
    )
    return [f"cut at {page.viewport_size}: {each}" for each in columns]


def theme(page: Page, name: str) -> None:
    page.evaluate("name => { document.documentElement.dataset.theme = name; }", name)


def looks(page: Page) -> list[str]:
    """All of it, of the page that is open: what is wrong, in words."""
    page.set_viewport_size(WIDE)  # type: ignore[arg-type]
    theme(page, "light")
    wrong = axe(page)
    theme(page, "dark")
    wrong += [f"dark: {each}" for each in axe(page, ["color-contrast", "link-in-text-block"])]
    theme(page, "light")
    page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]
    wrong += cut(page)
    page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    return wrong + no_sideways(page)
