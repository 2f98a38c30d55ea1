"""The outer deadline: a call ends when it was said to end, and nothing of it goes on."""

import datetime
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from retention.storage import BucketRef, DeleteOutcome, FailureClass, Presence, StorageError, VersionRef, deletes
from retention.storage.client import Timeouts
from retention.storage.s3 import S3Store
from tests.servers import REGION
from tests.storage.fake_s3 import HANG, Answer, FakeS3, Request, all_deleted

REFS = [VersionRef(f"k{number}", "v") for number in range(3)]
DRIP, DRIP_HEADERS = Answer(200, "x" * 1000, drip=0.1), Answer(200, "", drip=0.1, drip_headers=True)
DEADLINE = 0.6


def timed(call: Callable[[], dict[VersionRef, DeleteOutcome]]) -> dict[VersionRef, DeleteOutcome]:
    threads = threading.active_count()
    started = time.monotonic()
    outcomes = call()
    assert time.monotonic() - started < DEADLINE + 1.5
    assert threading.active_count() <= threads + 1  # the server's, for the request under way
    assert set(outcomes) == set(REFS)
    return outcomes


def assert_in_doubt(outcomes: dict[VersionRef, DeleteOutcome]) -> None:
    for outcome in outcomes.values():
        assert outcome.failure is not None
        assert (outcome.failure.kind, outcome.failure.ambiguous) == (FailureClass.TRANSIENT, True)
        assert outcome.failure.code == "DeadlineExceeded"
        assert outcome.sent


@pytest.mark.parametrize("answer", [HANG, DRIP, DRIP_HEADERS], ids=["hang", "drip", "drip headers"])
def test_a_batch_ends_at_its_deadline(fake: FakeS3, fake_bucket: BucketRef, store: S3Store, answer: Answer) -> None:
    fake.respond = lambda _: answer
    assert_in_doubt(timed(lambda: store.delete_versions(fake_bucket, REFS, deadline_seconds=DEADLINE)))
    time.sleep(0.3)
    assert len(fake.requests) == 1  # and nothing follows


def test_what_was_not_sent_in_time_is_not_in_doubt(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletes, "WAVE", 1)
    singles = [VersionRef(f"\x01{number}", "v") for number in range(3)]
    fake.respond = lambda request: HANG if request.key == "\x011" else all_deleted(request)
    outcomes = store.delete_versions(fake_bucket, singles, deadline_seconds=DEADLINE)
    assert outcomes[singles[0]].acknowledged
    assert_in_doubt({singles[1]: outcomes[singles[1]]})
    last = outcomes[singles[2]]
    assert last.failure is not None
    assert (last.sent, last.failure.kind, last.failure.ambiguous) == (False, FailureClass.TRANSIENT, False)


