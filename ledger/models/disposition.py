"""What a reviewer took out of a sealed manifest before it was authorised."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from cleanup_project.base.models import BulkJob
from ledger.models.manifest import ManifestItem
from ledger.models.run import CleanupRun


class ItemDisposition(models.Model):
    """One item that does not go with its run: kept from destruction, or kept for longer. Append-only."""

    class Kind(models.TextChoices):
        EXEMPT = "exempt", "exempted"
        EXTEND = "extend", "extended"

    run = models.ForeignKey(CleanupRun, on_delete=models.PROTECT, db_index=False, related_name="dispositions")
    ordinal = models.PositiveBigIntegerField(help_text="Of the item, in its run.")
    item = models.ForeignKey(
        ManifestItem, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    kind = models.CharField(max_length=6, choices=Kind)
    until = models.DateTimeField(null=True, blank=True, help_text="Extended until then; empty: exempted for good.")
    reason = models.TextField()
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, db_index=False, related_name="+")
    at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name = "exempted item"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["run", "ordinal"], name="item_disposed_once"),
            models.CheckConstraint(
                condition=Q(kind="exempt", until=None) | Q(kind="extend", until__isnull=False),
                name="item_extended_until",
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="item_disposition_explained"),
        ]

    def __str__(self) -> str:
        return f"{self.run} item {self.ordinal}"


class ManifestReview(models.Model):
    """A bulk job that takes many items out of a run, and what it does to them. Append-only.

    While its job has not ended, the run cannot be approved: what remains of it is not known yet.
    """

    run = models.ForeignKey(CleanupRun, on_delete=models.PROTECT, related_name="reviews")
    job = models.OneToOneField(BulkJob, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=6, choices=ItemDisposition.Kind)
    until = models.DateTimeField(null=True, blank=True, help_text="Extended until then; empty: exempted for good.")

    class Meta:
        verbose_name = "manifest review"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="exempt", until=None) | Q(kind="extend", until__isnull=False),
                name="review_extends_until",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.job} of {self.run}"
