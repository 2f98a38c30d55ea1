"""Caps: how much a run may destroy before a person has looked at it, whatever its policy authorised.

Everything is counted before the manifest is sealed and outside of any transaction, a chunk at a time: ten million rows must
not be read under the lock of the run's row. That changes nothing, since parts are append-only and the census speaks of
the run's `as_of`, whenever it is taken. What a key rule moves into another scope meanwhile is the exception.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection

from cleanup_project.base import sqlfiles
from cleanup_project.base.display import counted, human_size
from ledger.models import CleanupRun
from retention import governing
from retention.census import Census, census
from retention.models import Bucket, PolicyRevision

CHUNK: Final = 5000
SHARE_FROM: Final = 100  # items; of fewer, a share says nothing
LOOK: Final = 100_000  # present versions that are counted in any case, and looked at for unknown dates
TOGETHER: Final = "all revisions"


@dataclass(frozen=True, slots=True)
class Candidates:
    """What the items of a run would destroy. `original_bytes` leaves out what is taken along."""

    items: int = 0
    objects: int = 0
    bytes: int = 0
    original_bytes: int = 0

    def __add__(self, other: "Candidates") -> "Candidates":
        return Candidates(
            self.items + other.items,
            self.objects + other.objects,
            self.bytes + other.bytes,
            self.original_bytes + other.original_bytes,
        )


def measure(run: CleanupRun) -> dict[str, Any]:
    """What a run would destroy against what there was at its `as_of`, by revision and bucket, and the caps it is over.

    JSON-ready, for `CleanupRun.guards`: `revisions` and `buckets` are the numbers, `over` the findings (cap, limit,
    actual, and for shares what it is a share of), `undated` how many of the versions counted lack the trigger's date.
    An erasure has no caps: two people have agreed on exactly its list.
    """
    found = candidates(run)
    rules = {rule.revision_id: rule for rule in governing.of_policy(run.policy, run.as_of)}
    used = PolicyRevision.objects.filter(pk__in={stream["revision_id"] for stream in run.streams}).order_by("pk")
    revisions, over, undated = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
    for revision in used.select_related("policy"):
        own = sum((each for (pk, _bucket), each in found.items() if pk == revision.pk), Candidates())
        dated = revision.trigger == PolicyRevision.Trigger.DATED_AT
        counts = not run.policy.erasure and (dated or own.items >= SHARE_FROM)
        present = census(rules[revision.pk], run.as_of, enough(own, revision)) if counts else None
        revisions.append({"revision": str(revision), **numbers(own), **of(present)})
        if not run.policy.erasure:
            over += findings(str(revision), own, present, revision)
        if present is not None and present.undated:
            undated.append({"revision": str(revision), "actual": present.undated, **of(present)})
    if len(revisions) > 1:
        over += together(sum(found.values(), Candidates()), list(used))
    return {"revisions": revisions, "buckets": by_bucket(found), "over": over, "undated": undated}


def candidates(run: CleanupRun) -> dict[tuple[int, int], Candidates]:
    """What the run's frozen items would destroy, by revision and bucket, counted in chunks."""
    newest = run.parts.order_by("-number").values_list("cursor", flat=True).first()
    found: dict[tuple[int, int], Candidates] = {}
    for first in range(1, (newest["ordinal"] if newest else 0) + 1, CHUNK):
        with connection.cursor() as cursor:
            stretch = {"run": run.pk, "first": first, "last": first + CHUNK - 1}
            cursor.execute(sqlfiles.read(__file__, "candidates.sql"), stretch)
            for revision_id, bucket_id, *sums in cursor.fetchall():
                name = (revision_id, bucket_id)
                found[name] = found.get(name, Candidates()) + Candidates(*sums)
    return found


def findings(
    label: str, own: Candidates, present: Census | None, caps: PolicyRevision
) -> Iterator[dict[str, str | int | None]]:
    """The caps of one revision that its items are over."""
    yield from absolute(label, own, caps.cap_objects, caps.cap_bytes)
    if present is None or own.items < SHARE_FROM:
        return
    percent = caps.cap_share_percent
    for cap, actual, whole in (
        ("share", own.items, present.versions),
        ("share_of_bytes", own.original_bytes, present.bytes),
    ):
        if actual * 100 > whole * percent:
            yield {"cap": cap, "revision": label, "limit": percent, "actual": actual, "of": whole}


def enough(own: Candidates, caps: PolicyRevision) -> Census:
    """What must be present at the least for the share to be kept: once that is counted, the rest changes nothing.

    So the cost follows what is due, and not the size of the catalogue. Over the cap, all of it has been counted.
    """
    percent = caps.cap_share_percent
    return Census(max(-(-own.items * 100 // percent), LOOK), -(-own.original_bytes * 100 // percent))


def together(every: Candidates, used: Sequence[PolicyRevision]) -> Iterator[dict[str, str | int | None]]:
    """The run as a whole against the strictest caps, so that two revisions do not pass with twice what one may."""
    yield from absolute(TOGETHER, every, min(each.cap_objects for each in used), min(each.cap_bytes for each in used))


def absolute(label: str, own: Candidates, cap_objects: int, cap_bytes: int) -> Iterator[dict[str, str | int | None]]:
    for cap, actual, limit in (("objects", own.objects, cap_objects), ("bytes", own.bytes, cap_bytes)):
        if actual > limit:
            yield {"cap": cap, "revision": label, "limit": limit, "actual": actual, "of": None}


def numbers(own: Candidates) -> dict[str, int]:
    return {"items": own.items, "objects": own.objects, "bytes": own.bytes, "original_bytes": own.original_bytes}


def of(present: Census | None) -> dict[str, int | None]:
    """Present originals and their bytes, and whether that is all; null where no cap depended on them."""
    if present is None:
        return {"present": None, "present_bytes": None, "whole": None}
    return {"present": present.versions, "present_bytes": present.bytes, "whole": present.whole}


def by_bucket(found: Mapping[tuple[int, int], Candidates]) -> list[dict[str, Any]]:
    names = dict(Bucket.objects.filter(pk__in={bucket for _revision, bucket in found}).values_list("pk", "name"))
    sums = {pk: Candidates() for pk in names}
    for (_revision, bucket), each in found.items():
        sums[bucket] += each
    return [{"bucket": names[pk], **numbers(each)} for pk, each in sorted(sums.items())]


def told(finding: Mapping[str, Any]) -> str:
    """One finding of `over` in words."""
    who, cap, limit, actual, whole = (finding[name] for name in ("revision", "cap", "limit", "actual", "of"))
    if cap == "objects":
        return f"{who}: {counted(actual, 'object version')}, and the cap is {limit:,}."
    if cap == "bytes":
        return f"{who}: {human_size(actual)}, and the cap is {human_size(limit)}."
    share = f"{100 * actual / whole:.1f} %" if whole else "of nothing"
    if cap == "share":
        return f"{who}: {actual:,} of {whole:,} present originals, {share}, and the cap is {limit} %."
    return f"{who}: {human_size(actual)} of {human_size(whole)} of originals, {share}, and the cap is {limit} %."
