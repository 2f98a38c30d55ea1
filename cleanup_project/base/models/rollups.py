"""How often what happened, minute by minute and since the beginning."""

from django.db import models


class Rollup(models.Model):
    """How often something happened within a stretch of time; where it took time, one row for each bucket of durations.

    `rollups` is its sole writer. The empty tenant stands for all of them together, so that a look at everything costs the
    same with one tenant as with a hundred.
    """

    pk = models.CompositePrimaryKey("metric", "seconds", "tenant", "begins_at", "label", "bucket")
    metric = models.CharField(max_length=32)
    seconds = models.PositiveIntegerField(help_text="How long the stretch is: one of `rollups.KEPT`.")
    tenant = models.CharField(max_length=63, help_text="Its code; empty: all tenants together.")
    begins_at = models.DateTimeField()
    label = models.CharField(max_length=32, help_text="A class or an outcome; empty where the metric has none.")
    bucket = models.SmallIntegerField(help_text="Of `rollups.bucket_of`; -1 where nothing was timed.")
    n = models.PositiveIntegerField()
    greatest = models.FloatField(null=True, help_text="The longest of them, in seconds, exactly.")

    class Meta:
        indexes = [
            # What is summed up into longer stretches, and what is old enough to go.
            models.Index(fields=["seconds", "begins_at"], name="rollup_by_time")
        ]

    def __str__(self) -> str:
        return f"{self.metric} from {self.begins_at:%Y-%m-%d %H:%M} UTC"


class RollupTotal(models.Model):
    """How often something has happened since it was first counted, all tenants together, up to the minutes that may change.

    Never smaller than it was, whatever is summed up and forgotten. `rollups` is its sole writer.
    """

    pk = models.CompositePrimaryKey("metric", "label", "bucket")
    metric = models.CharField(max_length=32)
    label = models.CharField(max_length=32)
    bucket = models.SmallIntegerField()
    n = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.metric} {self.label}".strip()


class RollupMark(models.Model):
    """Until when a source has been counted into rollups."""

    source = models.CharField(max_length=32, primary_key=True)
    counted_until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.source} until {self.counted_until:%Y-%m-%d %H:%M} UTC"
