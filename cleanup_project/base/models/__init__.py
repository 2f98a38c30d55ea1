"""People and programs, what they did, what is wrong, and the work in hand."""

from cleanup_project.base.models.alarms import Alarm, AlarmQuerySet
from cleanup_project.base.models.audit import AuditEvent
from cleanup_project.base.models.people import Right, Session, User
from cleanup_project.base.models.rollups import Rollup, RollupMark, RollupTotal
from cleanup_project.base.models.tokens import LONGEST_TOKEN, ApiToken, ApiUse
from cleanup_project.base.models.work import FASTEST_JOB, BulkItem, BulkJob, Heartbeat

__all__ = [
    "FASTEST_JOB",
    "LONGEST_TOKEN",
    "Alarm",
    "AlarmQuerySet",
    "ApiToken",
    "ApiUse",
    "AuditEvent",
    "BulkItem",
    "BulkJob",
    "Heartbeat",
    "Right",
    "Rollup",
    "RollupMark",
    "RollupTotal",
    "Session",
    "User",
]
