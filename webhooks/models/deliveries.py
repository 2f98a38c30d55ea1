"""What endpoints are owed, and every attempt to deliver it; pings beside them."""

from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Now
from django.db.models.lookups import LessThanOrEqual

from webhooks.models.endpoints import Endpoint
from webhooks.models.events import Lane, OutboxEvent

ERROR_LIMIT = 500
RESPONSE_LIMIT = 4096


class DueField(models.DateTimeField[Any, Any]):
    """A time at which work is due; `infinity` in the database is None in Python, whose times end with the year 9999."""

    def select_format(self, compiler: Any, sql: str, params: Any) -> tuple[str, Any]:
        return f"nullif({sql}, 'infinity'::timestamptz)", params


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
