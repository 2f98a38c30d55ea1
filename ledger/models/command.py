"""Commands: one line of a manifest on its way to a receipt; its targets, and what people and incidents did to it."""

from django.conf import settings
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from ledger.models.run import CleanupRun
from ledger.states import CommandState
from retention.models import Bucket, LegalHold, PolicyRevision, RetentionPolicy, Role, Tenant


class CleanupCommandQuerySet(models.QuerySet["CleanupCommand"]):
    def ready(self) -> "CleanupCommandQuerySet":
        return self.filter(state=CommandState.READY)


class CleanupCommand(models.Model):
    """The order to destroy the exact targets of one manifest item.

    `lease_token` rises with each claim, and only its holder may settle. While `inspect_due` is set, an earlier request
    may have been executed: the command may then be looked at, and nothing else, until the look has settled it. Bulk
    rows: their foreign keys are not checked by the database.
    """

    class Outcome(models.TextChoices):
        DELETED = "deleted"
        BY_ABSENCE = "by_absence", "confirmed by absence"
        ALREADY_ABSENT = "already_absent", "already absent"

    class HeldBy(models.TextChoices):
        US = "us", "a hold of ours"
        STORE = "store", "a lock of the store"

    key = models.CharField(max_length=700, db_collation="C")
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="commands"
    )
    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+")
    policy = models.ForeignKey(
        RetentionPolicy, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    revision = models.ForeignKey(
        PolicyRevision, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    asset = models.TextField(db_collation="C")
    run = models.ForeignKey(
        CleanupRun,
        on_delete=models.PROTECT,
        db_constraint=False,
        db_index=False,
        related_name="commands",
        help_text="The run that authorised it last.",
    )
    item_id = models.BigIntegerField(help_text="The manifest item of that run.")
    target_count = models.PositiveIntegerField("targets")
    bytes = models.PositiveBigIntegerField()
    eligible_since = models.DateTimeField()
    published_at = models.DateTimeField(db_default=Now())

    state = models.CharField(
        max_length=9, choices=[(state.value, state.value) for state in CommandState], default=CommandState.READY
    )
    cycle = models.PositiveSmallIntegerField(default=0, db_default=0)
    outcome = models.CharField(max_length=14, choices=Outcome, blank=True, default="", db_default="")
    priority = models.PositiveSmallIntegerField(help_text="0 first, 2 last.")
    due_at = models.DateTimeField(db_default=Now())
    inspect_due = models.DateTimeField(null=True, blank=True)
    lease_token = models.BigIntegerField(default=0, db_default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    claims = models.PositiveIntegerField(default=0, db_default=0)
    lease_losses = models.PositiveSmallIntegerField(default=0, db_default=0)
    attempts = models.PositiveSmallIntegerField(default=0, db_default=0, help_text="Charged ones of this cycle.")
    failure_class = models.CharField(max_length=20, blank=True, default="", db_default="")
    held_by = models.CharField(max_length=5, choices=HeldBy, blank=True, default="", db_default="")
    held_until = models.DateTimeField(null=True, blank=True, help_text="Retention of the store; empty: no known end.")
    hold = models.ForeignKey(
        LegalHold, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False, db_index=False,
        related_name="+",
    )  # fmt: skip
    reason = models.TextField(blank=True, default="", db_default="", help_text="Why it was withdrawn.")
    event_id = models.CharField(max_length=44, blank=True, default="", db_default="")
    changed_at = models.DateTimeField(db_default=Now())
    compacted_at = models.DateTimeField(
        null=True, blank=True, help_text="When its targets, requests and attempts became a summary."
    )

    objects = CleanupCommandQuerySet.as_manager()

    class Meta:
        verbose_name = "command"
        ordering = ["-id"]
        constraints = [
            # Not `unique=True` of the field, with which Django makes a second index, for patterns.
            models.UniqueConstraint(fields=["key"], name="command_key_unique"),
            models.CheckConstraint(
                condition=Q(state__in=[CommandState.DELETED, CommandState.NOTIFIED]) & ~Q(outcome="") & ~Q(event_id="")
                | ~Q(state__in=[CommandState.DELETED, CommandState.NOTIFIED]) & Q(outcome=""),
                name="command_outcome",
            ),
            models.CheckConstraint(
                condition=Q(state=CommandState.HELD) & ~Q(held_by="") | ~Q(state=CommandState.HELD) & Q(held_by=""),
                name="command_held_by",
            ),
            models.CheckConstraint(
                condition=~Q(state=CommandState.DEAD) | ~Q(failure_class=""), name="command_dead_with_class"
            ),
            models.CheckConstraint(
                condition=~Q(state=CommandState.WITHDRAWN) | ~Q(reason=""), name="command_withdrawn_with_reason"
            ),
            models.CheckConstraint(
                condition=Q(lease_until=None) | Q(state=CommandState.READY), name="command_leased_while_ready"
            ),
            models.CheckConstraint(condition=Q(priority__lte=2), name="command_priority"),
        ]
        indexes = [
            # The claim (sql/claim.sql). No index on the lease: a claim stays a heap-only update.
            models.Index(
                fields=["bucket", "tenant", "priority", "due_at", "id"],
                condition=Q(state=CommandState.READY),
                name="command_due",
            ),
            models.Index(fields=["run", "state"], name="command_by_run"),
            # Of each tenant, the object that is eligible for the longest and still there (vitals).
            models.Index(
                fields=["tenant", "eligible_since"], condition=Q(state=CommandState.READY), name="command_eligible"
            ),
            # The list of whoever sees some tenants alone.
            models.Index(fields=["tenant", "-id"], name="command_by_tenant"),
            models.Index(fields=["id"], condition=Q(state=CommandState.DELETED), name="command_unnotified"),
            models.Index(
                fields=["inspect_due"],
                condition=Q(inspect_due__isnull=False) & ~Q(state=CommandState.READY),
                name="command_late_evidence",
            ),
            # Lists of what is parked, newest first; compaction, oldest first.
            models.Index(
                fields=["state", "-id"],
                condition=Q(state__in=[CommandState.DEAD, CommandState.HELD, CommandState.WITHDRAWN]),
                name="command_parked",
            ),
            models.Index(
                fields=["changed_at"],
                condition=Q(state=CommandState.NOTIFIED, compacted_at=None),
                name="command_to_compact",
            ),
            # What was published lately, which is counted (rollups).
            BrinIndex(fields=["published_at"], name="command_by_publication", pages_per_range=32, autosummarize=True),
        ]

    def __str__(self) -> str:
        return self.key


class CommandTarget(models.Model):
    """One exact object version that a command destroys. It names what the manifest froze, and never looks it up again.

    `active` while its command is ready or has succeeded: at most one such command for an object version. One that went
    before its command was parked need not be active again.
    """

    command = models.ForeignKey(CleanupCommand, on_delete=models.PROTECT, db_index=False, related_name="targets")
    ordinal = models.PositiveIntegerField()
    object_version_id = models.BigIntegerField()
    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+")
    key = models.TextField(db_collation="C")
    version_id = models.TextField(db_collation="C")
    incarnation = models.CharField(max_length=32, db_collation="C", blank=True)
    etag = models.TextField(blank=True)
    size = models.BigIntegerField()
    stored_at = models.DateTimeField()
    role = models.CharField(max_length=13, choices=[*Role.choices, ("delete_marker", "delete marker")])
    active = models.BooleanField(default=True, db_default=True)
    gone_at = models.DateTimeField(null=True, blank=True, help_text="When its absence was seen.")
    evidence = models.JSONField(null=True, blank=True, help_text="Of a target that went before the others did.")

    class Meta:
        verbose_name = "target"
        ordering = ["command", "ordinal"]
        constraints = [
            models.UniqueConstraint(fields=["command", "ordinal"], name="target_ordinal"),
            models.UniqueConstraint(
                fields=["object_version_id"], condition=Q(active=True), name="target_one_open_command"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key} {self.version_id}"


class Decision(models.Model):
    """Why a command began another cycle. Append-only; exactly one for each cycle above 0."""

    class Kind(models.TextChoices):
        REPLAY = "replay"
        ADOPTED = "adopted", "adopted by a later run"

    command = models.ForeignKey(CleanupCommand, on_delete=models.PROTECT, db_index=False, related_name="decisions")
    cycle = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=7, choices=Kind)
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    run = models.ForeignKey(
        CleanupRun, on_delete=models.PROTECT, null=True, blank=True, db_constraint=False, db_index=False,
        related_name="+",
    )  # fmt: skip
    reason = models.TextField()
    repair = models.TextField(blank=True, help_text="What was repaired before: credentials, policy, locator.")
    at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering = ["command", "cycle"]
        constraints = [
            models.UniqueConstraint(fields=["command", "cycle"], name="decision_cycle"),
            models.CheckConstraint(condition=Q(cycle__gte=1) & ~Q(reason=""), name="decision_explained"),
            models.CheckConstraint(
                condition=Q(kind="replay", by__isnull=False) | Q(kind="adopted", run__isnull=False),
                name="decision_by_somebody",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.command_id} cycle {self.cycle}: {self.kind}"


class Incident(models.Model):
    """A parked command whose object our own late request had destroyed all the same. Append-only."""

    command = models.ForeignKey(CleanupCommand, on_delete=models.PROTECT, db_index=False, related_name="incidents")
    cycle = models.PositiveSmallIntegerField()
    from_state = models.CharField(max_length=9)
    detail = models.TextField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["command", "cycle"], name="incident_cycle")]

    def __str__(self) -> str:
        return f"{self.command_id} cycle {self.cycle}: {self.detail}"


class SkippedItem(models.Model):
    """An item that became no command of its run, because another command has its object. Append-only."""

    run = models.ForeignKey(CleanupRun, on_delete=models.PROTECT, related_name="skipped", db_index=False)
    item_id = models.BigIntegerField()
    command_key = models.CharField(max_length=700, db_collation="C")
    reason = models.TextField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "item_id"], name="skipped_once")]
        indexes = [models.Index(fields=["command_key"], name="skipped_by_key")]

    def __str__(self) -> str:
        return self.command_key


