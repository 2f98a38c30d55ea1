"""What every adapter must do, run against memory, moto and SeaweedFS."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import md5 as hashlib_md5

import pytest

from retention.storage import (
    BucketRef,
    BucketState,
    FailureClass,
    InvalidRefs,
    LifecycleRule,
    ListedVersion,
    Presence,
    Scope,
    StorageError,
    Versioning,
    VersionRef,
)
from tests.storage.labs import Lab, put_all

md5 = partial(hashlib_md5, usedforsecurity=False)

# Keys and a neighbour that a careless encoding would confuse with them.
KEYS = {
    "plus": ("a+b", "a b"),
    "percent": ("a%20b", "a b"),
    "percent slash": ("a%2Fb", "a_b"),
    "question mark": ("a?b#c", "a"),
    "ampersand": ("a&<\">'b", "a&amp;b"),
    "spaces": (" a ", "a"),
    "double slash": ("a//b", "a/b"),
    "leading slash": ("/a", "a"),
    "trailing slash": ("a/", "a"),
    "dots": ("a/../b", "b"),
    "newline": ("a\nb", "ab"),
    "carriage return": ("a\rb", "a\nb"),
    "tab": ("a\tb", "a b"),
    "control character": ("a\x01b", "ab"),
    "noncharacter": ("a\uffffb", "ab"),
    "1024 bytes": (f"{'d' * 200}/" * 5 + "d" * 19, f"{'d' * 200}/" * 5 + "d" * 18),
    "emoji path": ("/".join(["😀" * 50] * 5), "😀"),
    "NFC": ("caf\u00e9", "cafe\u0301"),
    "NFD": ("cafe\u0301", "caf\u00e9"),
    "emoji": ("a😀b", "a😁b"),
    "case": ("Foto.JPG", "foto.jpg"),
}
MARKS = {"memory": [], "moto": [], "seaweed": [pytest.mark.seaweed]}
# Where a server departs from S3, so that the key, or its neighbour, cannot be put there at all or is another object.
DEPARTURES = {
    "memory": set(),
    "moto": {
        "newline",  # PUT answers 404, and yet a version appears
        "carriage return",  # its neighbour is a newline
    },
    "seaweed": {
        "double slash",  # `a//b` and `a/b` are one object
        "leading slash",  # `/a` and `a` are one object
        "trailing slash",  # a directory, without versions
        "dots",  # 400
    },
}


def adapters(*names: str) -> list[object]:
    """Parameters for the `lab` fixture."""
    return [pytest.param(name, id=name, marks=MARKS[name]) for name in names]


def exact_keys() -> list[object]:
    """One parameter for each adapter and key that the adapter's server can hold."""
    return [
        pytest.param(adapter, key, neighbour, id=f"{adapter}-{name}", marks=MARKS[adapter])
        for adapter, departures in DEPARTURES.items()
        for name, (key, neighbour) in KEYS.items()
        if name not in departures
    ]


def everything(lab: Lab, bucket: BucketRef, **kwargs: object) -> list[ListedVersion]:
    """All pages."""
    rows: list[ListedVersion] = []
    place: dict[str, str | None] = {}
    while True:
        page = lab.store.list_versions(bucket, **kwargs, **place)
        rows += page.versions
        if page.next_key_marker is None:
            return rows
        place = {"key_marker": page.next_key_marker, "version_id_marker": page.next_version_id_marker}


def refs_of(rows: Collection[ListedVersion]) -> set[VersionRef]:
    return {row.ref for row in rows}


def delete(lab: Lab, bucket: BucketRef, *refs: VersionRef):
    return lab.store.delete_versions(bucket, refs, deadline_seconds=30)


