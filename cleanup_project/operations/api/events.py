"""Retention events: that something happened, from which on the clock of what it covers runs."""

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router, Schema, Status
from pydantic import Field

from cleanup_project.base.verbpages import person
from cleanup_project.operations.api import names
from cleanup_project.operations.api.gate import Needs
from cleanup_project.operations.api.shapes import Reason, Scope, Time
from retention import events

router = Router(tags=["Retention events"])


class EventAsked(Scope):
    event_type: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9][a-z0-9-]{0,62}$",
            description="As in the policies that wait for it, for example contract-ended.",
        ),
    ]
    occurred_at: Annotated[Time, Field(description="When it happened; not more than a day ahead.")]
    reason: Annotated[Reason, Field(description="What happened. Kept for ever.")]
    reference: Annotated[str, Field(max_length=200, description="Where that stands, for example a case number.")] = ""


class RetentionEvent(Schema):
    """`started_versions`: how many present versions its clock started for; `counted_all`: whether that is all of them."""

    id: int
    tenant: str
    event_type: str
    occurred_at: datetime
    buckets: list[str]
    prefixes: list[str]
    retention_classes: list[str]
    reason: str
    reference: str
    posted_by: str
    posted_at: datetime
    started_versions: int
    started_bytes: int
    counted_all: bool


@router.post(
    "",
    auth=Needs("events:post"),
    response={201: RetentionEvent},
    operation_id="postEvent",
    summary="Post a retention event",
)
def post_event(request: HttpRequest, asked: EventAsked) -> Any:
    """Its scope is always stated.

    Of two events of a type that cover an object the later date counts, so one that is sent twice changes nothing. It can be
    withdrawn by people until the first deletion under it.
    """
    by = person(request)
    more = asked.model_dump(exclude=set(Scope.model_fields))
    event = events.post(by=by, **names.scope(by, asked), **more)
    named = (
        "event_type",
        "occurred_at",
        "reason",
        "reference",
        "posted_at",
        "started_versions",
        "started_bytes",
        "counted_all",
    )
    told = {name: getattr(event, name) for name in named}
    told |= names.scope_told(event, names.bucket_names([event]))
    return Status(201, {**told, "id": event.pk, "posted_by": str(event.posted_by)})
