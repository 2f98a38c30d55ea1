"""How much a token asks for: counted within each minute by the database's clock, for all web processes together."""

from typing import NamedTuple

from django.conf import settings
from django.db import connection

from cleanup_project.base import sqlfiles
from cleanup_project.base.models import ApiToken


class Use(NamedTuple):
    """Of `limit` requests of a kind in this minute, how many are left (below zero: too many), and for how many seconds."""

    limit: int
    left: int
    seconds: int


def count(token: ApiToken, *, writing: bool) -> Use:
    """Count one request, in a statement of its own; what comes too often is counted as well."""
    limit = settings.API_WRITES_PER_MINUTE if writing else settings.API_READS_PER_MINUTE
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "api_use.sql"), {"token": token.pk, "writing": writing})
        reads, writes, seconds = cursor.fetchone()
    return Use(limit, limit - (writes if writing else reads), seconds)
