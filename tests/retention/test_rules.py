"""Key rules: the pattern language, its errors, and that no key can make it slow."""

import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.rules import CompiledRule, KeyFacts, RuleError, compile_rule, default_facts, short_asset


def rule(pattern: str, **fields: Any) -> CompiledRule:
    ordinary = {"role": "original", "asset": "", "series": "", "retention_class": "", "original_key": ""}
    return compile_rule(SimpleNamespace(pattern=pattern, **(ordinary | fields)))


def facts(pattern: str, key: str, **fields: Any) -> KeyFacts:
    found = rule(pattern, **fields).match(key)
    assert found is not None
    return found


class TestMatching:
    @pytest.mark.parametrize(
        ("pattern", "key"),
        [
            ("a.b", "a.b"),
            ("{_}", "a"),
            ("{_}.mp4", "a.b.mp4"),
            ("{_*}", "a/b\n/c"),
            ("{_}/x", "a\nb/x"),
            ("{{x}}", "{x}"),
            ("{{{asset}}}", "{a}"),
            ("{a}-{b}", "x-y-z"),
            ("{path*}.jpg", "a/b/c.jpg"),
            ("{_}/{path*}.jpg", "a/b/c.jpg"),
            ("{year}{month}{day}", "20240131"),
            ("é{_}", "é\U0001f3ac"),
        ],
    )
    def test_covers_the_whole_key(self, pattern: str, key: str) -> None:
        compiled = rule(pattern)
        assert compiled.match(key) is not None
        assert compiled.match(key + "/") is None or pattern.endswith("*}")

    @pytest.mark.parametrize(
        ("pattern", "key"),
        [
            ("a.b", "axb"),
            ("{_}", "a/b"),
            ("{_}", ""),
            ("{_*}/x", "/x"),
            ("{year}", "24"),
            ("{year}", "٢٠٢٤"),
            ("a{_}", "A1"),
            ("{folder*}/{_}.jpg", "a/b/c.jpg"),
            (normalize("NFC", "é"), normalize("NFD", "é")),
        ],
    )
    def test_leaves_out_what_does_not_fit(self, pattern: str, key: str) -> None:
        assert rule(pattern).match(key) is None

    def test_a_placeholder_ends_at_the_first_place_where_the_text_behind_it_follows(self) -> None:
        assert facts("{a}-{b}", "x-y-z", asset="{a}|{b}").asset == "x|y-z"
        assert rule("{a}-{b}.mp4").match("x-y") is None

    @given(
        names=st.lists(st.text(st.sampled_from("xyz0é \n"), min_size=1, max_size=8), min_size=1, max_size=4),
        separator=st.sampled_from(["/", "-", "--", ".", "]", "{", "("]),
    )
    def test_captures_what_was_put_in(self, names: list[str], separator: str) -> None:
        literal = separator.replace("{", "{{")
        pattern = literal.join(f"{{n{number}}}" for number in range(len(names)))
        template = "|".join(f"{{n{number}}}" for number in range(len(names)))
        assert facts(pattern, separator.join(names), series=template).series == "|".join(names)

    @given(st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1))
    def test_any_literal_matches_itself_alone(self, text: str) -> None:
        compiled = rule(text.replace("{", "{{").replace("}", "}}"))
        assert compiled.match(text) is not None
        assert compiled.match(text + "x") is None

    @pytest.mark.parametrize("pattern", ["{a}-{b}-{c}-{d}-{e}-{f}!", "{a*}a{b*}a{c*}a{d*}!", "{a*}/{b*}/{c*}/x{d*}y"])
    def test_no_key_makes_it_slow(self, pattern: str) -> None:
        compiled, hostile = rule(pattern), ["-" * 1024, "a" * 1024, "a/" * 512, "a-" * 512]
        started = time.process_time()
        for key in hostile:
            compiled.match(key)
        assert time.process_time() - started < 0.2


class TestFacts:
    def test_templates_are_filled_with_what_was_captured(self) -> None:
        found = facts(
            "{kind}/{customer}/{asset}.{_}",
            "video/c1/a1.mp4",
            series="{customer}-{{x}}",
            retention_class="{kind}",
        )
        assert found == KeyFacts("a1", "c1-{x}", "video", "", None)

    def test_an_asset_is_the_template_the_capture_or_the_key(self) -> None:
        assert facts("{asset}/{n}", "a/1", asset="{n}").asset == "1"
        assert facts("{asset}/{n}", "a/1").asset == "a"
        assert facts("{n}/x", "a/x").asset == "a/x"
        assert default_facts("a/x") == KeyFacts("a/x", "a/x", "", "", None)

    @pytest.mark.parametrize("value", ["two words", "", "é", "a" * 201, "a\n"])
    def test_an_odd_or_long_asset_becomes_a_digest_of_its_own(self, value: str) -> None:
        assert short_asset(value).startswith("sha256-")
        assert short_asset(value) != short_asset(value + "x")

    def test_a_derivative_names_the_key_of_its_original(self) -> None:
        found = facts("thumbs/{p*}.jpg", "thumbs/a/b.jpg", role="derivative", original_key="originals/{p}.mp4")
        assert found.original_key == "originals/a/b.mp4"

    @pytest.mark.parametrize(
        ("pattern", "key", "date"),
        [
            ("{year}/{_}", "2024/x", datetime(2024, 1, 1, tzinfo=UTC)),
            ("{year}/{month}/{_}", "2024/02/x", datetime(2024, 2, 1, tzinfo=UTC)),
            ("{year}{month}{day}T{hour}", "20240229T23", datetime(2024, 2, 29, 23, tzinfo=UTC)),
            ("{year}/{month}/{day}", "2023/02/29", None),
            ("{year}", "0000", None),
            ("{_}", "2024", None),
        ],
    )
    def test_dates_are_utc_and_a_date_that_does_not_exist_is_none(
        self, pattern: str, key: str, date: datetime | None
    ) -> None:
        assert facts(pattern, key).dated_at == date


class TestErrors:
    @pytest.mark.parametrize(
        ("pattern", "message"),
        [
            ("", "Write a pattern"),
            ("a{", "The brace at position 2 has no partner"),
            ("a}", "The brace at position 2 has no partner"),
            ("{a b}", "has no partner"),
            ("{1}", "has no partner"),
            ("{a}/{a}", "{a} is named twice"),
            ("{a}{b}", "Put some text between two placeholders"),
            ("{year*}", "{year*}: a part of a date cannot span folders"),
            ("{month}", "A date needs {year}"),
            ("{year}/{day}", "A date needs {year}"),
            ("a\x00", "A key cannot hold NUL"),
        ],
    )
    def test_of_patterns(self, pattern: str, message: str) -> None:
        with pytest.raises(RuleError) as caught:
            rule(pattern)
        assert caught.value.field == "pattern"
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("field", "fields"),
        [
            ("asset", {"asset": "{other}"}),
            ("series", {"series": "{"}),
            ("retention_class", {"retention_class": "{_}"}),
            ("original_key", {"role": "derivative"}),
            ("original_key", {"original_key": "{name}"}),
        ],
    )
    def test_of_templates_name_their_field(self, field: str, fields: dict[str, str]) -> None:
        with pytest.raises(RuleError) as caught:
            rule("{name}", **fields)
        assert caught.value.field == field
