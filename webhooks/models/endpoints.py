"""Endpoints: which events they subscribe to, how they fare, and the secrets that sign for them."""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from webhooks.eventtypes import EVENT_TYPES
from webhooks.limits import IN_FLIGHT

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
