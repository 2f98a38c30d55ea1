"""How fast a bucket is worked through, whose turn it is, and what has been counted."""

from django.db import models
from django.db.models.functions import Now

from ledger.models.run import CleanupRun
from retention.models import Bucket, Tenant


class Pace(models.Model):
    """The token bucket of one bucket: from `free_at` on, a key may be sent every `gap` seconds."""

    bucket = models.OneToOneField(Bucket, on_delete=models.PROTECT, primary_key=True, related_name="pace")
    free_at = models.DateTimeField(db_default=Now())
    gap = models.FloatField(help_text="Seconds for each key; grows when the store asks to slow down.")
    last_cut = models.DateTimeField(null=True, blank=True)
    last_raise = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.bucket_id}: {self.gap} s a key"


class Turn(models.Model):
    """When a tenant last had its turn in a bucket, so that none starves another."""

    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, related_name="+", db_index=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    last_turn = models.DateTimeField(db_default=Now())
    turns = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["bucket", "tenant"], name="turn_unique")]

    def __str__(self) -> str:
        return f"{self.bucket_id}/{self.tenant_id}"


class RunTally(models.Model):
    """What one settlement did for a run's counts. Insert-only, so that settlements never wait for one another.

    Negative where a parked command left its outcome again: replayed, or found gone after all.
    """

    run = models.ForeignKey(CleanupRun, on_delete=models.PROTECT, db_constraint=False, related_name="tallies")
    outcome = models.CharField(max_length=14)
    commands = models.IntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "run tallies"

    def __str__(self) -> str:
        return f"{self.run_id}: {self.commands} {self.outcome}"


class OutcomeTally(models.Model):
    """What one settlement tells the circuit breakers of a run and of a bucket. Insert-only, as run tallies are.

    `tried`: outcomes that the store's answers decided; `failed`: those of them that ended in quarantine.
    """

    run = models.ForeignKey(CleanupRun, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+")
    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+")
    tried = models.PositiveIntegerField()
    failed = models.PositiveIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        verbose_name_plural = "outcome tallies"
        indexes = [
            models.Index(fields=["run", "at"], name="outcomes_of_run"),
            models.Index(fields=["bucket", "at"], name="outcomes_of_bucket"),
        ]

    def __str__(self) -> str:
        return f"{self.run_id}, {self.bucket_id}: {self.failed} of {self.tried} failed"
