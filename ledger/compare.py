"""Two sealed manifests of a policy beside each other: what only one of them names, and what both do with different lines.

Manifests are frozen, so a comparison never changes: it is made once, outside of any page, and its result kept.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import structlog
from django.db import OperationalError, connection, transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from cleanup_project.base import alarms, audit, limits, queue, sqlfiles, tenancy
from cleanup_project.base.models import User
from ledger.exceptions import LedgerError, NotPermitted
from ledger.models import CleanupRun, ManifestComparison
from ledger.runs import OPEN_TO_REVIEW

LISTED: Final = 10_000  # differences of each kind that are kept
TASK: Final = "ledger.tasks.compare"
AT_MOST: Final = limits.TASK_TIMEOUT - 30  # seconds, so that PostgreSQL ends it before the queue ends its worker
TRIES: Final = ManifestComparison.TRIES
GIVEN_UP: Final = "run.compare"
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
    """Have two manifests compared, unless they have been; a worker does it, anew where it was given up.

    Raises LedgerError.
    """
    tenancy.permit(by, run, NotPermitted)
    if run.pk == other.pk or run.policy_id != other.policy_id:
        raise LedgerError("Choose another run of the same policy.", field="other")
    for each in (run, other):
        if each.sealed_at is None:
            raise LedgerError(f"The manifest of {each} is not sealed: there is no whole one to compare.", field="other")
    with transaction.atomic():
        found, new = ManifestComparison.objects.get_or_create(run=run, other=other, defaults={"asked_by": by})
        if new:
            audit.record(action="manifest.compared", subject=run, by=by, after={"with": other.key})
        elif found.is_given_up and by is not None:
            ManifestComparison.objects.filter(pk=found.pk).update(tries=0)
            alarms.clear(GIVEN_UP, run)
            audit.record(action="manifest.compared", subject=run, by=by, after={"with": other.key, "anew": True})
            found.refresh_from_db()
        if found.finished_at is None:
            queue.wake(TASK, found.pk)
    return found


def carry_out(comparison_id: int) -> bool:
    """Compare, and keep the result, in one transaction; whether that was done. One that takes too long is tried again."""
    if not begun(comparison_id):
        return False
    try:
        return finished(comparison_id)
    except OperationalError as error:
        log.warning("manifests not compared", comparison=comparison_id, error=str(error))
        return False


def waiting(comparison_id: int) -> ManifestComparison | None:
    """Locked; none, where it is done, given up, or another worker's."""
    free = ManifestComparison.objects.select_for_update(no_key=True, skip_locked=True, of=("self",))
    return free.filter(pk=comparison_id, finished_at=None, tries__lte=TRIES).select_related("run", "other").first()


def begun(comparison_id: int) -> bool:
    """Count one more try before it begins, since one that kills its worker cannot; after the last, give up and alarm."""
    with transaction.atomic():
        asked = waiting(comparison_id)
        if asked is None:
            return False
        ManifestComparison.objects.filter(pk=asked.pk).update(tries=F("tries") + 1)
        if asked.tries < TRIES:
            return True
        alarms.notice(
            GIVEN_UP,
            asked.run,
            f"Its manifest was not compared with that of {asked.other}: {TRIES} tries did not end within {AT_MOST} seconds "
            "each. Download both manifests instead, or ask for it again on the page of the comparison.",
        )
        return False


def finished(comparison_id: int) -> bool:
    with transaction.atomic(), connection.cursor() as cursor:
        asked = waiting(comparison_id)
        if asked is None:
            return False
        cursor.execute(f"SET LOCAL statement_timeout = '{AT_MOST}s'")
        cursor.execute("SET LOCAL enable_nestloop = off")  # the planner has no figures of a new run's items
        parameters = {"comparison": asked.pk, "run": asked.run_id, "other": asked.other_id, "listed": LISTED}
        cursor.execute(sqlfiles.read(__file__, "compare.sql"), parameters)
        found = cursor.fetchone()
        cursor.execute("SET LOCAL enable_nestloop = on")
        result: dict[str, Any] = dict(zip(COUNTED, found, strict=False))
        changes = dict(zip(CHANGES, found[len(COUNTED) :], strict=True))
        ManifestComparison.objects.filter(pk=asked.pk).update(**result, changes=changes, finished_at=Now())
        alarms.clear(GIVEN_UP, asked.run)
    log.info("manifests compared", comparison=comparison_id, **result)
    return True


def unfinished() -> list[int]:
    """Those that somebody still waits for, or that are to be given up."""
    open_ones = ManifestComparison.objects.filter(finished_at=None, tries__lte=TRIES)
    return list(open_ones.order_by("pk").values_list("pk", flat=True))


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
