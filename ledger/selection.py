"""Which receipts: the narrowing that the list, the export page and the command have in common."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Self

from django.db.models import QuerySet

from cleanup_project.base.canonical import instant
from ledger.exceptions import LedgerError
from ledger.models import CleanupRun, Receipt
from retention.buckets import used_by
from retention.models import Bucket, RetentionPolicy, Tenant


@dataclass(frozen=True, slots=True)
class Selection:
    """Receipts issued from one time (inclusive) to another (exclusive), by names; what is not given narrows nothing.

    `tenants`: the codes of those whose receipts the person sees who asks; empty: of every tenant.
    """

    issued_from: datetime | None = None
    issued_before: datetime | None = None
    tenant: str = ""
    bucket: str = ""
    policy: str = ""
    run: str = ""
    outcome: str = ""
    tenants: tuple[str, ...] = ()

    @classmethod
    def recorded(cls, said: Mapping[str, Any], tenants: list[str]) -> Self:
        """What an export was asked for, from its record."""
        times = {name: datetime.fromisoformat(said[name]) for name in ("issued_from", "issued_before") if name in said}
        return cls(**{**said, **times}, tenants=tuple(tenants))

    def said(self) -> dict[str, str]:
        """The parts that were given, ready for JSON."""
        given = {name: value for name, value in asdict(self).items() if value and name != "tenants"}
        return {name: instant(value) if isinstance(value, datetime) else value for name, value in given.items()}

    def of_tenants(self) -> list[str]:
        """Whose receipts these can be; empty: every tenant's."""
        return [self.tenant] if self.tenant else list(self.tenants)

    @property
    def seen(self) -> dict[str, Any]:
        """So that a policy or a run of another tenant is not there for the person who asks; as a bucket that none uses."""
        return {"tenant__code__in": codes} if (codes := self.of_tenants()) else {}

    def rows(self) -> QuerySet[Receipt]:
        """Raises LedgerError as `narrow`."""
        return self.narrow(Receipt.objects.all())

    def narrow(self, found: QuerySet[Receipt]) -> QuerySet[Receipt]:
        """Raises LedgerError, with the field, for a name that nothing has, and for times that include none."""
        if self.issued_from and self.issued_before and self.issued_from >= self.issued_before:
            raise LedgerError("The end must be later than the beginning.", field="issued_before")
        if self.issued_from:
            found = found.filter(issued_at__gte=self.issued_from)
        if self.issued_before:
            found = found.filter(issued_at__lt=self.issued_before)
        if self.tenant and self.tenants and self.tenant not in self.tenants:
            raise LedgerError(f"There is no tenant {self.tenant}.", field="tenant")
        if codes := self.of_tenants():
            # By number: with a join the planner would not know how many receipts a tenant has.
            found = found.filter(
                tenant__in=[pk for code in codes for pk in numbered(Tenant.objects.all(), "tenant", code=code)]
            )
        if self.bucket:
            known = used_by(codes) if codes else Bucket.objects.all()
            found = found.filter(bucket__in=numbered(known, "bucket", name=self.bucket))
        if self.policy:
            policies = RetentionPolicy.objects.filter(**self.seen)
            found = found.filter(policy__in=numbered(policies, "policy", code=self.policy))
        if self.run:
            found = found.filter(run__in=numbered(CleanupRun.objects.filter(**self.seen), "run", key=self.run))
        return found.filter(outcome=self.outcome) if self.outcome else found


def numbered(rows: QuerySet[Any], what: str, **named: str) -> list[int]:
    """The numbers of all that have this name: several stores may each have a bucket of one name."""
    found = list(rows.filter(**named).values_list("pk", flat=True))
    if not found:
        raise LedgerError(f"There is no {what} {next(iter(named.values()))}.", field=what)
    return found
