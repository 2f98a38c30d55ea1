"""Canonical JSON: the bytes that digests and signatures are taken over.

A subset on which a plain encoder with sorted keys writes exactly what RFC 8785 asks for: ASCII member names, strings without lone
surrogates or NUL, integers up to 2^53 - 1, booleans, null; no floats. Times are UTC with microseconds and `Z`.
"""

from datetime import UTC, datetime
from typing import Any

import orjson


def encode(value: Any) -> bytes:
    """The canonical bytes of a JSON value."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def instant(moment: datetime) -> str:
    """A time as canonical JSON holds it: 2026-01-31T00:00:00.000000Z."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def printed_instant(text: str) -> str:
    """The same, from what PostgreSQL prints for a timestamptz in UTC: 2026-01-31 00:00:00.5+00."""
    stamp, _, fraction = text.removesuffix("+00").partition(".")
    return f"{stamp[:10]}T{stamp[11:]}.{fraction:0<6}Z"
