"""What became of each slot of a policy's schedule."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from ledger.models.run import CleanupRun
from retention.models import RetentionPolicy


class ScheduleSlot(models.Model):
    """One instant at which a policy's schedule asked for a run, and the answer. Append-only."""

    class Outcome(models.TextChoices):
        OPENED = "opened"
        MISSED = "missed"  # no scheduler was there in time
        OVERLAP = "overlap"  # the run before it was still open
        REFUSED = "refused"  # the policy was suspended, or its run could not be opened

    policy = models.ForeignKey(RetentionPolicy, on_delete=models.PROTECT, related_name="slots", db_index=False)
    scheduled_for = models.DateTimeField()
    outcome = models.CharField(max_length=7, choices=Outcome)
    run = models.OneToOneField(CleanupRun, on_delete=models.PROTECT, null=True, blank=True, related_name="slot")
    reason = models.TextField(blank=True)
    noticed_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name = "schedule slot"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["policy", "scheduled_for"], name="slot_once"),
            models.CheckConstraint(
                condition=Q(outcome="opened", run__isnull=False, reason="")
                | (~Q(outcome="opened") & Q(run=None) & ~Q(reason="")),
                name="slot_opened_or_why_not",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.policy} {self.scheduled_for:%Y-%m-%d %H:%M}"
