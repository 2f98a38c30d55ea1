"""Accounting for DeleteObjects answers, without a store."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.storage.answers import account
from retention.storage.failures import FailureClass
from retention.storage.port import VersionRef

A1, A2, B1 = VersionRef("a", "1"), VersionRef("a", "2"), VersionRef("b", "1")
DENIED = {"Code": "AccessDenied", "Message": "Access Denied"}


def kinds(refs: list[VersionRef], answer: dict[str, object]) -> dict[VersionRef, FailureClass | None]:
    return {ref: verdict.kind if verdict else None for ref, verdict in account(refs, answer).items()}


def test_lines_are_matched_by_key_and_version_in_any_order() -> None:
    answer = {
        "Deleted": [{"Key": "b", "VersionId": "1"}, {"Key": "a", "VersionId": "2"}],
        "Errors": [{"Key": "a", "VersionId": "1", **DENIED}],
    }
    assert kinds([A1, A2, B1], answer) == {A1: FailureClass.PERMISSION, A2: None, B1: None}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"Deleted": [], "Errors": []},
        {"Deleted": [{"Key": "A", "VersionId": "1"}]},  # another key
        {"Deleted": [{"Key": "a", "VersionId": "9"}]},  # another version
        {"Deleted": [{"Key": "a", "DeleteMarker": True, "DeleteMarkerVersionId": "new"}]},  # a marker was written
        {"Deleted": [{"Key": "a"}, {"Key": "a"}]},  # more lines than versions
        {"Deleted": [{"Key": "a", "VersionId": "1"}], "Errors": [{"Key": "a", "VersionId": "1", **DENIED}]},
        {"Deleted": [{"Key": "a"}], "Errors": [{"Key": "a", **DENIED}]},
        {"Errors": [{"Code": "InternalError"}]},
    ],
)
def test_what_no_line_settles_is_in_doubt(answer: dict[str, object]) -> None:
    failure = account([A1], answer)[A1]
    assert failure is not None
    assert (failure.kind, failure.ambiguous, failure.code) == (FailureClass.TRANSIENT, True, "Unaccounted")


def test_a_removed_marker_may_be_named_by_its_marker_id_alone() -> None:
    assert kinds([A1], {"Deleted": [{"Key": "a", "DeleteMarker": True, "DeleteMarkerVersionId": "1"}]}) == {A1: None}


def test_an_error_without_a_version_belongs_to_what_is_left_of_its_key() -> None:
    answer = {"Deleted": [{"Key": "a", "VersionId": "2"}], "Errors": [{"Key": "a", **DENIED}]}
    assert kinds([A1, A2], answer) == {A1: FailureClass.PERMISSION, A2: None}
    answer = {"Errors": [{"Key": "a", **DENIED}, {"Key": "a", **DENIED}]}
    assert kinds([A1, A2], answer) == dict.fromkeys([A1, A2], FailureClass.PERMISSION)


def test_nameless_lines_that_differ_settle_nothing() -> None:
    answer = {"Deleted": [{"Key": "a"}], "Errors": [{"Key": "a", **DENIED}]}
    assert kinds([A1, A2], answer) == dict.fromkeys([A1, A2], FailureClass.TRANSIENT)


refs = st.builds(VersionRef, st.text("ab\n+", min_size=1, max_size=3), st.text("12", min_size=1, max_size=2))


@given(st.lists(refs, unique=True, max_size=12), st.randoms(use_true_random=False))
def test_every_ref_gets_its_own_verdict(asked: list[VersionRef], shuffler: random.Random) -> None:
    expected = {ref: shuffler.choice([None, "SlowDown", "InternalError", "silence"]) for ref in asked}
    named = [({"Key": ref.key, "VersionId": ref.version_id}, say) for ref, say in expected.items()]
    shuffler.shuffle(named)
    verdicts = account(
        asked,
        {
            "Deleted": [name for name, say in named if say is None],
            "Errors": [{**name, "Code": say, "Message": ""} for name, say in named if say not in (None, "silence")],
        },
    )
    assert set(verdicts) == set(asked)
    for ref, verdict in verdicts.items():
        assert (verdict.code if verdict else None) == {"silence": "Unaccounted"}.get(str(expected[ref]), expected[ref])
