"""Looks through what may be very much, some seconds at a time: each goes on where the last one ended.

What is seen within that time is seen whole, from its start to its end. Where a walk ended early is kept in the cache: if that
is lost, or two walk at once, some of it is looked at again.
"""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, TypeVar

from django.core.cache import cache

SECONDS: Final = 5.0
KEPT: Final = 24 * 60 * 60  # seconds for which a place is remembered

Place = TypeVar("Place")


def walk(name: str, start: Place, step: Callable[[Place], tuple[int, Place | None]]) -> int:
    """Go on to the end, or for SECONDS; returns the sum of what the steps found.

    A step looks at what comes behind a place, and returns what it found and where to go on: None at the end.
    """
    ends = time.monotonic() + SECONDS
    place: Place | None = cache.get(name, start)
    begun_early = place == start
    found = 0
    while place is not None:
        number, place = step(place)
        found += number
        if time.monotonic() >= ends:
            break
    if place is not None:
        cache.set(name, place, KEPT)
    elif not begun_early:
        cache.delete(name)
    return found


def walk_each(
    name: str, ids: Sequence[int], start: Place, step: Callable[[int, Place], tuple[int, Place | None]]
) -> int:
    """Walk what belongs to each of the ids, in their order: SECONDS for all of them together."""
    following = dict(pairwise(ids))

    def step_of_each(place: tuple[int, Place]) -> tuple[int, tuple[int, Place] | None]:
        id, inner = place
        found, after = step(id, inner)
        if after is None:
            id, after = following.get(id, 0), start
        return found, (id, after) if id else None

    return walk(name, (ids[0], start), step_of_each) if ids else 0
