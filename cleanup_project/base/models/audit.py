"""The append-only record of who did what."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from cleanup_project.base.models.people import User


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
