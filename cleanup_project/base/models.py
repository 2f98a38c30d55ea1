"""People, the rights they hold, and the append-only record of what they did."""

from datetime import timedelta
from typing import Any, Final

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import AbstractUser, Permission
from django.contrib.postgres.fields import ArrayField
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.functional import cached_property

from cleanup_project.base.roles import RIGHTS, SUPERUSER_RIGHTS
from cleanup_project.base.scopes import RIGHTS_OF_PROGRAMS, SCOPES
from cleanup_project.base.signin.store import SessionStore

FASTEST_JOB: Final = 1000  # items a second
LONGEST_TOKEN: Final = 366  # days


class User(AbstractUser):
    """A person, or the account of a program. Deactivated, never deleted: decisions keep pointing at who took them.

    A program comes in by a token of the API (`apitokens`) and in no other way: it has no password, no role and no pages.
    """

    tenants = ArrayField(
        models.CharField(max_length=63),
        default=list,
        blank=True,
        help_text="Codes of the tenants whose things this person sees and decides; empty: of every tenant.",
    )
    is_program = models.BooleanField(default=False, editable=False, help_text="It has tokens, and never signs in.")
    rights = ArrayField(
        models.CharField(max_length=32),
        default=list,
        editable=False,
        help_text="Of a program: what its token lets it decide. A person's come from their roles.",
    )

    class Meta(AbstractUser.Meta):
        constraints = [
            models.CheckConstraint(
                condition=Q(is_program=False, rights=[])
                | Q(
                    is_program=True,
                    rights__contained_by=RIGHTS_OF_PROGRAMS,
                    is_staff=False,
                    is_superuser=False,
                    password__startswith=UNUSABLE_PASSWORD_PREFIX,
                ),
                name="program_never_signs_in",
            )
        ]

    @cached_property
    def _role_rights(self) -> frozenset[str]:
        granted = Permission.objects.filter(group__user=self, content_type__app_label="base", codename__in=RIGHTS)
        return frozenset(granted.values_list("codename", flat=True))

    def has_perm(self, perm: str, obj: models.Model | Any | None = None) -> bool:
        """As Django's, except that decisions come from a role alone: a superuser has none by being one.

        A program has the rights of its token, and nothing from any group.
        """
        app, _, right = perm.partition(".")
        if self.is_program:
            return self.is_active and app == "base" and right in self.rights
        if app == "base" and right in RIGHTS and right not in SUPERUSER_RIGHTS:
            return self.is_active and right in self._role_rights
        return super().has_perm(perm, obj)


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def live(self) -> "ApiTokenQuerySet":
        return self.filter(revoked_at=None, expires_at__gt=Now())


class ApiToken(models.Model):
    """A program's way in. `apitokens` is its sole writer, and knows the secret for as long as it takes to show it.

    A token that replaces another belongs to the same account: to the record, and to what it began, it is the same program.
    """

    account = models.ForeignKey(User, on_delete=models.PROTECT, related_name="tokens")
    public_id = models.CharField(max_length=12, unique=True, help_text="Stands in the token, and in logs.")
    digest = models.BinaryField(max_length=32, help_text="SHA-256 of the secret.")
    scopes = ArrayField(models.CharField(max_length=32))
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    replaces = models.OneToOneField("self", on_delete=models.PROTECT, null=True, blank=True, related_name="replaced_by")
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute.")
    last_used_from = models.GenericIPAddressField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    revoked_reason = models.TextField(blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        verbose_name = "API token"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(scopes__len__gte=1, scopes__contained_by=sorted(SCOPES)), name="apitoken_scopes"
            ),
            models.CheckConstraint(
                condition=Q(
                    expires_at__gt=F("created_at"),
                    expires_at__lte=F("created_at") + timedelta(days=LONGEST_TOKEN),
                ),
                name="apitoken_expires",
            ),
            models.CheckConstraint(
                condition=Q(revoked_at=None, revoked_by=None, revoked_reason="")
                | (Q(revoked_at__isnull=False, revoked_by__isnull=False) & ~Q(revoked_reason="")),
                name="apitoken_revoked_with_reason",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.account} {self.public_id}"

    @property
    def owner(self) -> str:
        return self.account.tenants[0] if len(self.account.tenants) == 1 else ""

    def allows(self, scope: str) -> bool:
        """Raises LookupError for a scope that there is not."""
        if scope not in SCOPES:
            raise LookupError(f"There is no scope {scope}.")
        return scope in self.scopes


class ApiUse(models.Model):
    """What a token asked for within one minute, the last in which it did; it survives no crash. `apirates` writes it."""

    token = models.OneToOneField(ApiToken, on_delete=models.CASCADE, primary_key=True, related_name="+")
    minute = models.BigIntegerField(help_text="Since 1970.")
    reads = models.PositiveIntegerField()
    writes = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.token_id}: {self.reads} reads, {self.writes} writes"


