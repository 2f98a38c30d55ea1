"""Alarms are told to people by e-mail and to programs by events, as often as it takes until it is on record that they were.

An event is written once, in the transaction that says so; from there on it is delivered as any other. An e-mail is written
down as begun, sent outside of any transaction, and written down as sent: a crash in between has it sent again. It has the
same Message-ID if it is about the same news then; where alarms have come or ended meanwhile, it is another message, which
tells of some of them twice. A mail server that is away costs its own worker a few seconds, and everything else nothing.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from smtplib import SMTPException
from typing import Any, Final

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.urls import reverse

from cleanup_project.base import canonical, clock, display, limits, queue, sqlfiles
from cleanup_project.base.models import Alarm
from webhooks import outbox
from webhooks.outbox import Notice

MAIL: Final = "cleanup_project.operations.tasks.mail"
AT_ONCE: Final = 50  # alarms in one e-mail; of events, in one round
KEPT: Final = timedelta(days=7)  # what ended longer ago, and nobody could be told, is told no more
LATE: Final = timedelta(minutes=15)

log = structlog.get_logger(__name__)


def announce() -> int:
    """Write the events of alarms that were raised or are over; returns how many alarms it was about.

    An alarm whose events cannot be written keeps no other from being told; the next round tries again.
    """
    told = 0
    for pk in list(Alarm.objects.unannounced().order_by("pk").values_list("pk", flat=True)[:AT_ONCE]):
        try:
            told += announce_one(pk)
        except Exception:
            log.exception("the events of an alarm were not written", alarm=pk)
    return told


def announce_one(pk: int) -> bool:
    with transaction.atomic():
        alarm = Alarm.objects.unannounced().select_for_update(skip_locked=True, no_key=True).filter(pk=pk).first()
        if alarm is None:
            return False
        over = alarm.cleared_at is not None
        if alarm.announced_at is None:
            emit(alarm, "alarm.raised")
        if over:
            emit(alarm, "alarm.cleared")
        Alarm.objects.filter(pk=pk).update(
            announced_at=alarm.announced_at or Now(), end_announced_at=Now() if over else None
        )
    return True


def emit(alarm: Alarm, type: str) -> None:
    """To whoever subscribes to it: endpoints of the alarm's tenant, and of ALERT_TENANT, which is told of every alarm."""
    subject = f"alarm:{alarm.pk}"
    data: dict[str, Any] = {
        "alarm": alarm.pk,
        "kind": alarm.kind,
        "raised_at": canonical.instant(alarm.raised_at),
        "subject_id": alarm.subject_id,
        "subject_type": alarm.subject_type,
        "tenant": alarm.tenant,
    }
    if alarm.cleared_at is not None and type == "alarm.cleared":
        data["cleared_at"] = canonical.instant(alarm.cleared_at)
    for tenant in sorted({alarm.tenant, settings.ALERT_TENANT} - {""}):
        notice = Notice(type=type, subject=subject, name=subject, occurrence=tenant, data=data)
        outbox.emit(tenant, [notice], at=clock.now())


def ring() -> int:
    """Have a worker send e-mails, if any are owed."""
    number = owed().count() if settings.ALERT_EMAILS else 0
    if number:
        queue.wake(MAIL)
    return number


def owed() -> Any:
    """Alarms that an e-mail is owed about, whether or not one was tried a moment ago."""
    again = Q(told_at=None) | Q(told_at__lte=Now() - repeat())
    return Alarm.objects.filter((Q(cleared_at=None) & again) | Q(cleared_at__gt=Now() - KEPT, end_told_at=None))


def untold() -> int:
    """How many have been owed one for longer than LATE."""
    if not settings.ALERT_EMAILS:
        return 0
    return int(owed().filter(Q(raised_at__lt=Now() - LATE, cleared_at=None) | Q(cleared_at__lt=Now() - LATE)).count())


def repeat() -> timedelta:
    return timedelta(hours=settings.ALERT_REPEAT_HOURS)


def mail() -> int:
    """Send what is owed, in as few e-mails as that takes; returns of how many alarms people were told.

    Nothing is begun after DRAIN_BUDGET seconds: what is left is rung for.
    """
    told, until = 0, time.monotonic() + limits.DRAIN_BUDGET
    while settings.ALERT_EMAILS and (taken := take()):
        trouble = send(taken)
        finish(taken, trouble)
        if trouble:
            log.error("alarms could not be sent by e-mail", alarms=len(taken), error=trouble)
            break
        told += len(taken)
        if time.monotonic() > until:
            ring()
            break
    return told


def take() -> list[Alarm]:
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        parameters = {"repeat": repeat().total_seconds(), "kept": KEPT.total_seconds(), "most": AT_ONCE}
        cursor.execute(sqlfiles.read(__file__, "untold.sql"), parameters)
        numbers = [row[0] for row in cursor.fetchall()]
    return list(Alarm.objects.filter(pk__in=numbers).order_by("pk"))


def send(alarms: Sequence[Alarm]) -> str:
    """One e-mail about these; why it could not be sent, or nothing."""
    over = sum(alarm.cleared_at is not None for alarm in alarms)
    message = EmailMessage(
        subject=f"Cleanup: {counted(len(alarms) - over, 'alarm')} open, {over} over",
        body="\n\n".join([*(paragraph(alarm) for alarm in alarms), where()]) + "\n",
        to=settings.ALERT_EMAILS,
        headers={"Message-ID": message_id(alarms), "Auto-Submitted": "auto-generated"},
    )
    try:
        message.send()
    except (SMTPException, OSError) as error:
        return display.visible(str(error) or type(error).__name__)[:500]
    return ""


def finish(alarms: Sequence[Alarm], trouble: str) -> None:
    """Of what was told: an alarm that ended since it was read is still to be told as over."""
    rows = Alarm.objects.filter(pk__in=[alarm.pk for alarm in alarms])
    if trouble:
        rows.update(trouble=trouble)
        return
    ended = [alarm.pk for alarm in alarms if alarm.cleared_at is not None]
    with transaction.atomic():
        rows.update(told_at=Now(), tries=0, trouble="")
        Alarm.objects.filter(pk__in=ended).update(end_told_at=Now())


def paragraph(alarm: Alarm) -> str:
    raised = f"raised {alarm.raised_at:%Y-%m-%d %H:%M} UTC"
    if alarm.cleared_at is not None:
        news = f"OVER since {alarm.cleared_at:%Y-%m-%d %H:%M} UTC ({raised})"
    else:
        news = f"STILL OPEN ({raised})" if alarm.told_at else f"OPEN ({raised})"
    whose = f", tenant {alarm.tenant}" if alarm.tenant else ""
    return f"{news}: {alarm.kind}, {display.visible(alarm.subject_label)}{whose}\n{display.visible(alarm.message)}"


def where() -> str:
    return f"All of them: {settings.SITE_URL}{reverse('admin:base_alarm_changelist')}"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def message_id(alarms: Sequence[Alarm]) -> str:
    """The same for the same news about the same alarms, however often it is sent."""
    news = [(alarm.pk, alarm.told_at, alarm.cleared_at) for alarm in alarms]
    return f"<{sha256(repr(news).encode()).hexdigest()[:40]}@cleanup>"
