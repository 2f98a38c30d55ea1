"""What waits for a decision of a person: each application says what of its own does, who may decide it, and how soon.

A person is shown only what they may decide: a role of theirs has the right, they did not ask for it themselves, and it is of
one of their tenants.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.core.cache import caches
from django.db import OperationalError, transaction
from django.db.models import Count, F, Min, Q, QuerySet

from cleanup_project.base import clock, paginator
from cleanup_project.base.models import User
from cleanup_project.base.roles import MATRIX
from cleanup_project.base.tenancy import scoped

COUNTED: Final = 1000  # of one kind; above, it is "more than"
LISTED: Final = 10  # the oldest of one kind
BUDGET_MS: Final = 500  # of each query for that number
REMEMBERED: Final = 10  # seconds for which the number on top of every page may be old


class Item(NamedTuple):
    """One thing that waits, and the page on which it is decided. `by`: who asked.

    `number`: how many it stands for (`more`: at least so many).
    """

    what: str
    url: str
    since: datetime
    tenant: str = ""
    by: str = ""
    number: int = 1
    more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of decision. `right` without its application; `within` is how soon it is to be taken, `because` says why.

    `address` leads to the list of all of them; `grouped`: one item stands for many things, and says how many.
    """

    code: str
    label: str
    right: str
    within: timedelta
    because: str
    address: Callable[[], str]
    grouped: bool = False

    @property
    def limit(self) -> str:
        """`within`, in words."""
        hours = self.within // timedelta(hours=1)
        return f"{hours} hours" if hours <= 24 else f"{hours // 24} days"

    @property
    def deciders(self) -> list[str]:
        """The roles that may decide it."""
        return [role for role, rights in MATRIX.items() if self.right in rights]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits of one kind: how many (`more`: at least so many), since when the oldest does, and the oldest items."""

    kind: Kind
    number: int
    since: datetime
    items: Sequence[Item] = ()
    more: bool = False

    @property
    def due(self) -> datetime:
        """When the oldest is late."""
        return self.since + self.kind.within


# Given a person and how many items to list, which may be none; yields nothing where nothing waits.
Source = Callable[[User, int], Iterable[Waiting]]
_decided: list[Source] = []
_asked: list[Source] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests(Kind):
    """A kind whose things are rows, each of which waits for one decision.

    `rows` are those that are open, `since` is the column by which the oldest is first, `tenant` leads to the tenant's
    code, and `asked` holds for the rows that this person asked for, who may then not decide them.
    """

    rows: Callable[[], QuerySet[Any]]
    since: str
    tenant: str
    item: Callable[[Any], Item]
    asked: Callable[[User], Q] | None = None

    def decided_by(self, user: User, listed: int) -> Iterator[Waiting]:
        if user.has_perm(f"base.{self.right}"):
            rows = self.rows().exclude(self.asked(user)) if self.asked else self.rows()
            yield from self.found(scoped(rows, user, self.tenant), listed)

    def asked_by(self, user: User, listed: int) -> Iterator[Waiting]:
        if self.asked is not None:
            yield from self.found(scoped(self.rows().filter(self.asked(user)), user, self.tenant), listed)

    def found(self, rows: QuerySet[Any], listed: int) -> Iterator[Waiting]:
        oldest = rows.order_by(self.since, "pk")
        told = oldest.annotate(waits=F(self.since))[: COUNTED + 1].aggregate(number=Count("pk"), since=Min("waits"))
        items = list(map(self.item, oldest[:listed])) if listed else ()
        if told["number"]:
            yield Waiting(self, min(told["number"], COUNTED), told["since"], items, told["number"] > COUNTED)


def register(source: Source) -> Source:
    """Have this function asked for everybody's work. It must cost two indexed queries at the most."""
    _decided.append(source)
    return source


def register_requests(requests: Requests) -> None:
    """Have its rows shown to whoever may decide them, and to whoever asked for them."""
    _decided.append(requests.decided_by)
    if requests.asked is not None:
        _asked.append(requests.asked_by)


def waiting(user: User, listed: int = LISTED) -> list[Waiting]:
    """What this person may decide, the soonest due first."""
    return sorted((each for source in _decided for each in source(user, listed)), key=lambda each: each.due)


def asked_for(user: User, listed: int = LISTED) -> list[Waiting]:
    """What this person asked for, and another one must decide."""
    return sorted((each for source in _asked for each in source(user, listed)), key=lambda each: each.due)


class Total(NamedTuple):
    number: int
    more: bool
    overdue: bool


def total(user: User) -> Total:
    """How much waits for this person, as of up to `REMEMBERED` seconds ago, so that every page can say it.

    Nothing where that takes too long to find out: no page waits for it.
    """
    key = f"waiting:{user.pk}"
    found: Total | None = caches["process"].get(key)
    if found is None:
        try:
            with transaction.atomic(), paginator.limited(BUDGET_MS):
                found = summed(waiting(user, listed=0))
        except OperationalError:
            found = Total(0, more=False, overdue=False)
        caches["process"].set(key, found, REMEMBERED)
    return found


def summed(kinds: Sequence[Waiting]) -> Total:
    now = clock.now()
    number, more = sum(each.number for each in kinds), any(each.more for each in kinds)
    return Total(number, more, any(each.due < now for each in kinds))
