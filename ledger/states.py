"""The states of runs and commands and the moves between them, as data.

`sql/run_guard.sql` and `sql/command_guard.sql` enforce the same tables in the database, `docs/states.md` draws them, and
tests prove that all three agree.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final


class RunState(StrEnum):
    SCANNING = "scanning"
    NEEDS_APPROVAL = "needs_approval"
    COOLING_OFF = "cooling_off"
    AUTHORISED = "authorised"
    DRAINING = "draining"
    PAUSED = "paused"
    TRIPPED = "tripped"
    CLOSED = "closed"
    CANCELLED = "cancelled"


RUN_MEANING: Final[dict[RunState, str]] = {
    RunState.SCANNING: "Parts of the manifest are being frozen.",
    RunState.NEEDS_APPROVAL: "Sealed; a person must approve the root of what remains.",
    RunState.COOLING_OFF: "Authorised for a later time; can still be cancelled without effect.",
    RunState.AUTHORISED: "Commands may be published.",
    RunState.DRAINING: "Commands are being executed.",
    RunState.PAUSED: "A person paused it.",
    RunState.TRIPPED: "The circuit breaker paused it; a named person re-arms it.",
    RunState.CLOSED: "Ended, and its counts add up.",
    RunState.CANCELLED: "Ended by a person's decision.",
}

RUN_MOVES: Final[dict[RunState, frozenset[RunState]]] = {
    RunState.SCANNING: frozenset(
        {
            RunState.NEEDS_APPROVAL,  # sealed, and the policy or a cap asks for a person
            RunState.COOLING_OFF,  # sealed under a standing authorisation
            RunState.AUTHORISED,  # the same, without a cooling-off time
            RunState.CLOSED,  # a sealed dry run, or nothing to destroy
            RunState.CANCELLED,
        }
    ),
    RunState.NEEDS_APPROVAL: frozenset({RunState.COOLING_OFF, RunState.AUTHORISED, RunState.CANCELLED}),
    RunState.COOLING_OFF: frozenset(
        {
            RunState.NEEDS_APPROVAL,  # more was exempted: what remains must be approved anew
            RunState.AUTHORISED,
            RunState.CANCELLED,
        }
    ),
    RunState.AUTHORISED: frozenset({RunState.DRAINING, RunState.CANCELLED}),
    RunState.DRAINING: frozenset({RunState.PAUSED, RunState.TRIPPED, RunState.CLOSED, RunState.CANCELLED}),
    RunState.PAUSED: frozenset({RunState.DRAINING, RunState.CANCELLED}),
    RunState.TRIPPED: frozenset({RunState.DRAINING, RunState.CANCELLED}),
    RunState.CLOSED: frozenset(),
    RunState.CANCELLED: frozenset(),
}

RUN_ENDED: Final = frozenset(state for state, moves in RUN_MOVES.items() if not moves)
RUN_OPEN: Final = frozenset(RunState) - RUN_ENDED


class CommandState(StrEnum):
    READY = "ready"
    DELETED = "deleted"
    NOTIFIED = "notified"
    HELD = "held"
    DEAD = "dead"
    WITHDRAWN = "withdrawn"


COMMAND_MEANING: Final[dict[CommandState, str]] = {
    CommandState.READY: "To be executed, inspected or tried again when it is due.",
    CommandState.DELETED: "Every target is confirmed gone; a receipt says so.",
    CommandState.NOTIFIED: "Deleted, and every receiver has acknowledged it.",
    CommandState.HELD: "A hold of ours or of the store covers a target; a later run takes it up again.",
    CommandState.DEAD: "In quarantine: a person must decide.",
    CommandState.WITHDRAWN: "Taken back by a decision or a newer revision; a later run may take it up again.",
}


class Needs(StrEnum):
    """What must be on record before a command may move."""

    NOTHING = "nothing"
    DECISION = "decision"  # and the next cycle begins
    INCIDENT = "incident"


_PARKED: Final = (CommandState.HELD, CommandState.DEAD, CommandState.WITHDRAWN)

COMMAND_MOVES: Final[Mapping[tuple[CommandState, CommandState], Needs]] = {
    (CommandState.READY, CommandState.DELETED): Needs.NOTHING,
    **{(CommandState.READY, parked): Needs.NOTHING for parked in _PARKED},
    (CommandState.DELETED, CommandState.NOTIFIED): Needs.NOTHING,
    **{(parked, CommandState.READY): Needs.DECISION for parked in _PARKED},  # replay, or adopted by a later run
    **{(parked, CommandState.DELETED): Needs.INCIDENT for parked in _PARKED},  # found gone by our own late request
}


def page() -> str:
    """Both diagrams with the meaning of each state, in Markdown."""
    run = [f"[*] --> {RunState.SCANNING}"]
    for state in RunState:
        run += [f"{state} --> {target}" for target in RunState if target in RUN_MOVES[state]]
    run += [f"{state} --> [*]" for state in RunState if state in RUN_ENDED]
    command = [f"[*] --> {CommandState.READY}"]
    for (source, target), needs in COMMAND_MOVES.items():
        command.append(f"{source} --> {target}" + ("" if needs is Needs.NOTHING else f" : {needs}"))
    command.append(f"{CommandState.NOTIFIED} --> [*]")
    return chapter("Run", run, RUN_MEANING) + "\n" + chapter("Command", command, COMMAND_MEANING)


def chapter(title: str, moves: list[str], meaning: Mapping[Any, str]) -> str:
    diagram = "".join(f"    {move}\n" for move in moves)
    rows = "".join(f"| `{state}` | {words} |\n" for state, words in meaning.items())
    return f"## {title}\n\n```mermaid\nstateDiagram-v2\n{diagram}```\n\n| state | meaning |\n|---|---|\n{rows}"
