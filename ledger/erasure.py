"""Urgent erasure: file an explicit list, have a second person decide, and destroy what it names through the same ledger.

It overrides retention and nothing else: holds, enforcement, the stop switch and the order of versions stand in its way
as in that of any run.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import structlog
from django.db import connection, transaction
from django.db.models import Model
from django.db.models.functions import Now

from cleanup_project.base import audit, queue, sqlfiles, tenancy
from cleanup_project.base.display import counted
from cleanup_project.base.models import User
from ledger import erasurelist, runs
from ledger.erasurelist import BadList, Named
from ledger.exceptions import AlreadyDecided, LedgerError, NotPermitted
from ledger.models import CleanupRun, ErasureRequest, ErasureTarget
from retention import buckets, erasures
from retention.models import Bucket, ObjectVersion, Tenant

CHUNK: Final = 1000
RIGHT: Final = "approve_run"

log = structlog.get_logger(__name__)


def file(
    *,
    tenant: Tenant,
    reference: str,
    authority: str,
    reason: str,
    data: bytes,
    form: str,
    by: User,
    leave_out_unknown: bool = False,
) -> ErasureRequest:
    """File a request over the object versions that the list (`form`: csv or jsonl) names and that are present now.

    Nothing is destroyed yet. A line that names nothing of the tenant's refuses the whole list, or with
    `leave_out_unknown` is kept on the request.
    Raises NotPermitted, BadList, and Django's ValidationError with a message for each field.
    """
    permit(by, "file erasure requests", tenant)
    named = erasurelist.read(data, form)
    found, unknown = resolve(tenant, named)
    refuse_unknown(tenant, found, [] if leave_out_unknown else unknown)
    request = ErasureRequest(
        tenant=tenant,
        reference=reference,
        authority=authority,
        reason=reason,
        file_digest=sha256(data).hexdigest(),
        lines=len(named),
        left_out=[{"line": each.line, "name": str(each)} for each in unknown],
        version_count=len(found),
        bytes=sum(found.values()),
        requested_by=by,
    )
    request.full_clean()
    with transaction.atomic():
        request.save()
        ErasureTarget.objects.bulk_create(
            [
                ErasureTarget(request=request, ordinal=ordinal, object_version_id=pk)
                for ordinal, pk in enumerate(found, start=1)
            ],
            batch_size=CHUNK,
        )
        told = {"versions": len(found), "left_out": len(unknown), "file_digest": request.file_digest}
        audit.record(action="erasure.filed", subject=request, by=by, reason=reason, after=told)
    log.info("erasure filed", erasure=request.pk, versions=len(found), left_out=len(unknown))
    return request


def refuse_unknown(tenant: Tenant, found: Mapping[int, int], unknown: Sequence[Named]) -> None:
    if unknown:
        wrong = [f"line {each.line}: {each} names nothing present of {tenant}" for each in unknown]
        raise BadList(erasurelist.told(wrong) + " Correct them, or have them left out.")
    if not found:
        raise BadList(f"Nothing that the list names is present and belongs to {tenant}.")


def resolve(tenant: Tenant, named: Sequence[Named]) -> tuple[dict[int, int], list[Named]]:
    """The bytes of each object version that the lines name, by its id, in the order of the lines; and lines without any."""
    ids = bucket_ids({each.bucket for each in named if each.bucket})
    found, unknown = dict[int, int](), list[Named]()
    for start in range(0, len(named), CHUNK):
        chunk = named[start : start + CHUNK]
        known = [each for each in chunk if not each.bucket or each.bucket in ids]
        columns: dict[str, Any] = {
            "tenant": tenant.pk,
            "line": [each.line for each in known],
            "bucket": [ids.get(each.bucket, 0) for each in known],
            "name": [each.name for each in known],
            "version": [each.version_id for each in known],
        }
        with connection.cursor() as cursor:
            cursor.execute(sqlfiles.read(__file__, "erasure_named.sql"), columns)
            rows = cursor.fetchall()
        met = {line for line, _pk, _size in rows}
        unknown += [each for each in chunk if each.line not in met]
        found |= {pk: size for _line, pk, size in rows}
    return found, unknown


def bucket_ids(names: set[str]) -> dict[str, int]:
    """The buckets of these names. Raises BadList where a name means two of them; unknown ones are left out."""
    found, ambiguous = dict[str, int](), set[str]()
    for bucket in Bucket.objects.all():
        for name in {bucket.name, buckets.full_name(bucket)} & names:
            ambiguous |= {name} & set(found)
            found[name] = bucket.pk
    if ambiguous:
        name = min(ambiguous)
        raise BadList(f"2 stores have a bucket named {name}: say which one, as {name}@aws or {name}@https://host.")
    return found


def approve(*, request: ErasureRequest, by: User, reason: str, versions: int) -> CleanupRun:
    """Open the run that destroys what the request names; `versions` is its number of object versions, typed anew.

    Raises NotPermitted for who filed it, AlreadyDecided, and LedgerError.
    """
    with transaction.atomic():
        request = decidable(request, by, reason)
        if versions != request.version_count:
            named = counted(request.version_count, "object version")
            raise LedgerError(f"The request names {named}, not {versions:,}.", field="versions")
        versions_named = request.targets.values("object_version_id")
        places = ObjectVersion.objects.filter(pk__in=versions_named).values_list("bucket_id", flat=True).distinct()
        revision = erasures.publish(
            tenant=request.tenant,
            code=f"erasure-{request.pk}",
            title=f"Erasure: {request.reference}"[:200],
            authority=request.authority,
            bucket_ids=sorted(places),
            author=request.requested_by,
            publisher=by,
            reason=reason,
        )
        run = runs.open_erasure(revision, request.pk, by=request.requested_by)
        decide(request, by, reason, approved=True, run=run)
        queue.wake("ledger.tasks.freeze", run.pk)
    log.info("erasure approved", erasure=request.pk, run=run.key)
    return run


def deny(*, request: ErasureRequest, by: User, reason: str) -> ErasureRequest:
    """Refuse the request; nothing is destroyed by it. Raises as `approve` does."""
    with transaction.atomic():
        request = decidable(request, by, reason)
        decide(request, by, reason, approved=False, run=None)
    return request


def outcome(request: ErasureRequest) -> dict[str, int]:
    """What has become of the object versions that an approved request names: how many, in words.

    *left out*: no command of the run has it, since a hold covers it, enforcement is off there, another command had it
    already, or it was made from an original that stays and goes with that one.
    """
    with connection.cursor() as cursor:
        parameters = {"request": request.pk, "run": request.run_id}
        cursor.execute(sqlfiles.read(__file__, "erasure_outcome.sql"), parameters)
        return dict(cursor.fetchall())


def decidable(request: ErasureRequest, by: User, reason: str) -> ErasureRequest:
    """The request, locked, if this person may decide about it now."""
    permit(by, "decide about erasure requests", request)
    if not reason.strip():
        raise LedgerError("State a reason for the decision.")
    locked = ErasureRequest.objects.select_for_update(no_key=True).get(pk=request.pk)
    if locked.approved is not None:
        said = "approved" if locked.approved else "denied"
        raise AlreadyDecided(f"{locked} was {said} by {locked.decided_by} already.")
    if locked.requested_by_id == by.pk:
        raise NotPermitted(f"{locked} was filed by {by}: a second person must decide.")
    return locked


def decide(request: ErasureRequest, by: User, reason: str, *, approved: bool, run: CleanupRun | None) -> None:
    ErasureRequest.objects.filter(pk=request.pk).update(
        approved=approved, decided_by=by, decided_at=Now(), decision_reason=reason, run=run
    )
    action = "erasure.approved" if approved else "erasure.denied"
    audit.record(action=action, subject=request, by=by, reason=reason, after={"run": run.key if run else None})
    request.refresh_from_db()


def permit(by: User, what: str, about: Model) -> None:
    if not by.has_perm(f"base.{RIGHT}"):
        raise NotPermitted(f"{by} may not {what}: no role of theirs has the right {RIGHT}.")
    tenancy.permit(by, about, NotPermitted)
