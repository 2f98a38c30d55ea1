"""What two sealed manifests of one policy have in common, and what not."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from ledger.models.run import CleanupRun


class ManifestComparison(models.Model):
    """One manifest beside another. Both are frozen, so it is made once and never changes.

    Items are the same where they name the same original; they have changed where their lines differ.
    """

    TRIES = 3  # after which it is given up

    run = models.ForeignKey(CleanupRun, on_delete=models.PROTECT, db_index=False, related_name="comparisons")
    other = models.ForeignKey(CleanupRun, on_delete=models.PROTECT, related_name="+")
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    asked_at = models.DateTimeField(db_default=Now(), editable=False)
    finished_at = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveSmallIntegerField(default=0, db_default=0, help_text="One more than there may be: given up.")
    same = models.PositiveBigIntegerField(default=0, db_default=0)
    only_here = models.PositiveBigIntegerField(default=0, db_default=0)
    only_there = models.PositiveBigIntegerField(default=0, db_default=0)
    changed = models.PositiveBigIntegerField(default=0, db_default=0)
    changes = models.JSONField(default=dict, help_text="Changed items by what differs; one item may count in several.")

    class Meta:
        verbose_name = "manifest comparison"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["run", "other"], name="comparison_once"),
            models.CheckConstraint(condition=~Q(run=F("other")), name="comparison_of_two"),
        ]
        indexes = [models.Index(fields=["id"], condition=Q(finished_at=None), name="comparison_open")]

    def __str__(self) -> str:
        return f"{self.run} beside {self.other}"

    @property
    def is_given_up(self) -> bool:
        return self.finished_at is None and self.tries > self.TRIES


class ManifestDifference(models.Model):
    """One line of a comparison; of each kind, only the first so many are kept. Append-only."""

    class Kind(models.TextChoices):
        HERE = "here", "only here"
        THERE = "there", "only there"
        CHANGED = "changed"

    comparison = models.ForeignKey(
        ManifestComparison, on_delete=models.PROTECT, db_index=False, related_name="differences"
    )
    kind = models.CharField(max_length=7, choices=Kind)
    ordinal = models.PositiveIntegerField(help_text="Counted through its kind, from 1, in the order of the manifest.")
    item_id = models.BigIntegerField(null=True, blank=True, help_text="The item of the run; empty: only there.")
    other_item_id = models.BigIntegerField(null=True, blank=True, help_text="The item of the other; empty: only here.")

    class Meta:
        verbose_name = "manifest difference"
        ordering = ["comparison", "kind", "ordinal"]
        constraints = [
            models.UniqueConstraint(fields=["comparison", "kind", "ordinal"], name="difference_once"),
            models.CheckConstraint(
                condition=Q(kind="here", item_id__isnull=False, other_item_id=None)
                | Q(kind="there", item_id=None, other_item_id__isnull=False)
                | Q(kind="changed", item_id__isnull=False, other_item_id__isnull=False),
                name="difference_of_its_kind",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.comparison_id} {self.kind} {self.ordinal}"
