"""Byte prefixes: the range that a prefix covers is exactly the keys that begin with it."""

from hypothesis import given
from hypothesis import strategies as st

from retention.prefixes import minimal, successor

text = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\ud7ff\ue000\U0010ffff/a"), max_size=4)


@given(text, text)
def test_the_range_holds_exactly_the_keys_that_begin_with_the_prefix(prefix: str, key: str) -> None:
    end = successor(prefix)
    within = key.encode() >= prefix.encode() and (end is None or key.encode() < end.encode())
    assert within == key.startswith(prefix)
    assert (prefix + key).encode() >= prefix.encode()
    assert end is None or (prefix + key).encode() < end.encode()


@given(st.lists(text, min_size=1), text)
def test_a_minimal_set_covers_the_same_keys_once(prefixes: list[str], key: str) -> None:
    kept = minimal(prefixes)
    assert key.startswith(tuple(kept)) == key.startswith(tuple(prefixes))
    assert sum((prefix + key).startswith(one) for one in kept for prefix in [prefixes[0]]) == 1
