"""Seconds and counts that depend on one another; `checks.chain` proves their order.

A dispatch ends within its budget, so the queue never cuts it off (timeout); an attempt's lease outlives both, so nobody
sends a delivery that is still being sent; and the queue gives a lost task out again only after all of that (retry).
"""

from typing import Final

from cleanup_project.base import limits

BUDGET: Final = limits.DISPATCH_BUDGET
TASK_TIMEOUT: Final = limits.DISPATCH_TIMEOUT
LEASE: Final = limits.DISPATCH_LEASE
TASK_RETRY: Final = limits.DISPATCH_RETRY

CONNECT_TIMEOUT: Final = 3
READ_TIMEOUT: Final = 10
SEND: Final = 15  # what one attempt may take, its bookkeeping included

THREADS: Final = 8
IN_FLIGHT: Final = 32  # deliveries of one endpoint that are being sent at once, by all workers together
