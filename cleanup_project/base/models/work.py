"""Clusters of workers, and bulk jobs: one decision about many rows."""

from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from cleanup_project.base.models.people import User

FASTEST_JOB: Final = 1000  # items a second


class Heartbeat(models.Model):
    """One cluster of workers: where it runs, and when it last did something, by the database's clock.

    The supervisor writes `seen_at`, its restarts and its end; the cluster's own processes write the rest. The row of one that
    has ended stays until another serves its queue: so it is known since when nobody does.
    """

    host = models.CharField(max_length=255)
    queue = models.CharField(max_length=100, help_text="The key of its messages.")
    pid = models.PositiveIntegerField(null=True, help_text="Of its main process, which leads a session of its own.")
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now(), help_text="When its supervisor last looked.")
    stopped_at = models.DateTimeField(null=True, help_text="When it stopped in order; null: it runs, or was killed.")
    last_tick_at = models.DateTimeField(
        null=True, help_text="When it last began a tick, or those whose rows it replaced."
    )
    last_start_at = models.DateTimeField(null=True)
    last_end_at = models.DateTimeField(null=True)
    last_ack_at = models.DateTimeField(null=True)
    unacked_since = models.DateTimeField(
        null=True, help_text="The first end of a task that no acknowledgement followed."
    )
    restarts = models.PositiveIntegerField(default=0)
    restart_reason = models.TextField(blank=True, help_text="Of the last restart.")

    class Meta:
        verbose_name = "worker cluster"
        ordering = ["host", "queue", "id"]

    def __str__(self) -> str:
        return f"{self.queue} on {self.host}"


class BulkJob(models.Model):
    """One decision about many rows, each of which gets an outcome of its own. `jobs` and `jobwork` are its sole writers.

    Which rows they are is frozen when it is made. `done` items, the first in order, have their outcome; the effects of an
    item and its outcome commit together.
    """

    class State(models.TextChoices):
        RUNNING = "running"  # its next items are taken as its rate allows
        PAUSED = "paused"  # by a person, or because nobody may go on with it
        DONE = "done"  # every item has its outcome
        CANCELLED = "cancelled"  # a person ended it; what was not done will not be

    kind = models.CharField(max_length=64, help_text="For example redelivery.")
    subject_type = models.CharField(max_length=64, help_text="What its items are.")
    selection = models.TextField(help_text="What was chosen, in words.")
    reason = models.TextField()
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    in_charge = models.ForeignKey(
        User, on_delete=models.PROTECT, related_name="+",
        help_text="In whose name items are done: who asked for it, or who resumed it last.",
    )  # fmt: skip
    requested_at = models.DateTimeField(db_default=Now(), editable=False)
    tenants = ArrayField(
        models.CharField(max_length=63),
        default=list,
        blank=True,
        help_text="Its items are of these tenants: those of whoever made it; empty: of any.",
    )
    token = models.UUIDField(unique=True, help_text="Of the form: sent twice, it makes one job.")
    asked = models.JSONField(default=dict, help_text="How many items were seen before, and the rate, as asked for.")
    details = models.JSONField(default=dict, help_text="What else its verb is told.")
    lanes = ArrayField(
        models.TextField(), default=list, help_text="At most one job of its kind is open in each of these."
    )
    total = models.PositiveIntegerField(default=0)
    done = models.PositiveIntegerField(default=0)
    outcomes = models.JSONField(default=dict, help_text="How many items ended how.")
    rate = models.PositiveIntegerField(help_text="Items a second, at most.")
    free_at = models.DateTimeField(db_default=Now(), editable=False, help_text="Until then its rate allows no item.")
    state = models.CharField(max_length=9, choices=State, default=State.RUNNING)
    paused_because = models.TextField(blank=True)
    worked_at = models.DateTimeField(db_default=Now(), editable=False)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "bulk job"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(done__lte=F("total")), name="bulkjob_within_total"),
            models.CheckConstraint(condition=Q(rate__range=(1, FASTEST_JOB)), name="bulkjob_rate"),
            models.CheckConstraint(condition=~Q(reason=""), name="bulkjob_with_reason"),
            models.CheckConstraint(
                condition=(Q(state="paused") & ~Q(paused_because="")) | (~Q(state="paused") & Q(paused_because="")),
                name="bulkjob_paused_with_reason",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["running", "paused"], finished_at=None)
                | Q(state="done", finished_at__isnull=False, done=F("total"))
                | Q(state="cancelled", finished_at__isnull=False),
                name="bulkjob_finished",
            ),
        ]
        indexes = [
            # What the sweep rings for.
            models.Index(fields=["worked_at"], condition=Q(state="running"), name="bulkjob_running"),
            # Who is in the way of a new one.
            models.Index(fields=["kind"], condition=Q(finished_at=None), name="bulkjob_open"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"

    @property
    def owner(self) -> str:
        return self.tenants[0] if len(self.tenants) == 1 else ""


class BulkItem(models.Model):
    """One row that a bulk job is about, and what became of it."""

    job = models.ForeignKey(BulkJob, on_delete=models.PROTECT, db_index=False, related_name="items")
    ordinal = models.PositiveIntegerField(help_text="Items are done in this order.")
    subject_id = models.BigIntegerField()
    outcome = models.CharField(max_length=32, blank=True)
    detail = models.TextField(blank=True)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "bulk job's item"
        verbose_name_plural = "items of bulk jobs"
        ordering = ["job_id", "ordinal"]
        constraints = [
            models.UniqueConstraint(fields=["job", "ordinal"], name="bulkitem_ordinal"),
            models.CheckConstraint(
                condition=Q(outcome="", done_at=None) | (~Q(outcome="") & Q(done_at__isnull=False)),
                name="bulkitem_done_with_outcome",
            ),
        ]
        # Those of a job that ended in one way.
        indexes = [models.Index(fields=["job", "outcome", "ordinal"], name="bulkitem_by_outcome")]

    def __str__(self) -> str:
        return f"item {self.ordinal} of {self.job_id}"
