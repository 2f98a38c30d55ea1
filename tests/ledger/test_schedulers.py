"""Schedulers as real processes: two on one run, one killed in the middle of a part, ten opening at once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from cleanup_project.base.models import User
from ledger import manifest, runs
from ledger.models import CleanupRun
from ledger.states import RunState
from retention.models import Bucket, RetentionPolicy, Tenant
from tests.world import published, version

pytestmark = pytest.mark.django_db(transaction=True)

OBJECTS = 40
PRELUDE = """
import os, sys
from django.conf import settings
import django
django.setup()
from django.db import connections
settings.DATABASES["default"]["NAME"] = connections["default"].settings_dict["NAME"] = sys.argv[1]
from ledger import manifest, runs
from ledger.models import CleanupRun
from retention.models import RetentionPolicy
manifest.PART_SIZE = 3
"""
FREEZE = PRELUDE + "manifest.freeze(CleanupRun.objects.get(pk=int(sys.argv[2])))"
HANG = (
    PRELUDE
    + """
import time
write_part = manifest.write_part
def hang(*given):
    write_part(*given)
    print("in the middle", flush=True)
    time.sleep(60)
manifest.write_part = hang
manifest.freeze(CleanupRun.objects.get(pk=int(sys.argv[2])))
"""
)
OPEN = (
    PRELUDE
    + """
run, new = runs.open_run(policy=RetentionPolicy.objects.get(), by=None, idempotency_key="slot-1")
print(run.pk, new)
"""
)


@pytest.fixture
def policy(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> RetentionPolicy:
    for n in range(OBJECTS):
        version(bucket, tenant, f"o/{n}", stored_at=timezone.now() - timedelta(days=90 - n % 5))
    return published(tenant, bucket, author=manager, publisher=second_manager).policy


@contextmanager
def process(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A Python process on the test's database; killed if the test does not let it end."""
    command = [sys.executable, "-c", script, str(connection.settings_dict["NAME"]), *map(str, arguments)]
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "cleanup_project.settings", "LOG_LEVEL": "ERROR"}
    started = subprocess.Popen(
        command, cwd=settings.BASE_DIR, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def ended(started: subprocess.Popen[str]) -> str:
    out, err = started.communicate(timeout=60)
    assert started.returncode == 0, err
    return out


def assert_complete(run: CleanupRun) -> None:
    """No gap and no overlap, whoever froze which part."""
    run.refresh_from_db()
    assert run.state == RunState.CLOSED
    assert run.item_count == OBJECTS
    assert run.items.values("object_version_id").distinct().count() == OBJECTS
    assert list(run.items.order_by("ordinal").values_list("ordinal", flat=True)) == list(range(1, OBJECTS + 1))
    assert list(run.parts.order_by("number").values_list("number", flat=True)) == list(range(1, run.parts.count() + 1))


def test_two_schedulers_on_one_run_leave_no_gap_and_no_overlap(policy: RetentionPolicy) -> None:
    run, _ = runs.open_run(policy=policy, by=None)
    with process(FREEZE, run.pk) as first, process(FREEZE, run.pk) as second:
        ended(first)
        ended(second)
    assert_complete(run)


def test_a_scheduler_killed_in_the_middle_of_a_part_leaves_nothing_of_it(
    policy: RetentionPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "PART_SIZE", 3)
    run, _ = runs.open_run(policy=policy, by=None)
    manifest.freeze_part(run)
    with process(HANG, run.pk) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "in the middle\n"
        with process(FREEZE, run.pk) as waiting:  # it waits for the run's row until the victim's transaction is gone
            time.sleep(0.5)
            assert waiting.poll() is None
            victim.send_signal(signal.SIGKILL)
            ended(waiting)
    assert_complete(run)


def test_many_openers_of_one_slot_get_one_run(policy: RetentionPolicy) -> None:
    with process(OPEN) as first, process(OPEN) as second, process(OPEN) as third:
        answers = [ended(each).split() for each in (first, second, third)]
    assert len({pk for pk, _new in answers}) == 1
    assert sorted(new for _pk, new in answers) == ["False", "False", "True"]
    assert CleanupRun.objects.count() == 1
