"""Whose turn it is with a command: the system's by itself, a person's, or nobody's; what comes next, and when."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cleanup_project.base import clock
from cleanup_project.base.canonical import instant
from ledger.models import CleanupCommand, CleanupRun, ItemDisposition, SkippedItem
from ledger.states import CommandState, RunState
from retention.models import ObjectVersion, StopSwitch
from webhooks.models import Delivery

UNSTOPPED_BY_RUN = {
    RunState.PAUSED: "Its run is paused: somebody with the right operate resumes it.",
    RunState.TRIPPED: "The circuit breaker has tripped its run: somebody with the right rearm looks, and re-arms it.",
}


class Turn(StrEnum):
    AUTOMATIC = "automatic"
    PERSON = "person"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Next:
    """`at`: from when on; None: at once, or whenever a person does it."""

    turn: Turn
    what: str
    at: datetime | None = None


def of_command(command: CleanupCommand, deliveries: Sequence[Delivery] = ()) -> Next:
    """The next action on a command, from its own row and what stands around it now."""
    state = CommandState(command.state)
    if state is CommandState.READY:
        return of_ready(command)
    if state is CommandState.DELETED:
        return of_deleted(deliveries)
    if state is CommandState.NOTIFIED:
        return Next(Turn.NOBODY, "Nothing is left to do: it is destroyed, and everybody who was to be told was told.")
    if command.inspect_due is not None:
        return Next(Turn.AUTOMATIC, "A late request may have destroyed it: it is looked at.", command.inspect_due)
    if destroyed_otherwise(command):
        return Next(Turn.NOBODY, "Nothing is left to do: another command has destroyed its object.")
    if state is CommandState.HELD:
        return of_held(command)
    return of_dead(command) if state is CommandState.DEAD else of_withdrawn(command)


def of_ready(command: CleanupCommand) -> Next:
    now = clock.now()
    if command.lease_until is not None and command.lease_until > now:
        return Next(
            Turn.AUTOMATIC,
            "A worker has it. Should that end without an answer, another takes over.",
            command.lease_until,
        )
    if command.inspect_due is not None:  # a look sends nothing: no stop, pause, suspension or window keeps it back
        at = max(command.inspect_due, command.due_at)
        return Next(Turn.AUTOMATIC, "What became of an earlier request is looked at, before anything else.", at)
    stopped = stopped_by(command)
    if stopped:
        return Next(Turn.PERSON, f"{stopped} Somebody with the right rearm lifts it.")
    run = RunState(command.run.state)
    if run in UNSTOPPED_BY_RUN:
        return Next(Turn.PERSON, UNSTOPPED_BY_RUN[run])
    if command.policy.suspended_at is not None:
        words = f"Its policy is suspended ({command.policy.suspended_reason}): nothing of it is destroyed."
        return Next(Turn.PERSON, words)
    if run is RunState.CANCELLED:
        return Next(Turn.AUTOMATIC, "Its run was cancelled: it is withdrawn.")
    window = command.revision.window
    if window is not None and window.closes(now) is None:
        opens = window.opens(max(now, command.due_at))
        return Next(Turn.AUTOMATIC, "The execution window of its policy is closed: it waits until that opens.", opens)
    if command.due_at > now:
        return Next(Turn.AUTOMATIC, "It is tried again." if command.claims else "It is executed.", command.due_at)
    return Next(Turn.AUTOMATIC, "It is due: the next drain of its bucket takes it.")


def stopped_by(command: CleanupCommand) -> str:
    """Who has stopped it, since when and why, in words; nothing, where no switch is on."""
    buckets = {command.bucket_id, *command.targets.filter(gone_at=None).values_list("bucket_id", flat=True)}
    switches = StopSwitch.objects.active().concerning(command.tenant_id, command.policy_id, buckets)
    found = switches.select_related("pressed_by", "tenant", "bucket", "policy").order_by("pk")
    return " ".join(
        f"Stopped by {each.pressed_by or 'the system'} since {instant(each.pressed_at)} ({each}): {each.reason}"
        for each in found
    )


def of_held(command: CleanupCommand) -> Next:
    later = "the next authorised run that finds it eligible takes it up, or somebody replays it."
    if command.held_by == CleanupCommand.HeldBy.US:
        hold = command.hold
        if hold is not None and hold.released_at is None:
            return Next(
                Turn.PERSON, f"Legal hold {hold.pk} ({hold}) covers it until two people release it. Then {later}"
            )
        return Next(Turn.AUTOMATIC, f"The hold that covered it is released: {later}")
    if command.held_until is None:
        return Next(Turn.PERSON, f"The store protects it without a known end: release it there. Then {later}")
    return Next(Turn.AUTOMATIC, f"The store retains it until then. After that {later}", command.held_until)


def of_dead(command: CleanupCommand) -> Next:
    entry = command.dead_letters.order_by("-cycle").select_related("resolved_by").first()
    if entry is None or entry.resolved_at is None:
        return Next(Turn.PERSON, entry.next_action if entry else "It is in quarantine: replay it, or close it.")
    return Next(
        Turn.NOBODY,
        f"Closed without retry by {entry.resolved_by}: {entry.reason} A later authorised run that finds its object "
        "eligible would take it up.",
    )


def of_withdrawn(command: CleanupCommand) -> Next:
    return Next(
        Turn.AUTOMATIC,
        f"Withdrawn: {command.reason} The next authorised run takes it up, if it is still eligible under its revision.",
    )


def of_deleted(deliveries: Sequence[Delivery]) -> Next:
    dead = [each for each in deliveries if each.state == Delivery.State.DEAD and each.endpoint.retired_at is None]
    if dead:
        named = ", ".join(each.endpoint.name for each in dead)
        return Next(Turn.PERSON, f"It is destroyed. {named} could not be told: repair the receiver, then redeliver.")
    pending = [each for each in deliveries if each.state == Delivery.State.PENDING]
    disabled = [each for each in pending if each.endpoint.disabled_at is not None]
    if disabled:
        named = ", ".join(each.endpoint.name for each in disabled)
        return Next(Turn.PERSON, f"It is destroyed. The endpoint {named} is disabled: enable it, and it is told.")
    if pending:
        at = min((each.due_at for each in pending if each.due_at), default=None)
        return Next(Turn.AUTOMATIC, "It is destroyed. Its notice is delivered.", at)
    return Next(Turn.AUTOMATIC, "It is destroyed, and nothing is owed: the next sweep marks it as notified.")


def destroyed_otherwise(command: CleanupCommand) -> bool:
    ids = list(command.targets.values_list("object_version_id", flat=True))
    return ObjectVersion.objects.filter(pk__in=ids, gone_reason=ObjectVersion.Gone.DESTROYED).exists()


def of_item(run: CleanupRun, skipped: SkippedItem | None, disposed: ItemDisposition | None = None) -> Next:
    """The next action on a manifest item of which no command was made."""
    if disposed is not None and disposed.until is not None:
        words = f"{disposed.by} extended its retention: {disposed.reason} A run after that may find it again."
        return Next(Turn.AUTOMATIC, words, disposed.until)
    if disposed is not None:
        return Next(Turn.NOBODY, f"{disposed.by} exempted it from {run}: {disposed.reason}")
    if skipped is not None:
        return Next(Turn.NOBODY, f"It was left out when the commands of {run} were published: {skipped.reason}")
    if run.mode == CleanupRun.Mode.DRY_RUN:
        return Next(Turn.NOBODY, f"{run} is a dry run: it says what would be destroyed, and destroys nothing.")
    state = RunState(run.state)
    if state is RunState.NEEDS_APPROVAL:
        return Next(Turn.PERSON, f"{run} waits for somebody who approves its manifest root.")
    if state is RunState.COOLING_OFF:
        return Next(Turn.AUTOMATIC, f"{run} is cooling off; then its commands are published.", run.cooling_until)
    if state in UNSTOPPED_BY_RUN:
        return Next(Turn.PERSON, UNSTOPPED_BY_RUN[state])
    if state in {RunState.CANCELLED, RunState.CLOSED}:
        return Next(Turn.NOBODY, f"{run} has ended ({run.end_reason}) before a command was made of it.")
    return Next(Turn.AUTOMATIC, f"{run} is {run.get_state_display()}: its command is published in its turn.")
