"""Which client is used, as whom, and where to."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from retention.storage import AddressingStyle, BucketRef, FailureClass, StorageError, VersionRef, store_for
from retention.storage.client import Clients, Timeouts
from retention.storage.s3 import S3Store
from tests import servers
from tests.storage.fake_s3 import FakeS3, listing
from tests.storage.labs import S3Lab

REF = VersionRef("k", "v")


def test_one_client_for_each_place_and_process(fake_bucket: BucketRef, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = Clients(Timeouts(), pool_size=4)
    first = clients._client_for(fake_bucket)
    assert clients._client_for(replace(fake_bucket, name="other")) is first
    assert clients._client_for(replace(fake_bucket, region="eu-west-1")) is not first
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as after a fork
    assert clients._client_for(fake_bucket) is not first


FORKING = """
import os, sys
from retention.storage import BucketRef, VersionRef
from retention.storage.s3 import S3Store
store, bucket = S3Store(), BucketRef("b", sys.argv[1], "us-east-1", "path")
def delete(key):
    ref = VersionRef(key, "v")
    return store.delete_versions(bucket, [ref], deadline_seconds=10)[ref].acknowledged
assert delete("parent before")
child = os.fork()
if child == 0:
    os._exit(0 if delete("child") else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert delete("parent after")
"""


def test_a_forked_child_has_connections_of_its_own(fake: FakeS3) -> None:
    subprocess.run([sys.executable, "-W", "error", "-c", FORKING, fake.endpoint_url], check=True, timeout=60)
    assert [request.key for request in fake.requests] == ["parent before", "child", "parent after"]
    assert len({request.peer for request in fake.requests}) >= 2


def test_threads_share_a_store(fake: FakeS3, fake_bucket: BucketRef) -> None:
    store, results = S3Store(), []

    def delete(number: int) -> None:
        refs = [VersionRef(f"{number}-{item}", "v") for item in range(5)]
        results.append(store.delete_versions(fake_bucket, refs, deadline_seconds=10))

    threads = [threading.Thread(target=delete, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(outcome.acknowledged for outcomes in results for outcome in outcomes.values())


def test_the_region_is_ours_and_is_signed(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    fake.respond = lambda _: listing([])
    store.list_versions(replace(fake_bucket, region="eu-central-2"))
    assert "/eu-central-2/s3/aws4_request" in fake.requests[0].headers["authorization"]


@pytest.mark.parametrize(
    ("style", "endpoint", "start"),
    [
        ("path", "http://store.example:9000", "http://store.example:9000/bucket?"),
        ("virtual", "http://store.example:9000", "http://bucket.store.example:9000/?"),
        ("path", "", "https://s3.us-east-1.amazonaws.com/bucket?"),
        ("virtual", "", "https://bucket.s3.us-east-1.amazonaws.com/?"),
        ("auto", "", "https://bucket.s3.us-east-1.amazonaws.com/?"),
    ],
)
def test_the_addressing_style(style: AddressingStyle, endpoint: str, start: str) -> None:
    bucket = BucketRef("bucket", endpoint, servers.REGION, style)
    client = Clients(Timeouts(), pool_size=1)._client_for(bucket)
    url = client.generate_presigned_url("list_object_versions", Params={"Bucket": bucket.name})
    assert url.startswith(start)


def test_an_endpoint_in_the_environment_is_ignored(
    fake: FakeS3, fake_bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", fake.endpoint_url)
    client = Clients(Timeouts(), pool_size=1)._client_for(replace(fake_bucket, endpoint_url=""))
    assert client.meta.endpoint_url == "https://s3.us-east-1.amazonaws.com"


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "credentials"
    path.write_text(
        f"[owner]\naws_access_key_id={servers.ACCESS_KEY}\naws_secret_access_key={servers.SECRET_KEY}\n"
        f"[stranger]\naws_access_key_id={servers.STRANGER_KEY}\naws_secret_access_key={servers.STRANGER_SECRET}\n"
        f"[forger]\naws_access_key_id={servers.ACCESS_KEY}\naws_secret_access_key=wrong\n"
        f"[unknown]\naws_access_key_id=NOBODY\naws_secret_access_key=wrong\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))


@pytest.mark.usefixtures("profiles")
def test_a_profile_is_used_by_name(fake: FakeS3, fake_bucket: BucketRef) -> None:
    store = S3Store()
    fake.respond = lambda _: listing([])
    store.list_versions(replace(fake_bucket, credential_profile="stranger"))
    store.list_versions(fake_bucket)
    used = [request.headers["authorization"].partition("Credential=")[2] for request in fake.requests]
    assert [credential.partition("/")[0] for credential in used] == [servers.STRANGER_KEY, servers.ACCESS_KEY]


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize(("profile", "endpoint"), [("nosuch", None), ("", "not a url")])
def test_bad_configuration_is_a_failure_and_not_a_crash(
    fake: FakeS3, fake_bucket: BucketRef, profile: str, endpoint: str | None
) -> None:
    bucket = replace(fake_bucket, credential_profile=profile, endpoint_url=endpoint or fake_bucket.endpoint_url)
    outcome = S3Store().delete_versions(bucket, [REF], deadline_seconds=10)[REF]
    assert outcome.failure is not None
    assert (outcome.sent, outcome.failure.ambiguous) == (False, False)
    assert outcome.failure.kind is (FailureClass.MALFORMED_REQUEST if endpoint else FailureClass.CREDENTIALS)
    assert fake.requests == []


def test_without_credentials_nothing_is_sent(
    fake: FakeS3, fake_bucket: BucketRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    outcome = S3Store().delete_versions(fake_bucket, [REF], deadline_seconds=10)[REF]
    assert outcome.failure is not None
    assert (outcome.sent, outcome.failure.kind) == (False, FailureClass.CREDENTIALS)
    assert fake.requests == []


@pytest.mark.seaweed
@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize(
    ("profile", "kind"),
    [
        ("stranger", FailureClass.PERMISSION),
        ("forger", FailureClass.CREDENTIALS),
        ("unknown", FailureClass.CREDENTIALS),
    ],
)
def test_a_real_server_denies(seaweed_lab: S3Lab, profile: str, kind: FailureClass) -> None:
    bucket = seaweed_lab.new_bucket()
    refs = [seaweed_lab.put(bucket, key) for key in ("a", "b")]
    as_other, store = replace(bucket, credential_profile=profile), S3Store()
    for some in (refs, refs[:1]):
        for outcome in store.delete_versions(as_other, some, deadline_seconds=10).values():
            assert outcome.failure is not None
            assert (outcome.failure.kind, outcome.failure.ambiguous) == (kind, False)
    with pytest.raises(StorageError) as caught:
        store.list_versions(as_other)
    assert caught.value.failure.kind is kind
    assert len(seaweed_lab.store.list_versions(bucket).versions) == 2


def test_the_factory_knows_the_s3_api_alone(fake_bucket: BucketRef) -> None:
    assert isinstance(store_for(fake_bucket), S3Store)
    assert store_for(replace(fake_bucket, endpoint_url="")) is store_for(fake_bucket)
    with pytest.raises(ValueError, match="no adapter"):
        store_for(replace(fake_bucket, endpoint_url="gs://b"))
