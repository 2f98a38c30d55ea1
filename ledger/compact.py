"""Compaction: the details of commands that nothing can move any more become one summary each; receipts stay.

Only *notified* commands are compacted, since no move leads on from there. What is held, dead or withdrawn may be taken up
again, by a replay or a later run, and then needs its targets; what is deleted still owes notices. That no second command
can succeed for the same object version is kept, once its targets are gone, by the catalogue: a destroyed version never
becomes present again (retention/sql/upsert_page.sql), so no scan finds it, no publication makes a command of an older
manifest that names it (sql/publish.sql), and no replay of another command passes (quarantine.py).
"""

from datetime import timedelta
from typing import Final

import structlog
from django.db import connection, transaction

from cleanup_project.base import sqlfiles
from cleanup_project.base.canonical import SQL_INSTANT
from ledger.exceptions import LedgerError

KEPT_FOR: Final = timedelta(days=365)
AT_LEAST: Final = timedelta(days=1)
CHUNK: Final = 1000
DETAILS: Final = (
    "DELETE FROM ledger_attempt WHERE command_id = ANY (%s::bigint[])",
    "DELETE FROM ledger_request WHERE command_id = ANY (%s::bigint[])",
    "DELETE FROM ledger_commandtarget WHERE command_id = ANY (%s::bigint[])",
    # The names that it copied from the targets.
    "UPDATE ledger_deadletter SET key = '', version_id = '' WHERE command_id = ANY (%s::bigint[])",
)

log = structlog.get_logger(__name__)


def compact(*, older_than: timedelta = KEPT_FOR, limit: int = CHUNK) -> int:
    """Compact up to `limit` commands that were notified longer ago, in one transaction; returns how many.

    Raises LedgerError below a day: a worker that was frozen may still come with a late result.
    """
    check_age(older_than, "details")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "compact.sql"),
            {"older_than": older_than.total_seconds(), "limit": limit, "instant": SQL_INSTANT},
        )
        ids = [row[0] for row in cursor.fetchall()]
        if not ids:
            return 0
        # Later statements than the summaries', which the guard looks for.
        for statement in DETAILS:
            cursor.execute(statement, [ids])
        cursor.execute(
            "UPDATE ledger_cleanupcommand SET compacted_at = now() WHERE id = ANY (%s::bigint[])",
            [ids],
        )
    log.info("compacted", commands=len(ids))
    return len(ids)


def forget_locators(*, older_than: timedelta) -> int:
    """Forget the clear names behind receipts issued longer ago; returns of how many receipts.

    The receipts stay, with their commitments. Walks the locators that are left in short transactions.
    """
    check_age(older_than, "locators")
    total: int = 0
    after = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(
                sqlfiles.read(__file__, "forget.sql"),
                {"older_than": older_than.total_seconds(), "after": after, "limit": CHUNK},
            )
            read, forgotten, last = cursor.fetchone()
        total += forgotten
        if read < CHUNK:
            return total
        after = last


def check_age(older_than: timedelta, what: str) -> None:
    if older_than < AT_LEAST:
        raise LedgerError(f"Keep {what} for at least a day: give a longer time.")
