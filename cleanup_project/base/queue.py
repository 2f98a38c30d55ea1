"""The queue port: a message is a wake-up for work that stands in the database already."""

from collections.abc import Callable
from typing import Final

WORK: Final = "work"


def task(*, queue: str = WORK, timeout: int = 90) -> Callable[[Callable[..., object]], Callable[..., object]]:
    return lambda verb: verb


def wake(task: str, argument: int | None = None) -> None:
    """Ring for a task. No queue is wired yet: the sweep finds the work."""
