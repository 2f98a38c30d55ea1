"""Stores to test against. Servers live for the session and start only when a test wants them."""

from collections.abc import Iterator

import pytest

from retention.storage import BucketRef
from retention.storage.client import Timeouts
from retention.storage.s3 import S3Store
from tests import servers
from tests.storage.fake_s3 import FakeS3
from tests.storage.labs import Lab, MemoryLab, S3Lab


@pytest.fixture(scope="session", autouse=True)
def _credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in servers.aws_environment().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def moto_lab() -> Iterator[S3Lab]:
    with servers.moto_server() as url:
        yield S3Lab("moto", url)


@pytest.fixture(scope="session")
def seaweed_lab() -> Iterator[S3Lab]:
    with servers.seaweed_server() as url:
        yield S3Lab("seaweed", url)


@pytest.fixture(params=["memory", "moto", pytest.param("seaweed", marks=pytest.mark.seaweed)])
def lab(request: pytest.FixtureRequest) -> Lab:
    if request.param == "memory":
        return MemoryLab()
    made: Lab = request.getfixturevalue(f"{request.param}_lab")
    return made


@pytest.fixture(scope="session")
def _fake() -> Iterator[FakeS3]:
    with FakeS3().serving() as server:
        yield server


@pytest.fixture
def fake(_fake: FakeS3) -> Iterator[FakeS3]:
    _fake.begin()
    yield _fake
    _fake.end()


@pytest.fixture
def fake_bucket(fake: FakeS3) -> BucketRef:
    return BucketRef("b", fake.endpoint_url, servers.REGION, "path")


@pytest.fixture(scope="session")
def store() -> S3Store:
    return S3Store(Timeouts(connect=2, read=5, call=5))
