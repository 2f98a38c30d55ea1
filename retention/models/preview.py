"""What a draft would change, found out before it is published."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from retention.models.policy import PolicyRevision


class ImpactPreview(models.Model):
    """A draft against the rules of the day: an estimate at once, and exact figures when its whole scope was read.

    `digest` says of which draft, beside which other revisions (`retention.preview.digest_of`). Figures are what
    `retention.preview.Figures` holds; once finished, they never change.
    """

    class State(models.TextChoices):
        COUNTING = "counting"
        EXACT = "exact"
        OVERTAKEN = "overtaken"  # the draft or the rules beside it changed meanwhile

    revision = models.ForeignKey(PolicyRevision, on_delete=models.PROTECT, related_name="previews")
    digest = models.CharField(max_length=64)
    as_of = models.DateTimeField(help_text="The figures speak of this time, and of 30 and 90 days after it.")
    state = models.CharField(max_length=9, choices=State, default=State.COUNTING)
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    sampled = models.PositiveBigIntegerField(
        null=True,
        blank=True,
        help_text="Objects of the scope that the estimate stands on; none where it was not needed.",
    )
    estimate = models.JSONField(default=dict, blank=True)
    figures = models.JSONField(default=dict, blank=True)
    samples = models.JSONField(default=dict, blank=True)
    cursor = models.JSONField(default=dict, blank=True)
    expected = models.PositiveBigIntegerField(help_text="Rows to read, as the planner estimates.")
    read = models.PositiveBigIntegerField(default=0, help_text="Rows read so far.")
    progressed_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "impact preview"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(state="counting", finished_at=None) | (~Q(state="counting") & Q(finished_at__isnull=False)),
                name="preview_finished",
            )
        ]
        indexes = [models.Index(fields=["progressed_at"], condition=Q(state="counting"), name="previews_counting")]

    def __str__(self) -> str:
        return f"{self.revision} as of {self.as_of:%Y-%m-%d %H:%M:%S} UTC"
