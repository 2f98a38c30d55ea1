"""Inspections against a scripted store that gives AWS's recorded answers."""

from datetime import UTC, datetime

import pytest

from retention.storage import (
    REFUSED_ID,
    BucketRef,
    FailureClass,
    Inspection,
    LifecycleRule,
    Presence,
    Scope,
    StorageError,
    VersionRef,
)
from retention.storage.s3 import S3Store
from tests.storage.fake_s3 import Answer, FakeS3, Request, error, listing

REF = VersionRef("k", "v")
DENSE = [VersionRef(f"t/{number:03d}", f"v{number}") for number in range(200)]
HERE = Answer(200, headers={"etag": '"e"', "x-amz-version-id": "v", "last-modified": "Fri, 02 Jan 2026 03:04:05 GMT"})
EMPTY = Answer(200, "")
HTML = Answer(200, "<html>proxy</html>")


def look(store: S3Store, bucket: BucketRef, ref: VersionRef = REF) -> Inspection:
    return store.inspect(bucket, [ref])[ref]


def test_a_head_sees_the_version(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    fake.respond = lambda _: HERE
    seen = look(store, fake_bucket)
    assert (seen.state, seen.etag, seen.request_id, seen.lock) == (Presence.PRESENT, "e", "REQUEST", None)
    assert seen.last_modified is not None
    assert seen.last_modified.isoformat() == "2026-01-02T03:04:05+00:00"
    assert fake.operations() == ["head_object"]


def test_a_head_may_show_the_lock(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    until = {"x-amz-object-lock-mode": "COMPLIANCE", "x-amz-object-lock-retain-until-date": "2999-01-01T00:00:00Z"}
    fake.respond = lambda _: Answer(200, headers={**HERE.headers, **until})
    lock = look(store, fake_bucket).lock
    assert lock is not None
    assert (lock.mode, lock.legal_hold, lock.unknown) == ("COMPLIANCE", False, True)  # the hold was not shown
    assert lock.retain_until is not None
    assert lock.retain_until.isoformat() == "2999-01-01T00:00:00+00:00"


def test_gone_needs_a_living_bucket(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    fake.respond = lambda request: Answer(404 if request.key else 200)
    refs = [VersionRef(f"k{number}", "v") for number in range(5)]
    assert {seen.state for seen in store.inspect(fake_bucket, refs).values()} == {Presence.GONE}
    assert sorted(fake.operations()) == ["head_bucket"] + ["head_object"] * 5


@pytest.mark.parametrize(
    ("status", "kind", "scope"),
    [
        (404, FailureClass.BUCKET_MISSING, Scope.BUCKET),
        (403, FailureClass.PERMISSION, Scope.OBJECT),
        (503, FailureClass.TRANSIENT, Scope.OBJECT),
        (301, FailureClass.CREDENTIALS, Scope.WORKER),
    ],
)
def test_without_a_living_bucket_nothing_is_known(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store, status: int, kind: FailureClass, scope: Scope
) -> None:
    fake.respond = lambda request: Answer(404 if request.key else status)
    seen = look(store, fake_bucket)
    assert seen.state is Presence.UNKNOWN
    assert seen.failure is not None
    assert (seen.failure.kind, seen.failure.scope, seen.failure.ambiguous) == (kind, scope, False)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(403), FailureClass.PERMISSION),
        (Answer(301, headers={"x-amz-bucket-region": "eu-west-1"}), FailureClass.CREDENTIALS),
        (Answer(503), FailureClass.TRANSIENT),
        (Answer(429), FailureClass.THROTTLED),
        (Answer(reset=True), FailureClass.TRANSIENT),
        (EMPTY, FailureClass.TRANSIENT),
        (Answer(200, headers={**HERE.headers, "x-amz-version-id": "another"}), FailureClass.TRANSIENT),
    ],
    ids=["denied", "redirect", "503", "429", "reset", "no ETag", "another version"],
)
def test_what_a_head_cannot_see_is_unknown(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store, answer: Answer, kind: FailureClass
) -> None:
    fake.respond = lambda _: answer
    seen = look(store, fake_bucket)
    assert seen.state is Presence.UNKNOWN
    assert seen.failure is not None
    assert (seen.failure.kind, seen.failure.ambiguous) == (kind, False)
    assert len(fake.requests) == 1


