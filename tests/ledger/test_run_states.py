"""The table of run states, the database guard and the drawn diagram agree."""

from itertools import product
from pathlib import Path

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from cleanup_project.base.models import User
from ledger import states
from ledger.models import CleanupRun
from ledger.states import RUN_ENDED, RUN_MEANING, RUN_MOVES, RunState
from retention.models import Bucket, Tenant
from tests.world import published


def test_every_state_has_a_meaning_and_its_moves() -> None:
    assert set(RUN_MEANING) == set(RUN_MOVES) == set(RunState)


def test_the_diagram_in_the_docs_is_the_table() -> None:
    assert states.page() in Path("docs/states.md").read_text(encoding="utf-8")


@pytest.mark.django_db
def test_the_database_allows_exactly_the_moves_of_the_table(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    policy = published(tenant, bucket, author=manager, publisher=second_manager).policy
    allowed: set[tuple[RunState, RunState]] = set()
    refusals: list[str] = []
    for source, target in product(RunState, RunState):
        if source == target:
            continue
        with transaction.atomic():
            run = CleanupRun.objects.create(
                key="r",
                tenant=tenant,
                policy=policy,
                mode="dry_run",
                as_of=timezone.now(),
                streams=[],
                state=source,
                **sealed(source),
            )
            try:
                with transaction.atomic():
                    CleanupRun.objects.filter(pk=run.pk).update(
                        state=target, **(ended(target) | sealing(source, target))
                    )
                allowed.add((source, target))
            except IntegrityError as error:
                refusals.append(str(error))
            transaction.set_rollback(True)
    assert all("cannot go from" in refusal for refusal in refusals)
    assert allowed == {(source, target) for source, targets in RUN_MOVES.items() for target in targets}


def sealed(state: RunState) -> dict[str, object]:
    whole = {"sealed_at": timezone.now(), "manifest_root": "0" * 64, "item_count": 0, "target_count": 0, "bytes": 0}
    whole |= {"remaining_root": "0" * 64, "remaining_count": 0}
    return (whole if state is not RunState.SCANNING else {}) | ended(state)


def ended(state: RunState) -> dict[str, object]:
    return {"ended_at": timezone.now() if state in RUN_ENDED else None}


def sealing(source: RunState, target: RunState) -> dict[str, object]:
    return sealed(target) if source is RunState.SCANNING and target is not RunState.SCANNING else {}


def test_connection_is_read_committed(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        assert cursor.fetchone() == ("read committed",)
