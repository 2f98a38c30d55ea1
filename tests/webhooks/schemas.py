"""Bodies against the schemas that are published for them."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from jsonschema import Draft202012Validator

from webhooks.eventtypes import EVERY, file_name
from webhooks.models import DetailedBody, OutboxEvent

OF_EACH_TYPE: Final = 100


@cache
def validator(type: str) -> Draft202012Validator:
    """By the file that receivers read, not by what it is made from."""
    path = Path(settings.BASE_DIR) / "docs" / "schemas" / file_name(type)
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def problems(body: Any, type: str = "") -> list[str]:
    """What the schema of its type, or of another, has to say against a body."""
    return [f"{each.json_path}: {each.message}" for each in validator(type or body["type"]).iter_errors(body)]


def wrong_bodies() -> list[str]:
    """What speaks against the bodies in the outbox, looking at some of each type."""
    found = list[str]()
    for type in EVERY:
        events = OutboxEvent.objects.filter(type=type).order_by("pk")
        bodies = [*events.values_list("body", flat=True)[:OF_EACH_TYPE]]
        bodies += DetailedBody.objects.filter(event__type=type).values_list("body", flat=True)[:OF_EACH_TYPE]
        found += [f"{type}: {each}" for body in bodies for each in problems(json.loads(bytes(body)))]
    return found
