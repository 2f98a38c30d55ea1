"""What we and the database write as JSON is what RFC 8785 says, and both clocks print times alike."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import rfc8785
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanup_project.base import canonical

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
control = st.text(st.characters(max_codepoint=0xA0, exclude_characters="\x00"), max_size=8)
keys = st.text(st.characters(max_codepoint=0x7F, exclude_characters="\x00"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | text | control,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
)
moments = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - naive by contract


@pytest.mark.django_db
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text | control)
def test_strings_are_escaped_as_the_rfc_asks(value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_json(%s::text)::text", [value])
        assert cursor.fetchone()[0].encode() == rfc8785.dumps(value)


@pytest.mark.django_db
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(moments)
def test_instants_are_printed_alike_by_python_and_sql(moment: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_char(%s::timestamptz AT TIME ZONE 'UTC', %s)", [moment, canonical.SQL_INSTANT])
        assert cursor.fetchone()[0] == canonical.instant(moment)


def test_instants_are_utc_with_microseconds() -> None:
    assert canonical.instant(datetime(2026, 1, 31, tzinfo=UTC)) == "2026-01-31T00:00:00.000000Z"
    berlin = timezone(timedelta(hours=1))
    assert canonical.instant(datetime(2026, 1, 1, 0, 30, 0, 5, berlin)) == "2025-12-31T23:30:00.000005Z"


@given(values)
def test_what_we_encode_is_canonical(value: Any) -> None:
    assert canonical.encode(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1.0, "of type float"),
        ({"a": [1, float("nan")]}, r"\.a\[1\] is of type float"),
        ({"a": {"b": 2**53}}, r"\.a\.b is beyond 2\^53-1"),
        (-(2**53), "beyond 2"),
        ({"a": "x\x00"}, r"\.a holds NUL"),
        (["\ud800"], r"\[0\] holds a lone surrogate"),
        ({"ä": 1}, "keys are ASCII"),
        ({1: 1}, "keys are ASCII"),
        ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, "canonical.instant"),
        ({"a": {1}}, "of type set"),
        (b"x", "of type bytes"),
    ],
)
def test_what_writers_disagree_about_is_refused_by_its_place(value: Any, words: str) -> None:
    with pytest.raises(canonical.NotCanonical, match=words):
        canonical.encode(value)