class Session(AbstractBaseSession):
    """A browser in which somebody signs in. Whose it is stands in a column, so that every one of a person can be ended."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="+")

    @classmethod
    def get_session_store_class(cls) -> Any:
        return SessionStore


class Right(models.Model):
    """Carries the permissions of the role matrix; has no table."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = list(RIGHTS.items())


class AuditEvent(models.Model):
    """One act of a person or of the system: who, what, on what, why, before and after.

    Written by `audit.record` inside the act's own transaction; the table refuses UPDATE, DELETE and TRUNCATE.
    """

    at = models.DateTimeField(db_default=Now(), editable=False)
    actor = models.ForeignKey(User, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    actor_name = models.CharField(max_length=150, help_text="The person's name at the time, or the system's part.")
    action = models.CharField(max_length=64, help_text="For example policy.published.")
    subject_type = models.CharField(max_length=64)
    subject_id = models.CharField(max_length=64)
    subject_label = models.TextField()
    tenant = models.CharField(
        max_length=63, blank=True, default="", help_text="Of the subject; empty where no single tenant owns it."
    )
    reason = models.TextField(blank=True)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)
    request_id = models.CharField(max_length=64, blank=True)

    class Meta:
        verbose_name = "audit event"
        ordering = ["-id"]
        indexes = [
            # The history tab of one item.
            models.Index(fields=["subject_type", "subject_id", "-id"], name="audit_subject"),
            # What one person did.
            models.Index(fields=["actor", "-id"], name="audit_actor"),
            # The rest of what people look for: by tenant, by kind of act, within a time, and what one request did.
            models.Index(fields=["tenant", "-id"], condition=~Q(tenant=""), name="audit_tenant"),
            models.Index(fields=["action", "-id"], opclasses=["varchar_pattern_ops", "int8_ops"], name="audit_action"),
            models.Index(fields=["-at", "-id"], name="audit_at"),
            models.Index(fields=["request_id"], condition=~Q(request_id=""), name="audit_request"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.subject_label}"


class Heartbeat(models.Model):
    """One cluster of workers: where it runs, and when it last did something, by the database's clock.

    The supervisor writes `seen_at` and restarts; the cluster's own processes write the rest. A cluster that stopped in
    order has no row.
    """

    host = models.CharField(max_length=255)
    queue = models.CharField(max_length=100, help_text="The key of its messages.")
    pid = models.PositiveIntegerField(null=True, help_text="Of its main process, which leads a session of its own.")
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now(), help_text="When its supervisor last looked.")
    last_tick_at = models.DateTimeField(null=True)
    last_start_at = models.DateTimeField(null=True)
    last_end_at = models.DateTimeField(null=True)
    last_ack_at = models.DateTimeField(null=True)
    unacked_since = models.DateTimeField(
        null=True, help_text="The first end of a task that no acknowledgement followed."
    )
    restarts = models.PositiveIntegerField(default=0)
    restart_reason = models.TextField(blank=True, help_text="Of the last restart.")

    class Meta:
        verbose_name = "worker cluster"
        ordering = ["host", "queue", "id"]

    def __str__(self) -> str:
        return f"{self.queue} on {self.host}"


class AlarmQuerySet(models.QuerySet["Alarm"]):
    def open(self) -> "AlarmQuerySet":
        return self.filter(cleared_at=None)

    def unannounced(self) -> "AlarmQuerySet":
        """Of which an event is still to be written: that it was raised, or that it is over."""
        return self.filter(Q(announced_at=None) | Q(cleared_at__isnull=False, end_announced_at=None))


