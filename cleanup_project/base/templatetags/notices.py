"""What stands on top of every page: `{% notices %}` what must not be overlooked, `{% standing %}` where things stand, and
`{% trail %}` where the page stands among the others."""

from collections.abc import Iterator
from typing import Any, Final

from django import template
from django.http import HttpRequest
from django.urls import reverse
from django.utils.text import Truncator

from cleanup_project.base import clock, display, waiting
from cleanup_project.base import notices as asked
from cleanup_project.base.models import User
from cleanup_project.base.navigation import place_of

register = template.Library()

STOPS_SHOWN: Final = 3  # in the header; under it each has a line of its own
LONGEST_NAME: Final = 60  # characters of an item's name among the breadcrumbs


def staff(context: dict[str, Any]) -> User | None:
    user = context.get("user")
    return user if isinstance(user, User) and user.is_authenticated and user.is_staff else None


def noticed(context: dict[str, Any]) -> list[asked.Notice]:
    """Asked for once in a page, which shows them in two places."""
    user = staff(context)
    if user is None:
        return []
    request: Any = context["request"]
    if not hasattr(request, "noticed"):
        request.noticed = sorted(asked.notices(user), key=lambda each: each.level != "stop")
    found: list[asked.Notice] = request.noticed
    return found


@register.inclusion_tag("admin/notices.html", takes_context=True)
def notices(context: dict[str, Any]) -> dict[str, Any]:
    return {"notices": noticed(context)}


@register.inclusion_tag("admin/standing.html", takes_context=True)
def standing(context: dict[str, Any]) -> dict[str, Any]:
    user = staff(context)
    stops = [each for each in noticed(context) if each.level == "stop"]
    return {
        "now": clock.now(),
        "waiting": waiting.total(user) if user else None,
        "stops": stops[:STOPS_SHOWN],
        "more": max(len(stops) - STOPS_SHOWN, 0),
        "perms": context.get("perms"),
    }


@register.inclusion_tag("admin/trail.html", takes_context=True)
def trail(context: dict[str, Any]) -> dict[str, Any]:
    return {"crumbs": list(crumbs(context, context.get("request")))}


def crumbs(context: dict[str, Any], request: HttpRequest | None) -> Iterator[dict[str, str]]:
    """My work, the task, the list, the item, and what is done with it: the last of them is the page itself."""
    yield {"label": "My work", "url": reverse("my-work")}
    place = place_of(request) if request else None
    name = request.resolver_match.view_name if request and request.resolver_match else ""
    if name == "my-work":
        return
    if place:
        yield {"label": place.task}
        for entry in dict.fromkeys((place.entry, place.page)):
            yield {"label": entry.label, "url": reverse(entry.url_name)}
    original = context.get("original")
    if original is not None:
        shown = Truncator(context.get("subtitle") or display.named(original)).chars(LONGEST_NAME)
        yield {"label": shown, "url": display.change_url(original)}
    of_list = place is not None and name == place.page.url_name
    of_item = original is not None and name.endswith("_change")
    if not of_list and not of_item:
        yield {"label": context.get("title") or ""}
