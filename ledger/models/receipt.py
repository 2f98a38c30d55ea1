"""Receipts: the evidence that outlives commands. Append-only."""

import json
from typing import Any

from django.contrib.postgres.indexes import HashIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.functional import cached_property

from ledger.models.command import CleanupCommand
from ledger.models.run import CleanupRun
from retention.models import Bucket, RetentionPolicy, Tenant


class Receipt(models.Model):
    """Canonical JSON (RFC 8785) that says what is gone, why, on whose authority, and how that was seen.

    It names objects by keyed commitments, never by key; docs/receipts.md explains each member.
    """

    command_id = models.BigIntegerField(unique=True)
    command_key = models.CharField(max_length=700, db_collation="C")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+")
    run = models.ForeignKey(
        CleanupRun, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="receipts"
    )
    policy = models.ForeignKey(
        RetentionPolicy, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    bucket = models.ForeignKey(
        Bucket, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+",
        help_text="Of the original; the document names none.",
    )  # fmt: skip
    outcome = models.CharField(max_length=14, choices=CleanupCommand.Outcome)
    event_id = models.CharField(max_length=44)
    target_count = models.PositiveIntegerField("targets")
    bytes = models.PositiveBigIntegerField()
    body = models.BinaryField()
    digest = models.BinaryField(max_length=32, help_text="SHA-256 of the body.")
    issued_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["-id"]
        constraints = [models.UniqueConstraint(fields=["command_key"], name="receipt_command_key_unique")]
        # Lists and exports go by time, narrowed by one of these or by several. A settlement gives its thousand receipts one
        # time: such equal entries take six bytes each, and their order by number is made while they are read.
        indexes = [
            models.Index(fields=["issued_at"], name="receipt_issued"),
            models.Index(fields=["tenant", "issued_at"], name="receipt_by_tenant"),
            models.Index(fields=["bucket", "issued_at"], name="receipt_by_bucket"),
            models.Index(fields=["policy", "issued_at"], name="receipt_by_policy"),
            models.Index(fields=["run", "issued_at"], name="receipt_by_run"),
            models.Index(
                fields=["outcome", "issued_at"],
                condition=~Q(outcome=CleanupCommand.Outcome.DELETED),
                name="receipt_unusual",
            ),
            # Whoever was told of a deletion knows the digest.
            HashIndex(fields=["digest"], name="receipt_by_digest"),
        ]

    def __str__(self) -> str:
        return self.command_key

    @cached_property
    def document(self) -> dict[str, Any]:
        """The body, parsed."""
        parsed: dict[str, Any] = json.loads(bytes(self.body))
        return parsed


class ReceiptLocator(models.Model):
    """The clear names behind a receipt's commitments; they have a shorter retention than the receipt."""

    pk = models.CompositePrimaryKey("receipt_id", "ordinal")
    receipt = models.ForeignKey(
        Receipt,
        on_delete=models.PROTECT,
        to_field="command_id",
        db_column="command_id",
        db_constraint=False,
        db_index=False,
        related_name="locators",
    )
    ordinal = models.PositiveIntegerField()
    bucket = models.CharField(max_length=255)
    key = models.TextField(db_collation="C")
    version_id = models.TextField(db_collation="C")

    class Meta:
        # What became of a key, for as long as names are kept.
        indexes = [HashIndex(fields=["key"], name="locator_by_key")]

    def __str__(self) -> str:
        return f"{self.bucket}/{self.key} {self.version_id}"


class TenantSalt(models.Model):
    """The secret of a tenant's commitments, sealed. Without it, nobody can tell which key a receipt speaks of."""

    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, primary_key=True, related_name="+")
    sealed = models.BinaryField()

    def __str__(self) -> str:
        return str(self.tenant_id)