def test_a_delete_marker_is_405(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    fake.respond = lambda _: Answer(405, headers={"x-amz-delete-marker": "true"})
    assert look(store, fake_bucket).state is Presence.DELETE_MARKER


def by_listing(answer: Answer, head: Answer):
    return lambda request: answer if request.method == "GET" else head if request.key else Answer(200)


SSE_C = Answer(400)
OTHER_STORE = Answer(404, headers={"Server": "SeaweedFS"})


@pytest.mark.parametrize("head", [SSE_C, OTHER_STORE], ids=["400", "404 of another store"])
@pytest.mark.parametrize(
    ("versions", "state"),
    [
        ([{"Key": "k", "VersionId": "v"}], Presence.PRESENT),
        ([{"Key": "k", "VersionId": "older"}, {"Key": "kk", "VersionId": "v"}], Presence.GONE),
        ([], Presence.GONE),
    ],
)
def test_a_listing_decides_where_head_cannot(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store, head: Answer, versions: list[dict[str, str]], state: Presence
) -> None:
    fake.respond = by_listing(listing(versions), head)
    seen = look(store, fake_bucket)
    assert seen.state is state
    assert (seen.detail == REFUSED_ID) == (state is Presence.GONE and head is SSE_C)


@pytest.mark.parametrize(
    ("head", "answer", "state"),
    [
        (SSE_C, listing([], truncated=True), Presence.UNKNOWN),
        (SSE_C, EMPTY, Presence.UNKNOWN),
        (SSE_C, HTML, Presence.UNKNOWN),
        (SSE_C, error("AccessDenied", 403), Presence.UNKNOWN),
        (OTHER_STORE, listing([], truncated=True), Presence.GONE),
        (OTHER_STORE, error("AccessDenied", 403), Presence.GONE),
    ],
)
def test_a_listing_that_cannot_decide_leaves_the_head(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store, head: Answer, answer: Answer, state: Presence
) -> None:
    fake.respond = by_listing(answer, head)
    assert look(store, fake_bucket).state is state


def test_doubts_about_neighbours_are_settled_together(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    refs = [VersionRef(f"t/{number}", "v") for number in range(9)]
    fake.respond = by_listing(listing([{"Key": "t/3", "VersionId": "v"}]), OTHER_STORE)
    seen = store.inspect(fake_bucket, refs)
    assert [ref for ref in refs if seen[ref].state is Presence.PRESENT] == [refs[3]]
    assert fake.operations().count("get_versions") == 1
    assert "head_bucket" not in fake.operations()  # the listing has shown that the bucket lives


def test_a_dense_batch_is_one_listing(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    fake.respond = lambda _: listing([{"Key": ref.key, "VersionId": ref.version_id} for ref in DENSE[:150]])
    seen = store.inspect(fake_bucket, DENSE)
    assert [seen[ref].state for ref in DENSE] == [Presence.PRESENT] * 150 + [Presence.GONE] * 50
    assert (seen[DENSE[0]].etag, seen[DENSE[0]].size) == ("e", 1)
    assert fake.operations() == ["get_versions"]
    assert fake.requests[0].query["prefix"] == "t/"


def test_a_prefix_with_more_than_a_page_is_listed_in_parts(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store
) -> None:
    """Absence from a page that was cut off means nothing."""

    def respond(request: Request) -> Answer:
        return listing([], truncated=request.query["prefix"] == "t/")

    fake.respond = respond
    assert {one.state for one in store.inspect(fake_bucket, DENSE).values()} == {Presence.GONE}
    assert sorted(request.query["prefix"] for request in fake.requests) == ["t/", "t/0", "t/1"]


def test_a_sparse_batch_is_looked_at_singly(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    def respond(request: Request) -> Answer:
        return listing([], truncated=True) if request.method == "GET" else Answer(404 if request.key else 200)

    fake.respond = respond
    refs = [VersionRef(f"{number * 7919:08x}", "v") for number in range(100)]
    assert {one.state for one in store.inspect(fake_bucket, refs).values()} == {Presence.GONE}
    operations = fake.operations()
    assert operations.count("head_object") == 100
    assert operations.count("head_bucket") == 1
    assert operations.count("get_versions") < 15


def test_many_versions_of_one_key_do_not_list_for_ever(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    fake.respond = lambda request: listing([], truncated=True) if request.method == "GET" else Answer(405)
    refs = [VersionRef("k", f"v{number}") for number in range(50)]
    assert {one.state for one in store.inspect(fake_bucket, refs).values()} == {Presence.DELETE_MARKER}
    assert fake.operations().count("get_versions") == 1


@pytest.mark.parametrize("answer", [EMPTY, HTML, error("InternalError", 500)], ids=["empty", "HTML", "500"])
def test_a_listing_that_fails_is_not_absence(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store, answer: Answer
) -> None:
    fake.respond = lambda request: answer if request.method == "GET" else Answer(403)
    assert {one.state for one in store.inspect(fake_bucket, DENSE).values()} == {Presence.UNKNOWN}
    with pytest.raises(StorageError) as caught:
        store.list_versions(fake_bucket)
    assert caught.value.failure.kind is FailureClass.TRANSIENT


def test_a_key_that_listings_rewrite_is_not_gone_for_being_unlisted(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store
) -> None:
    fake.respond = by_listing(listing([]), SSE_C)
    assert look(store, fake_bucket, VersionRef("a\rb", "v")).state is Presence.UNKNOWN


@pytest.mark.parametrize("key", ["a\rb", "a\nb", "a\x01", "a//b", "/a"])
def test_keys_that_listings_rewrite_are_looked_at_singly(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store, key: str
) -> None:
    fake.respond = lambda request: listing([]) if request.method == "GET" else Answer(405)
    odd = VersionRef(key, "v")
    seen = store.inspect(fake_bucket, [*DENSE, odd])
    assert seen[odd].state is Presence.DELETE_MARKER
    assert [request.key for request in fake.requests if request.method == "HEAD"] == [key]


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [("ObjectLockConfigurationNotFoundError", 404, False), ("NotImplemented", 501, False), ("AccessDenied", 403, None)],
)
def test_whether_a_bucket_has_object_lock(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store, code: str, status: int, expected: bool | None
) -> None:
    versioning = Answer(200, "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>")
    fake.respond = lambda request: versioning if "versioning" in request.query else error(code, status)
    if expected is None:
        with pytest.raises(StorageError):
            store.bucket_state(fake_bucket)
    else:
        state = store.bucket_state(fake_bucket)
        assert (state.versioning, state.object_lock) == ("suspended", expected)


@pytest.mark.parametrize(
    ("code", "status", "known"),
    [
        ("NoSuchLifecycleConfiguration", 404, True),
        ("NotImplemented", 501, True),
        ("MethodNotAllowed", 405, True),
        ("AccessDenied", 403, False),
        ("NoSuchBucket", 404, False),
    ],
)
def test_whether_the_lifecycle_rules_are_known(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store, code: str, status: int, known: bool
) -> None:
    fake.respond = lambda request: error(code, status)
    if known:
        assert store.lifecycle_rules(fake_bucket) == []
    else:
        with pytest.raises(StorageError, match=code):
            store.lifecycle_rules(fake_bucket)
    assert [request.operation for request in fake.requests] == ["get_lifecycle"]


def test_lifecycle_rules_of_the_old_form_and_without_an_id(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store
) -> None:
    fake.respond = lambda request: Answer(
        200,
        "<LifecycleConfiguration><Rule><Prefix>old/</Prefix><Status>Enabled</Status>"
        "<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration></Rule>"
        "<Rule><ID>sizes</ID><Filter><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan></Filter><Status>Enabled</Status>"
        "<Expiration><Days>1</Days></Expiration></Rule><Rule><ID>kept</ID><Filter/><Status>Disabled</Status>"
        "<NoncurrentVersionExpiration><NoncurrentDays>3</NoncurrentDays><NewerNoncurrentVersions>2"
        "</NewerNoncurrentVersions></NoncurrentVersionExpiration></Rule></LifecycleConfiguration>",
    )
    assert store.lifecycle_rules(fake_bucket) == [
        LifecycleRule("#1", True, "old/", expire_on=datetime(2030, 1, 1, tzinfo=UTC)),
        LifecycleRule("sizes", True, narrowed=True, expire_days=1),
        LifecycleRule("kept", False, noncurrent_days=3, noncurrent_kept=2),
    ]
