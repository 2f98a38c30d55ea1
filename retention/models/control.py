"""What may change under a worker's feet, summed up in one number that it reads before each request."""

from django.db import models
from django.db.models import Q

from retention.models.catalogue import Tenant


class Control(models.Model):
    """One row a tenant. `epoch` rises with every hold, stop, suspension, publication, cancelled or paused run."""

    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, primary_key=True, related_name="control")
    epoch = models.BigIntegerField(default=0, db_default=0)
    stopped_at = models.DateTimeField(null=True, blank=True, help_text="The stop switch: nothing is destroyed.")
    stopped_reason = models.TextField(blank=True, default="", db_default="")

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(stopped_at=None, stopped_reason="") | Q(stopped_at__isnull=False) & ~Q(stopped_reason=""),
                name="control_stopped_with_reason",
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant}: epoch {self.epoch}"
