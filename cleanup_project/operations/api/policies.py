"""Policies and what each of their revisions says."""

from datetime import datetime, time
from typing import Annotated, Any

from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from cleanup_project.base import tenancy
from cleanup_project.base.verbpages import person
from cleanup_project.operations.api import names
from cleanup_project.operations.api.cursors import Page, Paging, page
from cleanup_project.operations.api.gate import Needs
from cleanup_project.operations.api.problems import not_found
from cleanup_project.operations.api.shapes import Name
from retention.models import PolicyRevision, RetentionPolicy

router = Router(tags=["Policies"])
REVISIONS: int = 100  # of one policy, the newest


class Policy(Schema):
    """A suspended policy destroys nothing. `erasure`: it belongs to one urgent erasure."""

    code: str
    tenant: str
    schedule: Annotated[str, Field(description="Cron expression, UTC.")]
    missed_slots: str
    erasure: bool
    suspended_at: datetime | None
    suspended_reason: str
    created_at: datetime


class Revision(Schema):
    """What a policy says from `in_force_from` on; a draft has none. Immutable once published."""

    number: int
    title: str
    authority: str
    buckets: list[str]
    prefixes: list[str]
    retention_classes: list[str]
    trigger: str
    event_type: str
    period_number: int
    period_unit: str
    cutoff: str
    keep_newest: int
    retain_permanently: bool
    already_absent: str
    authorisation: str
    cooling_off_minutes: int
    window_days: str
    window_start: time | None
    window_end: time | None
    window_zone: str
    cap_objects: int
    cap_bytes: int
    cap_share_percent: int
    priority: int
    evidence_max_age_hours: int
    destroy_within_days: int | None
    retroactive: bool
    effective_from: datetime
    submitted_at: datetime | None
    published_at: datetime | None
    in_force_from: datetime | None


class PolicyInFull(Policy):
    revisions: Annotated[list[Revision], Field(description=f"The newest first, {REVISIONS} at the most.")]


class PoliciesAsked(Paging):
    tenant: Annotated[str, Field(max_length=63)] = ""


def seen(request: HttpRequest) -> QuerySet[RetentionPolicy]:
    return tenancy.scoped(RetentionPolicy.objects.select_related("tenant"), person(request), "tenant__code")


def told(policy: RetentionPolicy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in Policy.model_fields if name != "tenant"} | {
        "tenant": policy.tenant.code
    }


def revision_told(row: PolicyRevision, buckets: dict[int, str]) -> dict[str, Any]:
    scope = names.scope_told(row, buckets)
    return {name: scope[name] if name in scope else getattr(row, name) for name in Revision.model_fields}


@router.get(
    "", auth=Needs("policies:read"), response=Page[Policy], operation_id="listPolicies", summary="List policies"
)
def list_policies(request: HttpRequest, asked: Query[PoliciesAsked]) -> Any:
    """By their codes."""
    rows = seen(request)
    if asked.tenant:
        rows = rows.filter(tenant=names.tenant(person(request), asked.tenant))
    found, following = page(request, rows, asked, "code")
    return {"items": list(map(told, found)), "next": following}


@router.get(
    "/{code}",
    auth=Needs("policies:read"),
    response=PolicyInFull,
    operation_id="getPolicy",
    summary="A policy with its revisions",
)
def get_policy(request: HttpRequest, code: Name) -> Any:
    """Drafts among them, which say nothing yet."""
    policy = seen(request).filter(code=code).first()
    if policy is None:
        raise not_found(f"policy {code}")
    rows = list(policy.revisions.select_related("tenant").order_by("-number")[:REVISIONS])
    buckets = names.bucket_names(rows)
    return {**told(policy), "revisions": [revision_told(row, buckets) for row in rows]}
