"""Deletions against a scripted store that gives AWS's recorded answers."""

import threading
import time
from collections.abc import Callable

import pytest

from retention.storage import BucketRef, DeleteOutcome, Failure, FailureClass, Scope, VersionRef, deletes
from retention.storage.client import Clients
from retention.storage.s3 import S3Store
from tests.storage.fake_s3 import (
    HEAD,
    NAMESPACE,
    RESET,
    Answer,
    FakeS3,
    Request,
    all_deleted,
    delete_result,
    error,
)

KIND = FailureClass
ONE = [VersionRef("k", "v")]
TWO = [VersionRef("k", "v"), VersionRef("l", "w")]
MANY = [VersionRef(f"k{number:03d}", f"v{number}") for number in range(64)]
WAVES = [VersionRef(f"k{number:03d}", "v") for number in range(8 * deletes.WAVE + 8)]  # by `eights`, one and a request
TRUNCATED = f'{HEAD}<DeleteResult xmlns="{NAMESPACE}"><Deleted><Key>k</Key><VersionId>v</Vers'
ERROR_IN_200 = f"{HEAD}<Error><Code>InternalError</Code><Message>m</Message></Error>"
SLOW_IN_200 = f"{HEAD}<Error><Code>SlowDown</Code><Message>m</Message></Error>"
LOCK_MESSAGE = "Access Denied because object protected by object lock."


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletes, "_PAUSE", 0.001)


@pytest.fixture
def eights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletes, "BATCH", 8)


Delete = Callable[..., dict[VersionRef, DeleteOutcome]]


@pytest.fixture
def delete(store: S3Store, fake_bucket: BucketRef) -> Delete:
    def run(refs: list[VersionRef], deadline_seconds: float = 10) -> dict[VersionRef, DeleteOutcome]:
        outcomes = store.delete_versions(fake_bucket, refs, deadline_seconds=deadline_seconds)
        assert set(outcomes) == set(refs)
        assert all(outcome.acknowledged == (outcome.failure is None) for outcome in outcomes.values())
        return outcomes

    return run


def only_failure(outcomes: dict[VersionRef, DeleteOutcome]) -> Failure:
    failures = {outcome.failure for outcome in outcomes.values()}
    assert len(failures) == 1
    (failure,) = failures
    assert failure is not None
    return failure


