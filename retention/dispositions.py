"""What people decide about single object versions: exempt them, extend their retention, put them into another class."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, cast

from django.db import connection, transaction
from django.db.models.functions import Now

from cleanup_project.base import audit, clock, tenancy
from cleanup_project.base.arrays import array
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import User
from retention import control, holds
from retention.eligibility import HoldFacts
from retention.exceptions import NotPermitted, RetentionError
from retention.facts import MAX_CLASS, Unrecordable, check_text
from retention.models import ANY_CLASS, Disposition, ObjectVersion
from retention.why import facts_of

CHUNK: Final = 1000

Kind = Disposition.Kind
Act = Callable[[list[ObjectVersion]], int]


def exempt(ids: Sequence[int], *, by: User, reason: str) -> int:
    """Keep these object versions until somebody ends the exemption; returns how many were not exempt before.

    What would go together with one of them is kept, too. Raises NotPermitted and RetentionError.
    """
    permit(by, reason)

    def act(rows: list[ObjectVersion]) -> int:
        exempted = Disposition.objects.in_force().filter(kind=Kind.EXEMPT, object_version__in=rows)
        before = set(exempted.values_list("object_version_id", flat=True))
        return write([row for row in rows if row.pk not in before], Kind.EXEMPT, by, reason)

    return in_chunks(ids, act, by)


def extend(ids: Sequence[int], *, until: datetime, by: User, reason: str) -> int:
    """Keep these object versions at least until then, whatever the policies say; returns how many.

    Of several extensions the latest counts. Raises NotPermitted and RetentionError.
    """
    permit(by, reason)
    if until <= clock.now():
        raise RetentionError(f"{instant(until)} has passed: extend to a time that is still to come.", field="until")
    return in_chunks(ids, lambda rows: write(rows, Kind.EXTEND, by, reason, until=until), by)


def reclassify(ids: Sequence[int], *, retention_class: str, by: User, reason: str) -> int:
    """Put these object versions into another retention class, for good; returns how many were not in it before.

    Later listings leave the class as it is; an import that states another one replaces it. Refused where a legal hold
    would cover a version no longer. Raises NotPermitted and RetentionError.
    """
    permit(by, reason)
    check_class(retention_class)

    def act(rows: list[ObjectVersion]) -> int:
        moving = [row for row in rows if row.retention_class != retention_class]
        refuse_escapes(moving, retention_class)
        written = write(moving, Kind.RECLASSIFY, by, reason, new_class=retention_class)
        move(moving, retention_class)
        return written

    return in_chunks(ids, act, by)


def end(*, disposition: Disposition, by: User, reason: str) -> Disposition:
    """End an exemption or extension: its object follows its policies again. A run that has not come to it yet, or a later
    one, may destroy it."""
    permit(by, reason)
    tenancy.permit(by, disposition, NotPermitted)
    with transaction.atomic():
        ended = Disposition.objects.in_force().filter(pk=disposition.pk)
        if not ended.update(ended_at=Now(), ended_by=by, end_reason=reason):
            raise RetentionError(
                "A reclassification has no end: put the object into another class instead."
                if disposition.kind == Kind.RECLASSIFY
                else "It has been ended already."
            )
        told = {"kind": disposition.kind, "disposition": disposition.pk}
        audit.record(action="disposition.ended", subject=disposition.object_version, by=by, reason=reason, before=told)
    disposition.refresh_from_db()
    return disposition


def in_chunks(ids: Iterable[int], act: Act, by: User) -> int:
    """Decide about so many versions, in short transactions; returns the sum of what `act` returns."""
    wanted = sorted(set(ids))
    unknown = set(wanted) - set(ObjectVersion.objects.filter(pk__in=wanted).values_list("pk", flat=True))
    if unknown:
        raise RetentionError(f"No object version has the id {min(unknown)}: nothing was decided.")
    done = 0
    for start in range(0, len(wanted), CHUNK):
        with transaction.atomic():
            rows = locked(wanted[start : start + CHUNK])
            tenancy.permit_each(by, rows, NotPermitted)
            done += act(rows)
    return done


def locked(ids: Sequence[int]) -> list[ObjectVersion]:
    """These versions, locked in id order, behind the control rows of their tenants.

    A part that is being frozen holds the versions that it judges: either it sees what is decided here, or it judged at
    an earlier time than the decision's, and its commands are judged again (ledger/keeping.py). The control row comes
    first, so that the legal holds that are seen later are all those that were placed before.
    """
    found = ObjectVersion.objects.filter(pk__in=ids, tenant__isnull=False)
    tenants = sorted(set(found.values_list("tenant_id", flat=True)))
    for tenant_id in tenants:
        control.bump(tenant_id)
    rows = list(ObjectVersion.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
    strange = next((row for row in rows if row.tenant_id not in tenants), None)
    if strange is not None:
        raise RetentionError(
            f"{strange} belongs to no tenant. So nothing ever destroys it, and there is no decision to take."
        )
    return rows


def write(rows: Sequence[ObjectVersion], kind: Kind, by: User, reason: str, **fields: Any) -> int:
    """One disposition for each row, at a time later than its lock, and the record of it in the object's history."""
    Disposition.objects.bulk_create(
        Disposition(
            object_version=row,
            tenant_id=cast(int, row.tenant_id),
            kind=kind,
            by=by,
            reason=reason,
            former_class=row.retention_class if kind == Kind.RECLASSIFY else "",
            **fields,
        )
        for row in rows
    )
    told = {name: instant(value) if isinstance(value, datetime) else value for name, value in fields.items()}
    audit.record_each(action=f"disposition.{kind}", subjects=rows, by=by, reason=reason, after=told)
    return len(rows)


def refuse_escapes(rows: Iterable[ObjectVersion], retention_class: str) -> None:
    """Nobody takes an object out of a legal hold by calling it something else."""
    holding: dict[int | None, list[HoldFacts]] = {}
    for row in rows:
        if row.tenant_id is not None and row.tenant_id not in holding:
            holding[row.tenant_id] = holds.in_force(row.tenant_id)
        before = facts_of(row)
        after = replace(before, retention_class=retention_class)
        for hold in holding[row.tenant_id]:
            if hold.covers(before) and not hold.covers(after):
                raise RetentionError(
                    f"The legal hold {hold.matter} covers {row} and would not in its new class. Have it released first."
                )


def move(rows: Iterable[ObjectVersion], retention_class: str) -> None:
    """Stated, as by an import, so that the next listing leaves it; no longer parked, since holds look at the class."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE retention_objectversion SET retention_class = %s, parked_by_id = NULL, "
            "stated = array_append(array_remove(stated, 'retention_class'), 'retention_class') WHERE id = ANY (%s::bigint[])",
            [retention_class, array(row.pk for row in rows)],
        )


def check_class(retention_class: str) -> None:
    if retention_class == ANY_CLASS:
        raise RetentionError(f"{ANY_CLASS} means any class: name one.")
    if len(retention_class) > MAX_CLASS:
        raise RetentionError(f"A class has at most {MAX_CLASS} characters, this one {len(retention_class)}.")
    try:
        check_text("class", retention_class)
    except Unrecordable as error:
        raise RetentionError(f"{error}: choose another name.") from error


def permit(by: User, reason: str) -> None:
    if not by.has_perm("base.approve_run"):
        raise NotPermitted(f"{by} may not decide about single objects: no role of theirs has the right approve_run.")
    if not reason.strip():
        raise RetentionError("State a reason: it is kept for ever.")
