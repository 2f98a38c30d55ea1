"""The ledger's verbs in any order, with workers that die or freeze anywhere: what must hold, holds after every step.

The same walks each time; more of them with `MACHINE_SEEDS=0:500 pytest tests/ledger/test_machine.py`. A walk that goes
wrong is shortened to the steps that it takes.
"""

import os
import time
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from django.db import connection

from ledger import claim, execute
from tests.ledger.chaos import Clock
from tests.ledger.walker import Ledger
from tests.ledger.walks import Step, steps_of

SEEDS = range(*map(int, os.environ.get("MACHINE_SEEDS", "0:15").split(":")))


@pytest.fixture
def monotonic(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The monotonic clock of the modules that bound a sending by it, so that time can pass for them too."""
    moved = SimpleNamespace(monotonic=lambda: time.monotonic() + Clock.ahead, sleep=time.sleep)
    monkeypatch.setattr(claim, "time", moved)
    monkeypatch.setattr(execute, "time", moved)
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")  # nothing here outlives the database
    return


def trouble_of(steps: Sequence[Step]) -> Exception | None:
    try:
        Ledger().live(steps)
    except Exception as error:  # noqa: BLE001 - whatever a step raises is what is looked for
        return error
    return None


def shortened(steps: list[Step], kind: type[Exception]) -> list[Step]:
    """As few of the steps as still end in such trouble: pieces are left out, large ones first."""
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps):
            shorter = steps[:start] + steps[start + size :]
            if type(trouble_of(shorter)) is kind:
                steps = shorter
            else:
                start += size
        size //= 2
    return steps


@pytest.mark.django_db(transaction=True)
def test_whatever_stops_anywhere_the_laws_hold(monotonic: None) -> None:
    for seed in SEEDS:
        steps = steps_of(seed)
        trouble = trouble_of(steps)
        if trouble is not None:
            steps = shortened(steps, type(trouble))
            trouble = trouble_of(steps) or trouble
            raise AssertionError(f"seed {seed}: " + ",\n".join(map(repr, steps))) from trouble
