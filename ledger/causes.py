"""Quarantine by cause: what one repair would let go on, with how many entries that are, the oldest, whose and where."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from cleanup_project.base import sqlfiles
from cleanup_project.base.models import User
from ledger.failures import rule_of
from retention.models import Bucket, Tenant

COUNTED_AT_MOST: Final = 10_000  # of one cause, bucket and tenant
CAUSES_AT_MOST: Final = 500


class Cause(NamedTuple):
    """Why entries failed, in which bucket, and whose they are."""

    failure_class: str
    storage_code: str
    bucket_id: int
    tenant_id: int


@dataclass(frozen=True, slots=True)
class Group:
    """Open entries of one cause. `at`: its bucket, where the cause lies there. `whole`: all of them were counted."""

    failure_class: str
    storage_code: str
    at: Bucket | None
    number: int
    whole: bool
    oldest: datetime
    buckets: Sequence[Bucket]
    tenants: Sequence[Tenant]

    @property
    def next_action(self) -> str:
        return rule_of(self.failure_class).next_action


def groups(user: User) -> list[Group]:
    """What is open of this person's tenants, the largest groups first."""
    codes = user.tenants
    tenants = Tenant.objects.filter(code__in=codes) if codes else None
    found = sqlfiles.rows(
        sqlfiles.read(__file__, "causes.sql"),
        {
            "tenants": None if tenants is None else list(tenants.values_list("pk", flat=True)),
            "cap": COUNTED_AT_MOST,
            "most": CAUSES_AT_MOST,
        },
    )
    alike = defaultdict[tuple[str, str, int | None], list[Any]](list)
    for kind, code, bucket, tenant, number, oldest in found:
        alike[kind, code, bucket if rule_of(kind).at_bucket else None].append((bucket, tenant, number, oldest))
    buckets = Bucket.objects.in_bulk({row[2] for row in found})
    whose = Tenant.objects.in_bulk({row[3] for row in found})
    made = [group(cause, rows, buckets, whose) for cause, rows in alike.items()]
    return sorted(made, key=lambda each: (-each.number, each.oldest))


def group(
    cause: tuple[str, str, int | None],
    rows: Collection[tuple[int, int, int, datetime]],
    buckets: dict[int, Bucket],
    tenants: dict[int, Tenant],
) -> Group:
    kind, code, at = cause
    return Group(
        failure_class=kind,
        storage_code=code,
        at=buckets[at] if at is not None else None,
        number=sum(number for *_, number, _oldest in rows),
        whole=all(number < COUNTED_AT_MOST for *_, number, _oldest in rows),
        oldest=min(oldest for *_, oldest in rows),
        buckets=[buckets[pk] for pk in sorted({bucket for bucket, *_ in rows})],
        tenants=[tenants[pk] for pk in sorted({tenant for _, tenant, *_ in rows})],
    )
