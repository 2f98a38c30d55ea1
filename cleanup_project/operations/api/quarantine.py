"""Quarantine: what needs a person, and the replay or the closing of what a person has looked at."""

import json
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict
from ninja import Query, Router, Schema, Status
from pydantic import AfterValidator, Field, model_validator

from cleanup_project.base import jobs as bulkjobs
from cleanup_project.base import tenancy
from cleanup_project.base.canonical import instant
from cleanup_project.base.display import counted
from cleanup_project.base.models import FASTEST_JOB, BulkJob
from cleanup_project.base.verbpages import person
from cleanup_project.operations.api import jobs, names
from cleanup_project.operations.api.cursors import Page, Paging, budget, page
from cleanup_project.operations.api.gate import Needs
from cleanup_project.operations.api.problems import Problem
from cleanup_project.operations.api.shapes import Asked, IdempotencyKey, Reason, Time, Whole, token_of
from ledger import bulk
from ledger.admin.entryfilter import NO_CODE, EntryFilter
from ledger.exceptions import IdempotencyConflict
from ledger.failures import RULES
from ledger.models import DeadLetter
from retention.models import Bucket, Tenant

router = Router(tags=["Quarantine"])
NAMED: Final = 20  # entries whose numbers are told in words
CLASSES: Final = sorted(map(str, RULES))


def known(failure_class: str) -> str:
    if failure_class and failure_class not in CLASSES:
        raise ValueError(f"there is no such class; there are {', '.join(CLASSES)}")
    return failure_class


class Filter(Schema):
    """Narrows entries. What is not given narrows nothing."""

    failure_class: Annotated[
        str, Field(json_schema_extra={"enum": CLASSES}, description="Why it failed."), AfterValidator(known)
    ] = ""
    storage_code: Annotated[
        str, Field(max_length=64, description=f"What the store called its refusal; {NO_CODE} for none.")
    ] = ""
    bucket: Annotated[str, Field(max_length=600, description="Name, or name@endpoint.")] = ""
    tenant: Annotated[str, Field(max_length=63)] = ""
    policy: Annotated[str, Field(max_length=63)] = ""
    run: Annotated[str, Field(max_length=120, description="The id of the run under which it failed.")] = ""
    prefix: Annotated[str, Field(max_length=1024, description="What the key begins with.")] = ""
    failed_from: Annotated[Time | None, Field(description="Its last failure was then or later.")] = None
    failed_before: Annotated[Time | None, Field(description="Its last failure was earlier: older than this.")] = None
    attempts: Annotated[int | None, Field(ge=0, le=32767, description="At least so many.")] = None
    command_key: Annotated[str, Field(max_length=700)] = ""


class EntriesAsked(Filter, Paging):
    entries: Annotated[
        Literal["open", "resolved", "all"], Field(description="Open ones come oldest first, the others newest first.")
    ] = "open"


class Entry(Schema):
    """A command's stay in quarantine: what failed, how often, what a person can do, and what one made of it."""

    id: int
    command_key: str
    cycle: int
    tenant: str
    bucket: str
    policy: str
    run: str
    key: str
    version_id: str
    failure_class: str
    storage_code: str
    http_status: int | None
    attempts: int
    first_failed_at: datetime
    entered_at: datetime
    first_error: str
    last_error: str
    next_action: str
    resolved_at: datetime | None
    resolution: str
    resolved_by: str | None
    reason: str


class Cause(Schema):
    failure_class: str
    storage_code: str
    bucket: str
    tenant: str
    entries: int


class Count(Schema):
    """How many open entries match, by cause: the `expected` of a replay or a closing. `whole`: none was left uncounted."""

    total: int
    whole: bool
    by_cause: list[Cause]


class FilterAsked(Filter, Asked):
    pass


class Chosen(Asked):
    """Which entries, and why. The set is frozen when the job is made; `expected` is how many were seen before."""

    ids: Annotated[list[Whole] | None, Field(min_length=1, max_length=1000, description="Numbers of entries; or:")] = (
        None
    )
    filter: Annotated[FilterAsked | None, Field(description="All open entries that match it.")] = None
    expected: Annotated[Whole, Field(description="Refused where more than one in a hundred came or went since.")]
    reason: Reason
    rate: Annotated[int, Field(strict=True, ge=1, le=FASTEST_JOB, description="Entries a second.")] = bulkjobs.RATE

    @model_validator(mode="after")
    def one_of_both(self) -> "Chosen":
        if (self.ids is None) == (self.filter is None):
            raise ValueError("name `ids`, or a `filter`: one of both")
        return self


class ReplayAsked(Chosen):
    repair: Annotated[
        str, Field(max_length=200, description="What was repaired before: credentials, policy, the store.")
    ] = ""


def seen(request: HttpRequest) -> QuerySet[DeadLetter]:
    related = ("command", "run", "bucket", "tenant", "policy", "resolved_by")
    return tenancy.scoped(DeadLetter.objects.select_related(*related), person(request), "tenant__code")


