"""What is so of a command now: eligible, held, enforced, stopped; and what the store itself says, when it is asked.

Nothing here locks anything: an answer is true as of its time, and whoever acts checks again.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cleanup_project.base import clock
from cleanup_project.base.canonical import instant
from ledger import claim, next_action, replayable
from ledger.models import CleanupCommand, CommandTarget
from retention import governing, holds
from retention.buckets import ref
from retention.eligibility import WORDS, Verdict, judge
from retention.exceptions import TooMuch
from retention.models import LegalHold, ObjectVersion, PolicyRevision, RetentionPolicy
from retention.storage import BucketRef, Inspection, ObjectStore, Presence, VersionRef, store_for
from retention.why import READ, surroundings_of_each

LOOK_SECONDS: Final = 5.0  # for one command, however many buckets its targets are in
LOOKED_AT_MOST: Final = 100  # targets
BUCKETS_AT_ONCE: Final = 4


@dataclass(frozen=True, slots=True)
class Catalogued:
    """One target as the catalogue has it: `state` is present, vanished or destroyed, as of `observed_at`."""

    target: CommandTarget
    state: str
    observed_at: datetime


@dataclass(frozen=True, slots=True)
class Present:
    """`eligible`: by the revision that the command names, and nothing keeps it; None where that was not judged.

    `why` says it in words. `holds` are those in force that cover any target; `stopped` is empty where no switch is on.
    """

    as_of: datetime
    eligible: bool | None
    why: str
    holds: Sequence[LegalHold]
    enforced: bool | None
    stopped: str
    objects: Sequence[Catalogued]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the store says of one target, asked at `at` (the database's time before the question)."""

    target: CommandTarget
    at: datetime
    inspection: Inspection

    @property
    def there(self) -> bool | None:
        """None: the store did not let us see."""
        if self.inspection.state is Presence.UNKNOWN:
            return None
        return self.inspection.state is not Presence.GONE

    @property
    def words(self) -> str:
        seen, target = self.inspection, self.target
        if seen.failure is not None:
            return f"The store does not let us see: {seen.failure.code} {seen.failure.message}".strip()
        if seen.state is Presence.GONE:
            return "It is gone."
        if (seen.state is Presence.DELETE_MARKER) != (target.role == "delete_marker"):
            return f"Another thing is there under this version id: {seen.state.replace('_', ' ')}."
        if seen.state is Presence.PRESENT and seen.etag != target.etag:
            return f"Another content is there: its ETag is {seen.etag}."
        return "It is there, as it was frozen."


def present(command: CleanupCommand) -> Present:
    """Look everything up anew in the database; the store is not asked (`look`)."""
    as_of = clock.now()
    targets = list(command.targets.select_related("bucket").order_by("ordinal"))
    ids = [target.object_version_id for target in targets]
    versions = {each.pk: each for each in ObjectVersion.objects.select_related("tenant").filter(pk__in=ids)}
    if not targets:
        words = "Its targets were compacted: the receipt says what became of them."
        return Present(as_of, None, words, (), None, "", ())
    eligible, why = eligibility(command, versions[ids[0]], as_of)
    covering = {hold for found in holds.covering(ids, command.tenant_id).values() for hold in found}
    facts = claim.check([command.pk], command.tenant_id)[command.pk]
    return Present(
        as_of=as_of,
        eligible=eligible,
        why=why,
        holds=list(LegalHold.objects.filter(pk__in=covering).order_by("pk")),
        enforced=all(row[-3] for row in facts),
        stopped=next_action.stopped_by(command),
        objects=[catalogued(target, versions[target.object_version_id]) for target in targets],
    )


def catalogued(target: CommandTarget, version: ObjectVersion) -> Catalogued:
    return Catalogued(target, version.gone_reason or "present", version.gone_at or version.observed_at)


