"""What of dispatch is counted by the minute: attempts, and how long after its event a delivery is sent and answered."""

from typing import Final

from cleanup_project.base import sqlfiles
from cleanup_project.base.rollups import Source

ATTEMPTS: Final = "delivery_attempts"  # by class; `delivered` for 2xx
FIRST_SEND: Final = "first_send"  # from the event to the first request
ACKNOWLEDGEMENT: Final = "acknowledgement"  # from the event to the 2xx
REDELIVERY: Final = "redelivery"  # begun because a person asked for it

SOURCES: Final = (
    Source(
        "delivery attempts",
        (ATTEMPTS, FIRST_SEND, ACKNOWLEDGEMENT, REDELIVERY),
        sqlfiles.read(__file__, "rollup_attempts.sql"),
    ),
)
