"""Each class of failure: what it means for the delivery and for its endpoint."""

import pytest

from webhooks import retry
from webhooks.failures import RULES, Health, of_status

FULL, SHORT = 15, 6
# class: (attempts before it is dead, least first wait, least wait always, health, charged)
TABLE = {
    "": (FULL, 0, 0, "success", True),
    "delivered_duplicate": (FULL, 0, 0, "success", True),
    "redirect": (FULL, 600, 0, "failure", True),
    "rejected": (SHORT, 0, 0, "none", True),
    "auth": (FULL, 600, 0, "failure", True),
    "not_found": (FULL, 600, 0, "failure", True),
    "transient": (FULL, 0, 0, "failure", True),
    "conflict": (SHORT, 0, 0, "none", True),
    "gone": (FULL, 300, 0, "none", True),
    "too_large": (3, 0, 0, "none", True),
    "throttled": (FULL, 0, 0, "none", True),
    "tls_cert": (FULL, 600, 0, "failure", True),
    "tls": (FULL, 0, 0, "failure", True),
    "dns_name": (FULL, 600, 0, "failure", True),
    "dns_temp": (FULL, 0, 0, "failure", True),
    "network": (FULL, 0, 0, "failure", True),
    "timeout_connect": (FULL, 0, 0, "failure", True),
    "timeout_ambiguous": (FULL, 0, 0, "failure", True),
    "blocked": (FULL, 1800, 1800, "none", True),
    "sender_error": (FULL, 60, 60, "none", False),
}
STATUSES = {
    "": (200, 201, 202, 204, 299),
    "redirect": (300, 301, 302, 303, 304, 307, 308),
    "rejected": (400, 402, 405, 406, 407, 411, 415, 418, 422, 431, 451, 499, 501),
    "auth": (401, 403),
    "not_found": (404,),
    "transient": (408, 425, 500, 502, 503, 504, 505, 520, 599),
    "conflict": (409,),
    "gone": (410,),
    "too_large": (413,),
    "throttled": (429,),
}


def test_the_table_is_whole() -> None:
    assert set(RULES) == set(TABLE)
    assert {of_status(status) for status in range(200, 600)} == set(STATUSES)


@pytest.mark.parametrize("failure_class", STATUSES)
def test_a_status_has_its_class(failure_class: str) -> None:
    assert {of_status(status) for status in STATUSES[failure_class]} == {failure_class}


@pytest.mark.parametrize("failure_class", TABLE)
def test_a_class_has_its_schedule_and_its_effect_on_health(failure_class: str) -> None:
    attempts, first, always, health, charged = TABLE[failure_class]
    rule = RULES[failure_class]
    assert (rule.health, rule.charged) == (Health(health), charged)
    assert rule.meaning
    assert rule.next_action
    for made in range(1, attempts):
        base = max(retry.DELAYS[made], always, first if made == 1 else 0) if charged else 60
        for chance in (0.0, 0.5, 0.999):
            waits = retry.delay_after(failure_class, made, chance)
            assert waits is not None
            assert 0.85 * base <= waits <= 1.15 * base
            assert waits >= always
            assert made > 1 or waits >= first
    assert (retry.delay_after(failure_class, attempts, 0.5) is None) is charged


def test_a_short_schedule_ends_within_three_quarters_of_an_hour() -> None:
    waits = [retry.delay_after("rejected", attempts, 0.5) for attempts in range(1, 6)]
    assert sum(wait for wait in waits if wait) == 42 * 60 + 35
