"""How old the oldest is of whatever waits in dispatch, and which endpoints are in trouble: each read in bounded time.

`codes` are those of tenants; none: all of them.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from cleanup_project.base import sqlfiles
from webhooks import metrics
from webhooks.models import Endpoint

SHOWN: Final = 8
# Disabled and not retired, its circuit open, asked to wait, or without a success since its last failure.
TROUBLE: Final = (
    Q(disabled_at__isnull=False) | Q(circuit_step__gt=0) | Q(failing_since__isnull=False) | Q(paused_until__gt=Now())
) & Q(retired_at=None)


class Owed(NamedTuple):
    delivery_id: int
    since: datetime


def owed(codes: Sequence[str] = ()) -> Owed | None:
    """The delivery whose event was emitted the longest ago and that nobody has acknowledged; dead ones are not pending."""
    found = sqlfiles.rows(sqlfiles.read(__file__, "vital_owed.sql"), {"codes": list(codes)})
    return Owed(*found[0]) if found else None


def due_for(codes: Sequence[str] = ()) -> float:
    """For how many seconds the oldest delivery has been due that nothing but our own slowness keeps."""
    ages = metrics.oldest_due()
    if codes and ages:
        ours = set(Endpoint.objects.filter(tenant__in=codes).values_list("pk", flat=True))
        ages = [(endpoint_id, age) for endpoint_id, age in ages if endpoint_id in ours]
    return max((age for _, age in ages), default=0.0)


def troubled(codes: Sequence[str] = ()) -> QuerySet[Endpoint]:
    """Endpoints that a person should look at. There are few endpoints: they are read one by one."""
    found = Endpoint.objects.filter(TROUBLE).order_by("tenant", "name")
    return found.filter(tenant__in=codes) if codes else found
