"""What is known about one observed version beyond the observation: the bucket's key rules, and what an import stated."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Self

from retention.exceptions import RetentionError
from retention.models import Bucket, KeyRule, Role
from retention.rules import CompiledRule, RuleError, compile_rule, default_facts, short_asset

MAX_KEY_BYTES: Final = 1024  # AWS, "Creating object key names"
MAX_CLASS: Final = 200
MAX_SIZE: Final = 2**63 - 1
NULL_VERSION: Final = "null"


class Unrecordable(ValueError):
    """An observation that the catalogue cannot hold; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Stated:
    """Facts that a source states outright; None where it is silent and the bucket's rule decides."""

    tenant_id: int | None = None
    asset: str | None = None
    series: str | None = None
    retention_class: str | None = None
    role: str | None = None
    original_key: str | None = None
    original_version_id: str | None = None
    dated_at: datetime | None = None


SILENT: Final = Stated()


@dataclass(frozen=True, slots=True)
class Observation:
    """One version or delete marker as a source showed it. `is_latest` is None where the source does not say.

    The ETag is without quotes, `size` in bytes, `stored_at` an aware datetime.
    """

    key: str
    version_id: str
    etag: str
    size: int
    stored_at: datetime
    is_latest: bool | None
    is_delete_marker: bool
    storage_class: str = ""
    stated: Stated = SILENT


@dataclass(frozen=True, slots=True)
class Facts:
    """Whose an object is, what it is, and when its clock starts. `stated` names the groups that an import stated."""

    tenant_id: int | None
    asset: str
    series: str
    retention_class: str
    role: str
    original_bucket_id: int | None
    original_key: str
    original_version_id: str
    dated_at: datetime | None
    stated: list[str] = field(default_factory=list)


class BucketRules:
    """The key rules of one bucket, compiled. Raises RetentionError for a saved rule that cannot work."""

    def __init__(self, bucket: Bucket, rules: Sequence[KeyRule]) -> None:
        self._bucket_id = bucket.pk
        self._rules: list[tuple[CompiledRule, KeyRule]] = []
        for rule in rules:
            try:
                self._rules.append((compile_rule(rule), rule))
            except RuleError as error:
                raise RetentionError(f"Key rule {rule} cannot be used: {error}") from error

    @classmethod
    def of(cls, bucket: Bucket) -> Self:
        return cls(bucket, list(bucket.key_rules.order_by("position")))

    def facts(self, key: str) -> Facts:
        """What the first matching rule says; without a match, the key alone and no tenant: unscheduled."""
        for compiled, rule in self._rules:
            found = compiled.match(key)
            if found is None:
                continue
            original_bucket_id = rule.original_bucket_id or self._bucket_id
            # Its own original: nothing could ever judge it.
            own = (original_bucket_id, found.original_key) == (self._bucket_id, key)
            derivative = rule.role == Role.DERIVATIVE and not own
            return Facts(
                tenant_id=rule.tenant_id,
                asset=found.asset,
                series=found.series,
                retention_class=found.retention_class,
                role=Role.DERIVATIVE if derivative else Role.ORIGINAL,
                original_bucket_id=original_bucket_id if derivative else None,
                original_key=found.original_key if derivative else "",
                original_version_id="",
                dated_at=found.dated_at,
            )
        plain = default_facts(key)
        return Facts(None, plain.asset, plain.series, "", Role.ORIGINAL, None, "", "", None)

    def of_observation(self, seen: Observation) -> Facts:
        """The facts of an observation, what it states included. Raises Unrecordable."""
        check(seen)
        facts = with_stated(self.facts(seen.key), seen, self._bucket_id)
        if len(facts.retention_class) > MAX_CLASS:
            raise Unrecordable(f"its retention class has {len(facts.retention_class)} characters; at most {MAX_CLASS}")
        for name in ("series", "retention_class", "original_key", "original_version_id"):
            check_text(name, getattr(facts, name))
        if (facts.original_bucket_id, facts.original_key) == (self._bucket_id, seen.key):
            raise Unrecordable("it names itself as its original")
        return facts


