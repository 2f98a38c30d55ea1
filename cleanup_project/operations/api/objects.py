"""Objects: why one is kept, or when it may go."""

from typing import Annotated, Any, Final

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from cleanup_project.base import clock, tenancy
from cleanup_project.base.verbpages import person
from cleanup_project.operations.api import names
from cleanup_project.operations.api.gate import Needs
from cleanup_project.operations.api.problems import not_found
from cleanup_project.operations.api.shapes import Key, Time
from retention import why
from retention.models import ObjectVersion

router = Router(tags=["Objects"])
EXPLAINED: Final = 10  # versions of one key


class WhyAsked(Schema):
    bucket: Annotated[str, Field(min_length=1, max_length=600, description="Name, or name@endpoint.")]
    key: Annotated[Key, Field(min_length=1, description="Exactly, byte for byte.")]
    version: Annotated[str, Field(max_length=1024, description="A version id; without it, the newest versions.")] = ""
    as_of: Annotated[
        Time | None, Field(description="Judged as of then, with today's catalogue, policies, holds and decisions.")
    ] = None


class Verdicts(Schema):
    """`more`: there are further versions under this key; name one by its id."""

    versions: list[dict[str, Any]]
    more: bool


@router.get(
    "/why",
    auth=Needs("objects:read"),
    response=Verdicts,
    operation_id="explainObject",
    summary="Why is it kept?",
    openapi_extra={"responses": {409: {"$ref": "#/components/responses/Problem409"}}},
)
def get_why(request: HttpRequest, asked: Query[WhyAsked]) -> Any:
    """Whether retention has ended for each version, which policy governs it, which holds and decisions keep it.

    `explanation` says the same in sentences, and when it is looked at next. 409 where more versions or events bear upon it
    than are read for an answer: `manage.py why` tells it then, on the server.
    """
    by = person(request)
    place = names.bucket(by, asked.bucket)
    versions = ObjectVersion.objects.filter(bucket=place, key=asked.key).select_related("bucket", "tenant")
    rows = tenancy.scoped(versions, by, "tenant__code")
    if asked.version:
        rows = rows.filter(version_id=asked.version)
    found = list(rows.order_by("-stored_at", "-pk")[: EXPLAINED + 1])
    if not found:
        raise not_found("object version of this name in the catalogue")
    as_of = asked.as_of or clock.now()
    verdicts = why.why_each(found[:EXPLAINED], as_of, why.READ)
    told = [why.as_json(row, verdicts[row.pk], as_of, why.READ) for row in found[:EXPLAINED]]
    return {"versions": told, "more": len(found) > EXPLAINED}
