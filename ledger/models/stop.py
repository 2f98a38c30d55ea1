"""What was under way when a stop switch was pressed."""

from django.contrib.postgres.fields import ArrayField
from django.db import models

from retention.models import StopSwitch


class StopReport(models.Model):
    """One for each stop switch, written behind its barrier: from then on no claim can miss the switch. Append-only.

    `commands` and `tokens` go together: the claims that might still be executed. How each ended stands with the commands.
    """

    switch = models.OneToOneField(StopSwitch, on_delete=models.PROTECT, primary_key=True, related_name="report")
    reported_at = models.DateTimeField()
    commands = ArrayField(models.BigIntegerField())
    tokens = ArrayField(models.BigIntegerField())

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(commands__len=models.F("tokens__len")), name="stop_report_paired")
        ]

    def __str__(self) -> str:
        return f"{self.switch_id}: {len(self.commands)} in flight"
