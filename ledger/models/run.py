"""Runs: one evaluation of a policy, its authorisation, its progress and its end."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from ledger.states import RUN_OPEN, RunState
from retention.models import RetentionPolicy, Tenant


class CleanupRunQuerySet(models.QuerySet["CleanupRun"]):
    def open(self) -> "CleanupRunQuerySet":
        return self.filter(state__in=sorted(RUN_OPEN))


class CleanupRun(models.Model):
    """One evaluation of a policy at one instant, and what became of it.

    `streams` fixes at opening what will be read and in which order, so that a scan that stops anywhere goes on from the
    last frozen part and ends with what one uninterrupted scan would have found.
    """

    class Mode(models.TextChoices):
        DRY_RUN = "dry_run", "dry run"
        ENFORCE = "enforce", "enforce"

    key = models.CharField(max_length=120, unique=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    policy = models.ForeignKey(RetentionPolicy, on_delete=models.PROTECT, related_name="runs")
    mode = models.CharField(max_length=7, choices=Mode)
    asked_mode = models.CharField(
        max_length=7, blank=True, choices=Mode, help_text="As asked for; empty: as enforcement was when it was opened."
    )
    state = models.CharField(
        max_length=14,
        choices=[(state.value, state.value.replace("_", " ")) for state in RunState],
        default=RunState.SCANNING,
    )
    as_of = models.DateTimeField(help_text="The instant at which eligibility is judged.")
    scheduled_for = models.DateTimeField(null=True, blank=True, help_text="The slot of the schedule; empty: by hand.")
    idempotency_key = models.CharField(max_length=200, null=True, blank=True, unique=True)
    streams = models.JSONField(help_text="What is scanned, in order.")
    opened_at = models.DateTimeField(db_default=Now(), editable=False)
    opened_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )

    guards = models.JSONField(default=dict, help_text="What the floors and caps found, in numbers.")

    sealed_at = models.DateTimeField(null=True, blank=True)
    manifest_root = models.CharField(max_length=64, blank=True, help_text="SHA-256 over the digests of the parts, hex.")
    item_count = models.PositiveBigIntegerField("items", null=True, blank=True)
    target_count = models.PositiveBigIntegerField("targets", null=True, blank=True)
    bytes = models.PositiveBigIntegerField(null=True, blank=True)
    remaining_root = models.CharField(
        max_length=64, blank=True, help_text="The root of what is not exempted; empty: not counted yet."
    )
    remaining_count = models.PositiveBigIntegerField("items that remain", null=True, blank=True)
    exempt_count = models.PositiveBigIntegerField("exempted items", default=0, db_default=0)
    authorised_at = models.DateTimeField(null=True, blank=True)
    authorised_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Who approved the root of what remains; empty: a standing authorisation.",
    )
    authorisation = models.TextField(blank=True, help_text="The approver's reason, or the standing authorisation.")
    cooling_until = models.DateTimeField(null=True, blank=True)
    rearmed_at = models.DateTimeField(
        null=True, blank=True, help_text="Since when the circuit breaker counts; empty: from the beginning."
    )
    published_parts = models.PositiveIntegerField(default=0, db_default=0)
    counts = models.JSONField(null=True, blank=True, help_text="Items by outcome when it closed.")
    ended_at = models.DateTimeField(null=True, blank=True)
    end_reason = models.TextField(blank=True)

    objects = CleanupRunQuerySet.as_manager()

    class Meta:
        verbose_name = "run"
        ordering = ["-id"]
        # What ended lately, which is counted (rollups); and whose manifest was sealed last (vitals).
        indexes = [
            models.Index(fields=["ended_at"], condition=Q(ended_at__isnull=False), name="run_by_end"),
            models.Index(fields=["-sealed_at"], condition=Q(sealed_at__isnull=False), name="run_by_seal"),
        ]
        constraints = [
            # Overlapping runs of a policy are impossible; a dry run may look on while an enforcing run drains.
            models.UniqueConstraint(
                fields=["policy", "mode"], condition=Q(state__in=sorted(RUN_OPEN)), name="run_no_overlap"
            ),
            models.UniqueConstraint(fields=["policy", "scheduled_for"], name="run_slot"),
            models.CheckConstraint(
                condition=Q(sealed_at=None, manifest_root="", item_count=None, target_count=None, bytes=None)
                | (
                    Q(
                        sealed_at__isnull=False,
                        item_count__isnull=False,
                        target_count__isnull=False,
                        bytes__isnull=False,
                    )
                    & ~Q(manifest_root="")
                ),
                name="run_sealed_whole",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[RunState.SCANNING, RunState.CANCELLED]) | Q(sealed_at__isnull=False),
                name="run_sealed_before_authorised",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[RunState.SCANNING, RunState.NEEDS_APPROVAL, RunState.CANCELLED])
                | (~Q(remaining_root="") & Q(remaining_count__isnull=False)),
                name="run_remaining_counted",
            ),
            models.CheckConstraint(condition=~Q(authorised_by=F("opened_by")), name="run_second_person"),
            models.CheckConstraint(
                condition=Q(ended_at=None, state__in=sorted(RUN_OPEN))
                | Q(ended_at__isnull=False, state__in=[RunState.CLOSED, RunState.CANCELLED]),
                name="run_ended",
            ),
        ]

    def __str__(self) -> str:
        return self.key
