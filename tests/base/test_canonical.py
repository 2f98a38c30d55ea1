"""What the database writes as JSON is what RFC 8785 says, and both clocks print times alike."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
import rfc8785
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanup_project.base import canonical

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
control = st.text(st.characters(max_codepoint=0xA0, exclude_characters="\x00"), max_size=8)
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