class DeadLetter(models.Model):
    """A command's stay in quarantine: what failed, how often, and what a person made of it."""

    class Resolution(models.TextChoices):
        REPLAYED = "replayed"
        ADOPTED = "adopted", "adopted by a later run"
        CLOSED = "closed", "closed without retry"
        DELETED = "deleted", "found deleted"

    command = models.ForeignKey(CleanupCommand, on_delete=models.PROTECT, db_index=False, related_name="dead_letters")
    cycle = models.PositiveSmallIntegerField()
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+")
    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+")
    run = models.ForeignKey(
        CleanupRun, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+",
        help_text="The run under which it failed.",
    )  # fmt: skip
    policy = models.ForeignKey(
        RetentionPolicy, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    key = models.TextField(
        db_collation="C", blank=True, help_text="Of the original; empty once its command is compacted."
    )
    version_id = models.TextField("version", db_collation="C", blank=True)
    failure_class = models.CharField(max_length=20)
    storage_code = models.CharField(
        max_length=64, db_collation="C", blank=True, help_text="What the store called its last refusal."
    )
    http_status = models.PositiveSmallIntegerField("HTTP", null=True, blank=True)
    attempts = models.PositiveSmallIntegerField()
    first_failed_at = models.DateTimeField(help_text="In this cycle.")
    first_error = models.TextField()
    last_error = models.TextField()
    next_action = models.TextField(help_text="What a person can do, in plain words.")
    entered_at = models.DateTimeField(db_default=Now(), help_text="With its last failure.")
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolution = models.CharField(max_length=8, choices=Resolution, blank=True, default="", db_default="")
    resolved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    reason = models.TextField(blank=True, default="", db_default="")

    class Meta:
        verbose_name = "quarantine entry"
        verbose_name_plural = "quarantine entries"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["command", "cycle"], name="dead_letter_cycle"),
            models.CheckConstraint(
                condition=Q(resolved_at=None, resolution="") | Q(resolved_at__isnull=False) & ~Q(resolution=""),
                name="dead_letter_resolved",
            ),
            models.CheckConstraint(
                condition=~Q(resolution__in=["replayed", "closed"]) | Q(resolved_by__isnull=False) & ~Q(reason=""),
                name="dead_letter_decided_by_somebody",
            ),
        ]
        indexes = [
            # The list of what is open, the oldest first, whatever it is narrowed by besides.
            models.Index(fields=["id"], condition=Q(resolved_at=None), name="quarantine_open"),
            # What is open by cause (sql/causes.sql), and the list of one.
            models.Index(
                fields=["failure_class", "storage_code", "bucket", "tenant", "id"],
                include=["entered_at"],
                condition=Q(resolved_at=None),
                name="quarantine_causes",
            ),
            # What is open by class, and the oldest of each (sql/vital_quarantine.sql).
            models.Index(
                fields=["tenant", "failure_class", "entered_at"],
                condition=Q(resolved_at=None),
                name="quarantine_waiting",
            ),
            models.Index(fields=["key", "id"], condition=Q(resolved_at=None), name="quarantine_by_key"),
            # What is open and what is resolved of one run, class or tenant.
            models.Index(fields=["run", "id"], name="quarantine_by_run"),
            models.Index(fields=["failure_class", "id"], name="quarantine_by_class"),
            models.Index(fields=["tenant", "id"], name="quarantine_by_tenant"),
            # What entered lately, resolved or not, which is counted (rollups).
            BrinIndex(fields=["entered_at"], name="quarantine_by_time", pages_per_range=32, autosummarize=True),
            # What was resolved lately, the same.
            models.Index(fields=["resolved_at"], condition=Q(resolved_at__isnull=False), name="quarantine_resolved"),
        ]

    def __str__(self) -> str:
        return f"{self.failure_class}: {self.last_error}"
