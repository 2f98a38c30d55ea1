"""The certificate of destruction of a run: what was destroyed, when, how, on whose authority, and what was not.

Its bytes are made once, from what no longer changes when a run has closed: its manifest, its approval, the counts with
which it closed, and the receipts that had been issued by then. docs/certificates.md explains each member.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple

from django.db import connection, transaction
from django.db.models import Exists, OuterRef

from cleanup_project.base import audit, canonical, sqlfiles, tenancy
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import User
from ledger.exceptions import LedgerError, NotPermitted
from ledger.models import Certificate, CleanupRun, DeadLetter, Decision
from ledger.receipts import METHOD, TOOL
from ledger.standing import left_out
from ledger.states import RunState
from retention.models import Bucket, PolicyRevision

SCHEMA: Final = 1
RIGHT: Final = "base.export_receipts"
CHUNK: Final = 5000
DESTROYED: Final = ("deleted", "by_absence", "already_absent")
COPIES: Final = "Replicas, backups and copies outside of the named buckets are not covered by this certificate."
VERIFY: Final = (
    "The digest of this certificate is the SHA-256 of its bytes as downloaded. Its manifest root follows from the lines of "
    "the manifest, and its root of receipts is the SHA-256 over the SHA-256 of each receipt, 32 bytes each, in ascending "
    "order of their numbers. Each receipt names the line of the manifest that it carries out."
)


def refusal(run: CleanupRun) -> str:
    """Why there can be no certificate of this run, as far as its row says; nothing, where there can."""
    state = RunState(run.state)
    if run.mode == CleanupRun.Mode.DRY_RUN:
        return "It is a dry run, which destroys nothing: there is nothing to certify."
    if state is RunState.CANCELLED:
        return "It was cancelled, so its counts were never closed. What it destroyed until then stands in its receipts."
    if state is not RunState.CLOSED:
        return (
            f"It is {run.get_state_display()}: a certificate states what a run has destroyed, and is issued after the run "
            "has closed. There is none for a part of it."
        )
    if run.counts is None:
        return "There was nothing to destroy: there is nothing to certify."
    return ""


def issue(*, run: CleanupRun, by: User) -> Certificate:
    """The certificate of a closed run, made and recorded when it is first asked for.

    Raises NotPermitted, and LedgerError where there can be none, or its counts do not add up.
    """
    if not by.has_perm(RIGHT):
        raise NotPermitted(f"{by} may not issue certificates: no role of theirs has the right export_receipts.")
    tenancy.permit(by, run, NotPermitted)
    if refusal(run):
        raise LedgerError(refusal(run))
    found = Certificate.objects.filter(run=run).first()
    if found is not None:
        return found
    body = canonical.encode(statement(run))
    with transaction.atomic():
        said = {"body": body, "digest": sha256(body).hexdigest(), "issued_by": by}
        certificate, new = Certificate.objects.get_or_create(run=run, defaults=said)
        if new:
            audit.record(action="certificate.issued", subject=run, by=by, after={"sha256": certificate.digest})
    return certificate


def download(*, certificate: Certificate, by: User) -> bytes:
    """Its bytes; that they were handed out is on record before. Raises NotPermitted."""
    if not by.has_perm(RIGHT):
        raise NotPermitted(f"{by} may not download certificates: no role of theirs has the right export_receipts.")
    tenancy.permit(by, certificate.run, NotPermitted)
    with transaction.atomic():
        after = {"sha256": certificate.digest}
        audit.record(action="certificate.downloaded", subject=certificate.run, by=by, after=after)
    return bytes(certificate.body)


class Line(NamedTuple):
    """A receipt, as certificate_receipts.sql reads it."""

    id: int
    outcome: str
    revision: str
    targets: int
    size: int
    digest: bytes | memoryview
    issued_at: datetime
    trigger_at: str


@dataclass(slots=True)
class Sum:
    """Receipts of one revision, or of all."""

    items: int = 0
    versions: int = 0
    bytes: int = 0
    triggered: list[str] = field(default_factory=list)  # the first and the last instant

    def add(self, line: Line) -> None:
        self.items += 1
        self.versions += line.targets
        self.bytes += line.size
        ends = [*self.triggered, line.trigger_at]
        self.triggered = [min(ends), max(ends)]

    def as_json(self) -> dict[str, Any]:
        first, last = self.triggered or (None, None)
        return {
            "items": self.items,
            "object_versions": self.versions,
            "bytes": self.bytes,
            "records_from": first,
            "records_to": last,
        }


def statement(run: CleanupRun) -> dict[str, Any]:
    """What the certificate says. Raises LedgerError where the run's counts, its manifest and its receipts do not agree."""
    counts: dict[str, int] = run.counts or {}
    outcomes, whole, root = Counter[str](), Sum(), sha256()
    by_revision: dict[str, Sum] = {}
    issued: list[datetime] = []
    for line in receipts(run):
        outcomes[line.outcome] += 1
        whole.add(line)
        by_revision.setdefault(line.revision, Sum()).add(line)
        root.update(bytes(line.digest))
        issued = [min([*issued, line.issued_at]), max([*issued, line.issued_at])]
    add_up(run, counts, outcomes)
    return {
        "schema": SCHEMA,
        "title": "Certificate of destruction",
        "organisation": {"tenant": run.tenant.code, "name": run.tenant.name},
        "run": of_run(run),
        "series": [of_revision(each, by_revision.get(code_of(each), Sum())) for each in revisions(run)],
        "approval": of_approval(run),
        "manifest": of_manifest(run),
        "destroyed": {
            **whole.as_json(),
            "outcomes": {name: outcomes[name] for name in DESTROYED},
            "from": instant(issued[0]) if issued else None,
            "to": instant(issued[-1]) if issued else None,
        },
        "receipts": {"number": sum(outcomes.values()), "root": root.hexdigest()},
        "not_destroyed": exceptions(run, counts),
        "method": METHOD,
        "tool": TOOL,
        "copies": COPIES,
        "verify": VERIFY,
    }