def test_a_deadline_that_has_passed_sends_nothing(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    outcomes = store.delete_versions(fake_bucket, REFS, deadline_seconds=0)
    assert not any(outcome.sent or outcome.acknowledged for outcome in outcomes.values())
    assert {seen.state for seen in store.inspect(fake_bucket, REFS, deadline_seconds=0).values()} == {Presence.UNKNOWN}
    assert fake.requests == []


def test_the_read_timeout_still_applies_below_the_deadline(fake: FakeS3, fake_bucket: BucketRef) -> None:
    fake.respond = lambda _: HANG
    started = time.monotonic()
    outcomes = S3Store(Timeouts(read=0.3)).delete_versions(fake_bucket, REFS, deadline_seconds=10)
    assert time.monotonic() - started < 2
    assert {outcome.failure.code for outcome in outcomes.values() if outcome.failure} == {"ReadTimeoutError"}
    assert all(outcome.failure.ambiguous for outcome in outcomes.values() if outcome.failure)


def test_an_inspection_ends_at_its_deadline(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    fake.respond = lambda _: HANG
    refs = [VersionRef(f"k{number:02d}", "v") for number in range(40)]
    started = time.monotonic()
    seen = store.inspect(fake_bucket, refs, deadline_seconds=DEADLINE)
    assert time.monotonic() - started < DEADLINE + 1.5
    assert {one.state for one in seen.values()} == {Presence.UNKNOWN}
    assert not any(one.failure.ambiguous for one in seen.values() if one.failure)


def test_a_listing_ends_at_its_deadline(fake: FakeS3, fake_bucket: BucketRef) -> None:
    fake.respond = lambda _: DRIP
    with pytest.raises(StorageError) as caught:
        S3Store(Timeouts(call=DEADLINE)).list_versions(fake_bucket)
    assert caught.value.failure.code == "DeadlineExceeded"


def test_slow_credentials_do_not_make_a_late_send(fake: FakeS3, fake_bucket: BucketRef) -> None:
    """Whatever holds a call up before it connects, it does not go out after its deadline."""
    store = S3Store()
    client = store._clients._client_for(fake_bucket)
    client.meta.events.register("before-sign.s3", lambda **_: time.sleep(DEADLINE))
    outcomes = timed(lambda: store.delete_versions(fake_bucket, REFS, deadline_seconds=DEADLINE / 2))
    assert not any(outcome.sent for outcome in outcomes.values())
    assert not any(outcome.failure.ambiguous for outcome in outcomes.values() if outcome.failure)
    assert fake.requests == []


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port where a connect gets no answer: its queue is full and nobody accepts."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        yield server.getsockname()[1]
        for filler in fillers:
            filler.close()


def test_a_connect_that_hangs_has_sent_nothing(full_port: int) -> None:
    bucket = BucketRef("b", f"http://127.0.0.1:{full_port}", REGION, "path")
    outcomes = timed(lambda: S3Store().delete_versions(bucket, REFS, deadline_seconds=DEADLINE))
    for outcome in outcomes.values():
        assert outcome.failure is not None
        assert (outcome.sent, outcome.failure.ambiguous, outcome.failure.kind) == (False, False, FailureClass.TRANSIENT)


def test_a_refused_connect_has_sent_nothing_and_ends_the_call() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        bucket = BucketRef("b", f"http://127.0.0.1:{unused.getsockname()[1]}", REGION, "path")
        outcomes = timed(lambda: S3Store().delete_versions(bucket, REFS, deadline_seconds=10))
    for outcome in outcomes.values():
        assert outcome.failure is not None
        assert (outcome.sent, outcome.failure.code) == (False, "EndpointConnectionError")
        assert not outcome.failure.ambiguous


# The same over TLS, which has connections of its own.


@pytest.fixture
def tls_fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    certificate = tmp_path / "certificate.pem"
    certificate.write_bytes(_self_signed())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    with FakeS3(tls=context).serving() as server:
        yield server


@pytest.mark.parametrize("answer", [HANG, DRIP], ids=["hang", "drip"])
def test_a_deadline_holds_over_tls(tls_fake: FakeS3, answer: Answer) -> None:
    def respond(request: Request) -> Answer:
        return answer if len(tls_fake.requests) > 1 else all_deleted(request)

    tls_fake.respond = respond
    store, bucket = S3Store(), BucketRef("b", tls_fake.endpoint_url, REGION, "path")
    assert all(one.acknowledged for one in store.delete_versions(bucket, REFS, deadline_seconds=10).values())
    assert_in_doubt(timed(lambda: store.delete_versions(bucket, REFS, deadline_seconds=DEADLINE)))


def test_a_large_batch_passes_over_tls(tls_fake: FakeS3) -> None:
    """Keys of a thousand bytes are many writes."""
    refs = [VersionRef(f"{'k' * 996}{number:04d}", "v" * 32) for number in range(1000)]
    bucket = BucketRef("b", tls_fake.endpoint_url, REGION, "path")
    outcomes = S3Store().delete_versions(bucket, refs, deadline_seconds=30)
    assert all(outcome.acknowledged for outcome in outcomes.values())
    assert len(tls_fake.requests) == 8


def _self_signed() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