def check(seen: Observation) -> None:
    """Refuse what no exact command could be made of. Raises Unrecordable."""
    if not seen.key:
        raise Unrecordable("the key is empty")
    if not seen.version_id:
        raise Unrecordable("the version id is empty; the version of an unversioned object is called null")
    for name in ("key", "version_id", "etag", "storage_class"):
        check_text(name, getattr(seen, name))
    if len(seen.storage_class) > 32:
        raise Unrecordable("the storage class is longer than 32 characters")
    if not 0 <= seen.size <= MAX_SIZE:
        raise Unrecordable(f"the size is {seen.size}; it must be from 0 to {MAX_SIZE} bytes")


def check_text(name: str, value: str) -> None:
    """Refuse text that PostgreSQL or an index cannot hold. Raises Unrecordable."""
    if "\x00" in value:
        raise Unrecordable(f"the {name} contains NUL, which the catalogue cannot hold")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Unrecordable(f"the {name} is not UTF-8 text") from None
    if size > MAX_KEY_BYTES:
        raise Unrecordable(f"the {name} has {size} bytes; at most {MAX_KEY_BYTES}")


def with_stated(facts: Facts, seen: Observation, bucket_id: int) -> Facts:
    """The rule's facts, replaced by what the observation states. Raises Unrecordable where that contradicts itself."""
    stated, names = seen.stated, list[str]()
    if stated is SILENT:
        return facts
    if stated.tenant_id is not None:
        facts, names = replace(facts, tenant_id=stated.tenant_id), [*names, "tenant"]
    if stated.asset is not None:
        check_text("asset", stated.asset)
        asset = short_asset(stated.asset)
        if facts.series == facts.asset and stated.series is None:
            facts, names = replace(facts, series=asset), [*names, "series"]
        facts, names = replace(facts, asset=asset), [*names, "asset"]
    if stated.series is not None:
        facts, names = replace(facts, series=stated.series), [*names, "series"]
    if stated.retention_class is not None:
        facts, names = replace(facts, retention_class=stated.retention_class), [*names, "retention_class"]
    if stated.dated_at is not None:
        facts, names = replace(facts, dated_at=stated.dated_at), [*names, "dated_at"]
    if stated.role is not None or stated.original_key is not None or stated.original_version_id is not None:
        facts, names = with_coupling(facts, stated, bucket_id), [*names, "coupling"]
    return replace(facts, stated=names)


def with_coupling(facts: Facts, stated: Stated, bucket_id: int) -> Facts:
    """Role and original, which only make sense together. Raises Unrecordable."""
    role = facts.role if stated.role is None else stated.role
    if role == Role.ORIGINAL:
        if stated.original_key is not None or stated.original_version_id is not None:
            raise Unrecordable("it names an original, so its role must be derivative")
        return replace(facts, role=role, original_bucket_id=None, original_key="", original_version_id="")
    original_key = facts.original_key if stated.original_key is None else stated.original_key
    if not original_key:
        raise Unrecordable("a derivative needs original_key, the key of its original")
    return replace(
        facts,
        role=role,
        original_bucket_id=facts.original_bucket_id or bucket_id,
        original_key=original_key,
        original_version_id=stated.original_version_id or "",
    )


def incarnation(version_id: str, etag: str, stored_at: datetime) -> str:
    """'' for a real version id. For `null`, which is replaced in place: 32 hex digits of its ETag and LastModified.

    LastModified counts in whole seconds: an answer to HEAD has no more, and listings of some stores do.
    """
    if version_id != NULL_VERSION:
        return ""
    second = stored_at.astimezone(UTC).replace(microsecond=0).isoformat()
    return sha256(f"{etag}\n{second}".encode()).hexdigest()[:32]
