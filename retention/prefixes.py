"""Byte prefixes of keys: minimal sets, and the range of keys that a prefix covers."""

from collections.abc import Iterable


def minimal(prefixes: Iterable[str]) -> list[str]:
    """The same coverage without overlaps: a prefix that another one already covers is dropped. Sorted."""
    kept: list[str] = []
    for prefix in sorted(set(prefixes), key=str.encode):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return kept


def narrowed(some: Iterable[str], others: Iterable[str]) -> list[str]:
    """The prefixes of what both cover, without overlaps."""
    others = list(others)
    return minimal(
        max(one, other, key=len) for one in some for other in others if one.startswith(other) or other.startswith(one)
    )


def successor(prefix: str) -> str | None:
    """The least string, in UTF-8 byte order, above every string that begins with the prefix; None for the empty prefix.

    A prefix that ends in U+10FFFF has the successor of what stands before it; surrogates are no characters and skipped.
    """
    for index in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[index]) + 1
        if point <= 0x10FFFF:
            return prefix[:index] + chr(0xE000 if point == 0xD800 else point)
    return None
