"""Legal holds: while one is in force, nothing that it covers is destroyed by any path."""

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from retention.models.catalogue import Bucket
from retention.models.scope import Scoped, scope_constraints


class LegalHoldQuerySet(models.QuerySet["LegalHold"]):
    def in_force(self) -> "LegalHoldQuerySet":
        return self.filter(released_at=None)


class LegalHold(Scoped):
    """A hold of one matter over a scope and, if stated, a range of stored-at times. It never lapses by time."""

    matter = models.CharField(max_length=200, help_text="The case or proceeding, as the lawyers name it.")
    title = models.CharField(max_length=200)
    authority = models.TextField()
    reason = models.TextField()
    custodian = models.CharField(max_length=200, blank=True)
    stored_from = models.DateTimeField(null=True, blank=True, help_text="Inclusive; empty: from the beginning.")
    stored_to = models.DateTimeField(null=True, blank=True, help_text="Exclusive; empty: without end.")
    placed_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    placed_at = models.DateTimeField(db_default=Now(), editable=False)
    released_at = models.DateTimeField(null=True, blank=True)

    objects = LegalHoldQuerySet.as_manager()

    class Meta:
        verbose_name = "legal hold"
        ordering = ["-id"]
        constraints = [
            *scope_constraints("hold"),
            models.CheckConstraint(
                condition=~Q(matter="") & ~Q(title="") & ~Q(authority="") & ~Q(reason=""), name="hold_explained"
            ),
            models.CheckConstraint(
                condition=Q(stored_from=None) | Q(stored_to=None) | Q(stored_from__lt=F("stored_to")),
                name="hold_range",
                violation_error_message="The end of the range must be later than its start.",
            ),
        ]
        indexes = [models.Index(fields=["tenant"], condition=Q(released_at=None), name="holds_in_force")]

    def __str__(self) -> str:
        return f"{self.matter}: {self.title}"

    def clean(self) -> None:
        super().clean()
        if self.stored_from and self.stored_to and self.stored_from >= self.stored_to:
            raise ValidationError({"stored_to": "The end of the range must be later than its start."})


class HoldReleaseQuerySet(models.QuerySet["HoldRelease"]):
    def open(self) -> "HoldReleaseQuerySet":
        return self.filter(decision="")


class HoldRelease(models.Model):
    """A request to release a hold, and what another person decided. It is never withdrawn, only decided, once."""

    class Decision(models.TextChoices):
        OPEN = "", "open"
        APPROVED = "approved"
        DENIED = "denied"

    hold = models.ForeignKey(LegalHold, on_delete=models.PROTECT, related_name="releases")
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    requested_at = models.DateTimeField(db_default=Now(), editable=False)
    reason = models.TextField()
    decision = models.CharField(max_length=8, choices=Decision, blank=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_reason = models.TextField(blank=True)
    impact = models.JSONField(
        null=True, blank=True, help_text="What the release would do, as whoever decided saw it (release_impact.py)."
    )

    objects = HoldReleaseQuerySet.as_manager()

    class Meta:
        verbose_name = "hold release"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(reason__regex=r"\S"), name="release_reason"),
            models.CheckConstraint(condition=~Q(decided_by=F("requested_by")), name="release_second_person"),
            models.CheckConstraint(
                condition=Q(decision="", decided_by=None, decided_at=None, decision_reason="", impact__isnull=True)
                | Q(
                    decision__in=["approved", "denied"],
                    decided_by__isnull=False,
                    decided_at__isnull=False,
                    decision_reason__regex=r"\S",
                ),
                name="release_decided_whole",
            ),
            models.UniqueConstraint(fields=["hold"], condition=Q(decision=""), name="release_one_open"),
        ]

    def __str__(self) -> str:
        return f"release of {self.hold}"


class HoldPrefix(models.Model):
    """One (bucket, prefix) of a hold, so that a key finds its holds by equality on its own beginnings."""

    hold = models.ForeignKey(LegalHold, on_delete=models.PROTECT, related_name="lookup")
    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, db_index=False, related_name="+")
    prefix = models.TextField(db_collation="C", blank=True)

    class Meta:
        verbose_name_plural = "hold prefixes"
        constraints = [models.UniqueConstraint(fields=["bucket", "prefix", "hold"], name="hold_prefix_unique")]

    def __str__(self) -> str:
        return f"{self.bucket}/{self.prefix}"
