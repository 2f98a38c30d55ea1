"""What a program may be let do: scopes as data, each with the right that its verbs then ask for.

Two scopes may need the same right, and a right may reach further than a scope: the API asks for the scope, the verb for the
right. None of the rights is one by which somebody approves what another began; a constraint of the database says so, too.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple


class Scope(NamedTuple):
    """`right`: of `roles.RIGHTS`; empty where the verbs ask for none."""

    words: str
    right: str = ""


SCOPES: Final[dict[str, Scope]] = {
    "runs:read": Scope("See runs: their state, their counts and what they wait for"),
    "runs:create": Scope("Open runs, which pass every guard and wait for people's approval as any run does"),
    "manifests:read": Scope("Read the manifests of runs: every object that they name"),
    "commands:read": Scope("Ask what became of a command"),
    "quarantine:read": Scope("See what is in quarantine"),
    "quarantine:replay": Scope(
        "Replay what is in quarantine; that somebody looked at it first is the word of whoever calls", "operate"
    ),
    "quarantine:close": Scope("Close quarantine entries without retry", "review_quarantine"),
    "jobs:read": Scope("See how far a job about many entries has come"),
    "holds:read": Scope("See legal holds"),
    "holds:place": Scope("Place legal holds", "place_hold"),
    "holds:request-release": Scope("Request the release of legal holds, which a person then decides", "place_hold"),
    "events:post": Scope("Post retention events, which start clocks", "post_event"),
    "policies:read": Scope("See policies and their revisions"),
    "receipts:read": Scope("Read and export receipts", "export_receipts"),
    "objects:read": Scope("Ask why an object is kept, or when it may go"),
    "catalogue:write": Scope("Upload rows of the catalogue: what is in a bucket, and whose it is"),
}

RIGHTS_OF_PROGRAMS: Final = sorted({scope.right for scope in SCOPES.values() if scope.right})


def rights_of(scopes: Iterable[str]) -> list[str]:
    """What the verbs behind these scopes ask for."""
    return sorted({SCOPES[scope].right for scope in scopes} - {""})
