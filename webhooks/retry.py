"""When to try again. Pure: attempts made and a random number in, seconds or never out."""

from typing import Final

MINUTE, HOUR = 60, 3600
# The wait before attempt 1, 2, 3, …: 15 attempts over 75 hours 42 minutes, which is longer than a weekend.
DELAYS: Final = (
    0, 5, 30, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR, *(5 * (12 * HOUR,)),
)  # fmt: skip
JITTER: Final = 0.15


def delay_after(attempts: int, chance: float) -> float | None:
    """Seconds to wait once `attempts` have failed; None: never again. `chance` is random, in [0, 1)."""
    if attempts >= len(DELAYS):
        return None
    return DELAYS[attempts] * (1 - JITTER + 2 * JITTER * chance)
