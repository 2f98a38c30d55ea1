"""When to try again. Pure: a failure, the attempts made and a random number in, seconds or never out."""

from typing import Final

from webhooks.failures import RULES

MINUTE, HOUR = 60, 3600
# The wait before attempt 1, 2, 3, …: 15 attempts over 75 hours 42 minutes, which is longer than a weekend.
DELAYS: Final = (
    0, 5, 30, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, *(5 * (12 * HOUR,)),
)  # fmt: skip
JITTER: Final = 0.15
SPREAD: Final = 0.1  # added to what an endpoint asked for, never taken from it
RETRY_AFTER_CAP: Final = 12 * HOUR


def delay_after(failure_class: str, attempts: int, chance: float, asked: float | None = None) -> float | None:
    """Seconds to wait once `attempts` charged ones have failed, the last one so; None: never again.

    `chance` is random, in [0, 1). `asked`: what the endpoint asked for (`pause_after`); it is never tried earlier.
    """
    rule = RULES[failure_class]
    if not rule.charged:
        return rule.every_wait * (1 + JITTER * chance)
    if attempts >= rule.attempts:
        return None
    least = max(rule.every_wait, rule.first_wait if attempts == 1 else 0)
    return max(
        DELAYS[attempts] * (1 - JITTER + 2 * JITTER * chance),
        least * (1 + JITTER * chance),
        (asked or 0) * (1 + SPREAD * chance),
    )


def pause_after(failure_class: str, status: int | None, retry_after: float | None) -> float | None:
    """Seconds for which the endpoint is left alone after such an answer; None: not at all.

    `retry_after` is the header's, in seconds (RFC 9110 §10.2.3). It holds for 429 and 5xx, up to twelve hours.
    """
    if retry_after is not None and retry_after > 0 and status is not None and (status == 429 or status >= 500):
        return min(retry_after, RETRY_AFTER_CAP)
    return RULES[failure_class].pause
