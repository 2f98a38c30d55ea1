"""Each bucket, asked as a run would ask: may we list and look, who else may come in, what does the store do by itself.

Buckets are looked at side by side, one question after the other; a store that does not answer is asked nothing more.
Nothing is written to a bucket and nothing deleted. The one request that could, where a person asked for it, is described
at `probe`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from cleanup_project.base import clock, display
from cleanup_project.operations.doctor import clocks
from cleanup_project.operations.doctor.findings import Finding, fault, not_asked, ok, warning
from retention import buckets, lifecycle
from retention.models import Bucket, Enforcement
from retention.storage import (
    BucketRef,
    Failure,
    FailureClass,
    Inspection,
    LifecycleRule,
    ObjectStore,
    Presence,
    Standing,
    StorageError,
    VersionRef,
    store_for,
)

AT_ONCE: Final = 8
SHOWN: Final = 20  # versions that are listed, of which one is looked at
SECONDS: Final = 30.0  # for a look, and for a probe
PREFIXES: Final = 5  # of one bucket that are probed
PROBE: Final = "cleanup-doctor"
SILENT: Final = frozenset({FailureClass.CREDENTIALS, FailureClass.BUCKET_MISSING, FailureClass.TRANSIENT})
ADVICE: Final = {
    FailureClass.CREDENTIALS: "Correct the credentials of the bucket's profile, its region, or this host's clock.",
    FailureClass.BUCKET_MISSING: "Correct the bucket's name, endpoint or region, or create it at the store.",
    FailureClass.THROTTLED: "Ask again later: the store is busy.",
}
ELSE_ADVICE: Final = "See that this host reaches the store, and ask again."


@dataclass(frozen=True, slots=True)
class Asked:
    """One bucket under examination; `prefixes`: where a deletion is to be probed, none: nowhere."""

    row: Bucket
    name: str
    place: BucketRef
    store: ObjectStore
    prefixes: tuple[str, ...] = ()

    def subject(self, about: str) -> str:
        return f"bucket {self.name}, {about}"


@dataclass(slots=True)
class Seen:
    """What came of it. `there` is a version that was listed; None: there was none, or the store did not say."""

    findings: list[Finding] = field(default_factory=list)
    there: VersionRef | None = None
    versioning: str | None = None
    rules: Sequence[LifecycleRule] | None = None


def examine(
    names: Sequence[str] = (), *, probe: bool = False, stores: Callable[[BucketRef], ObjectStore] = store_for
) -> Iterator[Finding]:
    """The findings of these buckets, `name` or `name@endpoint`; of all, where none is named."""
    for name in names:
        if not chosen([name]):
            known = ", ".join(map(buckets.full_name, chosen([]))) or "none"
            words = f"There is no such bucket here. Known: {known}."
            yield fault(f"bucket {name}", words, "Name one of these, or add it.")
    rows = chosen(names)
    several = {name for name, number in Counter(row.name for row in rows).items() if number > 1}
    asked = []
    for row in rows:
        name = buckets.full_name(row) if row.name in several else row.name
        place, prefixes = buckets.ref(row), tuple(prefixes_of(row)) if probe else ()
        asked.append(Asked(row, name, place, stores(place), prefixes))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for each, seen in zip(asked, pool.map(look, asked), strict=True):
            yield from seen.findings
            if seen.rules is not None:
                yield lifecycle_of(each, seen.versioning, seen.rules)


def chosen(names: Sequence[str]) -> list[Bucket]:
    known = list(Bucket.objects.order_by("name", "endpoint_url"))
    return [row for row in known if {row.name, buckets.full_name(row)} & set(names)] if names else known


def prefixes_of(row: Bucket) -> list[str]:
    """Where runs may destroy: permissions may differ from prefix to prefix. The whole bucket, while that is nowhere."""
    enforced = (
        Enforcement.objects.filter(bucket=row, switched_off_at=None).order_by("prefix").values_list("prefix", flat=True)
    )
    return list(dict.fromkeys(enforced))[:PREFIXES] or [""]


def look(asked: Asked) -> Seen:
    """All the questions, from a thread of its own: no database is asked here."""
    seen = Seen()
    try:
        for question in (listing, state, rules, standing):
            question(asked, seen)
        seen.findings.append(probe(asked))
    except StorageError as error:
        seen.findings.append(refused(asked, "store", error.failure))
    except Exception as error:  # noqa: BLE001 - one bucket never hides the others
        seen.findings.append(broken(asked, error))
    return seen


def broken(asked: Asked, error: Exception) -> Finding:
    words = f"The look broke off: {type(error).__name__}: {' '.join(str(error).split())}"
    return not_asked(asked.subject("store"), words, "Tell whoever maintains this product; nothing was changed.")


def refused(asked: Asked, about: str, failure: Failure, *actions: str) -> Finding:
    """What the store did not let us do, and what would."""
    said = " ".join(f"{failure.code} {failure.message}".split()) or str(failure.kind)
    if failure.kind is FailureClass.PERMISSION:
        advice = f"Grant {' and '.join(actions)} on the bucket to the credentials of {profile(asked)}."
    else:
        where = asked.place.endpoint_url or "Amazon S3"
        advice = ADVICE.get(failure.kind, f"{ELSE_ADVICE} It is at {where}.")
    say = not_asked if failure.kind is FailureClass.THROTTLED else fault
    return say(asked.subject(about), f"{failure.kind.replace('_', ' ').capitalize()}: {said}", advice)


def profile(asked: Asked) -> str:
    name = asked.place.credential_profile
    return f"the profile {name}" if name else "this host's default"


def listing(asked: Asked, seen: Seen) -> None:
    """Versions can be listed, one that is there be looked at, and one that is not be told from a forbidden one."""
    about = "listing"
    try:
        page = asked.store.list_versions(asked.place, max_keys=SHOWN)
    except StorageError as error:
        if error.failure.kind in SILENT:
            raise
        seen.findings.append(refused(asked, about, error.failure, "s3:ListBucketVersions"))
    else:
        seen.findings.append(ok(asked.subject(about), "Versions can be listed."))
        seen.there = next((each.ref for each in page.versions if not each.is_delete_marker), None)
    seen.findings += looks(asked, seen.there)


def looks(asked: Asked, there: VersionRef | None) -> Iterator[Finding]:
    absent = VersionRef(f"{PROBE}/{uuid4().hex}", "null")
    found = asked.store.inspect(asked.place, [absent, *([there] if there else [])], deadline_seconds=SECONDS)
    yield of_present(asked, found[there] if there else None)
    missing, subject = found[absent], asked.subject("what is gone")
    if missing.state is Presence.GONE:
        yield ok(subject, "The store says of a version that is not there that it is not there.")
    elif missing.failure is not None:
        yield refused(asked, "what is gone", missing.failure, "s3:ListBucket")
    else:
        words = f"Of a version that nobody can have stored, the store says: {missing.state}."
        yield fault(subject, words, "Do not let runs destroy here: after a deletion nobody could see that it is gone.")


def of_present(asked: Asked, found: Inspection | None) -> Finding:
    about = "looking at a version"
    if found is None:
        advice = "Grant s3:GetObjectVersion and s3:GetObject, and ask again once something is stored there."
        return not_asked(asked.subject(about), "No version was listed that could be looked at.", advice)
    if found.state is Presence.UNKNOWN and found.failure is not None:
        return refused(asked, about, found.failure, "s3:GetObjectVersion", "s3:GetObject")
    return ok(asked.subject(about), "A version that is there can be looked at.")


def state(asked: Asked, seen: Seen) -> None:
    """Versioning, and whether the store may lock versions."""
    about = "versioning"
    try:
        found = asked.store.bucket_state(asked.place)
    except StorageError as error:
        if error.failure.kind in SILENT:
            raise
        needed = ("s3:GetBucketVersioning", "s3:GetBucketObjectLockConfiguration")
        seen.findings.append(refused(asked, about, error.failure, *needed))
        return
    seen.versioning = found.versioning
    locked = "Object Lock is on" if found.object_lock else "no Object Lock"
    if found.versioning == "enabled":
        seen.findings.append(ok(asked.subject(about), f"Enabled; {locked}."))
    else:
        words = (
            f"{found.versioning.capitalize()}; {locked}: between our look and the deletion, an object may be replaced."
        )
        advice = "Enable versioning at the store, or let nothing replace objects."
        seen.findings.append(warning(asked.subject(about), words, advice))
    if found.object_lock and seen.there is not None:
        seen.findings.append(locks(asked, seen.there))


def locks(asked: Asked, there: VersionRef) -> Finding:
    subject = asked.subject("locks")
    if asked.store.lock_state(asked.place, there).unknown:
        words = "Locks cannot be read: what the store keeps locked would go to quarantine, instead of counting as held."
        return warning(subject, words, f"Grant s3:GetObjectRetention and s3:GetObjectLegalHold to {profile(asked)}.")
    return ok(subject, "Retention and legal holds of the store can be read.")


def rules(asked: Asked, seen: Seen) -> None:
    try:
        seen.rules = asked.store.lifecycle_rules(asked.place)
    except StorageError as error:
        if error.failure.kind in SILENT:
            raise
        seen.findings.append(refused(asked, "lifecycle rules", error.failure, "s3:GetLifecycleConfiguration"))


def lifecycle_of(asked: Asked, versioning: str | None, rules: Sequence[LifecycleRule]) -> Finding:
    """Whether the store could delete by itself what a hold or a policy keeps."""
    subject = asked.subject("lifecycle rules")
    if versioning is not None:
        asked.row.versioning = versioning  # as seen now; nothing is saved
    found = lifecycle.foreseen(asked.row, rules, clock.now())
    if not found:
        number = display.count(rules, "rule") if rules else "No rule"
        return ok(subject, f"{number}; nothing of what is kept could be deleted by the store itself.")
    told = "; ".join(f"{each.rule.rule_id} ({lifecycle.kept(each)})" for each in found)
    say = fault if any(each.holds for each in found) else warning
    advice = "Switch these rules off at the store or narrow them: no hold of ours stops the store."
    return say(subject, f"The store could delete by itself what must be kept: {told}.", advice)


def standing(asked: Asked, seen: Seen) -> None:
    found = asked.store.standing(asked.place)
    seen.findings += [*public_access(asked, found), *obstacles(asked, found)]


def public_access(asked: Asked, found: Standing) -> Iterator[Finding]:
    subject, blocks = asked.subject("public access"), found.blocks or frozenset()
    opened = []
    if found.public_policy and "RestrictPublicBuckets" not in blocks:
        opened.append("its policy lets everybody in")
    if found.public_grants and "IgnorePublicAcls" not in blocks:
        opened.append(f"its access control list gives {', '.join(found.public_grants)}")
    if opened:
        advice = "Block public access at the store, and find out since when it was open."
        yield fault(subject, f"The bucket is open: {' and '.join(opened)}.", advice)
        return
    unknown = found.public_policy is None or found.public_grants is None
    if found.refused:
        words = f"Known in part: {', '.join(found.refused)} is not granted."
        yield not_asked(
            subject, words, f"Grant {' and '.join(found.refused)} to {profile(asked)} to have it looked at."
        )
    elif found.blocks is not None and len(found.blocks) < 4:
        words = "Nobody else may come in, and nothing keeps a later policy from letting them."
        yield warning(subject, words, "Switch on all four blocks of public access, unless the account's own are on.")
    elif unknown and found.blocks is None:
        yield not_asked(subject, "The store does not say who else may come in.", "Look at its own settings.")
    else:
        yield ok(subject, "Nobody else may come in.")


def obstacles(asked: Asked, found: Standing) -> Iterator[Finding]:
    """What would be in the way of every deletion, or of every signature."""
    if found.mfa_delete:
        words = "MFA Delete is on: the store deletes no version without a code that a person reads off a device."
        yield fault(
            asked.subject("MFA Delete"), words, "Switch MFA Delete off; use Object Lock and legal holds instead."
        )
    subject = asked.subject("clock")
    if found.ahead is None:
        yield not_asked(subject, "The store's answer has no Date.", "Compare its clock by other means.")
    else:
        yield clocks.judged(subject, found.ahead, found.doubt, clocks.OF_STORE)


def probe(asked: Asked) -> Finding:
    """Whether we may delete: for each prefix one DeleteObject of the version `null` of a key that nobody can have.

    It changes nothing: a store answers 204 where there is no such version [AWS, "Deleting objects from versioning-suspended
    buckets"], and the key is made of 122 random bits. A malformed version id would prove less, since it may be refused before
    anybody asks for permissions. What the store may do is tell: a line in its access log, an event of a removal. So it is
    done only where a person asks for it. That nothing came of it is looked at.
    """
    about = "deleting"
    if not asked.prefixes:
        advice = "Grant s3:DeleteObject and s3:DeleteObjectVersion; --probe-delete tells whether they are."
        return not_asked(asked.subject(about), "Not tested.", advice)
    refs = [VersionRef(f"{prefix}{PROBE}-{uuid4().hex}", "null") for prefix in asked.prefixes]
    for ref in refs:
        outcome = asked.store.delete_versions(asked.place, [ref], deadline_seconds=SECONDS)[ref]
        if outcome.failure is not None:
            return refused(asked, about, outcome.failure, "s3:DeleteObject", "s3:DeleteObjectVersion")
        left = asked.store.list_versions(asked.place, prefix=ref.key, max_keys=1).versions
        if left:
            words = f"Asked to delete a version that is not there, the store wrote {left[0].version_id} of {ref.key}."
            return fault(
                asked.subject(about), words, "Do not let runs destroy here: this store does not delete exact versions."
            )
    where = ", ".join(prefix or "the whole bucket" for prefix in asked.prefixes)
    return ok(asked.subject(about), f"Allowed (under {where}); nothing was there to be deleted, and nothing is now.")
