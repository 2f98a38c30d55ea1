"""What the API takes and gives, as far as several operations have it in common."""

from datetime import UTC, datetime
from typing import Annotated, Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from django.db.models import Model
from django.http import HttpRequest
from ninja import Header, Schema
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ConfigDict, Field

from cleanup_project.base import display
from cleanup_project.base.models import User

LARGEST: Final = 2**63 - 1


def time_text(value: Any) -> Any:
    if not isinstance(value, str) or "T" not in value.upper():
        raise ValueError("write a time with its zone, for example 2027-01-31T00:00:00Z")
    return value


def in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("it lies outside of the calendar in UTC") from None


def stated(text: str) -> str:
    if not text.strip():
        raise ValueError("state one: it is kept for ever")
    return text


Time = Annotated[AwareDatetime, BeforeValidator(time_text), AfterValidator(in_utc)]
Number = Annotated[int, Field(ge=1, le=LARGEST)]
Whole = Annotated[int, Field(strict=True, ge=1, le=LARGEST)]  # in a body, where "5" is a text
Reason = Annotated[
    str,
    Field(max_length=4000, json_schema_extra={"pattern": r"\S"}, description="Kept for ever."),
    AfterValidator(stated),
]
Name = Annotated[str, Field(min_length=1, max_length=255)]
Key = Annotated[str, Field(max_length=4096)]
IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=150,
        pattern=r"^[\x21-\x7e]+$",
        description="Of your own making, such as a UUID: sent again with the same body, it is the same request.",
    ),
]


class Asked(Schema):
    """A body: what it does not know it refuses, so that nothing is left out by a slip of the pen."""

    model_config = ConfigDict(extra="forbid")


class Scope(Asked):
    """What a hold or an event covers. An empty list never means everything."""

    tenant: Name
    buckets: Annotated[
        list[Name],
        Field(min_length=1, max_length=100, description="Names; name@endpoint where two stores have one of that name."),
    ]
    prefixes: Annotated[
        list[Key],
        Field(
            min_length=1,
            max_length=1000,
            description="Beginnings of keys, as bytes, without wildcards; the empty one is the whole bucket.",
        ),
    ]
    retention_classes: Annotated[
        list[Annotated[str, Field(max_length=200)]],
        Field(min_length=1, max_length=100, description="`*` alone is any class; the empty one is unclassified."),
    ]


def key_of(user: User, key: str) -> str:
    """An idempotency key as the ledger keeps it: nobody meets another program's."""
    return f"{user.pk}:{key}"


def token_of(user: User, key: str) -> UUID:
    """The same for what is known by a UUID."""
    return uuid5(NAMESPACE_URL, key_of(user, key))


def page_url(request: HttpRequest, row: Model) -> str:
    """Where a person decides about it."""
    return request.build_absolute_uri(display.change_url(row))
