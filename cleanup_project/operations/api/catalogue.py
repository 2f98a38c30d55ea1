"""The catalogue: rows for it, uploaded as a file."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Any, Final

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from cleanup_project.base.verbpages import person
from cleanup_project.operations.api import names
from cleanup_project.operations.api.gate import Needs, length
from cleanup_project.operations.api.problems import Problem
from cleanup_project.operations.api.shapes import Name, Time
from retention.sources import importing

router = Router(tags=["Catalogue"])
AT_MOST: Final = 4 << 20  # bytes: some fifty thousand rows, and some seconds
PIECE: Final = 1 << 16
FORMATS: Final[dict[str, importing.Format]] = {"text/csv": "csv", "application/x-ndjson": "jsonl"}
INSTEAD: Final = (
    "Send several files, or import a larger one where it lies: manage.py catalogue import FILE --bucket BUCKET."
)


class UploadAsked(Schema):
    observed_at: Annotated[
        Time,
        Field(
            description="As of when the file holds: before whatever it was made from was read. Never later than now."
        ),
    ]


class BadRow(Schema):
    where: str
    error: str


class Imported(Schema):
    """`known`: rows that say nothing newer than the catalogue. `stopped`: after so many errors the rest was not read."""

    observed_at: datetime
    rows: int
    recorded: int
    known: int
    errors: list[BadRow]
    stopped: bool


@router.post(
    "/{path:bucket}/upload",
    auth=Needs("catalogue:write", media=tuple(FORMATS), at_most=AT_MOST, instead=INSTEAD),
    response=Imported,
    operation_id="uploadCatalogue",
    summary="Upload rows of the catalogue",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {media: {"schema": {"type": "string"}} for media in FORMATS},
        }
    },
)
def upload(request: HttpRequest, bucket: Name, asked: Query[UploadAsked]) -> Any:
    """Columns as in docs/catalogue.md: key, version_id, etag, size, last_modified, and what else is stated; at most 4 MiB.

    Good rows are recorded and bad ones told by their line, so look at `errors`. The bucket's catalogue is no fresher by it:
    that takes a listing, or an import of the whole bucket. It takes a token of every tenant, since a
    file says of any key whose it is.
    """
    by = person(request)
    place = names.bucket(by, bucket)
    with received(request) as path:
        report = importing.upload(
            bucket=place, path=path, format=FORMATS[str(request.content_type)], observed_at=asked.observed_at, by=by
        )
    return report.as_json()


@contextmanager
def received(request: HttpRequest) -> Iterator[Path]:
    """The body as a file, whole. Raises Problem where it ended early: a half would be recorded as if it were all."""
    with NamedTemporaryFile(prefix="catalogue-") as file:
        size = 0
        while piece := request.read(PIECE):
            size += file.write(piece)
        file.flush()
        if size != length(request):
            raise Problem("malformed", "The body ended before its length: send it again.")
        yield Path(file.name)
