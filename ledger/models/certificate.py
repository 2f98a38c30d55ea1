"""Certificates of destruction: one for each run that has closed. Append-only."""

from django.conf import settings
from django.db import models
from django.db.models.functions import Now

from ledger.models.run import CleanupRun


class Certificate(models.Model):
    """Canonical JSON (RFC 8785) that sums up what one run has destroyed; docs/certificates.md explains each member.

    Made once, when it is first asked for: the same bytes ever after, whatever is renamed since.
    """

    run = models.OneToOneField(CleanupRun, on_delete=models.PROTECT, primary_key=True, related_name="certificate")
    body = models.BinaryField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the body, hex.")
    issued_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    issued_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return f"Certificate of {self.run}"
