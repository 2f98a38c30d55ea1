"""What waits for a decision of a person: each application says what of its own does, and who may decide it."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from cleanup_project.base.models import User


class Waiting(NamedTuple):
    """Things of one kind that this person may decide. `due` is when the first of them is late, by the rule that says so.

    `since`: for how long the oldest has waited; `url`: the list of exactly these.
    """

    kind: str
    label: str
    number: int
    since: datetime
    url: str
    due: datetime | None = None


Source = Callable[[User], Iterable[Waiting]]
_sources: list[Source] = []


def register(source: Source) -> Source:
    """Have this function asked for everybody's work. It yields nothing where nothing waits for this person."""
    _sources.append(source)
    return source


def waiting(user: User) -> Iterator[Waiting]:
    for source in _sources:
        yield from source(user)
