"""Runs: open one, see how it stands, read its manifest."""

from datetime import datetime
from typing import Annotated, Any, Literal

from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router, Schema, Status
from pydantic import Field

from cleanup_project.base import queue, tenancy
from cleanup_project.base.verbpages import person
from cleanup_project.operations.api.cursors import Page, Paging, page
from cleanup_project.operations.api.gate import Needs
from cleanup_project.operations.api.problems import not_found
from cleanup_project.operations.api.shapes import Asked, IdempotencyKey, Name, key_of, page_url
from ledger import downloads, runs, schedule, standing
from ledger.models import CleanupRun
from ledger.next_action import Turn
from ledger.standing import Progress
from ledger.states import RunState
from retention.models import RetentionPolicy

router = Router(tags=["Runs"])
Mode = Literal["dry_run", "enforce"]


class Counts(Schema):
    """Items of a run by outcome, as settled so far; once it has closed, as counted then. `left`: those without an outcome."""

    total: int
    done: int
    left: int
    outcomes: Annotated[
        dict[str, int], Field(description="deleted, by_absence, already_absent, held, dead, withdrawn.")
    ]


class Run(Schema):
    """`id` is its key, which never changes; figures of the manifest are null until that is sealed."""

    id: str
    policy: str
    tenant: str
    mode: Mode
    state: RunState
    as_of: Annotated[datetime, Field(description="The instant at which eligibility is judged.")]
    scheduled_for: datetime | None
    opened_at: datetime
    opened_by: str | None
    sealed_at: datetime | None
    manifest_root: str
    items: int | None
    targets: int | None
    bytes: int | None
    exempt: int
    authorised_at: datetime | None
    authorised_by: str | None
    cooling_until: datetime | None
    ended_at: datetime | None
    end_reason: str
    progress: Counts


class Following(Schema):
    """Whose turn it is, and what comes next. `page`: where a person decides, if it is a person's."""

    turn: Turn
    what: str
    at: datetime | None
    page: str | None


class LeftOut(Schema):
    """Object versions that its parts looked at, and those that were eligible and left out."""

    parts: int
    read: int
    held: int
    not_enforced: int


class RunInFull(Run):
    next: Following
    left_out: LeftOut


class RunAsked(Asked):
    policy: Annotated[Name, Field(description="Its code.")]
    mode: Annotated[
        Mode | None,
        Field(description="Without one it enforces where enforcement is on for any part of the policy's scope."),
    ] = None


class RunsAsked(Paging):
    policy: Annotated[str, Field(max_length=63, description="Code of a policy.")] = ""
    state: RunState | None = None
    mode: Mode | None = None


def seen(request: HttpRequest) -> QuerySet[CleanupRun]:
    rows = CleanupRun.objects.select_related("policy", "tenant", "opened_by", "authorised_by")
    return tenancy.scoped(rows, person(request), "tenant__code")


def wanted(request: HttpRequest, key: str) -> CleanupRun:
    run = seen(request).filter(key=key).first()
    if run is None:
        raise not_found("run of this id")
    return run


def told(run: CleanupRun, come: Progress) -> dict[str, Any]:
    named = (
        "as_of",
        "scheduled_for",
        "opened_at",
        "sealed_at",
        "manifest_root",
        "bytes",
        "authorised_at",
        "cooling_until",
        "ended_at",
        "end_reason",
    )
    return {
        **{name: getattr(run, name) for name in named},
        "id": run.key,
        "policy": run.policy.code,
        "tenant": run.tenant.code,
        "mode": run.mode,
        "state": run.state,
        "opened_by": str(run.opened_by) if run.opened_by else None,
        "authorised_by": str(run.authorised_by) if run.authorised_by else None,
        "items": run.item_count,
        "targets": run.target_count,
        "exempt": run.exempt_count,
        "progress": {"total": come.total, "done": come.done, "left": come.left, "outcomes": come.outcomes},
    }  # fmt: skip


def in_full(request: HttpRequest, run: CleanupRun) -> dict[str, Any]:
    come = standing.progress([run])[run.pk]
    following = standing.of_run(run, come)
    left_out = standing.left_out([run]).get(run.pk, standing.LeftOut())
    return {
        **told(run, come),
        "next": {
            "turn": following.turn,
            "what": following.what,
            "at": following.at,
            "page": page_url(request, run) if following.turn is Turn.PERSON else None,
        },
        "left_out": {name: getattr(left_out, name) for name in LeftOut.model_fields},
    }


@router.get("", auth=Needs("runs:read"), response=Page[Run], operation_id="listRuns", summary="List runs")
def list_runs(request: HttpRequest, asked: Query[RunsAsked]) -> Any:
    """The newest first."""
    rows = seen(request)
    if asked.policy:
        rows = rows.filter(policy__code=asked.policy)
    if asked.state:
        rows = rows.filter(state=asked.state)
    if asked.mode:
        rows = rows.filter(mode=asked.mode)
    found, following = page(request, rows, asked, "-pk")
    come = standing.progress(found)
    return {"items": [told(run, come[run.pk]) for run in found], "next": following}


@router.post(
    "",
    auth=Needs("runs:create"),
    response={202: RunInFull, 200: RunInFull},
    operation_id="openRun",
    summary="Open a run",
)
def open_run(request: HttpRequest, idempotency_key: IdempotencyKey, asked: RunAsked) -> Any:
    """A run of a policy, as of now. The answer comes at once (202); workers then freeze its manifest, part by part.

    It passes every guard that other runs pass. Where its policy asks for an approval, or it exceeds a cap, it waits for a
    person: approvals are never given here. Sent again with the same `Idempotency-Key`, it answers 200 with the same run,
    for ever; with another body, 409. While a run of the policy and mode is open, it answers 409 and names that.
    """
    by = person(request)
    policy = tenancy.scoped(RetentionPolicy.objects.all(), by, "tenant__code").filter(code=asked.policy).first()
    if policy is None:
        raise not_found(f"policy {asked.policy}")
    mode = CleanupRun.Mode(asked.mode) if asked.mode else None
    run, new = runs.open_run(policy=policy, by=by, mode=mode, idempotency_key=key_of(by, idempotency_key))
    if new:
        queue.wake(schedule.FREEZE, run.pk)
    return Status(202 if new else 200, in_full(request, wanted(request, run.key)))


@router.get("/{run_id}", auth=Needs("runs:read"), response=RunInFull, operation_id="getRun", summary="How a run stands")
def get_run(request: HttpRequest, run_id: Name) -> Any:
    """Its state, its counts by outcome, and what it waits for: by itself, or for a person, with the page to decide on."""
    return in_full(request, wanted(request, run_id))


class ManifestAsked(Schema):
    format: Annotated[
        Literal["jsonl", "csv"],
        Field(
            description="jsonl: each line as it was frozen, whose SHA-256 is its digest; csv: a row for each target, safe "
            "in a spreadsheet."
        ),
    ] = "jsonl"


@router.get(
    "/{run_id}/manifest",
    auth=Needs("manifests:read"),
    operation_id="getManifest",
    summary="The manifest of a run",
    openapi_extra={"x-streams": list(downloads.TYPES.values())},
)
def get_manifest(request: HttpRequest, run_id: Name, asked: Query[ManifestAsked]) -> Any:
    """Every item that was frozen, streamed; 409 until it is sealed. That it was fetched goes into the audit record."""
    run = wanted(request, run_id)
    return StreamingHttpResponse(
        downloads.send(run, asked.format, by=person(request)),
        content_type=downloads.TYPES[asked.format],
        headers={"X-Manifest-Root": run.manifest_root, "X-Manifest-Items": str(run.item_count)},
    )
