"""Events, the endpoints that subscribe to them, and every attempt to deliver one to the other."""

from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Now
from django.db.models.lookups import LessThanOrEqual

from webhooks.eventtypes import EVENT_TYPES
from webhooks.limits import IN_FLIGHT

BODY_LIMIT = 64 * 1024
ERROR_LIMIT = 500
RESPONSE_LIMIT = 4096
EVERY_TYPE = "*"

TENANT = RegexValidator(r"\A[a-z0-9][a-z0-9-]{0,62}\Z", "Use 1 to 63 lower-case letters, digits and hyphens.")
EVENT_TYPE = RegexValidator(
    r"\A(\*|[a-z][a-z0-9_]*(\.[a-z0-9_]+)*)\Z", "Write an event type such as media.deleted, or * for every type."
)
# The same text is the database's constraint: PostgreSQL and Python read it alike.
URL_PATTERN = r"\Ahttps?://[A-Za-z0-9.:\[\]_-]+([/?][!\"$-\[\]-~]*)?\Z"
URL = RegexValidator(
    URL_PATTERN,
    "Write https://host/path in ASCII, without user name, password, fragment (#), backslash or blanks.",
)


class DueField(models.DateTimeField[Any, Any]):
    """A time at which work is due; `infinity` in the database is None in Python, whose times end with the year 9999."""

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        return f"nullif({sql}, 'infinity'::timestamptz)", params


class Lane(models.Model):
    """The order of one subject's events: `n` is the last sequence given. Its row is locked first by emit and promotion."""

    tenant = models.CharField(max_length=63)
    subject = models.TextField(db_collation="C")
    n = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "subject"], name="lane_unique")]

    def __str__(self) -> str:
        return f"{self.tenant}: {self.subject}"


class OutboxEvent(models.Model):
    """A fact to tell, frozen as the bytes that are signed and sent. Only `settled_at` ever changes, once.

    Settled means: every delivery that was owed is delivered or cancelled. `name` and `occurrence` are what the id is
    derived from, beside the type, so that the same fact can never be told under a second id.
    """

    event_id = models.CharField(max_length=64, db_collation="C")
    tenant = models.CharField(max_length=63)
    type = models.CharField(max_length=64)
    subject = models.TextField(db_collation="C")
    name = models.TextField(db_collation="C")
    occurrence = models.CharField(max_length=200, blank=True)
    command_key = models.TextField(db_collation="C", blank=True)
    lane = models.ForeignKey(Lane, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+")
    sequence = models.BigIntegerField()
    schema_version = models.PositiveSmallIntegerField(default=1)
    body = models.BinaryField()
    body_sha256 = models.BinaryField(max_length=32)
    emitted_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "event"
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["event_id"], name="event_id_unique"),
            models.CheckConstraint(
                condition=Q(body_sha256=Func(F("body"), function="sha256", output_field=models.BinaryField())),
                name="event_digest",
            ),
            models.CheckConstraint(
                condition=LessThanOrEqual(
                    Func(F("body"), function="octet_length", output_field=models.IntegerField()), BODY_LIMIT
                ),
                name="event_body_limit",
            ),
        ]
        indexes = [
            # `explain` and the admin look events up by their command.
            models.Index(fields=["command_key"], name="event_by_command_key"),
            # The list of whoever sees some tenants alone.
            models.Index(fields=["tenant", "-id"], name="event_by_tenant"),
            # The sweep walks what is not settled.
            models.Index(fields=["id"], condition=Q(settled_at=None), name="event_unsettled"),
            # A list of what was emitted lately. Events are appended in about the order of their times.
            BrinIndex(fields=["emitted_at"], name="event_by_time", pages_per_range=32, autosummarize=True),
        ]

    def __str__(self) -> str:
        return self.event_id


class DetailedBody(models.Model):
    """An event's body for endpoints that ask for object keys, frozen with it. Apart, so that it can be forgotten earlier."""

    event = models.OneToOneField(OutboxEvent, on_delete=models.PROTECT, db_constraint=False, related_name="detailed")
    body = models.BinaryField()
    body_sha256 = models.BinaryField(max_length=32)

    class Meta:
        verbose_name = "body with object keys"
        verbose_name_plural = "bodies with object keys"
        constraints = [
            models.CheckConstraint(
                condition=Q(body_sha256=Func(F("body"), function="sha256", output_field=models.BinaryField())),
                name="detailed_body_digest",
            ),
            models.CheckConstraint(
                condition=LessThanOrEqual(
                    Func(F("body"), function="octet_length", output_field=models.IntegerField()), BODY_LIMIT
                ),
                name="detailed_body_limit",
            ),
        ]

    def __str__(self) -> str:
        return f"body of {self.event_id} with object keys"


