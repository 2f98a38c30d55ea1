"""Walks that end by the clock and go on where they ended."""

from collections.abc import Callable

import pytest
from django.core.cache import cache

from cleanup_project.base import walks

pytestmark = pytest.mark.django_db

Step = Callable[[int], tuple[int, int | None]]


@pytest.fixture
def seen() -> list[int]:
    return []


@pytest.fixture
def step(seen: list[int]) -> Step:
    """Ten places, at each of which one thing is found."""

    def look(place: int) -> tuple[int, int | None]:
        seen.append(place)
        return 1, place + 1 if place < 9 else None

    return look


def test_what_can_be_seen_within_the_time_is_seen_whole_each_time(seen: list[int], step: Step) -> None:
    assert [walks.walk("w", 0, step) for _ in range(2)] == [10, 10]
    assert seen == [*range(10), *range(10)]
    assert cache.get("w") is None


def test_more_goes_on_where_it_ended_and_begins_anew_after_its_end(
    seen: list[int], step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "SECONDS", 0)  # one step a walk
    assert sum(walks.walk("w", 0, step) for _ in range(12)) == 12
    assert seen == [*range(10), 0, 1]
    monkeypatch.setattr(walks, "SECONDS", 5)
    walks.walk("w", 0, step)
    walks.walk("w", 0, step)
    assert seen[12:] == [*range(2, 10), *range(10)]


def test_a_failing_step_is_tried_again_from_where_the_last_walk_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "SECONDS", 0)

    def failing(place: int) -> tuple[int, int | None]:
        if place == 1:
            raise RuntimeError("It broke.")
        return 0, place + 1

    walks.walk("w", 0, failing)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            walks.walk("w", 0, failing)
    assert cache.get("w") == 1


def test_several_share_the_time_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "SECONDS", 0)
    seen = list[tuple[int, int]]()

    def step(id: int, place: int) -> tuple[int, int | None]:
        seen.append((id, place))
        return 1, 1 if place == 0 else None

    for _ in range(5):
        walks.walk_each("w", [3, 7], 0, step)
    assert seen == [(3, 0), (3, 1), (7, 0), (7, 1), (3, 0)]
    assert walks.walk_each("none", [], 0, step) == 0
