"""Quarantine by cause: what one repair would let go on, with how many entries that are, the oldest, whose and where."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from cleanup_project.base import sqlfiles
from ledger.failures import rule_of
from retention.models import Bucket, Tenant

COUNTED_AT_MOST: Final = 10_000  # of one cause, bucket and tenant
CAUSES_AT_MOST: Final = 500
LATE: Final = timedelta(days=1)


class Cause(NamedTuple):
    """Why entries failed, in which bucket, and whose they are."""

    failure_class: str
    storage_code: str
    bucket_id: int
    tenant_id: int


@dataclass(frozen=True, slots=True)
class Group:
    """Open entries of one cause. `at`: its bucket, where the cause lies there. `whole`: all of them were counted.

    `late`: so many entered longer than LATE ago.
    """

    failure_class: str
    storage_code: str
    at: Bucket | None
    number: int
    whole: bool
    late: int
    oldest: datetime
    buckets: Sequence[Bucket]
    tenants: Sequence[Tenant]

    @property
    def next_action(self) -> str:
        return rule_of(self.failure_class).next_action


@dataclass(frozen=True, slots=True)
class Groups:
    """What is open, the largest groups first. `more`: there are causes besides, which were not counted."""

    each: Sequence[Group]
    more: bool

    @property
    def by_class(self) -> dict[str, list[Group]]:
        alike = defaultdict[str, list[Group]](list)
        for each in self.each:
            alike[each.failure_class].append(each)
        return dict(alike)

    @property
    def number(self) -> int:
        return sum(each.number for each in self.each)

    @property
    def whole(self) -> bool:
        """Whether all of every cause was counted."""
        return not self.more and all(each.whole for each in self.each)

    @property
    def late(self) -> int:
        return sum(each.late for each in self.each)

    @property
    def oldest(self) -> datetime | None:
        return min((each.oldest for each in self.each), default=None)


def groups(codes: Collection[str] = ()) -> Groups:
    """What is open of the tenants with these codes; none: of all tenants."""
    tenants = Tenant.objects.filter(code__in=codes) if codes else None
    found = sqlfiles.rows(
        sqlfiles.read(__file__, "causes.sql"),
        {
            "tenants": None if tenants is None else list(tenants.values_list("pk", flat=True)),
            "cap": COUNTED_AT_MOST + 1,
            "most": CAUSES_AT_MOST + 1,
            "late": LATE.total_seconds(),
        },
    )
    more, found = len(found) > CAUSES_AT_MOST, found[:CAUSES_AT_MOST]
    alike = defaultdict[tuple[str, str, int | None], list[Any]](list)
    for kind, code, bucket, tenant, *counted in found:
        alike[kind, code, bucket if rule_of(kind).at_bucket else None].append((bucket, tenant, *counted))
    buckets = Bucket.objects.in_bulk({row[2] for row in found})
    whose = Tenant.objects.in_bulk({row[3] for row in found})
    made = [group(cause, rows, buckets, whose) for cause, rows in alike.items()]
    return Groups(sorted(made, key=lambda each: (-each.number, each.oldest)), more)


def group(
    cause: tuple[str, str, int | None],
    rows: Collection[tuple[int, int, int, int, datetime]],
    buckets: dict[int, Bucket],
    tenants: dict[int, Tenant],
) -> Group:
    kind, code, at = cause
    return Group(
        failure_class=kind,
        storage_code=code,
        at=buckets[at] if at is not None else None,
        number=sum(min(number, COUNTED_AT_MOST) for _, _, number, *_ in rows),
        whole=all(number <= COUNTED_AT_MOST for _, _, number, *_ in rows),
        late=sum(late for *_, late, _oldest in rows),
        oldest=min(oldest for *_, oldest in rows),
        buckets=[buckets[pk] for pk in sorted({bucket for bucket, *_ in rows})],
        tenants=[tenants[pk] for pk in sorted({tenant for _, tenant, *_ in rows})],
    )
