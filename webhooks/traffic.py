"""What goes on at endpoints, for people to look at: read in bounded time, many endpoints in one statement."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from django.db import connection

from cleanup_project.base import sqlfiles

COUNTED: Final = 1000
ANSWERS: Final = 100


class Traffic(NamedTuple):
    """`pending` is exact up to COUNTED, and one more where there are more; `succeeded` and `failed` are the last times among
    the last ANSWERS answers; `at` is the database's time of reading.
    """

    oldest_due: datetime | None
    pending: int
    succeeded: datetime | None
    failed: datetime | None
    at: datetime


def traffic(endpoint_ids: Iterable[int]) -> dict[int, Traffic]:
    """By endpoint; one that does not exist is left out."""
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "traffic.sql"),
            {"endpoints": sorted(set(endpoint_ids)), "counted": COUNTED + 1, "answers": ANSWERS},
        )
        return {endpoint_id: Traffic(*row) for endpoint_id, *row in cursor}
