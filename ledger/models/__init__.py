from ledger.models.attempt import Attempt, CommandSummary, Request
from ledger.models.certificate import Certificate
from ledger.models.command import (
    CleanupCommand,
    CommandTarget,
    DeadLetter,
    Decision,
    Incident,
    SkippedItem,
)
from ledger.models.comparison import ManifestComparison, ManifestDifference
from ledger.models.disposition import ItemDisposition, ManifestReview
from ledger.models.erasure import ErasureRequest, ErasureTarget
from ledger.models.export import ReceiptExport, ReceiptExportPart
from ledger.models.inflight import HoldReport, InFlight
from ledger.models.manifest import ManifestItem, ManifestPart
from ledger.models.pace import OutcomeTally, Pace, RunTally, Turn
from ledger.models.receipt import Receipt, ReceiptLocator, TenantSalt
from ledger.models.run import CleanupRun
from ledger.models.slot import ScheduleSlot
from ledger.models.stop import StopReport

__all__ = [
    "Attempt",
    "Certificate",
    "CleanupCommand",
    "CleanupRun",
    "CommandSummary",
    "CommandTarget",
    "DeadLetter",
    "Decision",
    "ErasureRequest",
    "ErasureTarget",
    "HoldReport",
    "InFlight",
    "Incident",
    "ItemDisposition",
    "ManifestComparison",
    "ManifestDifference",
    "ManifestItem",
    "ManifestPart",
    "ManifestReview",
    "OutcomeTally",
    "Pace",
    "Receipt",
    "ReceiptExport",
    "ReceiptExportPart",
    "ReceiptLocator",
    "Request",
    "RunTally",
    "ScheduleSlot",
    "SkippedItem",
    "StopReport",
    "TenantSalt",
    "Turn",
]
