"""Retention policies and their immutable revisions; where enforcement is switched on."""

import re
from datetime import UTC, datetime

from croniter import CroniterBadDateError, croniter
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Func, IntegerField, Q
from django.db.models.functions import Now
from django.db.models.lookups import IsNull

from retention.models.catalogue import CODE, Bucket, Tenant
from retention.models.scope import Scoped, scope_constraints
from retention.windows import DAYS_PATTERN, Window, window, zones

TEBIBYTE = 1 << 40
NEVER_YEARS = 8  # 29 February comes after eight years at the latest


class RetentionPolicy(models.Model):
    """A named policy of one tenant. What it says stands in its revisions; what it may do now stands here."""

    class MissedSlots(models.TextChoices):
        RUN_ONCE = "run_once", "run once now"
        SKIP = "skip", "skip and record"

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="policies")
    code = models.CharField(max_length=63, unique=True, validators=[CODE])
    schedule = models.CharField(max_length=100, default="0 1 * * *", help_text="Cron expression, UTC.")
    missed_slots = models.CharField(max_length=8, choices=MissedSlots, default=MissedSlots.RUN_ONCE)
    erasure = models.BooleanField(
        default=False,
        editable=False,
        help_text="Of one urgent erasure, whose list it destroys; it governs nothing.",
    )
    suspended_at = models.DateTimeField(null=True, blank=True, help_text="A suspended policy destroys nothing.")
    suspended_reason = models.TextField(blank=True)
    suspended_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    resumed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Who lifted the last suspension: never who had imposed it.",
    )
    rescheduled_at = models.DateTimeField(
        null=True, blank=True, help_text="Slots of the schedule count from its last change."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        verbose_name_plural = "retention policies"
        ordering = ["code"]
        constraints = [
            models.CheckConstraint(
                condition=Q(suspended_at=None, suspended_reason="")
                | (Q(suspended_at__isnull=False) & ~Q(suspended_reason="")),
                name="policy_suspended_with_reason",
            ),
            models.CheckConstraint(
                condition=Q(suspended_at=None, suspended_by=None, resumed_by=None)
                | Q(suspended_at=None, suspended_by__isnull=False, resumed_by__isnull=False)
                | Q(suspended_at__isnull=False, suspended_by__isnull=False, resumed_by=None),
                name="policy_suspension_whole",
            ),
            models.CheckConstraint(condition=~Q(resumed_by=F("suspended_by")), name="policy_resumed_by_another"),
        ]

    def __str__(self) -> str:
        return self.code

    def next_slot(self, after: datetime) -> datetime:
        """When the schedule asks for a run next."""
        slot: datetime = croniter(self.schedule, after, ret_type=datetime).get_next()
        return slot

    def clean(self) -> None:
        if len(self.schedule.split()) != 5 or not croniter.is_valid(self.schedule):
            raise ValidationError({"schedule": "Use five cron fields, for example 0 1 * * * for 01:00 UTC every day."})
        try:
            croniter(self.schedule, datetime(2000, 1, 1, tzinfo=UTC), max_years_between_matches=NEVER_YEARS).get_next()
        except CroniterBadDateError:
            words = f"{self.schedule} names a day that never comes: no slot within {NEVER_YEARS} years."
            raise ValidationError({"schedule": words}) from None


class PolicyRevisionQuerySet(models.QuerySet["PolicyRevision"]):
    def with_window(self, tenant_id: int) -> "PolicyRevisionQuerySet":
        """Published revisions of a tenant that are executed within a window alone."""
        published = self.filter(tenant=tenant_id, published_at__isnull=False)
        return published.exclude(window_days="", window_start=None)


class PolicyRevision(Scoped):
    """What a policy says from `effective_from` on. Immutable once published: the database refuses the change."""

    class Trigger(models.TextChoices):
        STORED_AT = "stored_at", "stored at"
        DATED_AT = "dated_at", "date attribute"
        EVENT = "event", "retention event"

    class Unit(models.TextChoices):
        DAYS = "days"
        WEEKS = "weeks"
        MONTHS = "months"
        YEARS = "years"

    class CutOff(models.TextChoices):
        NONE = "none", "no cut-off"
        MONTH = "month", "end of month"
        QUARTER = "quarter", "end of quarter"
        YEAR = "year", "end of year"

    class AlreadyAbsent(models.TextChoices):
        REVIEW = "review", "review by a person"
        SUCCESS = "success", "success"

    class Authorisation(models.TextChoices):
        APPROVAL = "approval", "approval for each run"
        STANDING = "standing", "standing authorisation"

    policy = models.ForeignKey(RetentionPolicy, on_delete=models.PROTECT, related_name="revisions")
    number = models.PositiveIntegerField()
    title = models.CharField(max_length=200)
    authority = models.TextField(help_text="The law, contract or instrument that demands or permits the destruction.")

    trigger = models.CharField(max_length=9, choices=Trigger, help_text="What starts the clock.")
    event_type = models.CharField(
        max_length=63,
        blank=True,
        validators=[CODE],
        help_text="Retention event: which one, for example contract-ended.",
    )
    period_number = models.PositiveIntegerField(validators=[MaxValueValidator(4000)])
    period_unit = models.CharField(max_length=6, choices=Unit)
    cutoff = models.CharField(max_length=7, choices=CutOff, default=CutOff.NONE)
    keep_newest = models.PositiveIntegerField(default=0, help_text="Generations of a series that are always kept.")
    retain_permanently = models.BooleanField(default=False)
    remove_expired_markers = models.BooleanField(
        default=False, help_text="Also remove delete markers that no version stands behind any more."
    )

    already_absent = models.CharField(max_length=7, choices=AlreadyAbsent, default=AlreadyAbsent.REVIEW)
    authorisation = models.CharField(max_length=8, choices=Authorisation, default=Authorisation.APPROVAL)
    cooling_off_minutes = models.PositiveIntegerField(default=0)
    window_days = models.CharField(
        max_length=27, blank=True, help_text="On which a window opens, for example mon,tue,wed; empty: every day."
    )
    window_start = models.TimeField(null=True, blank=True, help_text="Nothing is destroyed outside of the window.")
    window_end = models.TimeField(null=True, blank=True, help_text="Before the start: on the day after.")
    window_zone = models.CharField(max_length=64, default="UTC", help_text="For example Europe/Berlin.")
    cap_objects = models.PositiveBigIntegerField(default=100_000)
    cap_bytes = models.PositiveBigIntegerField(default=TEBIBYTE)
    cap_share_percent = models.PositiveSmallIntegerField(
        default=10, validators=[MinValueValidator(1), MaxValueValidator(100)]
    )
    breaker_percent = models.PositiveSmallIntegerField(
        default=20, null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(99)],
        help_text="A run of which more than this share fails is stopped until somebody re-arms it; empty: it never is.",
    )  # fmt: skip
    breaker_minimum = models.PositiveIntegerField(
        default=50, validators=[MinValueValidator(1)], help_text="Outcomes before the share is looked at."
    )
    priority = models.PositiveSmallIntegerField(
        default=1, validators=[MaxValueValidator(2)], help_text="0 first, 2 last; urgent erasure is 0."
    )
    evidence_max_age_hours = models.PositiveIntegerField(
        default=24, help_text="How old a listing may be that proves a version's presence before it is destroyed."
    )
    retroactive = models.BooleanField(
        help_text="Yes: also objects stored before the effective date. No: those stay with the predecessor."
    )
    effective_from = models.DateTimeField()
    destroy_within_days = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MaxValueValidator(36_500)],
        help_text="What is still there so many days after the end of its retention is listed as past maximum.",
    )

    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    editor_ids = ArrayField(
        models.BigIntegerField(),
        verbose_name="edited by",
        default=list,
        db_default=[],
        blank=True,
        editable=False,
        help_text="Who besides the author has changed the draft.",
    )
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    submitted_at = models.DateTimeField(null=True, blank=True)
    published_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    published_at = models.DateTimeField(null=True, blank=True)
    only_lengthens = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="Proven when it was published: nothing becomes eligible by it, or earlier.",
    )
    in_force_from = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Not before its publication and its effective date; later, where anything may become eligible earlier.",
    )

    objects = PolicyRevisionQuerySet.as_manager()

    class Meta:
        verbose_name = "policy revision"
        ordering = ["policy", "-number"]
        constraints = [
            *scope_constraints("revision"),
            models.UniqueConstraint(fields=["policy", "number"], name="revision_number"),
            models.CheckConstraint(
                condition=Q(only_lengthens=True)
                | (
                    ~Q(published_by=F("author"))
                    & Q(
                        IsNull(
                            Func("editor_ids", "published_by", function="array_position", output_field=IntegerField()),
                            True,
                        )
                    )
                ),
                name="revision_second_person",
            ),
            models.CheckConstraint(
                condition=Q(published_at=None, published_by=None, in_force_from=None, only_lengthens=False)
                | (
                    Q(published_at__isnull=False, published_by__isnull=False, submitted_at__isnull=False)
                    & Q(in_force_from__isnull=False)
                    & Q(in_force_from__gte=F("published_at"))
                    & Q(in_force_from__gte=F("effective_from"))
                    & ~Q(authority="")
                    & ~Q(title="")
                ),
                name="revision_published_whole",
            ),
            models.CheckConstraint(
                condition=Q(submitted_at=None, submitted_by=None)
                | Q(submitted_at__isnull=False, submitted_by__isnull=False),
                name="revision_submitted_whole",
            ),
            models.CheckConstraint(
                condition=Q(period_number__lte=4000) & Q(cap_share_percent__range=(1, 100)) & Q(priority__lte=2),
                name="revision_ranges",
            ),
            models.CheckConstraint(
                condition=Q(breaker_minimum__gte=1) & (Q(breaker_percent=None) | Q(breaker_percent__range=(1, 99))),
                name="revision_breaker",
            ),
            models.CheckConstraint(
                condition=Q(window_start=None, window_end=None)
                | Q(window_start__isnull=False, window_end__isnull=False),
                name="revision_window_whole",
            ),
            models.CheckConstraint(
                condition=(Q(trigger="event") & ~Q(event_type="")) | (~Q(trigger="event") & Q(event_type="")),
                name="revision_event_named",
            ),
            models.CheckConstraint(
                condition=Q(window_days__regex=DAYS_PATTERN)
                & ~Q(window_zone="")
                & (Q(window_start=None) | ~Q(window_start=F("window_end"))),
                name="revision_window",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.policy}/{self.number}"

    def clean(self) -> None:
        super().clean()
        if self.policy_id and self.tenant_id and self.policy.tenant_id != self.tenant_id:
            raise ValidationError({"tenant": f"The policy belongs to the tenant {self.policy.tenant}."})
        if self.trigger == self.Trigger.EVENT and not self.event_type:
            raise ValidationError({"event_type": "Name the event that starts the clock, for example contract-ended."})
        if self.trigger != self.Trigger.EVENT and self.event_type:
            raise ValidationError(
                {"event_type": "Only a retention event has a type: empty this, or change the trigger."}
            )
        self.clean_window()

    def clean_window(self) -> None:
        errors: dict[str, str] = {}
        days = self.window_days.split(",") if self.window_days else []
        if not re.fullmatch(DAYS_PATTERN, self.window_days) or len(set(days)) < len(days):
            errors["window_days"] = "Write days as mon,tue,wed,thu,fri,sat,sun: each once at most, without blanks."
        if (self.window_start is None) != (self.window_end is None):
            errors["window_end"] = "State both ends of the window, or neither."
        elif self.window_start is not None and self.window_start == self.window_end:
            errors["window_end"] = "A window ends at another time than it starts; whole days need no times."
        if self.window_zone not in zones():
            errors["window_zone"] = "Write a time zone as IANA names it, for example UTC or Europe/Berlin."
        if errors:
            raise ValidationError(errors)

    @property
    def window(self) -> Window | None:
        """When commands of this revision may be executed; None: always."""
        return window(self.window_days, self.window_start, self.window_end, self.window_zone)


class EnforcementRequest(models.Model):
    """One person's wish to let runs destroy under a prefix; another person decides it, once."""

    class Decision(models.TextChoices):
        PENDING = "", "pending"
        APPROVED = "approved", "approved"
        DENIED = "denied", "denied"

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, related_name="+")
    prefix = models.TextField(
        db_collation="C", blank=True, help_text="Exactly as keys begin; the empty prefix is the whole bucket."
    )
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    requested_at = models.DateTimeField(db_default=Now(), editable=False)
    reason = models.TextField()
    decision = models.CharField(max_length=8, choices=Decision, blank=True, default=Decision.PENDING)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    decision_reason = models.TextField(blank=True)

    class Meta:
        verbose_name = "enforcement request"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=~Q(requested_by=F("decided_by")), name="enforcement_request_second_person"
            ),
            models.CheckConstraint(
                condition=Q(decision="", decided_by=None, decided_at=None, decision_reason="")
                | (
                    Q(decision__in=["approved", "denied"], decided_by__isnull=False, decided_at__isnull=False)
                    & ~Q(decision_reason="")
                ),
                name="enforcement_request_decided_whole",
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="enforcement_request_explained"),
            models.UniqueConstraint(
                fields=["tenant", "bucket", "prefix"],
                condition=Q(decision=""),
                name="enforcement_request_once",
                violation_error_message="A request for this prefix is pending already: have it approved or denied.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant} {self.bucket}/{self.prefix}"

    def clean(self) -> None:
        super().clean()
        if "\x00" in self.prefix:
            raise ValidationError({"prefix": "A key cannot hold NUL, so no prefix may."})


class Enforcement(models.Model):
    """Where runs may destroy: absent means dry run. Switched on by two people, off by one."""

    request = models.OneToOneField(EnforcementRequest, on_delete=models.PROTECT, related_name="enforcement")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, related_name="+")
    prefix = models.TextField(db_collation="C", blank=True, help_text="The empty prefix is the whole bucket.")
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    approved_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    reason = models.TextField()
    switched_on_at = models.DateTimeField(db_default=Now(), editable=False)
    switched_off_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(requested_by=F("approved_by")), name="enforcement_second_person"),
            models.UniqueConstraint(
                fields=["tenant", "bucket", "prefix"], condition=Q(switched_off_at=None), name="enforcement_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant} {self.bucket}/{self.prefix}"
