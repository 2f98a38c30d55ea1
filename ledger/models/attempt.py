"""What was tried: requests committed before they were sent, and what became of each claim. Insert-only."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from ledger.models.command import CleanupCommand


class Request(models.Model):
    """Committed before a deletion is sent under a lease token. Without an attempt of the same token it is unresolved."""

    pk = models.CompositePrimaryKey("command_id", "token")
    # Unchecked: a check would lock each command's row again, for a quarter of the cost of a claim.
    command = models.ForeignKey(
        CleanupCommand, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="requests"
    )
    token = models.BigIntegerField()
    made_at = models.DateTimeField(db_default=Now())
    sent_before = models.DateTimeField(help_text="Nothing is sent under this token from then on.")
    worker = models.CharField(max_length=100)

    def __str__(self) -> str:
        return f"{self.command_id}/{self.token}"


class Attempt(models.Model):
    """The outcome of one claim. A late one comes from a worker that had lost its lease: it decides nothing."""

    class Outcome(models.TextChoices):
        DELETED = "deleted"
        BY_ABSENCE = "by_absence", "confirmed by absence"
        ALREADY_ABSENT = "already_absent", "already absent"
        PRESENT = "present", "inspected: present"
        FAILED = "failed"
        AMBIGUOUS = "ambiguous", "may have been executed"
        HELD = "held"
        WITHDRAWN = "withdrawn"
        NOT_SENT = "not_sent", "not sent"
        LEASE_LOST = "lease_lost", "lease lost"

    pk = models.CompositePrimaryKey("command_id", "token", "late")
    command = models.ForeignKey(
        CleanupCommand, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="tries"
    )
    token = models.BigIntegerField()
    late = models.BooleanField(default=False, db_default=False)
    cycle = models.PositiveSmallIntegerField()
    outcome = models.CharField(max_length=14, choices=Outcome)
    charged = models.BooleanField()
    failure_class = models.CharField(max_length=20, blank=True)
    detail = models.TextField(blank=True, help_text="Code, message and request id of the store.")
    claimed_at = models.DateTimeField()
    settled_at = models.DateTimeField(db_default=Now())
    worker = models.CharField(max_length=100)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=~Q(outcome__in=["failed", "ambiguous"]) | ~Q(failure_class=""), name="attempt_classified"
            )
        ]
        indexes = [
            # What was settled lately, which is counted (rollups). Attempts are appended in about the order of their times.
            BrinIndex(fields=["settled_at"], name="attempt_by_time", pages_per_range=32, autosummarize=True)
        ]

    def __str__(self) -> str:
        return f"{self.command_id}/{self.token}: {self.outcome}"


class CommandSummary(models.Model):
    """What `explain` says of a command whose targets, requests and attempts were compacted away. Append-only."""

    command = models.OneToOneField(CleanupCommand, on_delete=models.PROTECT, primary_key=True, related_name="summary")
    summary = models.JSONField()
    compacted_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return str(self.command_id)
