"""The run's states and the moves between them, as data.

`sql/run_guard.sql` enforces the same table in the database, `docs/states.md` draws it, and tests prove that all three agree.
"""

from enum import StrEnum
from typing import Final


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
    RunState.NEEDS_APPROVAL: "Sealed; a person must approve the manifest root.",
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
    RunState.COOLING_OFF: frozenset({RunState.AUTHORISED, RunState.CANCELLED}),
    RunState.AUTHORISED: frozenset({RunState.DRAINING, RunState.CANCELLED}),
    RunState.DRAINING: frozenset({RunState.PAUSED, RunState.TRIPPED, RunState.CLOSED, RunState.CANCELLED}),
    RunState.PAUSED: frozenset({RunState.DRAINING, RunState.CANCELLED}),
    RunState.TRIPPED: frozenset({RunState.DRAINING, RunState.CANCELLED}),
    RunState.CLOSED: frozenset(),
    RunState.CANCELLED: frozenset(),
}

RUN_ENDED: Final = frozenset(state for state, moves in RUN_MOVES.items() if not moves)
RUN_OPEN: Final = frozenset(RunState) - RUN_ENDED


def mermaid() -> str:
    """The state diagram of a run, as Mermaid text."""
    lines = ["stateDiagram-v2", f"    [*] --> {RunState.SCANNING}"]
    for state in RunState:
        lines += [f"    {state} --> {target}" for target in RunState if target in RUN_MOVES[state]]
        if not RUN_MOVES[state]:
            lines.append(f"    {state} --> [*]")
    return "\n".join(lines) + "\n"
