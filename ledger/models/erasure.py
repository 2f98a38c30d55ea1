"""Urgent erasure: an explicit list of what must be destroyed, whatever its retention says."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from ledger.models.run import CleanupRun
from retention.models import Tenant


class ErasureRequest(models.Model):
    """A demand to erase exactly what a list names. One person files it, another one decides; holds still win.

    Filing it fixes the object versions; approving it opens a run over them, urgent, through the same ledger.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    reference = models.CharField(max_length=200, help_text="The case, letter or ticket that demands it.")
    authority = models.TextField(help_text="The law or order that demands the erasure.")
    reason = models.TextField()
    file_digest = models.CharField(max_length=64, help_text="SHA-256 of the list as it was filed, hex.")
    lines = models.PositiveIntegerField(help_text="Lines of the list.")
    left_out = models.JSONField(
        default=list, blank=True, help_text="Lines that named nothing present, and what they said."
    )
    version_count = models.PositiveIntegerField("object versions")
    bytes = models.PositiveBigIntegerField()
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    requested_at = models.DateTimeField(db_default=Now(), editable=False)
    approved = models.BooleanField(null=True, blank=True, help_text="Empty while it waits for a decision.")
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_reason = models.TextField(blank=True)
    run = models.OneToOneField(CleanupRun, on_delete=models.PROTECT, null=True, blank=True, related_name="erasure")

    class Meta:
        verbose_name = "erasure request"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(reference="") & ~Q(authority="") & ~Q(reason="") & Q(version_count__gte=1),
                name="erasure_explained",
            ),
            models.CheckConstraint(condition=~Q(decided_by=F("requested_by")), name="erasure_second_person"),
            models.CheckConstraint(
                condition=Q(approved=None, decided_by=None, decided_at=None, decision_reason="", run=None)
                | Q(decided_by__isnull=False, decided_at__isnull=False)
                & ~Q(decision_reason="")
                & (Q(approved=False, run=None) | Q(approved=True, run__isnull=False)),
                name="erasure_decided_whole",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reference} ({self.tenant})"


class ErasureTarget(models.Model):
    """One object version that an erasure request names. Append-only."""

    request = models.ForeignKey(ErasureRequest, on_delete=models.PROTECT, db_index=False, related_name="targets")
    ordinal = models.PositiveIntegerField(help_text="Counted through the request, from 1.")
    object_version_id = models.BigIntegerField(help_text="In the catalogue.")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["request", "ordinal"], name="erasure_target_ordinal"),
            models.UniqueConstraint(fields=["request", "object_version_id"], name="erasure_target_once"),
        ]

    def __str__(self) -> str:
        return f"{self.request}: {self.ordinal}"
