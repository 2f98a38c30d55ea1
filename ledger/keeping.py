"""What has come to keep an object since its manifest was judged, before it is destroyed.

A manifest says what was so when it was frozen. Since then a policy may have been published or suspended, somebody may have
decided about the object, an import or a key rule may have corrected what is known of it, or newer generations may have
vanished, so that it is one of those that are always kept. No one time tells all of this: everything is judged again.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from cleanup_project.base import clock
from ledger.batch import Claimed
from retention import governing, scan
from retention.eligibility import WORDS, Reason
from retention.governing import Governing
from retention.models import Disposition, RetentionPolicy, Tenant

# Not these: what is gone is told from a look at the store, and holds have a check of their own.
ASKED_ELSEWHERE: Final = frozenset({Reason.GONE, Reason.HELD, Reason.ELIGIBLE})


def kept(commands: Sequence[Claimed], tenant_id: int) -> dict[int, str]:
    """Why commands may not be executed any more, in words, by command; only those of which that is so."""
    commands = [each for each in commands if each.targets]
    if not commands:
        return {}
    now = clock.now()
    found = dict[int, str]()
    for rules, ruled in by_rules(commands, tenant_id, now):
        originals = {each.targets[0].object_version_id: each for each in ruled}
        for pk, (reason, revision_id) in scan.reasons(list(originals), rules, now).items():
            command = originals[pk]
            if reason not in ASKED_ELSEWHERE:
                found[command.id] = WORDS[reason]
            elif reason is Reason.ELIGIBLE and revision_id != command.revision_id:
                found[command.id] = "Another policy governs it now: a run of that one decides about it."
    return found | kept_along(commands, now)


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
