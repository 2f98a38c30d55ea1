"""What has come to keep an object since its manifest was judged: a policy that was published or suspended after that, or
what somebody decided about the object itself.

The longest retention wins, whichever policy states it, and a suspended policy keeps all that it covers. A manifest says what
was so when it was frozen; where anything of this has changed since, its objects are judged again before they are destroyed.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from django.db import connection

from cleanup_project.base import clock, sqlfiles
from cleanup_project.base.arrays import array
from ledger.batch import Claimed
from retention import governing, scan
from retention.eligibility import WORDS, Reason
from retention.governing import Governing
from retention.models import Disposition, RetentionPolicy, Tenant

# Not these: what is gone is told from a look at the store, and holds have a check of their own.
ASKED_ELSEWHERE: Final = frozenset({Reason.GONE, Reason.HELD, Reason.ELIGIBLE})


def kept(commands: Sequence[Claimed], tenant_id: int) -> dict[int, str]:
    """Why commands may not be executed any more, in words, by command; only those of which that is so."""
    changed = changed_since({each.run_id for each in commands}, tenant_id)
    judged = [each for each in commands if each.run_id in changed]
    if not judged:
        return {}
    now = clock.now()
    found = dict[int, str]()
    for rules, ruled in by_rules(judged, tenant_id, now):
        originals = {each.targets[0].object_version_id: each for each in ruled}
        for pk, (reason, revision_id) in scan.reasons(list(originals), rules, now).items():
            command = originals[pk]
            if reason not in ASKED_ELSEWHERE:
                found[command.id] = WORDS[reason]
            elif reason is Reason.ELIGIBLE and revision_id != command.revision_id:
                found[command.id] = "Another policy governs it now: a run of that one decides about it."
    return found | kept_along(judged, now)


def by_rules(
    commands: Sequence[Claimed], tenant_id: int, now: datetime
) -> Iterator[tuple[Sequence[Governing], list[Claimed]]]:
    """The commands by what decides about them: an urgent erasure's own revision alone, or the tenant's all together."""
    erasures = RetentionPolicy.objects.filter(pk__in={each.policy_id for each in commands}, erasure=True).in_bulk()
    routine = [each for each in commands if each.policy_id not in erasures]
    if routine:
        yield governing.of_tenant(Tenant.objects.get(pk=tenant_id), now), routine
    for policy in erasures.values():
        yield governing.of_policy(policy, now), [each for each in commands if each.policy_id == policy.pk]


def kept_along(commands: Iterable[Claimed], now: datetime) -> dict[int, str]:
    """What somebody decided about a derivative keeps its original, whether or not they still seem to belong together."""
    taken_along = {target.object_version_id: each.id for each in commands for target in each.targets[1:]}
    decided = Disposition.objects.in_force().filter(object_version__in=list(taken_along))
    return {
        taken_along[pk]: WORDS[Reason.NOT_YET if until else Reason.EXEMPT]
        for pk, until in decided.values_list("object_version_id", "until")
        if until is None or until > now
    }


def changed_since(run_ids: set[int], tenant_id: int) -> set[int]:
    """Those of the runs that judged before a policy of the tenant or a decision about an object last changed anything."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "policies_changed.sql"), {"runs": array(run_ids), "tenant": tenant_id})
        return {row[0] for row in cursor.fetchall()}
