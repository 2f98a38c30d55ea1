"""Keys are shown so that no two look the same and none disguises itself."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cleanup_project.base.display import exact, human_size, moment, visible
from cleanup_project.base.modeladmin import Tool


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("originals/2023/a b.mp4", "originals/2023/a b.mp4"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("   ", "\\x20\\x20\\x20"),
        (" a  b ", "\\x20a \\x20b\\x20"),
        ("a\u00a0b\u200b", "a\\xa0b\\u200b"),
        ("back\\slash", "back\\\\slash"),
        ("\u00e9", "\u00e9"),
        ("e\u0301", "e\\u0301"),
        ("\u212b", "\\u212b"),
        ("a\ufe0f", "a\\ufe0f"),
        ("\u3164", "\\u3164"),
        ("\U000e0041", "\\U000e0041"),
        ("日本語", "日本語"),
    ],
)
def test_what_could_be_missed_or_mistaken_is_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


@given(TEXTS, TEXTS)
@example("e\u0301", "\u00e9")
@example("\\n", "\n")
@example("a b", "a\u00a0b")
def test_different_texts_look_different(one: str, other: str) -> None:
    assert (visible(one) == visible(other)) == (one == other)


def test_markup_is_escaped_and_the_direction_is_fixed() -> None:
    shown = exact("<script>א/1")
    assert "&lt;script&gt;" in shown
    assert '<bdo dir="ltr">' in shown


def test_times_are_iso_and_utc() -> None:
    berlin = datetime(2026, 1, 31, 0, 30, 0, 5, tzinfo=timezone(timedelta(hours=1)))
    assert moment(berlin) == '<time datetime="2026-01-30T23:30:00.000005Z">2026-01-30 23:30:00 UTC</time>'
    assert moment(datetime(2026, 1, 1, tzinfo=UTC)).startswith('<time datetime="2026-01-01T00:00:00Z">')


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (1024, "1.0 KiB"), (1 << 40, "1.0 TiB"), (5 << 60, "5,120.0 PiB")],
)
def test_sizes_are_read_at_a_glance(number: int, shown: str) -> None:
    assert human_size(number) == shown


@pytest.mark.parametrize(
    ("address", "decides"),
    [
        ("/admin/ledger/cleanuprun/12/approve/", True),
        ("/admin/retention/policyrevision/add/?policy=3", True),
        ("/admin/ledger/cleanuprun/12/exempt/?item=7", True),
        ("/admin/ledger/cleanuprun/12/change/", False),
        ("/admin/ledger/cleanuprun/12/history/", False),
        ("/admin/base/user/12/end-sessions/", True),
        ("/admin/retention/objectversion/12/why/", False),
        ("/admin/ledger/receipt/12/verify/", False),
        ("/admin/ledger/receipt/?run=12", False),
        ("/admin/ledger/cleanuprun/12/manifest.csv", False),
    ],
)
def test_a_link_to_a_decision_is_told_apart_from_one_that_leads_elsewhere(address: str, decides: bool) -> None:
    assert Tool("…", address).decides == decides
