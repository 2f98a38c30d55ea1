"""What is wrong until somebody mends it."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class AlarmQuerySet(models.QuerySet["Alarm"]):
    def open(self) -> "AlarmQuerySet":
        return self.filter(cleared_at=None)

    def unannounced(self) -> "AlarmQuerySet":
        """Of which an event is still to be written: that it was raised, or that it is over."""
        return self.filter(Q(announced_at=None) | Q(cleared_at__isnull=False, end_announced_at=None))


class Alarm(models.Model):
    """Something that a person should look at, from when it was first noticed until it was over.

    At most one is open for each kind and subject: noticed again, it says what is so now.
    """

    kind = models.CharField(max_length=64, help_text="For example catalogue.stale.")
    subject_type = models.CharField(max_length=64)
    subject_id = models.CharField(max_length=64)
    subject_label = models.TextField()
    tenant = models.CharField(
        max_length=63, blank=True, default="", help_text="Of the subject; empty where no single tenant owns it."
    )
    message = models.TextField(help_text="What is wrong, with its numbers, and what to do.")
    raised_at = models.DateTimeField(db_default=Now(), editable=False)
    noticed_at = models.DateTimeField(db_default=Now(), help_text="When it was last found to be so.")
    cleared_at = models.DateTimeField(null=True, blank=True)

    announced_at = models.DateTimeField(null=True, editable=False, help_text="When its event was written.")
    end_announced_at = models.DateTimeField(
        null=True, editable=False, help_text="When the event that it is over was written."
    )
    told_at = models.DateTimeField(null=True, editable=False, help_text="When an e-mail last told of it.")
    end_told_at = models.DateTimeField(null=True, editable=False, help_text="When an e-mail told that it is over.")
    tried_at = models.DateTimeField(null=True, editable=False, help_text="When an e-mail about it was last begun.")
    tries = models.PositiveIntegerField(
        default=0, db_default=0, editable=False, help_text="How often since then none could be sent."
    )
    trouble = models.TextField(
        blank=True, default="", db_default="", editable=False, help_text="Why the last e-mail could not be sent."
    )

    objects = AlarmQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject_type", "subject_id"], condition=models.Q(cleared_at=None), name="alarm_once"
            ),
            models.CheckConstraint(condition=~models.Q(message=""), name="alarm_says_what"),
        ]
        indexes = [
            # What is open, and what ended lately: who is to be told of it.
            models.Index(fields=["cleared_at"], name="alarm_by_end"),
            models.Index(
                fields=["id"],
                condition=Q(announced_at=None) | Q(cleared_at__isnull=False, end_announced_at=None),
                name="alarm_unannounced",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject_label}"
