"""The audit record: written in the act's own transaction, or not at all."""

from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from django.db import connection, models

from cleanup_project.base import tenancy
from cleanup_project.base.models import AuditEvent, User

SYSTEM = "system"


def record(
    *,
    action: str,
    subject: models.Model,
    by: User | None,
    reason: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """Record one act. Must run inside the transaction that performs it.

    `by` is the person, or None for the system itself. `before` and `after` hold the changed values, JSON-ready.
    Raises RuntimeError outside a transaction, where act and record could part.
    """
    row = event(action, subject, tenancy.code_of(subject), by, reason, before, after)
    row.save()
    return row


def record_each(
    *,
    action: str,
    subjects: Iterable[models.Model],
    by: User | None,
    reason: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Record the same act on each of many subjects; as `record`."""
    rows = list(subjects)
    AuditEvent.objects.bulk_create(
        event(action, subject, code, by, reason, before, after)
        for subject, code in zip(rows, tenancy.codes_of(rows), strict=True)
    )


def event(
    action: str,
    subject: models.Model,
    tenant: str,
    by: User | None,
    reason: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
) -> AuditEvent:
    if not connection.in_atomic_block:
        raise RuntimeError(f"audit.record({action!r}) needs the transaction of the act that it records.")
    context = structlog.contextvars.get_contextvars()
    return AuditEvent(
        actor=by,
        actor_name=by.get_username() if by else SYSTEM,
        action=action,
        subject_type=subject._meta.label_lower,
        subject_id=str(subject.pk),
        subject_label=str(subject),
        tenant=tenant,
        reason=reason,
        before=dict(before or {}),
        after=dict(after or {}),
        request_id=str(context.get("request_id", "")),
    )
