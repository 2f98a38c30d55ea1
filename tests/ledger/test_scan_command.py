"""`manage.py scan`: dry run by default, resumable, and clear about what it will not do."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from cleanup_project.base.models import User
from ledger import manifest, runs
from ledger.models import CleanupRun
from retention.models import Bucket, RetentionPolicy, Tenant
from tests.world import published, version

pytestmark = pytest.mark.django_db


@pytest.fixture
def policy(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> RetentionPolicy:
    for n in range(4):
        version(bucket, tenant, f"o/{n}")
    return published(tenant, bucket, author=manager, publisher=second_manager, code="originals").policy


def scan(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command("scan", *arguments, "--json", stdout=out, stderr=StringIO())
    said: dict[str, Any] = json.loads(out.getvalue())
    return said


def test_it_prints_what_it_froze(policy: RetentionPolicy) -> None:
    said = scan("originals")
    run = CleanupRun.objects.get()
    assert said == {
        "run": run.key,
        "policy": "originals",
        "mode": "dry_run",
        "state": "closed",
        "as_of": run.as_of.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "parts": 1,
        "read": 4,
        "items": 4,
        "targets": 4,
        "bytes": 400,
        "held": 0,
        "not_enforced": 0,
        "manifest_root": run.manifest_root,
    }


def test_an_interrupted_scan_goes_on(policy: RetentionPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "PART_SIZE", 2)
    run, _ = runs.open_run(policy=policy, by=None)
    manifest.freeze_part(run)
    assert (scan("originals")["run"], CleanupRun.objects.count()) == (run.key, 1)


def test_the_same_key_gives_the_same_run(policy: RetentionPolicy) -> None:
    assert scan("originals", "--idempotency-key", "k")["run"] == scan("originals", "--idempotency-key", "k")["run"]


def test_an_unknown_policy_is_answered_with_the_known_ones(policy: RetentionPolicy) -> None:
    with pytest.raises(CommandError, match=r"No policy has the code 'orignals'\. Known: originals\."):
        scan("orignals")
