"""Bulk jobs: how far one has come, and what became of each of its items."""

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from cleanup_project.base import jobpace
from cleanup_project.base.jobpages import of_tenants
from cleanup_project.base.models import BulkJob
from cleanup_project.base.verbpages import person
from cleanup_project.operations.api.cursors import Page, Paging, page
from cleanup_project.operations.api.gate import Needs
from cleanup_project.operations.api.problems import not_found
from cleanup_project.operations.api.shapes import Number, page_url

router = Router(tags=["Jobs"])


class Job(Schema):
    """One decision about many rows, which were frozen when it was made. `page`: where people pause, slow or cancel it."""

    id: int
    kind: str
    state: BulkJob.State
    paused_because: str
    selection: str
    reason: str
    requested_by: str
    requested_at: datetime
    rate: Annotated[int, Field(description="Items a second, at most.")]
    total: int
    done: int
    outcomes: Annotated[dict[str, int], Field(description="How many items ended how.")]
    ends_at: Annotated[datetime | None, Field(description="At its present speed; null where it is not running.")]
    finished_at: datetime | None
    page: str


class Item(Schema):
    """`subject`: the number of the row that it is about. Without an outcome its turn has not come."""

    ordinal: int
    subject: int
    outcome: str
    detail: str
    done_at: datetime | None


class ItemsAsked(Paging):
    outcome: Annotated[str, Field(max_length=32, description="One of the job's outcomes.")] = ""


def told(request: HttpRequest, job: BulkJob) -> dict[str, Any]:
    named = (
        "kind",
        "state",
        "paused_because",
        "selection",
        "reason",
        "requested_at",
        "rate",
        "total",
        "done",
        "outcomes",
        "finished_at",
    )
    return {
        **{name: getattr(job, name) for name in named},
        "id": job.pk,
        "requested_by": str(job.requested_by),
        "ends_at": jobpace.ends_at(job),
        "page": page_url(request, job),
    }  # fmt: skip


def wanted(request: HttpRequest, number: int) -> BulkJob:
    seen = of_tenants(BulkJob.objects.select_related("requested_by"), person(request))
    job = seen.filter(pk=number).first()
    if job is None:
        raise not_found(f"job {number}")
    return job


@router.get("/{number}", auth=Needs("jobs:read"), response=Job, operation_id="getJob", summary="How far a job is")
def get_job(request: HttpRequest, number: Number) -> Any:
    """Look again until it is done or cancelled; each of its items then has its outcome."""
    return told(request, wanted(request, number))


@router.get(
    "/{number}/items",
    auth=Needs("jobs:read"),
    response=Page[Item],
    operation_id="listJobItems",
    summary="What became of a job's items",
)
def list_items(request: HttpRequest, number: Number, asked: Query[ItemsAsked]) -> Any:
    """In the order in which they are done."""
    rows = wanted(request, number).items.all()
    if asked.outcome:
        rows = rows.filter(outcome=asked.outcome)
    found, following = page(request, rows, asked, "ordinal")
    named = ("ordinal", "outcome", "detail", "done_at")
    items = [{"subject": each.subject_id, **{name: getattr(each, name) for name in named}} for each in found]
    return {"items": items, "next": following}
