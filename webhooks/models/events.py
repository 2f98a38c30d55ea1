"""Events, frozen as they are emitted, and the lanes in which those of one subject stand."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.lookups import LessThanOrEqual

BODY_LIMIT = 64 * 1024


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