def judged(command: CleanupCommand, original: ObjectVersion, as_of: datetime) -> Verdict:
    """Judge the original now, by what decides about its policy's runs.

    What merely vanished is judged all the same: only a replay finds out whether it was us. Raises TooMuch where more stands
    around it than is read while somebody waits.
    """
    facts = replayable.facts_now(original)
    policy = RetentionPolicy.objects.select_related("tenant").get(pk=command.policy_id)
    rules = governing.of_policy(policy, as_of)
    around = surroundings_of_each([original], READ)[original.pk]
    return judge(facts, around, rules, holds.in_force(command.tenant_id), as_of)


def eligibility(command: CleanupCommand, original: ObjectVersion, as_of: datetime) -> tuple[bool | None, str]:
    try:
        verdict = judged(command, original, as_of)
    except TooMuch as refusal:
        return None, f"Not judged here. {refusal}"
    words = [WORDS[verdict.reason]]
    if verdict.eligible_since is not None and verdict.eligible_since > as_of:
        words.append(f"Its retention ends {instant(verdict.eligible_since)}.")
    governs = verdict.governed_by
    same = governs is not None and governs.revision_id == command.revision_id
    if governs is not None and not same:
        own = PolicyRevision.objects.select_related("policy").get(pk=command.revision_id)
        words.append(f"{governs.label} governs it now, not {own}.")
    return verdict.eligible and same, " ".join(words)


def look(
    command: CleanupCommand, stores: Callable[[BucketRef], ObjectStore] = store_for, seconds: float = LOOK_SECONDS
) -> list[Seen]:
    """Ask the store for the first `LOOKED_AT_MOST` targets, within so many seconds. Not inside a transaction.

    What the store did not answer in time is there as unknown. Never raises for trouble of the store.
    """
    until = time.monotonic() + seconds
    targets = list(command.targets.select_related("bucket").order_by("ordinal")[:LOOKED_AT_MOST])
    at = clock.now()
    found = {target.pk: inspection for group in apart(targets) for target, inspection in ask(group, stores, until)}
    return [Seen(target, at, found[target.pk]) for target in targets]


def look_each(
    commands: Sequence[int], stores: Callable[[BucketRef], ObjectStore] = store_for, seconds: float = LOOK_SECONDS
) -> dict[int, list[Seen]]:
    """As `look`, for the originals of many commands, by their ids: a few buckets at a time, within so many seconds in all."""
    until = time.monotonic() + seconds
    originals = CommandTarget.objects.filter(command__in=commands, ordinal=1).select_related("bucket")
    targets = list(originals.order_by("pk")[:LOOKED_AT_MOST])
    at = clock.now()
    with ThreadPoolExecutor(BUCKETS_AT_ONCE) as pool:
        answered = [
            each for found in pool.map(lambda group: ask(group, stores, until), apart(targets)) for each in found
        ]
    return {target.command_id: [Seen(target, at, inspection)] for target, inspection in answered}


def apart(targets: Sequence[CommandTarget]) -> list[list[CommandTarget]]:
    """By bucket, and none named twice: two incarnations of a `null` version have one name."""
    groups: Mapping[tuple[int, int], list[CommandTarget]] = defaultdict(list)
    times: dict[tuple[int, str, str], int] = defaultdict(int)
    for target in targets:
        name = (target.bucket_id, target.key, target.version_id)
        groups[target.bucket_id, times[name]].append(target)
        times[name] += 1
    return list(groups.values())


def ask(
    targets: Sequence[CommandTarget], stores: Callable[[BucketRef], ObjectStore], until: float
) -> list[tuple[CommandTarget, Inspection]]:
    place = ref(targets[0].bucket)
    names = {target.pk: VersionRef(target.key, target.version_id) for target in targets}
    left = max(until - time.monotonic(), 0.0)
    seen = stores(place).inspect(place, list(names.values()), deadline_seconds=left)
    return [(target, seen[names[target.pk]]) for target in targets]