def test_versions_are_listed_by_key_and_newest_first(lab: Lab) -> None:
    bucket = lab.new_bucket()
    before = datetime.now(UTC)
    first = lab.put(bucket, "k", b"one")
    lab.put(bucket, "é")
    lab.put_marker(bucket, "é")
    lab.put(bucket, "Z")
    second = lab.put(bucket, "k", b"second")
    page = lab.store.list_versions(bucket)

    assert [row.key for row in page.versions] == ["Z", "k", "k", "é", "é"]
    assert [row.ref for row in page.versions if row.key == "k"] == [second, first]
    newest = page.versions[1]
    assert (newest.size, newest.etag) == (6, md5(b"second").hexdigest())
    assert newest.is_latest
    assert not newest.is_delete_marker
    assert newest.storage_class == "STANDARD"
    assert not page.versions[2].is_latest
    marker = page.versions[3]
    assert (marker.is_delete_marker, marker.is_latest, marker.etag, marker.size) == (True, True, "", 0)
    assert newest.last_modified.utcoffset() == timedelta(0)
    assert before - timedelta(seconds=2) < newest.last_modified < datetime.now(UTC) + timedelta(seconds=2)
    assert before <= page.requested_at <= datetime.now(UTC)
    assert (page.next_key_marker, page.next_version_id_marker) == (None, None)


def test_pages_join_without_gap_or_overlap(lab: Lab) -> None:
    bucket = lab.new_bucket()
    expected = {lab.put(bucket, key) for key in ("a/1", "a/2", "b", "é", "😀") for _ in range(3)}
    for size in (1, 2, 4, 1000):
        rows = everything(lab, bucket, max_keys=size)
        assert len(rows) == 15
        assert refs_of(rows) == expected


def test_a_prefix_and_a_key_marker_narrow_the_listing(lab: Lab) -> None:
    bucket = lab.new_bucket()
    put_all(lab, bucket, ["a/1", "a/1", "a/2", "a/3", "b/1"])
    assert [row.key for row in everything(lab, bucket, prefix="a/")] == ["a/1", "a/1", "a/2", "a/3"]
    assert [row.key for row in lab.store.list_versions(bucket, key_marker="a/2").versions] == ["a/3", "b/1"]


@pytest.mark.parametrize("lab", adapters("memory", "seaweed"), indirect=True)  # moto skips one version, not the key
def test_a_key_marker_alone_passes_all_versions_of_the_key(lab: Lab) -> None:
    bucket = lab.new_bucket()
    put_all(lab, bucket, ["a", "b", "b", "b", "c"])
    assert [row.key for row in lab.store.list_versions(bucket, key_marker="b").versions] == ["c"]


def test_a_version_marker_needs_a_key_marker(lab: Lab) -> None:
    with pytest.raises(ValueError, match="key marker"):
        lab.store.list_versions(lab.new_bucket(), version_id_marker="v")


def test_an_exact_version_goes_and_the_others_stay(lab: Lab) -> None:
    bucket = lab.new_bucket()
    versions = [lab.put(bucket, "k", body) for body in (b"1", b"2", b"3")]
    outcomes = delete(lab, bucket, versions[1])
    assert outcomes[versions[1]].acknowledged
    assert outcomes[versions[1]].failure is None
    rows = everything(lab, bucket)
    assert [row.ref for row in rows] == [versions[2], versions[0]]
    assert not any(row.is_delete_marker for row in rows)


def test_the_current_version_goes_without_a_marker(lab: Lab) -> None:
    bucket = lab.new_bucket()
    old, current = lab.put(bucket, "k", b"1"), lab.put(bucket, "k", b"2")
    delete(lab, bucket, current)
    (row,) = everything(lab, bucket)
    assert (row.ref, row.is_latest) == (old, True)


def test_deleting_what_is_gone_is_acknowledged(lab: Lab) -> None:
    bucket = lab.new_bucket()
    gone, other = lab.put(bucket, "k"), lab.put(bucket, "l")
    delete(lab, bucket, gone)
    assert delete(lab, bucket, gone)[gone].acknowledged
    outcomes = delete(lab, bucket, gone, other)
    assert outcomes[gone].acknowledged
    assert outcomes[other].acknowledged


@pytest.mark.parametrize("companions", [0, 3])
def test_a_delete_marker_goes_by_its_id(lab: Lab, companions: int) -> None:
    bucket = lab.new_bucket()
    data = lab.put(bucket, "k")
    marker = lab.put_marker(bucket, "k")
    others = put_all(lab, bucket, [f"o{number}" for number in range(companions)])
    outcomes = delete(lab, bucket, marker, *others)
    assert all(outcome.acknowledged for outcome in outcomes.values())
    (row,) = everything(lab, bucket)
    assert (row.ref, row.is_latest) == (data, True)


