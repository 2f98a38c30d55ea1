"""`bench sync` on a small bucket: it measures the real thing and leaves nothing behind."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cleanup_project.operations import bench_sync, servers
from retention.models import Bucket, CatalogueSync, KeyRule, ObjectVersion

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("server", ["moto", pytest.param("seaweedfs", marks=pytest.mark.seaweed)])
def test_compares_a_sync_with_a_bare_listing(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if server == "moto":

        @contextmanager
        def moto() -> Iterator[tuple[str, str]]:
            with servers.moto() as endpoint_url:
                yield "moto", endpoint_url

        monkeypatch.setattr(servers, "any_store", moto)
    before = dict(os.environ)
    result = bench_sync.run(versions=20)
    assert (result["name"], result["unit"], result["details"]["server"]) == ("sync", "versions/s", server)
    assert result["value"] > 0
    assert result["ratio"] == pytest.approx(result["value"] / result["baseline_value"], rel=0.2)
    assert result["details"]["versions"] == 20
    assert set(result) == {
        *("name", "value", "unit", "baseline", "baseline_value", "ratio", "details", "machine"),
    }
    assert os.environ == before
    for model in (Bucket, ObjectVersion, KeyRule, CatalogueSync):
        assert not model.objects.exists()
