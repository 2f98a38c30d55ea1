"""What may change under a worker's feet: one number that it reads before each request, and the stop switches."""

from collections.abc import Collection

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from retention.models.catalogue import Bucket, Tenant
from retention.models.policy import RetentionPolicy

STOPPED_ALREADY = "It is stopped already: its switch stands on top of every page."


class Control(models.Model):
    """One row a tenant. `epoch` rises with every hold, stop, suspension, publication, cancelled or paused run."""

    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, primary_key=True, related_name="control")
    epoch = models.BigIntegerField(default=0, db_default=0)

    def __str__(self) -> str:
        return f"{self.tenant}: epoch {self.epoch}"


class StopSwitchQuerySet(models.QuerySet["StopSwitch"]):
    def active(self) -> "StopSwitchQuerySet":
        return self.filter(lifted_at=None)

    def seen_by(self, codes: Collection[str]) -> "StopSwitchQuerySet":
        """Those that stop something of these tenants, theirs alone or not."""
        own = Q(tenant__code__in=codes) | Q(policy__tenant__code__in=codes)
        return self.filter(own | Q(scope__in=[StopSwitch.Scope.EVERYTHING, StopSwitch.Scope.BUCKET]))

    def concerning(self, tenant_id: int, policy_id: int, bucket_ids: Collection[int]) -> "StopSwitchQuerySet":
        """Those that stop a command of this tenant and policy with targets in these buckets."""
        named = Q(tenant=tenant_id) | Q(policy=policy_id) | Q(bucket__in=bucket_ids)
        return self.filter(Q(scope=StopSwitch.Scope.EVERYTHING) | named)


class StopSwitch(models.Model):
    """One pressing of the stop switch: until it is lifted, no request is sent for what it names.

    Pressed by a person, or by the system itself, which is the circuit breaker of a bucket. Lifted once, by a person.
    """

    class Scope(models.TextChoices):
        EVERYTHING = "everything"
        TENANT = "tenant", "one tenant"
        BUCKET = "bucket", "one bucket"
        POLICY = "policy", "one policy"

    scope = models.CharField(max_length=10, choices=Scope)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    policy = models.ForeignKey(RetentionPolicy, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    reason = models.TextField(help_text="Kept for ever, and shown on every page until it is lifted.")
    pressed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    pressed_at = models.DateTimeField(db_default=Now(), editable=False)
    lifted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    lifted_at = models.DateTimeField(null=True, blank=True)
    lift_reason = models.TextField(blank=True, default="", db_default="")

    objects = StopSwitchQuerySet.as_manager()

    class Meta:
        verbose_name = "stop switch"
        verbose_name_plural = "stop switches"
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(scope="everything", tenant=None, bucket=None, policy=None)
                | Q(scope="tenant", tenant__isnull=False, bucket=None, policy=None)
                | Q(scope="bucket", tenant=None, bucket__isnull=False, policy=None)
                | Q(scope="policy", tenant=None, bucket=None, policy__isnull=False),
                name="stop_names_its_scope",
            ),
            # Also the index by which the switches that are on are found, which are few among those that were.
            models.UniqueConstraint(
                fields=["scope", "tenant", "bucket", "policy"], condition=Q(lifted_at=None), nulls_distinct=False,
                name="stop_once", violation_error_message=STOPPED_ALREADY,
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="stop_explained"),
            models.CheckConstraint(
                condition=Q(lifted_at=None, lifted_by=None, lift_reason="")
                | Q(lifted_at__isnull=False, lifted_by__isnull=False, lifted_at__gte=F("pressed_at")) & ~Q(lift_reason=""),
                name="stop_lifted_by_somebody",
            ),
        ]  # fmt: skip

    def __str__(self) -> str:
        if self.scope == self.Scope.EVERYTHING:
            return "everything"
        return f"{self.scope} {self.tenant or self.bucket or self.policy}"

    @property
    def owner(self) -> Tenant | None:
        """Whose alone it stops; everything and a bucket are nobody's alone."""
        return self.policy.tenant if self.policy else self.tenant

    def clean(self) -> None:
        errors: dict[str, str] = {}
        for scope in ("tenant", "bucket", "policy"):
            if scope == self.scope and getattr(self, scope) is None:
                errors[scope] = f"Name the {scope} to stop."
            if scope != self.scope and getattr(self, scope) is not None:
                errors[scope] = f'Leave this empty, or choose "one {scope}" as the scope.'
        if self.reason and not self.reason.strip():  # an empty one is refused by its field
            errors["reason"] = "State a reason for stopping."
        if errors:
            raise ValidationError(errors)
