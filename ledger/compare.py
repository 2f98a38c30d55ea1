"""Two sealed manifests of a policy beside each other: what only one of them names, and what both do with different lines.

Manifests are frozen, so a comparison never changes: it is made once, outside of any page, and its result kept.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import structlog
from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from cleanup_project.base import audit, queue, sqlfiles
from cleanup_project.base.models import User
from ledger.exceptions import LedgerError
from ledger.models import CleanupRun, ManifestComparison
from ledger.runs import OPEN_TO_REVIEW

LISTED: Final = 10_000  # differences of each kind that are kept
TASK: Final = "ledger.tasks.compare"
COUNTED: Final = ("same", "only_here", "only_there", "changed")
CHANGES: Final = ("revision", "eligible_since", "targets", "bytes", "other")

log = structlog.get_logger(__name__)


def candidates(run: CleanupRun) -> QuerySet[CleanupRun]:
    """What a run can be compared with: the other sealed runs of its policy, the newest first."""
    sealed = CleanupRun.objects.filter(policy=run.policy_id, sealed_at__isnull=False)
    return sealed.exclude(pk=run.pk).order_by("-id")


def default(run: CleanupRun) -> CleanupRun | None:
    """The last dry run before it."""
    return candidates(run).filter(mode=CleanupRun.Mode.DRY_RUN, pk__lt=run.pk).first()


def ask(*, run: CleanupRun, other: CleanupRun, by: User | None) -> ManifestComparison:
    """Have two manifests compared, unless they have been; a worker does it. Raises LedgerError."""
    if run.pk == other.pk or run.policy_id != other.policy_id:
        raise LedgerError("Choose another run of the same policy.", field="other")
    for each in (run, other):
        if each.sealed_at is None:
            raise LedgerError(f"The manifest of {each} is not sealed: there is no whole one to compare.", field="other")
    with transaction.atomic():
        found, new = ManifestComparison.objects.get_or_create(run=run, other=other, defaults={"asked_by": by})
        if new:
            audit.record(action="manifest.compared", subject=run, by=by, after={"with": other.key})
        if found.finished_at is None:
            queue.wake(TASK, found.pk)
    return found


def carry_out(comparison_id: int) -> bool:
    """Compare, and keep the result, in one transaction; whether it was still to be done."""
    with transaction.atomic(), connection.cursor() as cursor:
        waiting = ManifestComparison.objects.select_for_update(no_key=True, skip_locked=True)
        asked = waiting.filter(pk=comparison_id, finished_at=None).first()
        if asked is None:
            return False
        cursor.execute("SET LOCAL enable_nestloop = off")  # the planner has no figures of a new run's items
        parameters = {"comparison": asked.pk, "run": asked.run_id, "other": asked.other_id, "listed": LISTED}
        cursor.execute(sqlfiles.read(__file__, "compare.sql"), parameters)
        found = cursor.fetchone()
        result: dict[str, Any] = dict(zip(COUNTED, found, strict=False))
        changes = dict(zip(CHANGES, found[len(COUNTED) :], strict=True))
        ManifestComparison.objects.filter(pk=asked.pk).update(**result, changes=changes, finished_at=Now())
    log.info("manifests compared", comparison=comparison_id, **result)
    return True


def unfinished() -> list[int]:
    return list(ManifestComparison.objects.filter(finished_at=None).order_by("pk").values_list("pk", flat=True))


def ask_for_waiting() -> int:
    """Have each run that waits for an approval compared with the last dry run before it; returns how many are new."""
    asked = 0
    for run in CleanupRun.objects.filter(state__in=sorted(OPEN_TO_REVIEW), comparisons=None).order_by("pk"):
        other = default(run)
        if other is not None:
            ask(run=run, other=other, by=None)
            asked += 1
    return asked


def differences(here: str, there: str) -> Iterator[tuple[str, str, str]]:
    """(what differs, here, there) of the lines of two items that name the same original."""
    one, two = json.loads(here), json.loads(there)
    for name, (own, others) in {**pairs(one, two), **pairs(one["why"], two["why"])}.items():
        if name not in {"why", "targets"} and own != others:
            yield name.replace("_", " "), str(own), str(others)
    mine, theirs = ({(each["key"], each["version_id"]) for each in line["targets"]} for line in (one, two))
    if mine != theirs:
        yield "targets", f"{len(mine - theirs):,} only here", f"{len(theirs - mine):,} only there"
    elif one["targets"] != two["targets"]:
        yield "targets", "the same versions", "catalogued otherwise"


def pairs(one: dict[str, Any], two: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (one.get(name, "-"), two.get(name, "-")) for name in sorted({*one, *two})}