# Answers to the whole request: (answer, class, ambiguous, scope). A single delete and a batch must agree on them.
WHOLE = {
    "301": (
        error("PermanentRedirect", 301, headers={"x-amz-bucket-region": "eu-west-1"}),
        KIND.CREDENTIALS,
        False,
        Scope.WORKER,
    ),
    "expired": (error("ExpiredToken", 400), KIND.CREDENTIALS, False, Scope.WORKER),
    "skew": (error("RequestTimeTooSkewed", 403), KIND.CREDENTIALS, False, Scope.WORKER),
    "signature": (error("SignatureDoesNotMatch", 403), KIND.CREDENTIALS, False, Scope.WORKER),
    "region": (error("AuthorizationHeaderMalformed", 400, Region="eu-west-1"), KIND.CREDENTIALS, False, Scope.WORKER),
    "no bucket": (error("NoSuchBucket", 404), KIND.BUCKET_MISSING, False, Scope.BUCKET),
    "suspended account": (error("AllAccessDisabled", 403), KIND.PERMISSION, False, Scope.BUCKET),
    "internal": (error("InternalError", 500), KIND.TRANSIENT, True, Scope.OBJECT),
    "empty 503": (Answer(503), KIND.TRANSIENT, True, Scope.OBJECT),
    "bad gateway": (Answer(502, "<html>proxy</html>"), KIND.TRANSIENT, True, Scope.OBJECT),
    "request timeout": (error("RequestTimeout", 400), KIND.TRANSIENT, True, Scope.OBJECT),
    "reset": (RESET, KIND.TRANSIENT, True, Scope.OBJECT),
    "empty 200": (Answer(200), KIND.TRANSIENT, True, Scope.OBJECT),
    "HTML 200": (Answer(200, "<html><body>proxy</body></html>"), KIND.TRANSIENT, True, Scope.OBJECT),
    "conflict": (error("OperationAborted", 409), KIND.CONFLICT, False, Scope.OBJECT),
    "precondition": (error("PreconditionFailed", 412), KIND.VERSION_MISMATCH, False, Scope.OBJECT),
    "malformed": (error("MalformedXML", 400), KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
    "no MD5": (error("MissingContentMD5", 400), KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
    "bad digest": (error("BadDigest", 400), KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
    "not implemented": (error("NotImplemented", 501), KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
    "no code": (error("", 400), KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
    "slow": (error("SlowDown", 503), KIND.THROTTLED, True, Scope.PREFIX),
    "429": (error("TooManyRequests", 429), KIND.THROTTLED, True, Scope.PREFIX),
}


@pytest.mark.parametrize("refs", [ONE, TWO], ids=["single", "batch"])
@pytest.mark.parametrize(("answer", "kind", "ambiguous", "scope"), WHOLE.values(), ids=WHOLE.keys())
def test_a_refused_request_has_a_class(
    fake: FakeS3,
    delete: Delete,
    refs: list[VersionRef],
    answer: Answer,
    kind: FailureClass,
    ambiguous: bool,
    scope: Scope,
) -> None:
    fake.respond = lambda _: answer
    outcomes = delete(refs)
    failure = only_failure(outcomes)
    assert (failure.kind, failure.ambiguous, failure.scope) == (kind, ambiguous, scope)
    assert all(outcome.sent for outcome in outcomes.values())
    if kind not in (KIND.THROTTLED, KIND.MALFORMED_REQUEST):
        assert len(fake.requests) == 1  # never repeated behind our back


@pytest.mark.parametrize("body", [ERROR_IN_200, TRUNCATED], ids=["error", "truncated"])
def test_a_batch_answered_200_may_have_failed(fake: FakeS3, delete: Delete, body: str) -> None:
    fake.respond = lambda _: Answer(200, body)
    failure = only_failure(delete(TWO))
    assert (failure.kind, failure.ambiguous) == (KIND.TRANSIENT, True)
    assert len(fake.requests) == 1


def test_a_batch_throttled_under_way_is_in_doubt(fake: FakeS3, delete: Delete, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletes, "MAX_THROTTLES", 0)
    fake.respond = lambda _: Answer(200, SLOW_IN_200)
    failure = only_failure(delete(TWO))
    assert (failure.kind, failure.ambiguous) == (KIND.THROTTLED, True)


def test_success_names_every_version(fake: FakeS3, delete: Delete) -> None:
    outcomes = delete(MANY)
    assert all(outcome == DeleteOutcome.acknowledge("REQUEST") for outcome in outcomes.values())
    (request,) = fake.requests
    assert request.items == tuple((ref.key, ref.version_id) for ref in MANY)
    assert "x-amz-checksum-crc32" in request.headers


def test_a_gone_version_is_acknowledged(fake: FakeS3, delete: Delete) -> None:
    """AWS says so of every well-formed id: the acknowledgement proves nothing."""
    assert delete(ONE)[ONE[0]].acknowledged
    assert delete(TWO)[TWO[0]].acknowledged


def test_a_malformed_id_singly(fake: FakeS3, delete: Delete) -> None:
    fake.respond = lambda _: error(
        "InvalidArgument", 400, "Invalid version id specified", ArgumentName="versionId", ArgumentValue="v"
    )
    failure = only_failure(delete(ONE))
    assert (failure.kind, failure.ambiguous, failure.http_status) == (KIND.MALFORMED_VERSION, False, 400)


def test_a_malformed_id_in_a_batch(fake: FakeS3, delete: Delete) -> None:
    fake.respond = lambda _: delete_result(
        [{"Key": "l", "VersionId": "w"}],
        [{"Key": "k", "VersionId": "v", "Code": "NoSuchVersion", "Message": "The specified version does not exist."}],
    )
    outcomes = delete(TWO)
    assert outcomes[TWO[1]].acknowledged
    failure = outcomes[TWO[0]].failure
    assert failure is not None
    assert (failure.kind, failure.ambiguous, failure.scope) == (KIND.MALFORMED_VERSION, False, Scope.OBJECT)


@pytest.mark.parametrize("status", [200, 202, 204])
def test_a_single_answer_about_another_version_is_in_doubt(fake: FakeS3, delete: Delete, status: int) -> None:
    fake.respond = lambda _: Answer(status, headers={"x-amz-version-id": "new", "x-amz-delete-marker": "true"})
    failure = only_failure(delete(ONE))
    assert (failure.kind, failure.ambiguous) == (KIND.TRANSIENT, True)


def test_a_single_answer_without_an_id_is_enough(fake: FakeS3, delete: Delete) -> None:
    fake.respond = lambda _: Answer(204)  # Ceph RGW
    assert delete(ONE)[ONE[0]].acknowledged


# AccessDenied, and what the lock says.


def locks(retention: Answer, hold: Answer, message: str = "Access Denied") -> Callable[[Request], Answer]:
    def respond(request: Request) -> Answer:
        if request.method == "POST":
            errors = [
                {"Key": key, "VersionId": version_id, "Code": "AccessDenied", "Message": message}
                for key, version_id in request.items
            ]
            return delete_result([], errors)
        answers = {
            "get_retention": retention,
            "get_legal-hold": hold,
            "delete_object": error("AccessDenied", 403, message),
        }
        return answers.get(request.operation, Answer(200, headers={"x-amz-version-id": "v", "etag": '"e"'}))

    return respond


def retained(until: str) -> Answer:
    return Answer(
        200, f"{HEAD}<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>"
    )


RETAINED = retained("2999-01-01T00:00:00Z")
EXPIRED = retained("2001-01-01T00:00:00Z")
HELD = Answer(200, f"{HEAD}<LegalHold><Status>ON</Status></LegalHold>")
NONE = error("NoSuchObjectLockConfiguration", 404)
NO_LOCKS_HERE = error("InvalidRequest", 400, "Bucket is missing Object Lock Configuration")
FORBIDDEN = error("AccessDenied", 403)


@pytest.mark.parametrize("refs", [ONE, TWO], ids=["single", "batch"])
@pytest.mark.parametrize(
    ("retention", "hold", "kind", "unknown"),
    [
        (RETAINED, NONE, KIND.LOCKED, False),
        (NONE, HELD, KIND.LEGAL_HOLD, False),
        (RETAINED, HELD, KIND.LEGAL_HOLD, False),
        (EXPIRED, NONE, KIND.PERMISSION, False),
        (NONE, NONE, KIND.PERMISSION, False),
        (NO_LOCKS_HERE, NO_LOCKS_HERE, KIND.PERMISSION, False),
        (FORBIDDEN, FORBIDDEN, KIND.PERMISSION, True),
        (FORBIDDEN, HELD, KIND.LEGAL_HOLD, True),
        (RETAINED, FORBIDDEN, KIND.LOCKED, True),
    ],
)
def test_a_denial_is_told_apart_by_the_lock(
    fake: FakeS3,
    delete: Delete,
    refs: list[VersionRef],
    retention: Answer,
    hold: Answer,
    kind: FailureClass,
    unknown: bool,
) -> None:
    fake.respond = locks(retention, hold)
    for outcome in delete(refs).values():
        assert outcome.failure is not None
        assert (outcome.failure.kind, outcome.failure.ambiguous) == (kind, False)
        assert outcome.lock is not None
        assert outcome.lock.unknown == unknown
        assert outcome.lock.legal_hold == (hold is HELD)
        assert (outcome.lock.mode == "COMPLIANCE") == (retention in (RETAINED, EXPIRED))


def test_a_lock_that_cannot_be_read_is_believed_from_the_message(fake: FakeS3, delete: Delete) -> None:
    fake.respond = locks(FORBIDDEN, FORBIDDEN, LOCK_MESSAGE)
    (outcome,) = delete(ONE).values()
    assert outcome.failure is not None
    assert outcome.failure.kind is KIND.LOCKED
    assert outcome.lock is not None
    assert outcome.lock.unknown


def test_a_denied_batch_is_a_matter_of_the_bucket(fake: FakeS3, delete: Delete) -> None:
    fake.respond = lambda _: error("AccessDenied", 403)
    failure = only_failure(delete(MANY))
    assert (failure.kind, failure.scope) == (KIND.PERMISSION, Scope.BUCKET)
    assert len(fake.requests) == 1


# Keys that a batch cannot carry.


@pytest.mark.parametrize("key", ["a\x01b", "a\x00", "a\rb", "\x1f", "a\ufffe", "a\uffffb"])
def test_a_key_that_xml_cannot_carry_goes_alone(fake: FakeS3, delete: Delete, key: str) -> None:
    odd = VersionRef(key, "odd")
    assert all(outcome.acknowledged for outcome in delete([odd, *TWO]).values())
    single, batch = sorted(fake.requests, key=lambda request: request.method)
    assert (batch.method, len(batch.items), batch.well_formed) == ("POST", 2, True)
    assert (single.method, single.key, single.query["versionId"]) == ("DELETE", key, "odd")


@pytest.mark.parametrize(
    "key",
    [
        "a+b",
        "a%20b",
        "a b",
        "//",
        "/a",
        "a/",
        "g/../h",
        "./a",
        "a\nb",
        "a\tb",
        "é",
        "e\u0301",
        "😀",
        "k" * 1024,
        "a?b#c&d=e",
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_key_arrives_as_it_is(fake: FakeS3, delete: Delete, key: str, alone: bool) -> None:
    odd = VersionRef(key, "v+/=%")
    assert delete([odd] if alone else [odd, *TWO])[odd].acknowledged
    (request,) = fake.requests
    if alone:
        assert (request.key, request.query["versionId"]) == (key, "v+/=%")
    else:
        assert (key, "v+/=%") in request.items


# A batch that is refused as a whole because of one item.


def test_one_bad_key_does_not_spoil_the_rest(fake: FakeS3, delete: Delete) -> None:
    bad = MANY[37]

    def respond(request: Request) -> Answer:
        return (
            error("MalformedXML", 400)
            if (bad.key in request.raw_path or (bad.key, bad.version_id) in request.items)
            else all_deleted(request)
        )

    fake.respond = respond
    outcomes = delete(MANY)
    assert [ref for ref, outcome in outcomes.items() if not outcome.acknowledged] == [bad]
    failure = outcomes[bad].failure
    assert failure is not None
    assert (failure.kind, failure.ambiguous) == (KIND.MALFORMED_REQUEST, False)
    assert len(fake.requests) <= 14


@pytest.mark.parametrize("answer", [error("NotImplemented", 501), error("MissingContentMD5", 400)])
def test_a_store_without_batches_is_asked_singly(fake: FakeS3, delete: Delete, answer: Answer) -> None:
    fake.respond = lambda request: answer if request.method == "POST" else all_deleted(request)
    assert all(outcome.acknowledged for outcome in delete(MANY).values())
    assert fake.operations() == ["delete_objects"] + ["delete_object"] * len(MANY)


def test_an_item_refused_as_malformed_is_tried_alone(fake: FakeS3, delete: Delete) -> None:
    def respond(request: Request) -> Answer:
        if request.method == "DELETE":
            return all_deleted(request)
        return delete_result(
            [{"Key": "l", "VersionId": "w"}], [{"Key": "k", "VersionId": "v", "Code": "InvalidRequest"}]
        )

    fake.respond = respond
    assert all(outcome.acknowledged for outcome in delete(TWO).values())


# Throttling.


def sizes(fake: FakeS3) -> list[int]:
    return [len(request.items) or 1 for request in fake.requests]


def test_only_throttled_keys_are_sent_again(fake: FakeS3, delete: Delete) -> None:
    def respond(request: Request) -> Answer:
        if len(fake.requests) > 1:
            return all_deleted(request)
        slow = [{"Key": key, "VersionId": v, "Code": "SlowDown", "Message": "m"} for key, v in request.items[60:]]
        return delete_result([{"Key": key, "VersionId": v} for key, v in request.items[:60]], slow)

    fake.respond = respond
    assert all(outcome.acknowledged for outcome in delete(MANY).values())
    assert sizes(fake) == [64, 4]


def test_a_throttled_request_is_halved(fake: FakeS3, delete: Delete) -> None:
    fake.respond = lambda request: error("SlowDown", 503) if len(request.items) > 20 else all_deleted(request)
    assert all(outcome.acknowledged for outcome in delete(MANY).values())
    assert sizes(fake) == [64, 32, 16, 16, 16, 16]


def all_slow(request: Request) -> Answer:
    slow = [{"Key": k, "VersionId": v, "Code": "SlowDown", "Message": "m"} for k, v in request.items]
    return delete_result([], slow)


def test_throttling_without_end_is_reported(fake: FakeS3, delete: Delete) -> None:
    fake.respond = all_slow
    outcomes = delete(MANY)
    assert only_failure(outcomes).kind is KIND.THROTTLED
    assert not only_failure(outcomes).ambiguous
    assert all(outcome.sent for outcome in outcomes.values())
    assert sizes(fake) == [64, 32, 16, 8, 4, 2]


def test_what_a_throttled_wave_leaves_is_not_sent(
    fake: FakeS3, delete: Delete, eights: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletes, "MAX_THROTTLES", 0)
    fake.respond = all_slow
    outcomes = delete(WAVES)
    assert [outcomes[ref].sent for ref in (WAVES[0], WAVES[-9], WAVES[-1])] == [
        True, True, False
    ]  # fmt: skip
    assert {outcome.failure.kind for outcome in outcomes.values() if outcome.failure} == {KIND.THROTTLED}


def test_throttling_is_not_waited_out_beyond_the_deadline(fake: FakeS3, delete: Delete) -> None:
    fake.respond = lambda _: error("SlowDown", 503, headers={"Retry-After": "30"})
    started = time.monotonic()
    failure = only_failure(delete(MANY, deadline_seconds=10))
    assert time.monotonic() - started < 2
    assert (failure.kind, failure.ambiguous, failure.retry_after) == (KIND.THROTTLED, True, 30.0)
    assert len(fake.requests) == 1


def test_doubt_once_raised_stays(fake: FakeS3, delete: Delete) -> None:
    """A request throttled as a whole may have been executed in part, whatever is said of its items later."""

    def respond(request: Request) -> Answer:
        if len(fake.requests) == 1:
            return error("SlowDown", 503)
        return delete_result(
            [], [{"Key": k, "VersionId": v, "Code": "OperationAborted", "Message": "m"} for k, v in request.items]
        )

    fake.respond = respond
    failure = only_failure(delete([*MANY[:4]]))
    assert (failure.kind, failure.ambiguous) == (KIND.CONFLICT, True)


# What ends a call early.


@pytest.mark.parametrize("answer", [error("ExpiredToken", 400), error("NoSuchBucket", 404)])
def test_nothing_more_is_sent_when_the_next_must_fail_too(
    fake: FakeS3, delete: Delete, eights: None, answer: Answer
) -> None:
    fake.respond = lambda _: answer
    odd = [VersionRef("\x01", "v"), VersionRef("\x02", "v")]
    outcomes = delete([*WAVES, *odd])
    assert len(fake.requests) == deletes.WAVE
    assert [outcomes[ref].sent for ref in (*WAVES[:2], WAVES[-1], *odd)] == [True, True, False, False, False]
    assert not any(outcome.acknowledged for outcome in outcomes.values())


# Waves.


def test_requests_of_a_wave_are_on_their_way_together(fake: FakeS3, delete: Delete, eights: None) -> None:
    together = threading.Barrier(deletes.WAVE)

    def respond(request: Request) -> Answer:
        together.wait(timeout=10)
        return all_deleted(request)

    fake.respond = respond
    refs = WAVES[:-8]
    assert all(outcome.acknowledged for outcome in delete(refs).values())
    assert sizes(fake) == [8] * deletes.WAVE


def test_the_caller_is_asked_before_each_wave_and_what_it_forbids_is_not_sent(
    fake: FakeS3, store: S3Store, fake_bucket: BucketRef, eights: None
) -> None:
    asked = list[int]()

    def proceed() -> bool:
        asked.append(len(fake.requests))
        return len(asked) == 1

    outcomes = store.delete_versions(fake_bucket, WAVES, deadline_seconds=10, proceed=proceed)
    assert asked == [0, deletes.WAVE]
    said = [outcomes[ref].failure for ref in WAVES if not outcomes[ref].sent]
    assert {failure.code for failure in said if failure} == {"Stopped"}
    assert len(said) == 8


def test_a_denied_bucket_is_told_by_its_batches_and_nothing_single_is_sent(fake: FakeS3, delete: Delete) -> None:
    refs = [VersionRef(f"k{number:03d}", "v") for number in range(deletes.BATCH + 1)]
    odd = VersionRef("\x01", "v")
    fake.respond = lambda _: error("AccessDenied", 403)
    outcomes = delete([odd, *refs])
    failure = only_failure(outcomes)
    assert (failure.kind, failure.scope) == (KIND.PERMISSION, Scope.BUCKET)
    assert sizes(fake) == [63, 63]
    assert not outcomes[odd].sent


def test_all_that_a_wave_had_throttled_is_sent_again_after_its_longest_pause(
    fake: FakeS3, delete: Delete, eights: None
) -> None:
    def respond(request: Request) -> Answer:
        if len(fake.requests) > 4:
            return all_deleted(request)
        first = request.items[0][0] == "k000"
        return error("SlowDown", 503, headers={"Retry-After": "1" if first else "0"})

    fake.respond = respond
    started = time.monotonic()
    outcomes = delete(WAVES[:32])
    assert all(outcome.acknowledged for outcome in outcomes.values())
    assert time.monotonic() - started >= 1
    assert sizes(fake) == [8] * 4 + [4] * 8


def test_what_is_wrong_with_us_explains_what_a_wave_left(fake: FakeS3, delete: Delete, eights: None) -> None:
    """Whichever answer is read first."""
    for wrong, other in (("k000", "NoSuchBucket"), ("k008", "NoSuchBucket")):
        fake.respond = lambda request, wrong=wrong, other=other: (
            error("ExpiredToken", 400) if request.items[0][0] == wrong else error(other, 404)
        )
        outcomes = delete([*WAVES[:16], VersionRef("\x01", "v")])
        left = outcomes[VersionRef("\x01", "v")]
        assert left.failure is not None
        assert (left.sent, left.failure.kind) == (False, KIND.CREDENTIALS)


def test_the_client_is_there_before_the_caller_is_asked(
    fake: FakeS3, fake_bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the calls themselves, each of a wave would build its own, between the caller's look and the request."""
    told = list[str]()
    building = Clients._build
    monkeypatch.setattr(Clients, "_build", lambda *of: told.append("built") or building(*of))

    def proceed() -> bool:
        told.append(threading.current_thread().name)
        return True

    S3Store().delete_versions(fake_bucket, WAVES, deadline_seconds=10, proceed=proceed)
    assert told == ["built", threading.current_thread().name]