def receipts(run: CleanupRun) -> Iterator[Line]:
    """Those that had been issued when the run closed, in ascending order, in chunks: each in a statement of its own."""
    last = 0
    while True:
        with connection.cursor() as cursor:
            chunk = {"run": run.pk, "after": last, "until": run.ended_at, "limit": CHUNK}
            cursor.execute(sqlfiles.read(__file__, "certificate_receipts.sql"), chunk)
            rows = [Line(*row) for row in cursor.fetchall()]
        yield from rows
        if len(rows) < CHUNK:
            return
        last = rows[-1].id


def add_up(run: CleanupRun, counts: dict[str, int], outcomes: Counter[str]) -> None:
    if sum(counts.values()) != run.item_count:
        raise LedgerError(
            f"No certificate: the manifest of {run} has {run.item_count or 0:,} items, and it closed with "
            f"{sum(counts.values()):,}. Report it."
        )
    for name in DESTROYED:
        if counts.get(name, 0) != outcomes[name]:
            raise LedgerError(
                f"No certificate: {run} closed with {counts.get(name, 0):,} {name.replace('_', ' ')}, and "
                f"{outcomes[name]:,} receipts say so. Compare its receipts with its commands, and report it."
            )


def of_run(run: CleanupRun) -> dict[str, Any]:
    assert run.ended_at is not None
    return {
        "key": run.key,
        "as_of": instant(run.as_of),
        "opened_at": instant(run.opened_at),
        "opened_by": run.opened_by.get_username() if run.opened_by else None,
        "closed_at": instant(run.ended_at),
    }


def of_approval(run: CleanupRun) -> dict[str, Any]:
    return {
        "by": run.authorised_by.get_username() if run.authorised_by else None,
        "at": instant(run.authorised_at) if run.authorised_at else None,
        "words": run.authorisation,
        "root": run.remaining_root,
        "items": run.remaining_count,
    }


def of_manifest(run: CleanupRun) -> dict[str, Any]:
    return {
        "root": run.manifest_root,
        "sealed_at": instant(run.sealed_at) if run.sealed_at else None,
        "items": run.item_count,
        "object_versions": run.target_count,
        "bytes": run.bytes,
    }


def revisions(run: CleanupRun) -> list[PolicyRevision]:
    used = PolicyRevision.objects.filter(pk__in={stream["revision_id"] for stream in run.streams})
    return list(used.select_related("policy").order_by("pk"))


def code_of(revision: PolicyRevision) -> str:
    """As command keys end."""
    return f"{revision.policy.code}-{revision.number}"


def of_revision(revision: PolicyRevision, destroyed: Sum) -> dict[str, Any]:
    buckets = Bucket.objects.filter(pk__in=revision.bucket_ids).order_by("name").values_list("name", flat=True)
    return {
        "policy": revision.policy.code,
        "revision": revision.number,
        "title": revision.title,
        "authority": revision.authority,
        "retention": f"{revision.period_number} {revision.period_unit} from {revision.get_trigger_display()}",
        "classes": revision.retention_classes,
        "buckets": list(buckets),
        **destroyed.as_json(),
    }


def exceptions(run: CleanupRun, counts: dict[str, int]) -> dict[str, int]:
    """What the manifest named, or would have named, and the run did not destroy."""
    # By the run that it failed under, as of this run's end: a command may have gone to a later run since.
    again = Decision.objects.filter(command=OuterRef("command"), cycle=OuterRef("cycle") + 1, at__lte=run.ended_at)
    closed = DeadLetter.objects.filter(
        ~Exists(again), run=run, resolution=DeadLetter.Resolution.CLOSED, resolved_at__lte=run.ended_at
    )
    parts = left_out([run]).get(run.pk)
    return {
        "held": counts.get("held", 0),
        "quarantined": counts.get("dead", 0),
        "closed_without_retry": closed.count(),
        "withdrawn": counts.get("withdrawn", 0),
        "exempt": counts.get("exempt", 0),
        "on_hold_before": parts.held if parts else 0,
        "not_enforced": parts.not_enforced if parts else 0,
    }
