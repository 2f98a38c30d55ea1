"""The catalogue: whose objects there are, where they are, and each exact version as we last observed it."""

from typing import TypeVar

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Length, Now
from django.db.models.lookups import LessThanOrEqual

CODE = RegexValidator(r"\A[a-z0-9][a-z0-9-]{0,62}\Z", "Use 1 to 63 lower-case letters, digits and hyphens.")
ENDPOINT = RegexValidator(r"\Ahttps?://[^/?#\s]+\Z", "Write https://host or https://host:port, without a path.")


class Tenant(models.Model):
    """Whose records these are. Every row that is listed, claimed or exported names its tenant."""

    code = models.CharField(max_length=63, unique=True, validators=[CODE])
    name = models.CharField(max_length=200)
    shortening_delay_hours = models.PositiveIntegerField(
        default=24,
        help_text="How long after its publication a revision comes into force by which anything may become eligible earlier.",
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["code"]

    def __str__(self) -> str:
        return self.code

    @property
    def owner(self) -> str:
        return self.code


class Bucket(models.Model):
    """One bucket of an S3-compatible store. Credentials are named by profile and never stored here."""

    class Addressing(models.TextChoices):
        PATH = "path"
        VIRTUAL = "virtual"
        AUTO = "auto"

    class Versioning(models.TextChoices):
        UNKNOWN = "unknown"
        ENABLED = "enabled"
        SUSPENDED = "suspended"
        UNVERSIONED = "unversioned"

    name = models.CharField(max_length=255)
    endpoint_url = models.CharField(
        blank=True, max_length=255, validators=[ENDPOINT], help_text="Empty for Amazon S3; else the store's base URL."
    )
    region = models.CharField(max_length=64, default="us-east-1")
    addressing_style = models.CharField(max_length=7, choices=Addressing, default=Addressing.AUTO)
    credential_profile = models.CharField(
        max_length=128,
        blank=True,
        help_text="Profile in the AWS configuration of the workers; empty for their default.",
    )
    keys_per_second = models.PositiveIntegerField(
        default=1000,
        validators=[MinValueValidator(1)],
        help_text="Deletions a second at the most; each key counts as one.",
    )
    settle_seconds = models.PositiveIntegerField(
        default=60, help_text="How long the store may go on executing a request that we lost sight of."
    )
    breaker_percent = models.PositiveSmallIntegerField(
        default=50, null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(99)],
        help_text="Where more than this share fails within five minutes, the bucket is stopped; empty: it never is.",
    )  # fmt: skip
    catalogue_max_age_hours = models.PositiveIntegerField(
        "oldest catalogue",
        null=True,
        blank=True,
        default=48,
        validators=[MinValueValidator(1)],
        help_text="Hours since the catalogue was last brought up to date, above which nothing is destroyed; empty: never "
        "mind.",
    )
    shrink_percent = models.PositiveSmallIntegerField(
        "greatest loss",
        null=True,
        blank=True,
        default=20,
        validators=[MinValueValidator(1), MaxValueValidator(100)],
        help_text="Percent of its versions that one listing may show fewer than the one before, our own deletions apart, "
        "before nothing is destroyed any more; empty: never mind.",
    )
    sync_every_hours = models.PositiveSmallIntegerField(
        default=24,
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="The worker lists the whole bucket again after so many hours; empty: only when somebody starts it.",
    )
    versioning = models.CharField(
        max_length=11, choices=Versioning, default=Versioning.UNKNOWN, editable=False, help_text="As observed."
    )
    object_lock = models.BooleanField(null=True, editable=False, help_text="As observed.")
    observed_at = models.DateTimeField(null=True, editable=False)
    lifecycle_observed_at = models.DateTimeField(null=True, editable=False)
    lifecycle_trouble = models.TextField(
        blank=True, default="", db_default="", editable=False, help_text="Why its lifecycle rules are not known."
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["endpoint_url", "name"], name="bucket_unique"),
            models.CheckConstraint(condition=Q(keys_per_second__gte=1), name="bucket_rate_positive"),
            models.CheckConstraint(
                condition=Q(sync_every_hours=None) | Q(sync_every_hours__gte=1), name="bucket_sync_interval"
            ),
            models.CheckConstraint(
                condition=Q(breaker_percent=None) | Q(breaker_percent__range=(1, 99)), name="bucket_breaker"
            ),
            models.CheckConstraint(
                condition=(Q(catalogue_max_age_hours=None) | Q(catalogue_max_age_hours__gte=1))
                & (Q(shrink_percent=None) | Q(shrink_percent__range=(1, 100))),
                name="bucket_limits",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    ORIGINAL = "original"
    DERIVATIVE = "derivative"


class KeyRule(models.Model):
    """Maps keys of one bucket to tenant, asset, role, original, series, retention class and date; first match wins.

    `retention.rules` explains the pattern language and refuses what it cannot compile.
    """

    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, related_name="key_rules")
    position = models.PositiveIntegerField(help_text="Rules are tried in ascending order; the first match wins.")
    pattern = models.CharField(
        max_length=1024,
        db_collation="C",
        help_text="For example originals/{year}/{month}/{day}/{asset}.mp4; {_} matches anything but /, {name*} also /.",
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    role = models.CharField(max_length=10, choices=Role, default=Role.ORIGINAL)
    asset = models.CharField(max_length=1024, blank=True, help_text="Template; empty: {asset}, else the key itself.")
    series = models.CharField(max_length=1024, blank=True, help_text="Template; empty: the asset.")
    retention_class = models.CharField(max_length=200, blank=True, help_text="Template, for example video or {class}.")
    original_key = models.CharField(
        max_length=1024, blank=True, help_text="Derivatives only: template of the original's key."
    )
    original_bucket = models.ForeignKey(
        Bucket, on_delete=models.PROTECT, null=True, blank=True, related_name="+", help_text="Empty: the same bucket."
    )

    class Meta:
        ordering = ["bucket", "position"]
        constraints = [models.UniqueConstraint(fields=["bucket", "position"], name="key_rule_position")]

    def __str__(self) -> str:
        return f"{self.bucket} {self.position}: {self.pattern}"

    def clean(self) -> None:
        from retention.rules import RuleError, compile_rule

        try:
            compile_rule(self)
        except RuleError as error:
            raise ValidationError({error.field: str(error)}) from error


Row = TypeVar("Row", bound="ObjectVersion")


class ObjectVersionQuerySet(models.QuerySet[Row]):
    def present(self) -> "ObjectVersionQuerySet[Row]":
        return self.filter(gone_at=None)

    def with_key(self, key: str) -> "ObjectVersionQuerySet[Row]":
        """Every version under exactly this key, in any bucket; read through the identity index."""
        buckets = list(Bucket.objects.values_list("pk", flat=True))
        return self.filter(bucket_id__in=buckets, key=key)


class ObjectVersion(models.Model):
    """One exact version of one object, or one delete marker, as last observed.

    Unique on (bucket, key, version id, incarnation). `incarnation` is empty for a real version id; a `null` version is
    mutable, so it carries a digest of its ETag and LastModified instead.
    """

    class Source(models.TextChoices):
        LISTING = "listing"
        IMPORT = "import"
        INVENTORY = "inventory"

    class Gone(models.TextChoices):
        PRESENT = "", "present"
        VANISHED = "vanished", "vanished outside of us"
        DESTROYED = "destroyed", "destroyed by us"

    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, db_index=False)
    key = models.TextField(db_collation="C")
    version_id = models.TextField(db_collation="C")
    incarnation = models.CharField(max_length=32, db_collation="C", blank=True)
    etag = models.TextField(blank=True, help_text="Without quotes.")
    size = models.BigIntegerField(help_text="Bytes.")
    stored_at = models.DateTimeField(help_text="LastModified; a copy resets it.")
    storage_class = models.CharField(max_length=32, blank=True)
    is_latest = models.BooleanField()
    is_delete_marker = models.BooleanField()

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, blank=True, db_index=False)
    asset = models.TextField(db_collation="C")
    series = models.TextField(db_collation="C")
    retention_class = models.CharField(max_length=200, db_collation="C", blank=True)
    role = models.CharField(max_length=10, choices=Role)
    original_bucket = models.ForeignKey(
        Bucket, on_delete=models.PROTECT, null=True, blank=True, related_name="+", db_index=False
    )
    original_key = models.TextField(db_collation="C", blank=True)
    original_version_id = models.TextField(db_collation="C", blank=True, help_text="Empty: found by its time.")
    standalone = models.BooleanField(help_text="Judged on its own: an original, or a derivative without one.")
    dated_at = models.DateTimeField(null=True, blank=True, help_text="The date that its key or an import states.")
    stated = ArrayField(
        models.CharField(max_length=15),
        default=list,
        db_default=[],
        blank=True,
        help_text="Facts that an import stated, so that a listing leaves them.",
    )

    source = models.CharField(max_length=9, choices=Source)
    first_observed_at = models.DateTimeField()
    observed_at = models.DateTimeField(help_text="The time before the request was sent that showed it.")
    listed_at = models.DateTimeField(null=True, blank=True, help_text="Last shown by a listing of our own.")
    gone_at = models.DateTimeField(null=True, blank=True)
    gone_reason = models.CharField(max_length=9, choices=Gone, blank=True)
    survived_at = models.DateTimeField(
        null=True, blank=True, help_text="A later listing still showed it after its end."
    )
    parked_by = models.ForeignKey(
        "retention.LegalHold",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_index=False,
        help_text="A hold that covers it, so that scans need not read it again; the hold itself is the truth.",
    )

    objects = ObjectVersionQuerySet.as_manager()

    class Meta:
        verbose_name = "object version"
        constraints = [
            models.UniqueConstraint(
                fields=["bucket", "key", "version_id", "incarnation"], name="object_version_identity"
            ),
            models.CheckConstraint(condition=~Q(key="") & ~Q(version_id=""), name="object_version_named"),
            # As in a command key: printable ASCII without blank, % and : (retention/rules.py, short_asset). Its length apart:
            # {1,200} would have two hundred states built for each row, at each update of it.
            models.CheckConstraint(
                condition=Q(LessThanOrEqual(Length("asset"), 200), asset__regex=r"^[!-$&-9;-~]+$"),
                name="object_version_asset",
            ),
            models.CheckConstraint(
                condition=Q(gone_at=None, gone_reason="") | (Q(gone_at__isnull=False) & ~Q(gone_reason="")),
                name="object_version_gone",
            ),
            models.CheckConstraint(
                condition=Q(role=Role.ORIGINAL, original_key="", standalone=True)
                | (Q(role=Role.DERIVATIVE) & ~Q(original_key="") & Q(original_bucket__isnull=False)),
                name="object_version_coupled",
            ),
            models.CheckConstraint(condition=Q(size__gte=0), name="object_version_size"),
        ]
        indexes = [
            # Scans by LastModified, by stated date, and of delete markers (retention/scan.py).
            models.Index(
                fields=["tenant", "bucket", "retention_class", "stored_at", "id"],
                condition=Q(gone_at=None, standalone=True, parked_by=None, is_delete_marker=False),
                name="scan_by_stored_at",
            ),
            models.Index(
                fields=["tenant", "bucket", "retention_class", "dated_at", "id"],
                condition=Q(
                    gone_at=None, standalone=True, parked_by=None, is_delete_marker=False, dated_at__isnull=False
                ),
                name="scan_by_dated_at",
            ),
            models.Index(
                fields=["tenant", "bucket", "retention_class", "stored_at", "id"],
                condition=Q(gone_at=None, standalone=True, parked_by=None, is_delete_marker=True),
                name="scan_markers",
            ),
            # Coupling: the derivatives of an original.
            models.Index(
                fields=["original_bucket", "original_key"],
                condition=Q(role=Role.DERIVATIVE, gone_at=None),
                name="derivatives_of",
            ),
            # Urgent erasure names assets.
            models.Index(fields=["tenant", "asset"], condition=Q(gone_at=None), name="versions_of_asset"),
            # keep_newest: the generations of a series.
            models.Index(
                fields=["tenant", "series"],
                condition=Q(gone_at=None, standalone=True, is_delete_marker=False),
                name="generations_of",
            ),
            # What was destroyed since an event was posted (retention/events.py).
            models.Index(fields=["tenant", "gone_at"], condition=Q(gone_reason="destroyed"), name="destroyed_since"),
            # The list of whoever sees some tenants alone; and whether anything of a tenant was ever in a bucket.
            models.Index(fields=["tenant", "bucket", "id"], name="versions_of_tenant"),
            # What a released hold had parked.
            models.Index(fields=["parked_by", "id"], condition=Q(parked_by__isnull=False), name="parked"),
            # The classes of what is parked, which the plan of a run counts in.
            models.Index(
                fields=["tenant", "bucket", "retention_class"],
                condition=Q(parked_by__isnull=False),
                name="classes_parked",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key} @ {self.version_id}"


class CatalogueSync(models.Model):
    """One pass over a bucket's listing, which can be resumed, or over a file that was imported whole.

    The evidence that the catalogue is fresh: as of `started_at`, which for a file is when its rows were true.
    """

    bucket = models.ForeignKey(Bucket, on_delete=models.PROTECT, related_name="syncs")
    prefix = models.TextField(db_collation="C", blank=True)
    source = models.CharField(
        max_length=9, choices=ObjectVersion.Source, default=ObjectVersion.Source.LISTING, db_default="listing"
    )
    started_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True, blank=True)
    after_key = models.TextField(db_collation="C", blank=True, help_text="Every version up to this key is recorded.")
    pages = models.PositiveIntegerField(default=0)
    versions = models.PositiveBigIntegerField(default=0, help_text="Versions and delete markers listed.")
    refused = models.PositiveBigIntegerField(default=0, help_text="Keys that cannot be recorded, each one logged.")
    vanished = models.PositiveBigIntegerField(default=0, help_text="Present before, not listed now.")
    vanished_held = models.PositiveBigIntegerField(default=0, help_text="Of these, under a legal hold in force.")
    vanished_retained = models.PositiveBigIntegerField(default=0, help_text="Of these, still retained by a policy.")
    survived = models.PositiveBigIntegerField(default=0, help_text="Destroyed by us, yet listed later.")

    class Meta:
        verbose_name = "catalogue sync"
        ordering = ["-id"]
        indexes = [models.Index(fields=["bucket", "-id"], name="sync_by_bucket")]

    def __str__(self) -> str:
        return f"{self.bucket} {self.started_at:%Y-%m-%d %H:%M:%S} UTC"