class EndpointQuerySet(models.QuerySet["Endpoint"]):
    def enabled(self) -> "EndpointQuerySet":
        return self.filter(disabled_at=None)


class Endpoint(models.Model):
    """Where one tenant's events are posted. Disabled, it still gets deliveries: they wait until it is enabled.

    What a person decides stands first; the health below it is what attempts have shown, and `health` is its sole writer.
    """

    tenant = models.CharField(max_length=63, validators=[TENANT], help_text="The tenant's code.")
    name = models.CharField(max_length=100)
    url = models.CharField("URL", max_length=2000, validators=[URL])
    event_types = ArrayField(
        models.CharField(max_length=64, validators=[EVENT_TYPE]),
        help_text="Event types, such as media.deleted; * is every type, an empty list is refused.",
    )
    include_keys = models.BooleanField(
        "object keys",
        default=False,
        help_text="Tell bucket, key and version id of each object. Without, they stand in bodies only where a bucket has "
        "no rule for assets, so that a short key is the asset itself.",
    )
    duplicate_is_success = models.BooleanField(
        "409 is an acknowledgement", default=False, help_text="For a receiver that answers 409 to an event that it has."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    disabled_at = models.DateTimeField(null=True, blank=True)
    disabled_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+",
        help_text="Empty: the rules did it.",
    )  # fmt: skip
    disabled_reason = models.TextField(blank=True)
    retired_at = models.DateTimeField(null=True, blank=True, help_text="It is owed nothing more, for ever.")

    failing_since = models.DateTimeField(
        null=True, editable=False, help_text="The first failure after its last success."
    )
    circuit_step = models.PositiveSmallIntegerField(
        default=0, editable=False, help_text="0: closed; else opened so often."
    )
    open_until = models.DateTimeField(null=True, editable=False, help_text="While the circuit is open: its next probe.")
    paused_until = models.DateTimeField(
        null=True, editable=False, help_text="The endpoint asked for time: 429, Retry-After."
    )
    concurrency = models.PositiveSmallIntegerField(default=IN_FLIGHT, editable=False)
    concurrency_cut_at = models.DateTimeField(null=True, editable=False)
    resumed_at = models.DateTimeField(
        null=True,
        editable=False,
        help_text="Since it was enabled it has been catching up; sends are paid from here on.",
    )

    objects = EndpointQuerySet.as_manager()

    class Meta:
        ordering = ["tenant", "name"]
        constraints = [
            models.UniqueConstraint(fields=["tenant", "name"], name="endpoint_name"),
            models.CheckConstraint(condition=Q(url__regex=URL_PATTERN), name="endpoint_url"),
            models.CheckConstraint(condition=Q(event_types__len__gte=1), name="endpoint_types_not_empty"),
            models.CheckConstraint(
                condition=Q(event_types=[EVERY_TYPE]) | ~Q(event_types__contains=[EVERY_TYPE]),
                name="endpoint_every_type_alone",
            ),
            models.CheckConstraint(
                condition=Q(disabled_at=None, disabled_reason="")
                | (Q(disabled_at__isnull=False) & ~Q(disabled_reason="")),
                name="endpoint_disabled_with_reason",
            ),
            models.CheckConstraint(
                condition=Q(retired_at=None) | Q(disabled_at__isnull=False), name="endpoint_retired_is_disabled"
            ),
            models.CheckConstraint(
                condition=Q(circuit_step=0, open_until=None) | Q(circuit_step__gt=0, open_until__isnull=False),
                name="endpoint_circuit",
            ),
            models.CheckConstraint(condition=Q(concurrency__range=(1, IN_FLIGHT)), name="endpoint_concurrency"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant}: {self.name}"

    def clean(self) -> None:
        super().clean()
        errors: dict[str, str] = {}
        if self.url.startswith("http:") and not settings.WEBHOOK_ALLOW_HTTP:
            errors["url"] = "Use https: plain http would show every event to whoever listens on the way."
        if EVERY_TYPE in (self.event_types or []) and len(self.event_types) > 1:
            errors["event_types"] = "* already names every type: leave the others out."
        unknown = sorted(set(self.event_types or []) - EVENT_TYPES.keys() - {EVERY_TYPE})
        if unknown:
            errors["event_types"] = f"No such event: {', '.join(unknown)}. There are {', '.join(EVENT_TYPES)}."
        if errors:
            raise ValidationError(errors)


class EndpointSecretQuerySet(models.QuerySet["EndpointSecret"]):
    def live(self) -> "EndpointSecretQuerySet":
        """What signs now, the newest first."""
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=Now()), revoked_at=None).order_by("-id")


