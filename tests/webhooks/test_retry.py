"""The schedule of attempts, what endpoints ask for, and the chain of time limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhooks import checks, limits, retry
from webhooks.failures import RULES

CLASSES = st.sampled_from(sorted(RULES))


def test_fifteen_attempts_over_more_than_a_weekend() -> None:
    waits = [retry.delay_after("transient", attempts, 0.5) for attempts in range(16)]
    assert waits[:5] == [0, 5, 30, 120, 600]
    assert waits[14] == 12 * 3600
    assert waits[15] is None
    assert sum(wait for wait in waits if wait) == 75 * 3600 + 42 * 60 + 35


def test_the_wait_varies_by_fifteen_in_a_hundred_at_most() -> None:
    assert retry.delay_after("transient", 2, 0.0) == pytest.approx(30 * 0.85)
    assert retry.delay_after("transient", 2, 1.0) == pytest.approx(30 * 1.15)


@given(CLASSES, st.integers(1, 14), st.floats(0, 1, exclude_max=True), st.floats(0, retry.RETRY_AFTER_CAP))
def test_nobody_is_asked_earlier_than_they_said(failure_class: str, made: int, chance: float, asked: float) -> None:
    waits = retry.delay_after(failure_class, made, chance, asked)
    unasked = retry.delay_after(failure_class, made, chance)
    if RULES[failure_class].charged and waits is not None:
        assert unasked is not None
        assert waits == max(unasked, asked * (1 + 0.1 * chance))


@pytest.mark.parametrize(
    ("failure_class", "status", "retry_after", "pause"),
    [
        ("throttled", 429, 120.0, 120.0),
        ("throttled", 429, None, 60.0),
        ("throttled", 429, 0.0, 60.0),
        ("throttled", 429, 1e12, 12 * 3600),
        ("transient", 503, 90.0, 90.0),
        ("transient", 500, 90.0, 90.0),
        ("rejected", 501, 90.0, 90.0),
        ("transient", 503, None, None),
        ("transient", 408, 90.0, None),
        ("redirect", 302, 90.0, None),
        ("network", None, None, None),
        ("sender_error", None, None, 60.0),
    ],
)
def test_what_an_endpoint_asks_for_pauses_it(
    failure_class: str, status: int | None, retry_after: float | None, pause: float | None
) -> None:
    assert retry.pause_after(failure_class, status, retry_after) == pause


def test_limits_that_do_not_rise_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.chain() == []
    monkeypatch.setattr(limits, "LEASE", limits.TASK_TIMEOUT)
    assert [error.id for error in checks.chain()] == ["webhooks.E002"]
