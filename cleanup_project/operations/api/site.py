"""The API put together, and its description: OpenAPI with the scope and the problems of each operation."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from django.db import OperationalError
from ninja import NinjaAPI, Schema
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation
from ninja.renderers import JSONRenderer
from ninja.responses import NinjaJSONEncoder
from pydantic import Field

from cleanup_project.base.apitokens import SCOPES
from cleanup_project.base.canonical import instant
from cleanup_project.operations.api import (
    catalogue,
    commands,
    events,
    holds,
    jobs,
    objects,
    policies,
    problems,
    quarantine,
    receipts,
    runs,
)
from cleanup_project.operations.api.gate import JSON, Needs, Strict

PLACE: Final = "/api/v1/"
ABOUT: Final = (
    "For programs: runs, manifests, commands, quarantine, legal holds, retention events, receipts, the catalogue. "
    "Approvals are decisions of people and are never given here. Send `Authorization: Bearer` with a token that an "
    "administrator made. Each operation names the scope that it needs, and what belongs to other tenants than the token's is "
    "not there. Times are in UTC. Every answer carries `X-Request-ID`, by which the audit record and the logs name it. "
    "Whatever is not done is answered with a problem (RFC 9457) that says what to do."
)
ALWAYS: Final = (401, 403, 422, 429, 503)
WITH_BODY: Final = (400, 409, 411, 413, 415)


class Problem(Schema):
    """Why something was not done (RFC 9457). `errors`: sentences by the field or parameter that they are about."""

    type: str = Field(description="The address of a description of this kind of problem.")
    title: str
    status: int
    detail: str = Field(description="What to do.")
    request_id: str
    errors: dict[str, list[str]] = Field(default={}, description="Only where something was sent wrongly.")
    run: str = Field(default="", description="Only of the problem run-open: the run that is open.")


class Encoder(NinjaJSONEncoder):
    """Times as receipts have them."""

    def default(self, o: Any) -> Any:
        return instant(o) if getattr(o, "tzinfo", None) else super().default(o)


class Renderer(JSONRenderer):
    encoder_class = Encoder
    json_dumps_params = {"ensure_ascii": False}


class Described(OpenAPISchema):
    """What django-ninja knows, with what `Needs` says and with the problems that may come."""

    def operation_details(self, operation: Operation) -> dict[str, Any]:
        told: dict[str, Any] = super().operation_details(operation)
        needs = needs_of(operation)
        scope = f"Needs the scope `{needs.scope}`: {SCOPES[needs.scope].words}."
        told["description"] = f"{operation.description.strip()}\n\n{scope}"
        told["security"] = [{"token": [needs.scope]}]
        if media := told.pop("x-streams", []):
            content = {
                name: {"schema": {"type": "object" if name == JSON else "string"}}
                for name in (each.partition(";")[0] for each in media)
            }
            told["responses"][200] = {"description": "OK", "content": content}
        for status in statuses(operation):
            told["responses"][status] = {"$ref": f"#/components/responses/Problem{status}"}
        told["responses"] = {str(status): each for status, each in sorted(told["responses"].items())}
        return told

    def get_components(self) -> dict[str, Any]:
        self.add_schema_definitions({"Problem": Problem.model_json_schema()})
        scheme = {"type": "http", "scheme": "bearer", "description": "A token of the API, made by an administrator."}
        content = {problems.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        told = {
            f"Problem{status}": {"description": problems.KINDS[problems.BY_STATUS[status]].title, "content": content}
            for status in sorted({*ALWAYS, *WITH_BODY, 404})
        }
        return {**super().get_components(), "responses": told, "securitySchemes": {"token": scheme}}


class Api(NinjaAPI):
    def get_openapi_schema(self, **_: Any) -> OpenAPISchema:
        return Described(self, PLACE.lstrip("/"))


def statuses(operation: Operation) -> list[int]:
    """Of the problems that may come of it."""
    found = set(ALWAYS)
    if operation.methods != ["GET"]:
        found |= {*WITH_BODY, 404}
    elif "{" in operation.path or "cursor" not in needs_of(operation).query:
        found |= {404}
    if operation.openapi_extra and "x-streams" in operation.openapi_extra:
        found |= {409}
    return sorted(found)


def needs_of(operation: Operation) -> Needs:
    (needs,) = operation.auth_callbacks
    assert isinstance(needs, Needs), f"{operation.path} does not say which scope it needs"
    return needs


def operations() -> Iterator[Operation]:
    for bound in api._get_bound_routers():
        for view in bound.path_operations.values():
            yield from view.operations


def put_together() -> Api:
    made = Api(
        title="Cleanup",
        version="1",
        description=ABOUT,
        openapi_url=None,
        renderer=Renderer(),
        parser=Strict(),
        urls_namespace="api",
    )
    made.add_exception_handler(Exception, problems.unforeseen)
    made.add_exception_handler(OperationalError, problems.gave_way)
    for kind, told in problems.TABLE.items():
        made.add_exception_handler(kind, problems.handler(told))
    for place, each in PARTS.items():
        made.add_router(place, each.router)
    return made


PARTS: Final[dict[str, Any]] = {
    "/runs": runs,
    "/commands": commands,
    "/quarantine": quarantine,
    "/jobs": jobs,
    "/holds": holds,
    "/retention-events": events,
    "/policies": policies,
    "/receipts": receipts,
    "/objects": objects,
    "/catalogue": catalogue,
}
api: Final = put_together()
for each in operations():
    needs_of(each).query = frozenset(
        name for model in each.models if model.__ninja_param_source__ == "query" for name in model.__ninja_flatten_map__
    )


@cache
def openapi() -> str:
    """The description as JSON, as it is served, and committed in docs/openapi.json."""
    told: dict[str, Any] = untitled(api.get_openapi_schema())
    told["info"]["title"] = api.title
    drop_unused(told["components"]["schemas"], told)
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def drop_unused(shapes: dict[str, Any], told: dict[str, Any]) -> None:
    """Shapes that nothing refers to: django-ninja names those of parameters, too, which stand by themselves."""
    text = json.dumps(told)
    for name in [name for name in shapes if f'"#/components/schemas/{name}"' not in text]:
        del shapes[name]


def untitled(value: Any) -> Any:
    """Without pydantic's titles, which repeat each name with a capital. A member that is called so is no text."""
    if isinstance(value, list):
        return [untitled(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: untitled(each) for name, each in value.items() if not (name == "title" and isinstance(each, str))}
