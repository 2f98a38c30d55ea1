"""What of the ledger is counted by the minute: deletions and how late they were, attempts, what entered quarantine."""

from typing import Final

from cleanup_project.base import sqlfiles
from cleanup_project.base.rollups import Source

DELETION: Final = "deletion"  # by outcome; from eligible since to the receipt
ATTEMPTS: Final = "delete_attempts"  # by failure class, or by outcome where it did not fail
QUARANTINED: Final = "quarantined"  # by failure class

SOURCES: Final = (
    Source("receipts", (DELETION,), sqlfiles.read(__file__, "rollup_receipts.sql")),
    Source("delete attempts", (ATTEMPTS,), sqlfiles.read(__file__, "rollup_attempts.sql")),
    Source("quarantine", (QUARANTINED,), sqlfiles.read(__file__, "rollup_quarantine.sql")),
)
