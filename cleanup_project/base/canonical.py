"""Times in canonical JSON, the text that digests are taken over: UTC, microseconds, and `Z`."""

from datetime import UTC, datetime

# `to_char(moment AT TIME ZONE 'UTC', …)` with this format prints what `instant` does.
SQL_INSTANT = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'


def instant(moment: datetime) -> str:
    """A time as canonical JSON holds it: 2026-01-31T00:00:00.000000Z."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