def test_a_marker_and_its_versions_go_in_one_batch(lab: Lab) -> None:
    bucket = lab.new_bucket()
    refs = [lab.put(bucket, "k", b"1"), lab.put(bucket, "k", b"2"), lab.put_marker(bucket, "k")]
    assert all(outcome.acknowledged for outcome in delete(lab, bucket, *refs).values())
    assert everything(lab, bucket) == []


def test_locked_versions_are_told_apart(lab: Lab) -> None:
    bucket = lab.new_bucket(object_lock=True)
    free, retained, held, both = (lab.put(bucket, key) for key in ("free", "retained", "held", "both"))
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    lab.lock(bucket, retained, until=until)
    lab.lock(bucket, held, hold=True)
    lab.lock(bucket, both, until=until, hold=True)
    for refs in ([free, retained, held, both], [retained], [held], [both]):  # a batch, and singly
        outcomes = delete(lab, bucket, *refs)
        for ref, kind in (
            (retained, FailureClass.LOCKED),
            (held, FailureClass.LEGAL_HOLD),
            (both, FailureClass.LEGAL_HOLD),
        ):
            if ref not in refs:
                continue
            outcome = outcomes[ref]
            assert outcome.failure is not None
            assert (outcome.failure.kind, outcome.failure.ambiguous) == (kind, False)
            assert outcome.failure.scope is Scope.OBJECT
            assert outcome.sent
            assert outcome.lock is not None
            assert outcome.lock.retain_until == (until if ref != held else None)
            assert outcome.lock.legal_hold == (ref != retained)
    assert refs_of(everything(lab, bucket)) == {retained, held, both}


def test_a_lock_is_read(lab: Lab) -> None:
    bucket = lab.new_bucket(object_lock=True)
    free, both = lab.put(bucket, "free"), lab.put(bucket, "both")
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    lab.lock(bucket, both, until=until, hold=True)
    state = lab.store.lock_state(bucket, both)
    assert (state.mode, state.retain_until, state.legal_hold, state.unknown) == ("GOVERNANCE", until, True, False)
    state = lab.store.lock_state(bucket, free)
    assert (state.mode, state.retain_until, state.legal_hold) == (None, None, False)
    assert state.unknown == (lab.name == "moto")  # whose GetObjectRetention answers 500


@pytest.mark.parametrize("number", [3, 40])
def test_an_inspection_sees_data_markers_and_nothing(lab: Lab, number: int) -> None:
    """Few refs are looked at with HEAD, many with a listing; the answers must not differ."""
    bucket = lab.new_bucket()
    keys = [f"t/{position:03d}" for position in range(number)]
    present = put_all(lab, bucket, keys)
    markers = [lab.put_marker(bucket, key) for key in keys[:3]]
    gone = put_all(lab, bucket, keys)
    delete(lab, bucket, *gone)
    seen = lab.store.inspect(bucket, [*present, *markers, *gone])
    assert len(seen) == 2 * number + 3
    assert {seen[ref].state for ref in present} == {Presence.PRESENT}
    assert {seen[ref].state for ref in markers} == {Presence.DELETE_MARKER}
    assert {seen[ref].state for ref in gone} == {Presence.GONE}
    one = seen[present[0]]
    assert (one.etag, one.size, one.failure) == (md5(b"x").hexdigest(), 1, None)
    assert one.last_modified is not None
    assert one.last_modified.utcoffset() == timedelta(0)


def test_a_version_under_another_key_is_gone(lab: Lab) -> None:
    bucket = lab.new_bucket()
    ref = lab.put(bucket, "caf\u00e9")
    other = VersionRef("cafe\u0301", ref.version_id)
    assert lab.store.inspect(bucket, [other])[other].state is Presence.GONE


