"""Canonical JSON is what RFC 8785 says, on the subset that we write."""

from datetime import UTC, datetime, timedelta, timezone

import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from cleanup_project.base import canonical

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
names = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_encoding_equals_the_oracle(value: object) -> None:
    assert canonical.encode(value) == rfc8785.dumps(value)  # type: ignore[arg-type]


def test_an_instant_is_read_from_what_postgresql_prints() -> None:
    assert canonical.printed_instant("2026-01-31 00:00:00+00") == "2026-01-31T00:00:00.000000Z"
    assert canonical.printed_instant("2026-01-31 23:59:59.05+00") == "2026-01-31T23:59:59.050000Z"


def test_instants_are_utc_with_microseconds() -> None:
    assert canonical.instant(datetime(2026, 1, 31, tzinfo=UTC)) == "2026-01-31T00:00:00.000000Z"
    berlin = timezone(timedelta(hours=1))
    assert canonical.instant(datetime(2026, 1, 1, 0, 30, 0, 5, berlin)) == "2025-12-31T23:30:00.000005Z"
