"""Exports of receipts: who took which out, when, and the digests of what they got. Kept for ever; the files are not."""

from collections.abc import Sequence

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class ReceiptExportQuerySet(models.QuerySet["ReceiptExport"]):
    def seen_with(self, codes: Sequence[str]) -> "ReceiptExportQuerySet":
        """What holds receipts of no other tenants than these; every one, where none is named."""
        return self.filter(tenants__contained_by=codes).exclude(tenants=[]) if codes else self


class ReceiptExport(models.Model):
    """One export, on record before its first byte. `ledger.exports` is its sole writer.

    It holds the receipts of `selection` with numbers up to `upto`. By the time that this was recorded, every transaction that
    could write such a number had ended (`ledger.copying.last_number`), so that set is complete and never changes.
    """

    class Form(models.TextChoices):
        PEOPLE = "people", "for people: safe in a spreadsheet"
        MACHINES = "machines", "for machines: exact, with the documents"

    class Way(models.TextChoices):
        SENT = "sent"  # as the answer to a request
        FILES = "files"  # made in the background, kept until they expire
        COMMAND = "command"  # written by `manage.py receipts export`

    class State(models.TextChoices):
        RUNNING = "running"
        DONE = "done"
        ABORTED = "aborted"  # whoever received it went away, or what sent it was stopped
        FAILED = "failed"

    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    requested_at = models.DateTimeField(db_default=Now(), editable=False)
    token = models.UUIDField(unique=True, help_text="Of the form: sent twice, it makes one export.")
    form = models.CharField(max_length=8, choices=Form)
    way = models.CharField(max_length=7, choices=Way)
    selection = models.JSONField(help_text="What was asked for.")
    tenants = ArrayField(
        models.CharField(max_length=63), default=list, blank=True, help_text="Whose receipts; empty: of every tenant."
    )
    upto = models.BigIntegerField("last receipt number", help_text="It holds none with a higher number.")
    expected = models.PositiveBigIntegerField(
        "receipts expected", help_text="When it was asked for; an estimate above a million."
    )
    state = models.CharField(max_length=7, choices=State, default=State.RUNNING)
    trouble = models.TextField(blank=True, help_text="Why it did not come to its end.")
    rows = models.PositiveBigIntegerField("receipts", default=0, db_default=0)
    bytes = models.PositiveBigIntegerField(default=0, db_default=0)
    digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 over the SHA-256 of its parts, hex.")
    worked_at = models.DateTimeField(db_default=Now(), editable=False)
    finished_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Its files are removed then.")
    removed_at = models.DateTimeField(null=True, blank=True)

    objects = ReceiptExportQuerySet.as_manager()

    class Meta:
        verbose_name = "export of receipts"
        verbose_name_plural = "exports of receipts"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state="running", finished_at=None, digest="")
                | (Q(state="done", finished_at__isnull=False) & ~Q(digest=""))
                | (Q(state__in=["aborted", "failed"], finished_at__isnull=False, digest="") & ~Q(trouble="")),
                name="export_finished",
            ),
            models.CheckConstraint(
                condition=Q(expires_at=None) | Q(way="files") & ~Q(state="running"), name="export_expires_with_files"
            ),
            models.CheckConstraint(
                condition=Q(removed_at=None) | Q(expires_at__isnull=False), name="export_removed_after_expiry"
            ),
        ]
        indexes = [
            # What the sweep rings for, and closes where nobody works at it any more.
            models.Index(fields=["worked_at"], condition=Q(state="running"), name="export_running"),
            models.Index(
                fields=["expires_at"],
                condition=Q(expires_at__isnull=False, removed_at=None),
                name="export_to_remove",
            ),
        ]

    def __str__(self) -> str:
        return f"export {self.pk}"


class ReceiptExportPart(models.Model):
    """One file of an export, complete: what it weighs, and which receipts it begins and ends with."""

    export = models.ForeignKey(ReceiptExport, on_delete=models.PROTECT, db_index=False, related_name="parts")
    number = models.PositiveIntegerField()
    rows = models.PositiveIntegerField("receipts")
    bytes = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64, help_text="Of the file, hex.")
    first_receipt = models.BigIntegerField(null=True, blank=True)
    last_receipt = models.BigIntegerField(null=True, blank=True)
    last_issued_at = models.DateTimeField(null=True, blank=True, help_text="The next part goes on from there.")
    finished_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["export_id", "number"]
        constraints = [
            models.UniqueConstraint(fields=["export", "number"], name="export_part_number"),
            models.CheckConstraint(
                condition=Q(rows=0, first_receipt=None, last_receipt=None, last_issued_at=None)
                | Q(rows__gt=0, first_receipt__isnull=False, last_receipt__isnull=False, last_issued_at__isnull=False),
                name="export_part_ends",
            ),
        ]

    def __str__(self) -> str:
        return self.file_name

    @property
    def file_name(self) -> str:
        return f"export-{self.export_id}-part-{self.number:05d}.csv"
