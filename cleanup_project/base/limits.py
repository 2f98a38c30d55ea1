"""The chains of time limits, in seconds, each link shorter than the next. `queue_checks` compares them at every start.

budget: when a task stops taking more work. timeout: when the queue ends it by force, which never happens in normal life.
lease: how long what it claimed stays its own; longer than the timeout, so that no lease ends under a live worker.
retry: when the queue delivers a message again that nobody acknowledged. Only a backstop: the sweep is much earlier.
"""

from typing import Final

DRAIN_BUDGET: Final = 45
TASK_TIMEOUT: Final = 180
LEASE: Final = 300
QUEUE_RETRY: Final = 900

DISPATCH_BUDGET: Final = 45
DISPATCH_TIMEOUT: Final = 90
DISPATCH_LEASE: Final = 150
DISPATCH_RETRY: Final = 600

CHAINS: Final = {
    "drain": (DRAIN_BUDGET, TASK_TIMEOUT, LEASE, QUEUE_RETRY),
    "dispatch": (DISPATCH_BUDGET, DISPATCH_TIMEOUT, DISPATCH_LEASE, DISPATCH_RETRY),
}

# When the supervisor takes a cluster that makes no progress for dead: longer than any task may take.
STALL: Final = TASK_TIMEOUT + 60
# How long a stopping cluster may finish what it holds: for each worker one task running, one waiting, one in hand.
STOP: Final = 200
