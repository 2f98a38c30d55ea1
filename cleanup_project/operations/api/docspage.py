"""The description of the API for people: made by the server from OpenAPI, with no script and no style of its own."""

import json
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from cleanup_project.base.apitokens import SCOPES
from cleanup_project.operations.api import problems, site

MARKS: Final = ("{}", "<code>{}</code>")
SAMPLES: Final = {"integer": 1, "array": ["…"]}


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
        "about": marked(schema["info"]["description"]),
        "operations": told,
        "scopes": SCOPES,
        "problems": problems.KINDS,
        "shapes": shapes(schema),
    }
    return TemplateResponse(request, "operations/api.html", context)


def operation_told(schema: dict[str, Any], place: str, method: str, each: dict[str, Any]) -> dict[str, Any]:
    answers = each["responses"]
    return {
        "id": each["operationId"],
        "method": method.upper(),
        "path": place,
        "summary": each["summary"],
        "paragraphs": list(map(marked, each["description"].split("\n\n"))),
        "parameters": [
            {
                "name": parameter["name"],
                "place": parameter["in"],
                "type": type_of(parameter["schema"]),
                "required": parameter["required"],
                "words": marked(parameter.get("description", "")),
            }
            for parameter in each["parameters"]
        ],
        "bodies": contents(each.get("requestBody", {})),
        "answers": [(status, *told) for status, answer in answers.items() for told in contents(answer)],
        "problems": [
            (status, schema["components"]["responses"][answer["$ref"].rpartition("/")[2]]["description"])
            for status, answer in answers.items()
            if "$ref" in answer
        ],
        "example": example(schema, place, method, each),
    }


def contents(body: dict[str, Any]) -> list[tuple[str, SafeString]]:
    """(media type, what it holds) of a request or an answer, with a link to where that is described."""
    return [(media, shape_of(content["schema"])) for media, content in body.get("content", {}).items()]


def shape_of(schema: dict[str, Any]) -> SafeString:
    linked = '<a href="#shape-{0}">{0}</a>' if "$ref" in schema else "{}"
    return format_html(linked, type_of(schema))


def marked(text: str) -> SafeString:
    """With what stands between backticks as code."""
    parts = enumerate(text.split("`"))
    return format_html_join("", "{}", ((format_html(MARKS[number % 2], part),) for number, part in parts))


def example(schema: dict[str, Any], place: str, method: str, each: dict[str, Any]) -> str:
    """A command that sends it, with the parameters and members that are required."""
    needed = [parameter for parameter in each["parameters"] if parameter["required"]]
    query = "&".join(f"{parameter['name']}=…" for parameter in needed if parameter["in"] == "query")
    lines = ['curl -H "Authorization: Bearer $TOKEN"']
    lines += [f'-H "{parameter["name"]}: …"' for parameter in needed if parameter["in"] == "header"]
    for media, content in list(each.get("requestBody", {}).get("content", {}).items())[:1]:
        lines += [f'-H "Content-Type: {media}"', f"--data-binary {sample(schema, content['schema'])}"]
    address = f'"https://cleanup.example.org{place}{"?" if query else ""}{query}"'
    return " \\\n    ".join([*lines, address if method == "get" else f"-X {method.upper()} {address}"])


def sample(schema: dict[str, Any], of: dict[str, Any]) -> str:
    if "$ref" not in of:
        return "@FILE"
    shape = schema["components"]["schemas"][of["$ref"].rpartition("/")[2]]
    values = {name: SAMPLES.get(shape["properties"][name].get("type"), "…") for name in shape["required"]}
    return f"'{json.dumps(values, ensure_ascii=False)}'"


def shapes(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects that bodies and answers consist of, each with its members."""
    return [
        {
            "name": name,
            "words": marked(each.get("description", "")),
            "values": each.get("enum", []),
            "members": [
                (member, type_of(about), member in each.get("required", ()), marked(about.get("description", "")))
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
