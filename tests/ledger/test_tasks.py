"""Entry points of the queue: short, and long work in slices that ring for the next."""

import ast
import inspect
from typing import Any

import pytest
from django_q.models import OrmQ

from cleanup_project.base import limits
from cleanup_project.base.models import User
from ledger import manifest, runs, tasks
from retention.models import Bucket, Tenant
from tests.world import published, version

LINES = 5


def test_no_entry_point_has_more_than_five_lines() -> None:
    entries = [node for node in ast.parse(inspect.getsource(tasks)).body if isinstance(node, ast.FunctionDef)]
    assert entries
    assert {entry.name for entry in entries if lines_after_docstring(entry) > LINES} == set()


def lines_after_docstring(entry: ast.FunctionDef) -> int:
    docstring = entry.body[0]
    assert entry.end_lineno
    assert docstring.end_lineno
    return entry.end_lineno - docstring.end_lineno


@pytest.mark.django_db
def test_a_long_freeze_goes_in_slices_and_ends_by_ringing_for_nothing(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "PART_SIZE", 2)
    for number in range(3):
        version(bucket, tenant, f"o/{number}")
    run, _new = runs.open_run(
        policy=published(tenant, bucket, author=manager, publisher=second_manager).policy, by=None
    )
    monkeypatch.setattr(limits, "DRAIN_BUDGET", -1)  # over before it begins
    for parts in (1, 2):
        tasks.freeze(run.pk)
        assert run.parts.count() == parts
        message = OrmQ.objects.get()
        assert (message.key, message.task["func"], message.task["args"]) == ("work", tasks.freeze.name, (run.pk,))
        message.delete()
    tasks.freeze(run.pk)
    run.refresh_from_db()
    assert run.item_count == 3
    assert not OrmQ.objects.exists()


@pytest.mark.django_db
def test_a_tick_has_a_sweep_made_and_what_waits_looked_at(settings: Any) -> None:
    tasks.tick()
    assert {message.task["func"] for message in OrmQ.objects.all()} == {tasks.sweep.name, settings.TICKED_TASK}
