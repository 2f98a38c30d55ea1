"""Retention events: something happened, and from then on the clock runs for what the event covers."""

from datetime import datetime, timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from cleanup_project.base import clock
from retention.models.catalogue import CODE
from retention.models.scope import Scoped, scope_constraints

AHEAD = timedelta(days=1)  # an event is something that happened; clocks and time zones may be a little wrong


class RetentionEventQuerySet(models.QuerySet["RetentionEvent"]):
    def standing(self) -> "RetentionEventQuerySet":
        return self.filter(withdrawn_at=None)

    def known(self, as_of: datetime) -> "RetentionEventQuerySet":
        """Posted by then, and not withdrawn by then."""
        return self.filter(Q(withdrawn_at=None) | Q(withdrawn_at__gt=as_of), posted_at__lte=as_of)


class RetentionEvent(Scoped):
    """Something that happened at `occurred_at` to everything in its scope. It may be withdrawn, once, and is never removed.

    `started_*` is what it covered when it was posted; `counted_all` says whether that is all of it.
    """

    event_type = models.CharField(
        max_length=63, validators=[CODE], help_text="As in the policies that wait for it, for example contract-ended."
    )
    occurred_at = models.DateTimeField(help_text="When it happened: from then on the clock runs.")
    reason = models.TextField(help_text="What happened. Kept for ever.")
    reference = models.CharField(max_length=200, blank=True, help_text="Where that stands, for example a case number.")
    started_versions = models.PositiveBigIntegerField(help_text="Object versions whose clock it started.")
    started_bytes = models.PositiveBigIntegerField(help_text="Bytes of these.")
    counted_all = models.BooleanField(help_text="No: there may be more than were counted.")
    posted_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    posted_at = models.DateTimeField(db_default=Now(), editable=False)
    withdrawn_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawn_reason = models.TextField(blank=True)

    objects = RetentionEventQuerySet.as_manager()

    class Meta:
        verbose_name = "retention event"
        ordering = ["-id"]
        constraints = [
            *scope_constraints("retention_event"),
            models.CheckConstraint(condition=~Q(event_type="") & ~Q(reason=""), name="retention_event_explained"),
            models.CheckConstraint(
                condition=Q(occurred_at__lte=F("posted_at") + AHEAD), name="retention_event_happened"
            ),
            models.CheckConstraint(
                condition=Q(withdrawn_at=None, withdrawn_by=None, withdrawn_reason="")
                | (Q(withdrawn_at__isnull=False, withdrawn_by__isnull=False) & ~Q(withdrawn_reason="")),
                name="retention_event_withdrawn_whole",
            ),
        ]
        indexes = [
            # The events that a rule waits for (retention/sql/judge.sql).
            models.Index(fields=["tenant", "event_type"], name="events_of_type"),
        ]

    def __str__(self) -> str:
        return f"{self.event_type} {self.pk}" if self.pk else self.event_type

    def clean(self) -> None:
        super().clean()
        if self.occurred_at is not None and self.occurred_at > clock.now() + AHEAD:
            raise ValidationError(
                {"occurred_at": "It lies more than a day ahead. Post an event when it has happened, not before."}
            )