def test_in_a_missing_bucket_nothing_is_gone(lab: Lab) -> None:
    bucket = BucketRef("nosuchbucket", lab.new_bucket().endpoint_url, "us-east-1", "path")
    for number in (1, 40):
        refs = [VersionRef(f"k{position}", "v") for position in range(number)]
        for seen in lab.store.inspect(bucket, refs).values():
            assert seen.state is Presence.UNKNOWN
            assert seen.failure is not None
            assert (seen.failure.kind, seen.failure.scope) == (FailureClass.BUCKET_MISSING, Scope.BUCKET)
        for outcome in delete(lab, bucket, *refs).values():
            assert outcome.failure is not None
            assert (outcome.failure.kind, outcome.failure.ambiguous) == (FailureClass.BUCKET_MISSING, False)
    with pytest.raises(StorageError) as caught:
        lab.store.list_versions(bucket)
    assert caught.value.failure.kind is FailureClass.BUCKET_MISSING
    with pytest.raises(StorageError):
        lab.store.bucket_state(bucket)
    with pytest.raises(StorageError):
        lab.store.lifecycle_rules(bucket)


def test_the_null_version_of_a_bucket_without_versioning(lab: Lab) -> None:
    bucket = lab.new_bucket(versioning="unversioned")
    lab.put(bucket, "k", b"first")
    null = lab.put(bucket, "k", b"replaced")
    assert null.version_id == "null"
    seen = lab.store.inspect(bucket, [null])[null]
    assert (seen.state, seen.etag) == (Presence.PRESENT, md5(b"replaced").hexdigest())
    assert delete(lab, bucket, null)[null].acknowledged
    assert lab.store.inspect(bucket, [null])[null].state is Presence.GONE
    assert everything(lab, bucket) == []


@pytest.mark.parametrize("lab", adapters("memory", "seaweed"), indirect=True)  # moto drops the numbered versions
def test_the_null_version_of_a_suspended_bucket(lab: Lab) -> None:
    bucket = lab.new_bucket()
    numbered = lab.put(bucket, "k", b"kept")
    lab.set_versioning(bucket, "suspended")
    lab.put(bucket, "k", b"first")
    null = lab.put(bucket, "k", b"replaced")
    assert null.version_id == "null"
    assert refs_of(everything(lab, bucket)) == {numbered, null}
    assert delete(lab, bucket, null)[null].acknowledged
    assert refs_of(everything(lab, bucket)) == {numbered}


def test_null_versions_in_a_batch(lab: Lab) -> None:
    bucket = lab.new_bucket(versioning="unversioned")
    refs = put_all(lab, bucket, ["a", "b", "c"])
    assert all(outcome.acknowledged for outcome in delete(lab, bucket, *refs).values())
    assert everything(lab, bucket) == []


@pytest.mark.parametrize(
    ("versioning", "object_lock"),
    [("enabled", False), ("enabled", True), ("suspended", False), ("unversioned", False)],
)
def test_the_state_of_a_bucket(lab: Lab, versioning, object_lock: bool) -> None:
    bucket = lab.new_bucket(versioning=versioning, object_lock=object_lock)
    assert lab.store.bucket_state(bucket) == BucketState(versioning, object_lock)


RULES: list[dict[str, object]] = [
    {
        "ID": "old", "Status": "Enabled", "Filter": {"Prefix": "case/"},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 30},
    },
    {"ID": "tagged", "Status": "Disabled", "Filter": {"Tag": {"Key": "k", "Value": "v"}}, "Expiration": {"Days": 7}},
    {
        "ID": "both", "Status": "Enabled", "Expiration": {"Days": 9},
        "Filter": {"And": {"Prefix": "p", "Tags": [{"Key": "k", "Value": "v"}]}},
    },
    {"ID": "markers", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"ExpiredObjectDeleteMarker": True}},
]  # fmt: skip
READ = {
    LifecycleRule("old", True, "case/", noncurrent_days=30),
    LifecycleRule("tagged", False, narrowed=True, expire_days=7),
    LifecycleRule("both", True, "p", narrowed=True, expire_days=9),
    LifecycleRule("markers", True, lone_markers=True),
}


def test_the_lifecycle_rules_of_a_bucket(lab: Lab) -> None:
    bucket = lab.new_bucket()
    lab.set_lifecycle(bucket, RULES)
    assert set(lab.store.lifecycle_rules(bucket)) == READ


