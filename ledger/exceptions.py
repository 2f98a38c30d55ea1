"""What the ledger refuses, with words that say what to do."""


class LedgerError(Exception):
    """A request that cannot be carried out; nothing was changed. `field`: the one thing that was asked wrongly."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class RunOverlap(LedgerError):
    """Another run of the policy is still open; `run` is its key, where it is known."""

    def __init__(self, message: str, *, run: str = "") -> None:
        super().__init__(message)
        self.run = run


class InputRefused(LedgerError):
    """What a run would rest on looks wrong: a catalogue that is stale or has shrunk, or a scope that is suddenly empty."""


class IdempotencyConflict(LedgerError):
    """The idempotency key was used for a different request."""


class NotPermitted(LedgerError):
    """No role of the person has the right."""


class TryLater(LedgerError):
    """What stands in the way passes by itself, within minutes."""


class AlreadyDecided(LedgerError):
    """Somebody else, or the system, was faster: there is nothing left to decide."""


class NotReplayable(LedgerError):
    """Something still stands in the way of another try."""


class Unknown(LedgerError):
    """There is nothing on record under this name."""
