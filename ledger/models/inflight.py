"""What was under way when a legal hold was placed: the report that tells it, and how each of these sends ended."""

from django.db import models
from django.db.models import Q

from ledger.models.command import CleanupCommand
from retention.models import LegalHold


class HoldReportQuerySet(models.QuerySet["HoldReport"]):
    def unread(self) -> "HoldReportQuerySet":
        """Something was in flight, and whoever placed the hold has not acknowledged how it ended."""
        return self.filter(in_flight__gt=0, acknowledged_at=None)


class HoldReport(models.Model):
    """One for each hold, written behind its barrier: from then on no claim can miss the hold.

    `marked_at` is set once, when the commands that waited and are covered have been held; `acknowledged_at` once, when
    everything that was in flight has ended.
    """

    hold = models.OneToOneField(LegalHold, on_delete=models.PROTECT, primary_key=True, related_name="report")
    reported_at = models.DateTimeField()
    in_flight = models.PositiveIntegerField(help_text="Commands that were leased or in doubt.")
    marked_at = models.DateTimeField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(
        null=True, blank=True, help_text="When whoever placed the hold had read how it ended."
    )

    objects = HoldReportQuerySet.as_manager()

    class Meta:
        indexes = [
            # What stands on top of pages until it is read.
            models.Index(
                fields=["hold"], condition=Q(acknowledged_at=None, in_flight__gt=0), name="hold_report_unread"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.hold_id}: {self.in_flight} in flight"


class InFlight(models.Model):
    """A covered command that may still be executed although the hold is in force. Closed once, when it is known."""

    report = models.ForeignKey(HoldReport, on_delete=models.PROTECT, db_index=False, related_name="commands")
    command = models.ForeignKey(CleanupCommand, on_delete=models.PROTECT, related_name="+")
    token = models.BigIntegerField()
    reported_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_as = models.CharField(
        max_length=14, blank=True, help_text="The outcome that settled it, else the command's state."
    )

    class Meta:
        verbose_name = "command in flight"
        verbose_name_plural = "commands in flight"
        constraints = [
            models.UniqueConstraint(fields=["report", "command"], name="in_flight_once"),
            models.CheckConstraint(
                condition=Q(ended_at=None, ended_as="") | Q(ended_at__isnull=False) & ~Q(ended_as=""),
                name="in_flight_ended",
            ),
        ]
        indexes = [models.Index(fields=["id"], condition=Q(ended_at=None), name="in_flight_open")]

    def __str__(self) -> str:
        return f"{self.command_id}/{self.token}: {self.ended_as or 'open'}"
