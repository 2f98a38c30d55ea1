"""Would a replay of these parked commands be refused, and why: the one judgement, of one command or of hundreds at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Self

from cleanup_project.base import clock
from cleanup_project.base.canonical import instant
from ledger import claim, next_action
from ledger.exceptions import AlreadyDecided, LedgerError, NotReplayable
from ledger.models import CleanupCommand, CleanupRun, CommandTarget
from ledger.states import CommandState, RunState
from retention import governing, holds
from retention.eligibility import WORDS, HoldFacts, Surroundings, VersionFacts, judge
from retention.governing import Governing
from retention.models import ObjectVersion, PolicyRevision, RetentionPolicy, StopSwitch
from retention.why import facts_of, surroundings_of_each

PARKED: Final = frozenset({CommandState.HELD, CommandState.DEAD, CommandState.WITHDRAWN})


@dataclass(frozen=True, slots=True)
class Case:
    """A parked command and what it names. `versions` are those of its targets, by id."""

    command: CleanupCommand
    run: CleanupRun
    targets: Sequence[CommandTarget]
    versions: Mapping[int, ObjectVersion]

    @property
    def original(self) -> ObjectVersion | None:
        return self.versions.get(self.targets[0].object_version_id) if self.targets else None


@dataclass(frozen=True, slots=True)
class Setting:
    """What commands of one tenant are judged by, read after the hold lock was granted, so that no hold is missed.

    `taken`: which command has an object version now, by version. `checked`: the rows of `claim.check`, by command.
    """

    now: datetime
    checked: Mapping[int, list[tuple[object, ...]]]
    anything_stopped: bool
    holding: Sequence[HoldFacts]
    rules: Mapping[int, Sequence[Governing]]
    around: Mapping[int, Surroundings]
    taken: dict[int, int]

    @classmethod
    def of(cls, cases: Sequence[Case], tenant_id: int) -> Self:
        now = clock.now()
        policies = RetentionPolicy.objects.select_related("tenant").in_bulk({each.command.policy_id for each in cases})
        ids = {pk for each in cases for pk in each.versions}
        active = CommandTarget.objects.filter(object_version_id__in=ids, active=True)
        return cls(
            now=now,
            checked=claim.check([each.command.pk for each in cases], tenant_id),
            anything_stopped=StopSwitch.objects.active().exists(),
            holding=holds.in_force(tenant_id),
            rules={pk: governing.of_policy(policy, now) for pk, policy in policies.items()},
            around=surroundings_of_each([each.original for each in cases if each.original is not None]),
            taken=dict(active.values_list("object_version_id", "command_id")),
        )


def cases_of(commands: Sequence[CleanupCommand]) -> list[Case]:
    """The commands with what stands around them, read without locks."""
    targets = targets_of([each.pk for each in commands])
    runs = CleanupRun.objects.in_bulk({each.run_id for each in commands})
    versions = ObjectVersion.objects.in_bulk({each.object_version_id for found in targets.values() for each in found})
    return [case(each, runs[each.run_id], targets[each.pk], versions) for each in commands]


def case(
    command: CleanupCommand,
    run: CleanupRun,
    targets: Sequence[CommandTarget],
    versions: Mapping[int, ObjectVersion],
) -> Case:
    own = {each.object_version_id for each in targets} & versions.keys()
    return Case(command, run, targets, {pk: versions[pk] for pk in own})


def targets_of(ids: Sequence[int]) -> dict[int, list[CommandTarget]]:
    found: dict[int, list[CommandTarget]] = {pk: [] for pk in ids}
    for target in CommandTarget.objects.filter(command__in=ids).order_by("command_id", "ordinal"):
        found[target.command_id].append(target)
    return found


def refusals(cases: Sequence[Case]) -> Iterator[tuple[Case, LedgerError | None]]:
    """Each with the reason why it may not be replayed now, or None. What one may take, the later ones may not."""
    by_tenant: dict[int, list[Case]] = {}
    for each in cases:
        by_tenant.setdefault(each.command.tenant_id, []).append(each)
    for tenant_id, own in sorted(by_tenant.items()):
        setting = Setting.of(own, tenant_id)
        for each in own:
            try:
                check(each, setting)
            except (AlreadyDecided, NotReplayable) as refusal:
                yield each, refusal
            else:
                setting.taken.update(dict.fromkeys(each.versions, each.command.pk))
                yield each, None


def why_not(command: CleanupCommand) -> str:
    """What would refuse a replay now, in words, or nothing. Looks without locks, so only the replay itself is sure."""
    ((_case, refusal),) = refusals(cases_of([command]))
    return str(refusal) if refusal else ""


def check(each: Case, setting: Setting) -> None:
    """Raise where a replay must not be."""
    state_allows(each.command, each.run, setting.now)
    nothing_keeps(each.command, setting)
    still_eligible(each, setting)
    for pk in sorted(each.versions):
        other = setting.taken.get(pk, each.command.pk)
        if other != each.command.pk:
            named = CleanupCommand.objects.get(pk=other)
            raise NotReplayable(f"Another command has one of its objects: {named}. Let that one end.")


def state_allows(command: CleanupCommand, run: CleanupRun, now: datetime) -> None:
    if command.state not in PARKED:
        raise AlreadyDecided(f"{command} is {command.state}, so there is nothing to replay{taken_up(command)}.")
    if command.inspect_due is not None:
        raise NotReplayable(
            "An earlier request may have been executed, and what became of it is not known yet. It is looked at by "
            f"itself from {instant(command.inspect_due)} on: wait for that."
        )
    if run.state == RunState.CANCELLED:
        raise NotReplayable(f"{run} was cancelled: open a new run, which takes up what is still eligible.")
    if command.held_by == CleanupCommand.HeldBy.STORE and command.held_until and command.held_until > now:
        raise NotReplayable(f"The store retains it until {instant(command.held_until)}: replay it after that.")


def taken_up(command: CleanupCommand) -> str:
    last = command.decisions.filter(cycle=command.cycle).select_related("by").first()
    if last is None:
        return ""
    return f": {last.get_kind_display()}" + (f" by {last.by}" if last.by else "") + f" at {instant(last.at)}"


def nothing_keeps(command: CleanupCommand, setting: Setting) -> None:
    """The stop switches, and of every target the holds and the enforcement, as the claim will look at them."""
    stopped = next_action.stopped_by(command) if setting.anything_stopped else ""
    if stopped:
        raise NotReplayable(f"{stopped} Have it lifted first.")
    facts = [row[-4:] for row in setting.checked[command.pk]]
    if len(facts) != command.target_count:
        raise NotReplayable("Its targets are not on record any more: a later run must find the object again.")
    held = sorted({int(str(hold)) for hold, *_ in facts if hold is not None})
    if held:
        named = ", ".join(f"hold {hold}" for hold in held)
        raise NotReplayable(f"A legal hold covers it ({named}): nothing of it is destroyed until that is released.")
    if not all(enforced for _hold, enforced, *_ in facts):
        raise NotReplayable("Enforcement is off where one of its targets is: have it switched on there first.")


def facts_now(original: ObjectVersion) -> VersionFacts:
    """What merely vanished is judged as if it were there: only a replay finds out whether it was us."""
    return replace(facts_of(original), present=original.gone_reason != ObjectVersion.Gone.DESTROYED)


def still_eligible(each: Case, setting: Setting) -> None:
    """Judge the original now, by what decides about its policy's runs."""
    original, command = each.versions[each.targets[0].object_version_id], each.command
    verdict = judge(
        facts_now(original), setting.around[original.pk], setting.rules[command.policy_id], setting.holding, setting.now
    )
    if not verdict.eligible:
        raise NotReplayable(f"It is not eligible now. {WORDS[verdict.reason]}")
    if verdict.governed_by is None or verdict.governed_by.revision_id != command.revision_id:
        label = verdict.governed_by.label if verdict.governed_by else "nothing"
        own = PolicyRevision.objects.select_related("policy").get(pk=command.revision_id)
        raise NotReplayable(f"{label} governs it now, not {own}: a run of that policy decides about it.")
    coupled = {target.id for target in verdict.targets}
    for target in each.targets:
        if target.object_version_id not in coupled and each.versions[target.object_version_id].gone_at is None:
            raise NotReplayable(
                f"{target} does not go with this original any more: correct the catalogue, or close it."
            )
