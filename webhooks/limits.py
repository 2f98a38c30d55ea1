"""Seconds and counts of dispatch. The chain itself stands in `base.limits`; `checks.chain` proves the order.

A dispatch ends within its budget, so the queue never cuts it off (timeout); an attempt's lease outlives both, so nobody
sends a delivery that is still being sent; and the queue gives a lost task out again only after all of that (retry).
"""

from typing import Final

from cleanup_project.base.limits import DISPATCH_BUDGET, DISPATCH_LEASE, DISPATCH_RETRY, DISPATCH_TIMEOUT

BUDGET: Final = DISPATCH_BUDGET
TASK_TIMEOUT: Final = DISPATCH_TIMEOUT
LEASE: Final = DISPATCH_LEASE
TASK_RETRY: Final = DISPATCH_RETRY

SEND: Final = 15  # one POST, from the look-up of its name to the last byte that is read
DNS_TIMEOUT: Final = 3
CONNECT_TIMEOUT: Final = 3  # for each address
READ_TIMEOUT: Final = 10  # between two reads, and for a TLS handshake
BODY_TIMEOUT: Final = 2  # for the body of an answer, whose status line has decided already

ADDRESSES: Final = 4  # of one name that are tried
LOOK_UPS: Final = 32  # of names at once, those that were given up and still hang included
HEAD_LIMIT: Final = 64 * 1024  # bytes of interim answers, status line and headers
BODY_LIMIT: Final = 64 * 1024  # bytes of a body that are read; the connection is used again only after a shorter one
HEADERS_LIMIT: Final = 2048  # characters of headers that are kept
RETRY_AFTER_LIMIT: Final = 12 * 3600  # seconds

THREADS: Final = 32  # three times the deliveries of 8, to receivers that take 0.3 s; less CPU for each, to fast ones
IN_FLIGHT: Final = 32  # deliveries of one endpoint that are being sent at once, by all workers together
