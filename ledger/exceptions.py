"""What the ledger refuses, with words that say what to do."""


class LedgerError(Exception):
    """A request that cannot be carried out; nothing was changed."""


class RunOverlap(LedgerError):
    """Another run of the policy is still open."""


class IdempotencyConflict(LedgerError):
    """The idempotency key was used for a different request."""
