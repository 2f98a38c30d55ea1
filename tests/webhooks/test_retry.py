"""The schedule of attempts, and the chain of time limits."""

import pytest

from webhooks import checks, limits, retry


def test_fifteen_attempts_over_more_than_a_weekend() -> None:
    waits = [retry.delay_after(attempts, 0.5) for attempts in range(16)]
    assert waits[:5] == [0, 5, 30, 120, 600]
    assert waits[14] == 12 * 3600
    assert waits[15] is None
    assert sum(wait for wait in waits if wait) == 75 * 3600 + 42 * 60 + 35


def test_the_wait_varies_by_fifteen_in_a_hundred_at_most() -> None:
    assert retry.delay_after(2, 0.0) == pytest.approx(30 * 0.85)
    assert retry.delay_after(2, 1.0) == pytest.approx(30 * 1.15)


def test_limits_that_do_not_rise_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.chain() == []
    monkeypatch.setattr(limits, "LEASE", limits.TASK_TIMEOUT)
    assert [error.id for error in checks.chain()] == ["webhooks.E002"]
