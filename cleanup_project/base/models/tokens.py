"""Tokens of the API, and how much they ask for."""

from datetime import timedelta
from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from cleanup_project.base.models.people import User
from cleanup_project.base.scopes import SCOPES

LONGEST_TOKEN: Final = 366  # days


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
