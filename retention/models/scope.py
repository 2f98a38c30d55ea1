"""The scope grammar that policies and holds share: OR inside a dimension, AND across."""

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import Q

from retention.models.catalogue import Bucket, Tenant

ANY_CLASS = "*"


class Scoped(models.Model):
    """Exactly one tenant, at least one bucket, byte prefixes without globs, retention classes.

    An empty list never means "all": the empty prefix names a whole bucket, and the class `*` names every class.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    bucket_ids = ArrayField(models.BigIntegerField(), verbose_name="buckets")
    prefixes = ArrayField(
        models.TextField(blank=True),
        help_text="Key prefixes, as bytes, no globs; the empty prefix is the whole bucket.",
    )
    retention_classes = ArrayField(
        models.CharField(max_length=200, blank=True),
        help_text="Classes; * is any class, the empty one is unclassified.",
    )

    class Meta:
        abstract = True

    def clean(self) -> None:
        super().clean()
        errors: dict[str, str] = {}
        for field in ("bucket_ids", "prefixes", "retention_classes"):
            if not getattr(self, field):
                errors[field] = "Name at least one; an empty list does not mean all."
        known = set(Bucket.objects.filter(pk__in=self.bucket_ids or []).values_list("pk", flat=True))
        unknown = [str(pk) for pk in self.bucket_ids or [] if pk not in known]
        if unknown:
            errors["bucket_ids"] = f"No bucket has the id {', '.join(unknown)}."
        if any("\x00" in prefix for prefix in self.prefixes or []):
            errors["prefixes"] = "A key cannot hold NUL, so no prefix may."
        if ANY_CLASS in (self.retention_classes or []) and len(self.retention_classes) > 1:
            errors["retention_classes"] = "* already names every class: leave the others out."
        if errors:
            raise ValidationError(errors)


def scope_constraints(name: str) -> list[models.CheckConstraint]:
    """What the database itself demands of a scope; abstract models cannot share constraint names."""
    return [
        models.CheckConstraint(
            condition=Q(bucket_ids__len__gte=1) & Q(prefixes__len__gte=1) & Q(retention_classes__len__gte=1),
            name=f"{name}_scope_not_empty",
        )
    ]
