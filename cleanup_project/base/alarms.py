"""Alarms: what is wrong now and needs a person, shown on every page until it is over."""

from typing import Final

from django.db import connection, models
from django.db.models.functions import Now

from cleanup_project.base import tenancy
from cleanup_project.base.models import Alarm, AlarmQuerySet

INSTALLATION: Final = "this installation"


def notice(kind: str, subject: models.Model | None, message: str) -> None:
    """Raise the alarm of this kind about the subject, or say anew what is so where it is raised already.

    None: about the installation as a whole. `message` says what is wrong, with its numbers, and what to do. Runs in the
    caller's transaction, if there is one.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO base_alarm AS a (kind, subject_type, subject_id, subject_label, tenant, message)"
            " VALUES (%(kind)s, %(type)s, %(id)s, %(label)s, %(tenant)s, %(message)s)"
            " ON CONFLICT (kind, subject_type, subject_id) WHERE cleared_at IS NULL"
            " DO UPDATE SET message = excluded.message, subject_label = excluded.subject_label, noticed_at = now()",
            {
                "kind": kind,
                **name_of(subject),
                "label": INSTALLATION if subject is None else str(subject),
                "tenant": tenancy.code_of(subject),
                "message": message,
            },
        )


def clear(kind: str, subject: models.Model | None) -> bool:
    """The alarm is over; whether there was one."""
    return about(kind, subject).update(cleared_at=Now()) > 0


def is_open(kind: str, subject: models.Model | None) -> bool:
    return about(kind, subject).exists()


def about(kind: str, subject: models.Model | None) -> AlarmQuerySet:
    """The one that is open, if any."""
    named = name_of(subject)
    return Alarm.objects.open().filter(kind=kind, subject_type=named["type"], subject_id=named["id"])


def name_of(subject: models.Model | None) -> dict[str, str]:
    if subject is None:
        return {"type": "", "id": ""}
    return {"type": subject._meta.label_lower, "id": str(subject.pk)}
