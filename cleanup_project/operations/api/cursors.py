"""Lists in pages: by keyset along an index, so that the last page costs what the first does.

A cursor holds the place at which its page ended. It is signed, so that nobody makes one up, and belongs to its list and
filters: with others it would skip or repeat rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Final, Generic, TypeVar

from django.core import signing
from django.db import transaction
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest
from ninja import Schema
from pydantic import Field

from cleanup_project.base import paginator
from cleanup_project.base.canonical import instant
from cleanup_project.operations.api.problems import Problem

MOST: Final = 200
BUDGET_MS: Final = 2000  # of each statement
T = TypeVar("T")
M = TypeVar("M", bound=Model)


class Page(Schema, Generic[T]):
    """Some of the items, and the `cursor` of the page that follows; null where this is the last."""

    items: list[T]
    next: str | None


class Paging(Schema):
    """Parameters that every list takes."""

    cursor: Annotated[
        str, Field(max_length=1000, description="`next` of the page before; without it, the first page.")
    ] = ""
    limit: Annotated[int, Field(ge=1, le=MOST, description="Items of a page, at most.")] = 50


def page(request: HttpRequest, rows: QuerySet[M], asked: Paging, *order: str) -> tuple[Sequence[M], str | None]:
    """The page that was asked for, and the cursor of the next.

    `order`: one column that is unique, or such a one after another, with a minus where they descend: an index leads there.
    """
    signer = signing.Signer(salt=f"api.cursor:{request.path}:{filters(asked)}")
    if asked.cursor:
        rows = rows.filter(beyond(order, position(signer, asked.cursor, len(order))))
    found = list(rows.order_by(*order)[: asked.limit + 1])
    if len(found) <= asked.limit:
        return found, None
    last = found[asked.limit - 1]
    return found[: asked.limit], signer.sign_object([plain(getattr(last, name.lstrip("-"))) for name in order])


@contextmanager
def budget() -> Iterator[None]:
    """For lists of large tables, whose filters together may have no index. Raises OperationalError where it is used up."""
    with transaction.atomic(), paginator.limited(BUDGET_MS):
        yield


def filters(asked: Paging) -> str:
    return asked.model_dump_json(exclude={"cursor", "limit"})


def plain(value: Any) -> Any:
    return instant(value) if isinstance(value, datetime) else value


def position(signer: signing.Signer, cursor: str, columns: int) -> list[Any]:
    try:
        found: list[Any] = signer.unsign_object(cursor)
    except signing.BadSignature:
        words = "It is no cursor of this list with these filters: send `next` as it came, or begin without a cursor."
        raise Problem("invalid", words, errors={"cursor": [words]}) from None
    assert len(found) == columns
    return found


def beyond(order: Sequence[str], at: Sequence[Any]) -> Q:
    """What follows this place. Of two columns the first is compared by itself as well, which an index can begin with."""
    names = [name.lstrip("-") for name in order]
    signs = ["lt" if name.startswith("-") else "gt" for name in order]
    after = Q(**{f"{names[0]}__{signs[0]}": at[0]})
    if len(order) == 1:
        return after
    return Q(**{f"{names[0]}__{signs[0]}e": at[0]}) & (after | Q(**{f"{names[1]}__{signs[1]}": at[1]}))
