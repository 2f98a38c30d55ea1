"""Three clocks: this host's, the database's, and each store's. What they are allowed to differ by, and why.

The database's decides what is due and stamps signatures; a host's signs requests to stores, judges the codes of second
factors and locks messages of the queue; a store's refuses what was signed too long ago.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from cleanup_project.base import clock
from cleanup_project.operations.doctor.findings import Finding, fault, ok, warning

ASTRAY: Final = 5.0  # seconds: NTP keeps hosts within a fraction of one


class Limit(NamedTuple):
    """From how many seconds on it is a fault, and why."""

    seconds: float
    because: str


OF_HOST: Final = Limit(
    30, "codes of second factors hold for half a minute, and messages of the queue are locked by this clock"
)
OF_STORE: Final = Limit(300, "a store refuses requests that were signed 15 minutes ago, and receivers events of five")


def database() -> Iterator[Finding]:
    before = datetime.now(UTC)
    theirs = clock.now()
    after = datetime.now(UTC)
    ahead = (theirs - before - (after - before) / 2).total_seconds()
    yield judged("clock of the database", ahead, (after - before).total_seconds() / 2, OF_HOST)


def judged(subject: str, ahead: float, doubt: float, limit: Limit) -> Finding:
    """`ahead`: seconds by which the other clock is ahead of this host's, give or take `doubt`."""
    which = "ahead of" if ahead >= 0 else "behind"
    seen = f"{abs(ahead):.1f} s {which} this host's, give or take {doubt:.1f} s."
    certain = abs(ahead) - doubt
    advice = f"Run NTP on every host ({limit.because})."
    if certain >= limit.seconds:
        return fault(subject, seen, advice)
    return warning(subject, seen, advice) if certain >= ASTRAY else ok(subject, seen)