def test_a_bucket_without_lifecycle_rules(lab: Lab) -> None:
    assert list(lab.store.lifecycle_rules(lab.new_bucket())) == []


@pytest.mark.parametrize("versioning", ["enabled", "suspended", "unversioned"])
def test_deleting_the_null_version_of_a_key_that_never_was_changes_nothing(lab: Lab, versioning: Versioning) -> None:
    bucket = lab.new_bucket()
    lab.put(bucket, "versions", b"one")
    lab.set_versioning(bucket, versioning)
    lab.put(bucket, "versions", b"two")
    before = everything(lab, bucket)
    never = VersionRef("cleanup-doctor-0f3b", "null")
    assert delete(lab, bucket, never)[never].acknowledged
    assert everything(lab, bucket) == before


def test_how_a_bucket_stands_is_told_or_left_open(lab: Lab) -> None:
    found = lab.store.standing(lab.new_bucket())
    assert not found.public_policy
    assert not found.public_grants
    assert not found.mfa_delete
    assert found.ahead is None or abs(found.ahead) <= found.doubt + 1  # the same machine
    with pytest.raises(StorageError, match="NoSuchBucket"):
        lab.store.standing(BucketRef("none-here", lab.new_bucket().endpoint_url, "us-east-1", "path"))


def test_a_large_batch_is_accounted_for_item_by_item(lab: Lab) -> None:
    bucket = lab.new_bucket()
    refs = put_all(lab, bucket, [f"t/{position:04d}" for position in range(500)])
    outcomes = delete(lab, bucket, *refs[:400])
    assert set(outcomes) == set(refs[:400])
    assert all(outcome.acknowledged for outcome in outcomes.values())
    seen = lab.store.inspect(bucket, refs)
    assert {ref for ref, one in seen.items() if one.state is Presence.PRESENT} == set(refs[400:])
    assert {ref for ref, one in seen.items() if one.state is Presence.GONE} == set(refs[:400])


@pytest.mark.parametrize(
    "refs",
    [
        [VersionRef("", "v")],
        [VersionRef("k", "")],
        [VersionRef("k", None)],
        [VersionRef("\ud800", "v")],
        [VersionRef("k", "v"), VersionRef("k", "v")],
        [VersionRef("k", str(number)) for number in range(1001)],
    ],
    ids=["no key", "empty id", "no id", "surrogate", "twice", "1001"],
)
def test_impossible_refs_are_refused(lab: Lab, refs: list[VersionRef]) -> None:
    bucket = lab.new_bucket()
    with pytest.raises(InvalidRefs):
        lab.store.delete_versions(bucket, refs, deadline_seconds=10)
    with pytest.raises(InvalidRefs):
        lab.store.inspect(bucket, refs)
    assert everything(lab, bucket) == []


def test_nothing_asked_is_nothing_done(lab: Lab) -> None:
    bucket = lab.new_bucket()
    assert lab.store.delete_versions(bucket, [], deadline_seconds=10) == {}
    assert lab.store.inspect(bucket, []) == {}


@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
@pytest.mark.parametrize(("lab", "key", "neighbour"), exact_keys(), indirect=["lab"])
def test_keys_are_exact(lab: Lab, key: str, neighbour: str, batch: bool) -> None:
    bucket = lab.new_bucket()
    ref, near = lab.put(bucket, key), lab.put(bucket, neighbour)
    also = put_all(lab, bucket, ["x", "y"]) if batch else []
    assert lab.store.inspect(bucket, [ref])[ref].state is Presence.PRESENT
    outcomes = delete(lab, bucket, ref, *also)
    assert {one: outcome.acknowledged for one, outcome in outcomes.items()} == dict.fromkeys([ref, *also], True)
    seen = lab.store.inspect(bucket, [ref, near, *also])
    assert {one: look.state for one, look in seen.items()} == {
        near: Presence.PRESENT,
        **dict.fromkeys([ref, *also], Presence.GONE),
    }
    assert refs_of(everything(lab, bucket)) == {near}
