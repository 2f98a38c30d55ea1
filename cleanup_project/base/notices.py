"""What stands on top of every page: each application says what must not be overlooked now."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from django.urls import reverse

from cleanup_project.base import tenancy
from cleanup_project.base.models import Alarm, User


class Notice(NamedTuple):
    """One line for whoever is logged in, and where to read more. `level` is `stop` or `alarm`.

    `short`: what is stopped, in a few words, for the header.
    """

    level: str
    text: str
    url: str = ""
    short: str = ""


Source = Callable[[User], Iterable[Notice]]
_sources: list[Source] = []


def register(source: Source) -> Source:
    """Have this function asked on every page. It should cost one indexed query at the most."""
    _sources.append(source)
    return source


def notices(user: User) -> Iterator[Notice]:
    for source in _sources:
        yield from source(user)


@register
def open_alarms(user: User) -> Iterator[Notice]:
    if not (user.has_perm("base.view_alarm") or user.has_perm("base.read_everything")):
        return
    number = tenancy.scoped(Alarm.objects.open(), user, "tenant").count()
    if number:
        words = "1 alarm is open" if number == 1 else f"{number:,} alarms are open"
        yield Notice("alarm", words, reverse("admin:base_alarm_changelist") + "?cleared_at__isnull=True")
