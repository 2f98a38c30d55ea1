"""Canonical JSON, the bytes that digests and signatures are taken over: what RFC 8785 writes, for a subset of JSON.

The subset leaves out what writers disagree about: floats, integers beyond 2^53-1, keys beyond ASCII, lone surrogates;
and NUL, which PostgreSQL's text cannot hold.
"""

import json
from datetime import UTC, datetime
from json.encoder import encode_basestring
from typing import Any, Final

# `to_char(moment AT TIME ZONE 'UTC', …)` with this format prints what `instant` does.
SQL_INSTANT = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'
LARGEST: Final = 2**53 - 1

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class Written(str):
    """Canonical JSON already, put together by hand where a thousand are written at once; it is believed."""

    __slots__ = ()


class NotCanonical(ValueError):
    """A value that canonical JSON cannot hold, by its place and what to do."""


def instant(moment: datetime) -> str:
    """A time as canonical JSON holds it: 2026-01-31T00:00:00.000000Z."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def encode(value: Any) -> bytes:
    """The value as canonical JSON in UTF-8. Raises NotCanonical."""
    return text(value).encode()


def text(value: Any) -> str:
    """`encode` before UTF-8, for who puts a larger text together."""
    if type(value) is Written:
        return value
    if type(value) is str:
        check_text(value, "The text")
        return encode_basestring(value)
    check(value, "")
    return _encoder.encode(value)


def check(value: Any, place: str) -> None:
    """Raise NotCanonical at the first part that is outside of the subset; `place` names the value, as `.targets[3]`."""
    kind = type(value)
    if kind is dict:
        for key, inner in value.items():
            if type(key) is not str or not key.isascii() or "\x00" in key:
                raise NotCanonical(f"{place or 'The object'} has the key {key!r}: keys are ASCII text without NUL.")
            # Most values by far: said twice, since emit encodes thousands at once.
            if type(inner) is not str or not inner.isascii() or "\x00" in inner:
                check(inner, f"{place}.{key}")
    elif kind is list or kind is tuple:
        for index, inner in enumerate(value):
            check(inner, f"{place}[{index}]")
    elif kind is str:
        check_text(value, place or "The text")
    elif kind is int:
        if not -LARGEST <= value <= LARGEST:
            raise NotCanonical(f"{place or 'The number'} is beyond 2^53-1: give it as text.")
    elif value is not None and kind is not bool:
        raise NotCanonical(
            f"{place or 'The value'} is of type {kind.__name__}: give null, true, false, whole numbers, text, lists and "
            "objects; times through canonical.instant, and fractions as text."
        )


def check_text(value: str, place: str) -> None:
    if "\x00" in value:
        raise NotCanonical(f"{place} holds NUL, which cannot be stored: remove it.")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        raise NotCanonical(f"{place} holds a lone surrogate, which is no character: remove it.")
