"""Old snapshots: while a session reads as of then, no dead row that is newer goes, and every claim becomes slower."""

from datetime import datetime
from typing import NamedTuple

from django.db import connection


class Oldest(NamedTuple):
    """Since when the oldest is, of other sessions in this database; None: there is none. `seen`: whether we may know."""

    seen: bool
    since: datetime | None


def oldest() -> Oldest:
    """A role sees snapshots of others with pg_read_all_stats alone; without it their columns are null."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_has_role('pg_read_all_stats', 'USAGE'), min(xact_start) FROM pg_stat_activity "
            "WHERE backend_xmin IS NOT NULL AND backend_type = 'client backend' AND datname = current_database() "
            "AND pid <> pg_backend_pid()"
        )
        seen, since = cursor.fetchone()
        return Oldest(seen, since if seen else None)
