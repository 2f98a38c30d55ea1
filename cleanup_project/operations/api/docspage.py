"""The description of the API for people: made by the server from OpenAPI, with no script and no style of its own."""

import json
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from cleanup_project.base.apitokens import SCOPES
from cleanup_project.operations.api import problems, site


@require_safe
def description(request: HttpRequest) -> HttpResponse:
    return HttpResponse(site.openapi(), content_type="application/json")


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Open to everybody: it says nothing that the published source does not say."""
    schema = json.loads(site.openapi())
    told = [
        operation_told(schema, place, method, each)
        for place, methods in schema["paths"].items()
        for method, each in methods.items()
    ]
    context = {
        "title": "API",
        "about": schema["info"]["description"],
        "operations": told,
        "scopes": SCOPES,
        "problems": problems.KINDS,
        "shapes": shapes(schema),
    }
    return TemplateResponse(request, "operations/api.html", context)


def operation_told(schema: dict[str, Any], place: str, method: str, each: dict[str, Any]) -> dict[str, Any]:
    body = each.get("requestBody", {}).get("content", {})
    return {
        "id": each["operationId"],
        "method": method.upper(),
        "path": place,
        "summary": each["summary"],
        "paragraphs": each["description"].split("\n\n"),
        "parameters": [
            {
                "name": parameter["name"],
                "place": parameter["in"],
                "type": type_of(parameter["schema"]),
                "required": parameter["required"],
                "words": parameter.get("description", ""),
            }
            for parameter in each["parameters"]
        ],
        "bodies": [(media, type_of(content["schema"])) for media, content in body.items()],
        "answers": [answer_told(schema, status, answer) for status, answer in each["responses"].items()],
    }


def answer_told(schema: dict[str, Any], status: str, answer: dict[str, Any]) -> tuple[str, str, list[tuple[str, str]]]:
    if "$ref" in answer:
        answer = schema["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    content = answer.get("content", {})
    return status, answer["description"], [(media, type_of(each["schema"])) for media, each in content.items()]


def shapes(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects that bodies and answers consist of, each with its members."""
    return [
        {
            "name": name,
            "words": each.get("description", ""),
            "values": each.get("enum", []),
            "members": [
                (member, type_of(about), member in each.get("required", ()), about.get("description", ""))
                for member, about in each.get("properties", {}).items()
            ],
        }
        for name, each in sorted(schema["components"]["schemas"].items())
    ]


def type_of(schema: dict[str, Any]) -> str:
    """What a value is, in a word or two: its type, the name of its shape, or its values."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    for together in ("anyOf", "allOf", "oneOf"):
        if together in schema:
            return " or ".join(dict.fromkeys(map(type_of, schema[together])))
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type") or "any value")
