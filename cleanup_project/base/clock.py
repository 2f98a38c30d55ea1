"""The one clock: the database's. Hosts disagree, and what one of them wrote is judged by another."""

from datetime import datetime

from django.db import connection


def now() -> datetime:
    """The database's present time; inside a transaction, that of this statement."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        moment: datetime = cursor.fetchone()[0]
        return moment
