"""Canonical JSON: the bytes that digests and signatures are taken over.

A subset on which Python's encoder writes exactly what RFC 8785 asks for: ASCII member names, strings without lone
surrogates or NUL, integers up to 2^53 - 1, booleans, null; no floats. Times are UTC with microseconds and `Z`.
"""

import json
from datetime import UTC, datetime
from typing import Any

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def encode(value: Any) -> str:
    """The canonical text of a JSON value; its UTF-8 bytes are the canonical bytes."""
    return _encode(value)


def instant(moment: datetime) -> str:
    """A time as canonical JSON holds it: 2026-01-31T00:00:00.000000Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
