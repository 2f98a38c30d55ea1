"""Legal holds: place one, list them, request a release. That a release is approved is for two people."""

from datetime import datetime
from typing import Annotated, Any

from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import Field

from cleanup_project.base import tenancy
from cleanup_project.base.verbpages import person
from cleanup_project.operations.api import names
from cleanup_project.operations.api.cursors import Page, Paging, page
from cleanup_project.operations.api.gate import Needs
from cleanup_project.operations.api.problems import not_found
from cleanup_project.operations.api.shapes import Asked, Number, Reason, Scope, Time, page_url
from retention import holds, releases
from retention.models import HoldRelease, LegalHold

router = Router(tags=["Legal holds"])
Short = Annotated[str, Field(min_length=1, max_length=200)]


class HoldAsked(Scope):
    matter: Annotated[Short, Field(description="The case or proceeding, as the lawyers name it.")]
    title: Short
    authority: Reason
    reason: Reason
    custodian: Annotated[str, Field(max_length=200)] = ""
    stored_from: Annotated[
        Time | None, Field(description="Objects stored then or later; null: from the beginning.")
    ] = None
    stored_to: Annotated[Time | None, Field(description="Objects stored earlier; null: without end.")] = None


class HoldsAsked(Paging):
    tenant: Annotated[str, Field(max_length=63)] = ""
    matter: Annotated[str, Field(max_length=200, description="Exactly.")] = ""
    in_force: bool | None = None


class Hold(Schema):
    """`release`: the number of the release request that waits for a person, if there is one."""

    id: int
    tenant: str
    matter: str
    title: str
    authority: str
    reason: str
    custodian: str
    buckets: list[str]
    prefixes: list[str]
    retention_classes: list[str]
    stored_from: datetime | None
    stored_to: datetime | None
    placed_by: str
    placed_at: datetime
    released_at: datetime | None
    release: int | None


class ReleaseAsked(Asked):
    reason: Reason


class Release(Schema):
    """`page`: where another person decides."""

    id: int
    hold: int
    requested_by: str
    requested_at: datetime
    reason: str
    page: str


def seen(request: HttpRequest) -> QuerySet[LegalHold]:
    asked = Prefetch("releases", HoldRelease.objects.open(), to_attr="open_releases")
    rows = LegalHold.objects.select_related("tenant", "placed_by").prefetch_related(asked)
    return tenancy.scoped(rows, person(request), "tenant__code")


def told(hold: Any, buckets: dict[int, str]) -> dict[str, Any]:
    named = (
        "matter",
        "title",
        "authority",
        "reason",
        "custodian",
        "stored_from",
        "stored_to",
        "placed_at",
        "released_at",
    )
    return {
        **{name: getattr(hold, name) for name in named},
        **names.scope_told(hold, buckets),
        "id": hold.pk,
        "placed_by": str(hold.placed_by),
        "release": hold.open_releases[0].pk if hold.open_releases else None,
    }


@router.get("", auth=Needs("holds:read"), response=Page[Hold], operation_id="listHolds", summary="List legal holds")
def list_holds(request: HttpRequest, asked: Query[HoldsAsked]) -> Any:
    """The newest first, released ones too."""
    rows = seen(request)
    if asked.tenant:
        rows = rows.filter(tenant=names.tenant(person(request), asked.tenant))
    if asked.matter:
        rows = rows.filter(matter=asked.matter)
    if asked.in_force is not None:
        rows = rows.filter(released_at__isnull=asked.in_force)
    found, following = page(request, rows, asked, "-pk")
    buckets = names.bucket_names(found)
    return {"items": [told(each, buckets) for each in found], "next": following}


@router.post(
    "", auth=Needs("holds:place"), response={201: Hold}, operation_id="placeHold", summary="Place a legal hold"
)
def place_hold(request: HttpRequest, asked: HoldAsked) -> Any:
    """In force when this answers, for present and for later objects.

    What was on its way to the store at that moment is reported to people. Whoever gets no answer looks for the matter before
    sending it again: a second hold would need a release of its own.
    """
    by = person(request)
    more = asked.model_dump(exclude=set(Scope.model_fields))
    placed = holds.place(by=by, **names.scope(by, asked), **more)
    hold = seen(request).get(pk=placed.pk)
    return Status(201, told(hold, names.bucket_names([hold])))


@router.post(
    "/{number}/release-requests",
    auth=Needs("holds:request-release"),
    response={201: Release},
    operation_id="requestRelease",
    summary="Request the release of a hold",
)
def request_release(request: HttpRequest, number: Number, asked: ReleaseAsked) -> Any:
    """The hold stays in force until a person approves the release; that is never done here. At most one waits."""
    hold = seen(request).filter(pk=number).first()
    if hold is None:
        raise not_found(f"legal hold {number}")
    release = releases.request(hold=hold, by=person(request), reason=asked.reason)
    release.refresh_from_db(fields=["requested_at"])
    return Status(
        201,
        {
            "id": release.pk,
            "hold": release.hold_id,
            "requested_by": str(release.requested_by),
            "requested_at": release.requested_at,
            "reason": release.reason,
            "page": page_url(request, release),
        },
    )
