"""Frozen manifests: parts, items, and the items that could not become commands."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from ledger.models.run import CleanupRun
from retention.models import PolicyRevision


class ManifestPart(models.Model):
    """At most 1,000 items, frozen in one transaction under the key `<run>:part-0042`. Append-only."""

    run = models.ForeignKey(CleanupRun, on_delete=models.PROTECT, related_name="parts")
    number = models.PositiveIntegerField()
    key = models.CharField(max_length=132, unique=True)
    cursor = models.JSONField(help_text="Where the next part begins.")
    digest = models.CharField(max_length=64, help_text="SHA-256 over the digests of the items, hex.")
    item_count = models.PositiveIntegerField("items")
    target_count = models.PositiveIntegerField("targets")
    bytes = models.PositiveBigIntegerField()
    read = models.PositiveIntegerField(help_text="Object versions that the page looked at.")
    held = models.PositiveIntegerField(help_text="Eligible, and left out because a legal hold covers them.")
    oldest = models.DateTimeField(null=True, editable=False, help_text="Since when the first of them is eligible.")
    not_enforced = models.PositiveIntegerField(help_text="Eligible, and left out because enforcement is off there.")
    frozen_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name = "manifest part"
        ordering = ["run", "number"]
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], include=["oldest"], name="part_number"),
            models.CheckConstraint(condition=Q(item_count__lte=1000, read__lte=1000), name="part_size"),
        ]
        # What was frozen lately, which is counted (rollups).
        indexes = [BrinIndex(fields=["frozen_at"], name="part_by_time", pages_per_range=32, autosummarize=True)]

    def __str__(self) -> str:
        return self.key


class ManifestItem(models.Model):
    """One frozen line: a command key, its exact targets, and why they are eligible. Append-only.

    `line` is the canonical JSON (RFC 8785) of the item and `digest` the SHA-256 of its UTF-8 bytes; the other columns
    repeat what lists are sorted and searched by. Bulk rows: a foreign key that the database checks would take a tenth of
    the time of a freeze, and items come and stay with their part.
    """

    part = models.ForeignKey(
        ManifestPart, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="items"
    )
    run = models.ForeignKey(
        CleanupRun, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="items"
    )
    ordinal = models.PositiveBigIntegerField(help_text="Counted through the whole run, from 1.")
    command_key = models.CharField(max_length=700, db_collation="C")
    revision = models.ForeignKey(
        PolicyRevision, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    object_version_id = models.BigIntegerField(help_text="The original, in the catalogue.")
    eligible_since = models.DateTimeField()
    target_count = models.PositiveIntegerField("targets")
    bytes = models.PositiveBigIntegerField()
    line = models.TextField(db_collation="C")
    digest = models.BinaryField(max_length=32)

    class Meta:
        verbose_name = "manifest item"
        ordering = ["run", "ordinal"]
        constraints = [models.UniqueConstraint(fields=["run", "ordinal"], name="item_ordinal")]
        indexes = [
            models.Index(fields=["command_key"], name="item_by_command_key"),
            models.Index(
                fields=["run", "eligible_since", "ordinal"], name="item_by_since"
            ),  # the longest overdue first
        ]

    def __str__(self) -> str:
        return self.command_key
