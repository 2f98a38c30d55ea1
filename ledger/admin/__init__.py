"""Runs, manifests, commands, quarantine and receipts in the admin: read, and decided about through the verbs alone."""

from ledger.admin import (
    commands,
    erasure,
    exports,
    holdreports,
    holds,
    manifests,
    policies,
    quarantine,
    receipts,
    reviews,
    runs,
    slots,
    stops,
    waiting,
)

__all__ = [
    "commands",
    "erasure",
    "exports",
    "holdreports",
    "holds",
    "manifests",
    "policies",
    "quarantine",
    "receipts",
    "reviews",
    "runs",
    "slots",
    "stops",
    "waiting",
]
