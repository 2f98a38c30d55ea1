"""What of the ledger waits for people: runs, urgent erasures, and what lies in quarantine."""

from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any, Final

from django.db.models import CharField, OuterRef, Q, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, Coalesce

from cleanup_project.base import display, waiting
from cleanup_project.base.modeladmin import list_url
from cleanup_project.base.models import Alarm, User
from cleanup_project.base.waiting import Item, Kind, Requests, Waiting
from ledger import causes
from ledger.causes import Group
from ledger.failures import RULES
from ledger.models import CleanupRun, DeadLetter, ErasureRequest
from ledger.runs import TRIPPED
from ledger.states import RunState


def run_item(run: CleanupRun) -> Item:
    words = f"{run}: {run.remaining_count or 0:,} items of {run.policy.code}, {display.human_size(run.bytes or 0)}"
    by = str(run.opened_by or "the schedule")
    return Item(words, display.change_url(run), run.sealed_at or run.opened_at, run.tenant.code, by)


APPROVALS: Final = Requests(
    code="runs", label="Runs to approve", right="approve_run", within=timedelta(hours=24),
    because="A policy has one open run at a time: until this one is decided, no slot of its schedule opens another.",
    address=lambda: list_url(CleanupRun, f"?state__exact={RunState.NEEDS_APPROVAL}"),
    rows=lambda: CleanupRun.objects.filter(state=RunState.NEEDS_APPROVAL).select_related("policy", "tenant", "opened_by"),
    since="sealed_at", tenant="tenant__code", item=run_item, asked=lambda user: Q(opened_by=user),
)  # fmt: skip


def tripped_runs() -> QuerySet[CleanupRun]:
    """With the time at which their breaker opened, which the alarm keeps."""
    own = Alarm.objects.open().filter(
        kind=TRIPPED, subject_type=CleanupRun._meta.label_lower, subject_id=Cast(OuterRef("pk"), CharField())
    )
    rows = CleanupRun.objects.filter(state=RunState.TRIPPED).select_related("policy", "tenant")
    since, told = (Subquery(own.values(name)[:1]) for name in ("raised_at", "message"))
    said = Coalesce(told, Value("tripped"), output_field=TextField())
    return rows.annotate(tripped_at=Coalesce(since, "opened_at"), said=said)


def tripped_item(run: Any) -> Item:
    return Item(f"{run}: {run.said}", display.change_url(run), run.tripped_at, run.tenant.code, "the circuit breaker")


BREAKERS: Final = Requests(
    code="breakers", label="Tripped runs to re-arm", right="rearm", within=timedelta(hours=4),
    because="Nothing of the run is destroyed before: what is due grows older, and its policy opens no other run.",
    address=lambda: list_url(CleanupRun, f"?state__exact={RunState.TRIPPED}"),
    rows=tripped_runs, since="tripped_at", tenant="tenant__code", item=tripped_item,
)  # fmt: skip


def erasure_item(request: ErasureRequest) -> Item:
    words = f"{request.reference}: {display.counted(request.version_count, 'object version')}"
    return Item(
        words, display.change_url(request), request.requested_at, request.tenant.code, str(request.requested_by)
    )


ERASURES: Final = Requests(
    code="erasures", label="Erasure requests to decide", right="approve_run", within=timedelta(hours=72),
    because="GDPR, article 12(3): a month for the whole answer, of which the destruction and its proof need the rest.",
    address=lambda: list_url(ErasureRequest, "?approved__isnull=True"),
    rows=lambda: ErasureRequest.objects.filter(approved=None).select_related("tenant", "requested_by"),
    since="requested_at", tenant="tenant__code", item=erasure_item, asked=lambda user: Q(requested_by=user),
)  # fmt: skip

QUARANTINE: Final = Kind(
    code="quarantine", label="Quarantine, by cause", right="review_quarantine", within=timedelta(hours=24),
    because="What lies here is past its retention and still there. A day leaves time to look at it on a working day.",
    address=lambda: list_url(DeadLetter), grouped=True,
)  # fmt: skip


def quarantine(user: User, listed: int) -> Iterator[Waiting]:
    """One item for each class of failure, with how many lie there: they are decided by cause, and not one by one."""
    if not (user.has_perm("base.review_quarantine") or user.has_perm("base.operate")):
        return
    groups = causes.groups(user.tenants)
    found = sorted((of_class(kind, each) for kind, each in groups.by_class.items()), key=lambda item: item.since)
    if found:
        yield Waiting(QUARANTINE, groups.number, found[0].since, found[:listed], not groups.whole)


def of_class(failure_class: str, groups: Collection[Group]) -> Item:
    words = failure_class.replace("_", " ").capitalize()
    return Item(
        f"{words}. {RULES[failure_class].next_action}",
        list_url(DeadLetter, f"?class={failure_class}"),
        min(each.oldest for each in groups),
        number=sum(each.number for each in groups),
        more=not all(each.whole for each in groups),
    )


for requests in (APPROVALS, BREAKERS, ERASURES):
    waiting.register_requests(requests)
waiting.register(quarantine)