def narrowed(request: HttpRequest, asked: Filter, entries: str = "") -> EntryFilter:
    """The filter of the list in the administration, which knows rows by number. Raises Problem."""
    by = person(request)
    numbers = {
        "bucket": names.bucket(by, asked.bucket).pk if asked.bucket else "",
        "tenant": names.tenant(by, asked.tenant).pk if asked.tenant else "",
        "policy": names.policy(by, asked.policy).pk if asked.policy else "",
    }
    times = {"since": asked.failed_from, "until": asked.failed_before}
    given: dict[str, Any] = {
        **numbers,
        **{name: instant(at) if at else "" for name, at in times.items()},
        "entries": entries if entries != "open" else "",
        "class": asked.failure_class,
        "code": asked.storage_code,
        "run": asked.run,
        "prefix": asked.prefix,
        "attempts": "" if asked.attempts is None else asked.attempts,
        "q": asked.command_key,
    }
    data = QueryDict(mutable=True)
    data.update({name: str(value) for name, value in given.items() if value != ""})
    found = EntryFilter(data, queryset=seen(request), request=request)
    if found.refusal:
        raise Problem("invalid", found.refusal)
    return found


def told(entry: DeadLetter) -> dict[str, Any]:
    named = (
        "cycle", "key", "version_id", "failure_class", "storage_code", "http_status", "attempts", "first_failed_at",
        "entered_at", "first_error", "last_error", "next_action", "resolved_at", "resolution", "reason",
    )  # fmt: skip
    return {
        **{name: getattr(entry, name) for name in named},
        "id": entry.pk,
        "command_key": entry.command.key,
        "tenant": entry.tenant.code,
        "bucket": entry.bucket.name,
        "policy": entry.policy.code,
        "run": entry.run.key,
        "resolved_by": str(entry.resolved_by) if entry.resolved_by else None,
    }


@router.get(
    "",
    auth=Needs("quarantine:read"),
    response=Page[Entry],
    operation_id="listQuarantine",
    summary="List quarantine entries",
)
def list_entries(request: HttpRequest, asked: Query[EntriesAsked]) -> Any:
    """What could not go on by itself, with the next action in plain words."""
    rows = narrowed(request, asked, asked.entries).rows
    with budget():
        found, following = page(request, rows, asked, "pk" if asked.entries == "open" else "-pk")
    return {"items": list(map(told, found)), "next": following}


@router.get(
    "/count",
    auth=Needs("quarantine:read"),
    response=Count,
    operation_id="countQuarantine",
    summary="Count open entries by cause",
)
def count_entries(request: HttpRequest, asked: Query[Filter]) -> Any:
    """Counted up to one job's worth, 250,000."""
    found = bulk.count(narrowed(request, asked).rows)
    buckets = Bucket.objects.in_bulk({cause.bucket_id for cause, _ in found.by_cause})
    tenants = Tenant.objects.in_bulk({cause.tenant_id for cause, _ in found.by_cause})
    causes = [
        {
            "failure_class": cause.failure_class,
            "storage_code": cause.storage_code,
            "bucket": buckets[cause.bucket_id].name,
            "tenant": tenants[cause.tenant_id].code,
            "entries": number,
        }
        for cause, number in found.by_cause
    ]
    return {"total": found.total, "whole": found.whole, "by_cause": causes}


def begin(request: HttpRequest, verb: Callable[..., BulkJob], key: str, asked: Chosen, **more: str) -> Any:
    """The job, or the one that the key has made already. Raises IdempotencyConflict where that is another."""
    by = person(request)
    if asked.ids is not None:
        rows, selection = seen(request).filter(pk__in=asked.ids), by_number(asked.ids)
    else:
        assert asked.filter is not None
        found = narrowed(request, asked.filter)
        rows, selection = found.rows, found.words()
    job = verb(
        rows=rows, selection=selection, expected=asked.expected, token=token_of(by, key), by=by, reason=asked.reason,
        rate=asked.rate, **more,
    )  # fmt: skip
    same = job.asked == {"expected": asked.expected, "rate": asked.rate}
    if not same or (job.selection, job.reason, job.details) != (selection, asked.reason, more):
        raise IdempotencyConflict(f"This Idempotency-Key made {job}, which is another request: use a new key.")
    return Status(202, jobs.told(request, job))


def by_number(ids: list[int]) -> str:
    """In words that are the same for the same entries, and for no others."""
    chosen = sorted(set(ids))
    listed = ", ".join(map(str, chosen[:NAMED]))
    if len(chosen) <= NAMED:
        return f"chosen by number: {listed}"
    digest = sha256(json.dumps(chosen).encode()).hexdigest()
    return f"{counted(len(chosen), 'entry', 'entries')} chosen by number: {listed} and more; SHA-256 of all {digest}"


@router.post(
    "/replay",
    auth=Needs("quarantine:replay"),
    response={202: jobs.Job},
    operation_id="replayQuarantine",
    summary="Replay reviewed entries",
)
def replay(request: HttpRequest, idempotency_key: IdempotencyKey, asked: ReplayAsked) -> Any:
    """Each is tried again in its next cycle, by workers, as a job with an outcome for every entry.

    Holds, enforcement, suspension and eligibility are checked for each when its turn comes; what may not be replayed stays,
    with the reason. Sent again with the same `Idempotency-Key`, it answers with the same job.
    """
    return begin(request, bulk.replay_all, idempotency_key, asked, repair=asked.repair)


@router.post(
    "/close",
    auth=Needs("quarantine:close"),
    response={202: jobs.Job},
    operation_id="closeQuarantine",
    summary="Close reviewed entries without retry",
)
def close(request: HttpRequest, idempotency_key: IdempotencyKey, asked: Chosen) -> Any:
    """What is closed stays dead and its object stays where it is, until a later authorised run finds it eligible."""
    return begin(request, bulk.close_all, idempotency_key, asked)
