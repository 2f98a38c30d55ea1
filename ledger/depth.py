"""How much lies in quarantine, by class of failure, and since when."""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from cleanup_project.base import sqlfiles
from cleanup_project.base.arrays import array
from ledger.failures import RULES


class Depth(NamedTuple):
    """Open entries of one class: how many (`more`: at least so many), and since when the oldest waits."""

    failure_class: str
    number: int
    since: datetime
    more: bool


def by_class(tenants: Collection[str], counted: int) -> list[Depth]:
    """The class whose oldest entry waits longest comes first. `tenants`: codes; none means every tenant.

    Counted up to `counted` entries for each tenant and class.
    """
    codes = array(tenants) if tenants else None
    parameters = {"classes": array(RULES), "tenants": codes, "counted": counted}
    return [Depth(*row) for row in sqlfiles.rows(sqlfiles.read(__file__, "depth.sql"), parameters)]
