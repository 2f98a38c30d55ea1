"""What of the ledger is counted by the minute: candidates, commands, deletions and how late they were, attempts, runs."""

from typing import Final

from cleanup_project.base import sqlfiles
from cleanup_project.base.rollups import Source

CANDIDATES: Final = "candidates"  # items of manifests, by the mode of their run
PUBLISHED: Final = "published"  # new commands; what a later run adopted is not new
DELETION: Final = "deletion"  # by outcome; from eligible since to the receipt
REPLAY_SUCCESS: Final = "replay_success"  # of these, what had been parked before, by the kind of decision
ATTEMPTS: Final = "delete_attempts"  # by failure class, or by outcome where it did not fail
QUARANTINED: Final = "quarantined"  # by failure class
RESOLVED: Final = "quarantine_resolved"  # by what became of it
DRAIN: Final = "run_drain"  # from authorised to closed

SOURCES: Final = (
    Source("receipts", (DELETION, REPLAY_SUCCESS), sqlfiles.read(__file__, "rollup_receipts.sql")),
    Source("delete attempts", (ATTEMPTS,), sqlfiles.read(__file__, "rollup_attempts.sql")),
    Source("quarantine", (QUARANTINED,), sqlfiles.read(__file__, "rollup_quarantine.sql")),
    Source("quarantine resolved", (RESOLVED,), sqlfiles.read(__file__, "rollup_resolved.sql")),
    Source("manifest parts", (CANDIDATES,), sqlfiles.read(__file__, "rollup_candidates.sql")),
    Source("commands", (PUBLISHED,), sqlfiles.read(__file__, "rollup_published.sql")),
    Source("runs", (DRAIN,), sqlfiles.read(__file__, "rollup_runs.sql")),
)
