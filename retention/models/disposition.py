"""What people decided about single object versions, whatever the policies say."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from retention.models.catalogue import ObjectVersion, Tenant


class DispositionQuerySet(models.QuerySet["Disposition"]):
    def in_force(self) -> "DispositionQuerySet":
        """Exemptions and extensions that nobody has ended. A reclassification acts once, on the catalogue's row."""
        return self.filter(ended_at=None).exclude(kind=Disposition.Kind.RECLASSIFY)


class Disposition(models.Model):
    """One decision about one object version. An exemption or extension can be ended, once; the row stays for ever."""

    class Kind(models.TextChoices):
        EXEMPT = "exempt", "exempt from destruction"
        EXTEND = "extend", "kept longer"
        RECLASSIFY = "reclassify", "put into another class"

    object_version = models.ForeignKey(ObjectVersion, on_delete=models.PROTECT, related_name="dispositions")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    kind = models.CharField(max_length=10, choices=Kind)
    until = models.DateTimeField(null=True, blank=True, help_text="Extended: not eligible before.")
    former_class = models.CharField(max_length=200, blank=True, help_text="Reclassified: from this class.")
    new_class = models.CharField(max_length=200, blank=True, help_text="Reclassified: to this class.")
    reason = models.TextField()
    by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField(db_default=Now(), editable=False)
    ended_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    ended_at = models.DateTimeField(null=True, blank=True)
    end_reason = models.TextField(blank=True)

    objects = DispositionQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="exempt", until=None, former_class="", new_class="")
                | Q(kind="extend", until__isnull=False, former_class="", new_class="")
                | (Q(kind="reclassify", until=None, ended_at=None) & ~Q(former_class=F("new_class"))),
                name="disposition_of_its_kind",
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="disposition_explained"),
            models.CheckConstraint(
                condition=Q(ended_at=None, ended_by=None, end_reason="")
                | (Q(ended_at__isnull=False, ended_by__isnull=False) & ~Q(end_reason="")),
                name="disposition_ended_whole",
            ),
            models.UniqueConstraint(
                fields=["object_version"], condition=Q(kind="exempt", ended_at=None), name="disposition_exempt_once"
            ),
        ]
        indexes = [
            # The list: those in force, or those of one kind.
            models.Index(
                fields=["-id"], condition=Q(ended_at=None) & ~Q(kind="reclassify"), name="dispositions_in_force"
            ),
            models.Index(fields=["kind", "-id"], name="dispositions_by_kind"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.object_version}"