class EndpointSecret(models.Model):
    """A signing key: 32 random bytes, shown once, kept sealed (`base.vault`)."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="secrets")
    key_encrypted = models.BinaryField()
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = EndpointSecretQuerySet.as_manager()

    def __str__(self) -> str:
        return f"secret {self.pk} of {self.endpoint}"


class Delivery(models.Model):
    """One event on its way to one endpoint. Of each (endpoint, lane) only the head, the lowest open one, is ever due.

    A redelivery that a person asked for is a row of its own, in a later round and in no lane: it neither waits nor is
    waited for. Bulk rows: a foreign key that the database checks would take a tenth of an emit's time, and events are
    never deleted.
    """

    class State(models.TextChoices):
        PENDING = "pending"  # waits for its turn, or for its next attempt
        DELIVERED = "delivered"  # the endpoint answered 2xx
        DEAD = "dead"  # every attempt failed: a person's turn
        CANCELLED = "cancelled"  # not owed any more, as its reason says

    event = models.ForeignKey(
        OutboxEvent, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="deliveries"
    )
    endpoint = models.ForeignKey(
        Endpoint, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="deliveries"
    )
    tenant = models.CharField(max_length=63)
    round = models.PositiveIntegerField(default=0, help_text="0: owed since the event; else the redelivery's number.")
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, db_constraint=False, db_index=False,
        related_name="+",
    )  # fmt: skip
    lane = models.ForeignKey(
        Lane, null=True, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    sequence = models.BigIntegerField()
    detailed = models.BooleanField(
        db_default=False, help_text="The endpoint asked for object keys when the event was written: it gets that body."
    )
    state = models.CharField(max_length=9, choices=State, default=State.PENDING)
    due_at = DueField(help_text="Empty: it waits behind an earlier event of its subject.")
    attempts = models.PositiveIntegerField(default=0)
    lease_token = models.BigIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    last_status = models.PositiveSmallIntegerField(null=True, blank=True)
    last_class = models.CharField(max_length=32, blank=True)
    last_error = models.CharField(max_length=ERROR_LIMIT, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    cancel_reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "deliveries"
        constraints = [
            models.UniqueConstraint(fields=["event", "endpoint", "round"], name="delivery_once"),
            models.CheckConstraint(
                condition=Q(round=0, lane__isnull=False, requested_by=None)
                | Q(round__gt=0, lane=None, requested_by__isnull=False),
                name="delivery_round",
            ),
            # Also how a lane's head is found.
            models.UniqueConstraint(
                fields=["endpoint", "lane", "sequence"], condition=Q(state="pending"), name="delivery_open"
            ),
            models.CheckConstraint(
                condition=Q(state="pending", finished_at=None)
                | Q(state__in=["delivered", "dead", "cancelled"], finished_at__isnull=False),
                name="delivery_finished",
            ),
            models.CheckConstraint(
                condition=(Q(state="cancelled") & ~Q(cancel_reason="")) | (~Q(state="cancelled") & Q(cancel_reason="")),
                name="delivery_cancelled_with_reason",
            ),
        ]
        indexes = [
            # The claim: an endpoint's due heads, oldest first. Lease columns are in no index, so that a claim stays HOT.
            models.Index(fields=["endpoint", "due_at", "id"], condition=Q(state="pending"), name="delivery_due"),
            # The list of whoever sees some tenants alone.
            models.Index(fields=["tenant", "-id"], name="delivery_by_tenant"),
            # The lists of each, and what waits for a person: of some tenants, too, without a look at the others' rows.
            models.Index(
                fields=["state", "-id", "tenant"],
                condition=Q(state__in=["dead", "cancelled"]),
                name="delivery_given_up",
            ),
            # Of each tenant, the event that is owed for the longest (vitals).
            models.Index(fields=["tenant", "id"], condition=Q(state="pending"), name="delivery_owed"),
        ]

    def __str__(self) -> str:
        return f"delivery {self.pk}"


class Exchange(models.Model):
    """One POST: written before it is sent, finished once. One that stays unfinished is what a crash leaves behind."""

    started_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)
    url = models.CharField("URL", max_length=2000, help_text="As it was then, without its query.")
    key_ids = ArrayField(
        models.BigIntegerField(), default=list, help_text="The secrets that signed it, the newest first."
    )
    peer = models.CharField(max_length=45, blank=True, help_text="The address that was connected to.")
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    failure_class = models.CharField(max_length=32, blank=True)
    error = models.CharField(max_length=ERROR_LIMIT, blank=True)
    headers = models.JSONField(null=True, blank=True, help_text="Of the answer; a few, as they may help.")
    response = models.BinaryField(max_length=RESPONSE_LIMIT, null=True, blank=True)
    bytes_read = models.PositiveIntegerField(null=True, blank=True)
    truncated = models.BooleanField(null=True, help_text="The body went on.")
    reused = models.BooleanField(null=True, help_text="Sent over a connection that was open already.")
    resent = models.BooleanField(null=True, help_text="That connection was dead, so it was sent again on a new one.")
    dns_ms = models.PositiveIntegerField(null=True, blank=True)
    connect_ms = models.PositiveIntegerField(null=True, blank=True)
    tls_ms = models.PositiveIntegerField(null=True, blank=True)
    first_byte_ms = models.PositiveIntegerField(null=True, blank=True, help_text="From the request to the status line.")
    milliseconds = models.PositiveIntegerField(null=True, blank=True, help_text="In all.")

    class Meta:
        abstract = True
        constraints = [
            models.CheckConstraint(
                condition=LessThanOrEqual(
                    Func(F("response"), function="octet_length", output_field=models.IntegerField()), RESPONSE_LIMIT
                ),
                name="%(class)s_response_limit",
            ),
            models.CheckConstraint(
                condition=Q(finished_at=None, status=None, failure_class="", error="", response=None, milliseconds=None)
                | Q(finished_at__isnull=False, milliseconds__isnull=False),
                name="%(class)s_finished_whole",
            ),
        ]


class DeliveryAttempt(Exchange):
    """One attempt of a delivery. `is_probe`: the circuit was open, and this one asked whether it can close."""

    delivery = models.ForeignKey(Delivery, on_delete=models.PROTECT, db_index=False, related_name="attempt_rows")
    endpoint = models.ForeignKey(
        Endpoint, on_delete=models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    )
    number = models.PositiveIntegerField()
    token = models.BigIntegerField()
    is_probe = models.BooleanField(default=False)

    class Meta(Exchange.Meta):
        ordering = ["-id"]
        verbose_name = "delivery attempt"
        constraints = [
            models.UniqueConstraint(fields=["delivery", "token"], name="attempt_token"),
            *Exchange.Meta.constraints,
        ]
        indexes = [
            # What an endpoint has in flight: started, not finished, within the lease.
            models.Index(fields=["endpoint", "started_at"], condition=Q(finished_at=None), name="attempt_in_flight"),
            # What an endpoint answered last, from which its health is judged.
            models.Index(
                fields=["endpoint", "-finished_at"], condition=Q(finished_at__isnull=False), name="attempt_answers"
            ),
            # What failed in one way, lately.
            models.Index(
                fields=["failure_class", "-finished_at", "-id"], condition=~Q(failure_class=""), name="attempt_failed"
            ),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} of delivery {self.delivery_id}"


class Ping(Exchange):
    """A signed `endpoint.ping` that a person sent: without a 2xx to one, no endpoint is enabled. It is no event of a lane."""

    endpoint = models.ForeignKey(Endpoint, on_delete=models.PROTECT, related_name="pings")
    event_id = models.CharField(max_length=64, db_collation="C")
    sent_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")

    class Meta(Exchange.Meta):
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["event_id"], name="ping_event_id_unique"),
            *Exchange.Meta.constraints,
        ]

    def __str__(self) -> str:
        return f"ping {self.pk} of {self.endpoint}"