class Alarm(models.Model):
    """Something that a person should look at, from when it was first noticed until it was over.

    At most one is open for each kind and subject: noticed again, it says what is so now.
    """

    kind = models.CharField(max_length=64, help_text="For example catalogue.stale.")
    subject_type = models.CharField(max_length=64)
    subject_id = models.CharField(max_length=64)
    subject_label = models.TextField()
    tenant = models.CharField(
        max_length=63, blank=True, default="", help_text="Of the subject; empty where no single tenant owns it."
    )
    message = models.TextField(help_text="What is wrong, with its numbers, and what to do.")
    raised_at = models.DateTimeField(db_default=Now(), editable=False)
    noticed_at = models.DateTimeField(db_default=Now(), help_text="When it was last found to be so.")
    cleared_at = models.DateTimeField(null=True, blank=True)

    announced_at = models.DateTimeField(null=True, editable=False, help_text="When its event was written.")
    end_announced_at = models.DateTimeField(
        null=True, editable=False, help_text="When the event that it is over was written."
    )
    told_at = models.DateTimeField(null=True, editable=False, help_text="When an e-mail last told of it.")
    end_told_at = models.DateTimeField(null=True, editable=False, help_text="When an e-mail told that it is over.")
    tried_at = models.DateTimeField(null=True, editable=False, help_text="When an e-mail about it was last begun.")
    tries = models.PositiveIntegerField(
        default=0, db_default=0, editable=False, help_text="How often since then none could be sent."
    )
    trouble = models.TextField(
        blank=True, default="", db_default="", editable=False, help_text="Why the last e-mail could not be sent."
    )

    objects = AlarmQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject_type", "subject_id"], condition=models.Q(cleared_at=None), name="alarm_once"
            ),
            models.CheckConstraint(condition=~models.Q(message=""), name="alarm_says_what"),
        ]
        indexes = [
            # What is open, and what ended lately: who is to be told of it.
            models.Index(fields=["cleared_at"], name="alarm_by_end"),
            models.Index(
                fields=["id"],
                condition=Q(announced_at=None) | Q(cleared_at__isnull=False, end_announced_at=None),
                name="alarm_unannounced",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject_label}"


class BulkJob(models.Model):
    """One decision about many rows, each of which gets an outcome of its own. `jobs` is its sole writer.

    Which rows they are is frozen when it is made. `done` items, the first in order, have their outcome; the effects of an
    item and its outcome commit together.
    """

    class State(models.TextChoices):
        RUNNING = "running"  # its next items are taken as its rate allows
        PAUSED = "paused"  # by a person, or because nobody may go on with it
        DONE = "done"  # every item has its outcome
        CANCELLED = "cancelled"  # a person ended it; what was not done will not be

    kind = models.CharField(max_length=64, help_text="For example redelivery.")
    subject_type = models.CharField(max_length=64, help_text="What its items are.")
    selection = models.TextField(help_text="What was chosen, in words.")
    reason = models.TextField()
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    in_charge = models.ForeignKey(
        User, on_delete=models.PROTECT, related_name="+",
        help_text="In whose name items are done: who asked for it, or who resumed it last.",
    )  # fmt: skip
    requested_at = models.DateTimeField(db_default=Now(), editable=False)
    tenants = ArrayField(
        models.CharField(max_length=63),
        default=list,
        blank=True,
        help_text="Its items are of these tenants: those of whoever made it; empty: of any.",
    )
    token = models.UUIDField(unique=True, help_text="Of the form: sent twice, it makes one job.")
    details = models.JSONField(default=dict, help_text="What else its verb is told.")
    lanes = ArrayField(
        models.TextField(), default=list, help_text="At most one job of its kind is open in each of these."
    )
    total = models.PositiveIntegerField(default=0)
    done = models.PositiveIntegerField(default=0)
    outcomes = models.JSONField(default=dict, help_text="How many items ended how.")
    rate = models.PositiveIntegerField(help_text="Items a second, at most.")
    free_at = models.DateTimeField(db_default=Now(), editable=False, help_text="Until then its rate allows no item.")
    state = models.CharField(max_length=9, choices=State, default=State.RUNNING)
    paused_because = models.TextField(blank=True)
    worked_at = models.DateTimeField(db_default=Now(), editable=False)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "bulk job"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=Q(done__lte=F("total")), name="bulkjob_within_total"),
            models.CheckConstraint(condition=Q(rate__range=(1, FASTEST_JOB)), name="bulkjob_rate"),
            models.CheckConstraint(condition=~Q(reason=""), name="bulkjob_with_reason"),
            models.CheckConstraint(
                condition=(Q(state="paused") & ~Q(paused_because="")) | (~Q(state="paused") & Q(paused_because="")),
                name="bulkjob_paused_with_reason",
            ),
            models.CheckConstraint(
                condition=Q(state__in=["running", "paused"], finished_at=None)
                | Q(state="done", finished_at__isnull=False, done=F("total"))
                | Q(state="cancelled", finished_at__isnull=False),
                name="bulkjob_finished",
            ),
        ]
        indexes = [
            # What the sweep rings for.
            models.Index(fields=["worked_at"], condition=Q(state="running"), name="bulkjob_running"),
            # Who is in the way of a new one.
            models.Index(fields=["kind"], condition=Q(finished_at=None), name="bulkjob_open"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"

    @property
    def owner(self) -> str:
        return self.tenants[0] if len(self.tenants) == 1 else ""


class BulkItem(models.Model):
    """One row that a bulk job is about, and what became of it."""

    job = models.ForeignKey(BulkJob, on_delete=models.PROTECT, db_index=False, related_name="items")
    ordinal = models.PositiveIntegerField(help_text="Items are done in this order.")
    subject_id = models.BigIntegerField()
    outcome = models.CharField(max_length=32, blank=True)
    detail = models.TextField(blank=True)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "bulk job's item"
        verbose_name_plural = "items of bulk jobs"
        ordering = ["job_id", "ordinal"]
        constraints = [
            models.UniqueConstraint(fields=["job", "ordinal"], name="bulkitem_ordinal"),
            models.CheckConstraint(
                condition=Q(outcome="", done_at=None) | (~Q(outcome="") & Q(done_at__isnull=False)),
                name="bulkitem_done_with_outcome",
            ),
        ]
        # Those of a job that ended in one way.
        indexes = [models.Index(fields=["job", "outcome", "ordinal"], name="bulkitem_by_outcome")]

    def __str__(self) -> str:
        return f"item {self.ordinal} of {self.job_id}"


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
