"""When a failed command is tried again, or never. Pure, but for the jitter's random numbers."""

import random

from ledger.failures import Rule, Then


def exhausted(rule: Rule, attempts: int) -> bool:
    """Whether a command with so many charged attempts, this one included, goes to quarantine."""
    return rule.then is Then.QUARANTINE or (rule.charged and attempts >= rule.budget)


def delay(rule: Rule, attempts: int, retry_after: float | None = None) -> float:
    """Seconds until the next try: capped exponential backoff with full jitter, never below the store's Retry-After.

    AWS Architecture Blog, "Exponential Backoff And Jitter".
    """
    ceiling = min(rule.cap, rule.base * 2.0 ** min(max(attempts, 1) - 1, 30))
    waiting = random.uniform(0, ceiling)  # noqa: S311 - spreads load, guards nothing
    return max(waiting, retry_after or 0.0)
