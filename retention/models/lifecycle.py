"""The lifecycle rules by which a store deletes by itself, as our syncs saw them."""

from django.db import models
from django.db.models import Q

from retention.models.catalogue import Bucket


class LifecycleRuleQuerySet(models.QuerySet["LifecycleRule"]):
    def current(self) -> "LifecycleRuleQuerySet":
        return self.filter(ended_at=None)


class LifecycleRule(models.Model):
    """One rule of a bucket, from when it was first seen until a sync no longer saw it so. A changed rule is another row."""

    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, related_name="lifecycle_rules")
    rule_id = models.TextField(db_collation="C")
    prefix = models.TextField(db_collation="C", blank=True)
    words = models.TextField(help_text="What it does.")
    data = models.JSONField(help_text="The same for programs (retention.storage.LifecycleRule).")
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    objects = LifecycleRuleQuerySet.as_manager()

    class Meta:
        verbose_name = "lifecycle rule"
        ordering = ["bucket", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["bucket", "rule_id"], condition=Q(ended_at=None), name="lifecycle_rule_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.bucket}: {self.rule_id}"
