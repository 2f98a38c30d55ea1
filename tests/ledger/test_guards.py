"""What the database itself refuses: commands go forward only, targets and evidence stay as they are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from itertools import product
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from ledger.models import (
    Attempt,
    CleanupCommand,
    CommandSummary,
    CommandTarget,
    Decision,
    Incident,
    ReceiptLocator,
    Request,
    RunTally,
    SkippedItem,
)
from ledger.states import COMMAND_MEANING, COMMAND_MOVES, CommandState, Needs
from tests.ledger.acting import Acting, build

pytestmark = pytest.mark.django_db

WHOLE: dict[CommandState, dict[str, Any]] = {
    CommandState.READY: {},
    CommandState.DELETED: {"outcome": "deleted", "event_id": "evt_1"},
    CommandState.NOTIFIED: {"outcome": "deleted", "event_id": "evt_1"},
    CommandState.HELD: {"held_by": "us"},
    CommandState.DEAD: {"failure_class": "permission"},
    CommandState.WITHDRAWN: {"reason": "Superseded."},
}
BLANK: dict[str, Any] = {"outcome": "", "event_id": "", "held_by": "", "failure_class": "", "reason": ""}


def command(world: Acting | None = None) -> CleanupCommand:
    world = world or build()
    world.put("clips/one", asset="one")
    world.run()
    return CleanupCommand.objects.get()


@contextmanager
def refused(words: str) -> Iterator[None]:
    with pytest.raises(IntegrityError, match=words), transaction.atomic():
        yield


def into(command: CleanupCommand, state: CommandState) -> None:
    """Bring a command into a state by moves that are allowed."""
    path = {CommandState.READY: (), CommandState.NOTIFIED: (CommandState.DELETED, CommandState.NOTIFIED)}
    for step in path.get(state, (state,)):
        move(command, step)


def move(command: CleanupCommand, state: CommandState, **changed: Any) -> None:
    CleanupCommand.objects.filter(pk=command.pk).update(state=state, **(BLANK | WHOLE[state] | changed))


def decide(command: CleanupCommand) -> None:
    Decision.objects.create(
        command=command, cycle=command.cycle + 1, kind="adopted", run_id=command.run_id, reason="Found."
    )


def report(command: CleanupCommand) -> None:
    Incident.objects.create(command=command, cycle=command.cycle, from_state="dead", detail="Gone.")


RECORDS: dict[Needs, Callable[[CleanupCommand], None]] = {
    Needs.NOTHING: lambda command: None,
    Needs.DECISION: decide,
    Needs.INCIDENT: report,
}


def test_every_state_of_a_command_has_a_meaning() -> None:
    assert set(COMMAND_MEANING) == set(CommandState)


@pytest.mark.parametrize("on_record", list(Needs))
@pytest.mark.parametrize("next_cycle", [0, 1])
def test_the_database_allows_exactly_the_moves_of_the_table(on_record: Needs, next_cycle: int) -> None:
    row = command()
    allowed: set[tuple[CommandState, CommandState]] = set()
    refusals: list[str] = []
    for source, target in product(CommandState, CommandState):
        if source == target:
            continue
        with transaction.atomic():
            into(row, source)
            RECORDS[on_record](row)
            try:
                with transaction.atomic():
                    move(row, target, cycle=next_cycle)
                allowed.add((source, target))
            except IntegrityError as error:
                refusals.append(str(error))
            transaction.set_rollback(True)
    assert all("cannot go from" in words or "a cycle begins with a decision" in words for words in refusals)
    assert allowed == {
        pair
        for pair, needs in COMMAND_MOVES.items()
        if needs in {Needs.NOTHING, on_record} and next_cycle == (needs is Needs.DECISION)
    }


def test_a_cycle_never_changes_without_a_move() -> None:
    row = command()
    decide(row)
    with refused("a cycle begins with a decision"):
        CleanupCommand.objects.update(cycle=1)


def test_a_decision_of_another_cycle_is_none() -> None:
    row = command()
    into(row, CommandState.DEAD)
    Decision.objects.create(command=row, cycle=2, kind="adopted", run_id=row.run_id, reason="Found.")
    with refused("without a decision"):
        move(row, CommandState.READY, cycle=1)


def test_what_a_command_names_never_changes() -> None:
    command()
    for field, value in {
        "key": "acme:other:v1:clips-1", "tenant_id": 0, "bucket_id": 0, "policy_id": 0, "revision_id": 0, "asset": "other",
        "target_count": 2, "bytes": 7, "published_at": Now(),
    }.items():  # fmt: skip
        with refused("what it names cannot change"):
            CleanupCommand.objects.update(**{field: value})


def test_a_token_rises_by_one_with_each_claim() -> None:
    command()
    CleanupCommand.objects.update(lease_token=F("lease_token") + 1, claims=F("claims") + 1)
    for token, claims in ((2, 1), (-1, 1), (1, 0), (0, 1)):
        with refused("a lease token rises by one at a claim"):
            CleanupCommand.objects.update(lease_token=F("lease_token") + token, claims=F("claims") + claims)


def test_a_command_is_born_ready_and_unclaimed() -> None:
    row = command()
    row.pk, row.key = None, "acme:new:v1:clips-1"
    for born in (
        {"state": "dead", "failure_class": "permission"},
        {"state": "deleted", "outcome": "deleted", "event_id": "evt_1"},
        {"cycle": 1},
        {"lease_token": 1},
        {"lease_until": row.published_at},
    ):
        new = copy(row)
        for name, value in born.items():
            setattr(new, name, value)
        with refused("a command begins ready, in cycle 0, unclaimed"):
            new.save(force_insert=True)


def test_what_a_target_names_never_changes() -> None:
    command()
    for field, value in {
        "command_id": 0, "ordinal": 2, "object_version_id": 0, "bucket_id": 0, "key": "other", "version_id": "other",
        "incarnation": "other", "etag": "other", "size": 7, "stored_at": Now(), "role": "derivative",
    }.items():  # fmt: skip
        with refused("what it names cannot change"):
            CommandTarget.objects.update(**{field: value})


def test_what_is_gone_stays_gone() -> None:
    command()
    CommandTarget.objects.update(gone_at=Now())
    for value in (None, Now()):
        with refused("what is gone stays gone"):
            CommandTarget.objects.update(gone_at=value)


def test_two_open_commands_for_one_object_version_cannot_be() -> None:
    row = command()
    target = row.targets.get()
    CommandTarget.objects.filter(pk=target.pk).update(active=True)
    target.pk, target.ordinal = None, 2
    with refused("target_one_open_command"):
        target.save(force_insert=True)


def everything(world: Acting) -> None:
    """A row in each append-only table of the ledger."""
    row = command(world)
    world.drain()
    decide(row)
    report(row)
    SkippedItem.objects.create(run_id=row.run_id, item_id=row.item_id, command_key=row.key, reason="Taken.")
    CommandSummary.objects.create(command=row, summary={})


APPEND_ONLY = (
    "ledger_manifestpart", "ledger_manifestitem", "ledger_skippeditem", "ledger_decision", "ledger_incident",
    "ledger_commandsummary", "ledger_receipt", "ledger_tenantsalt", "ledger_runtally", "base_auditevent",
)  # fmt: skip


def column(table: str) -> str:
    with connection.cursor() as cursor:
        return connection.introspection.get_table_description(cursor, table)[-1].name


# What may be done to tables that are kept, by verb; compaction and the retention of locators ask for the rest.
KEPT = {
    **dict.fromkeys(APPEND_ONLY, ("UPDATE", "DELETE", "TRUNCATE")),
    "ledger_cleanupcommand": ("DELETE", "TRUNCATE"),
    "ledger_cleanuprun": ("DELETE", "TRUNCATE"),
    "ledger_receiptexport": ("DELETE", "TRUNCATE"),
    "ledger_commandtarget": ("TRUNCATE",),
    "ledger_request": ("UPDATE", "TRUNCATE"),
    "ledger_attempt": ("UPDATE", "TRUNCATE"),
    "ledger_receiptlocator": ("UPDATE", "TRUNCATE"),
}


@pytest.mark.parametrize("replica", [False, True])
def test_what_is_kept_refuses_to_be_changed_or_emptied(replica: bool) -> None:
    everything(build())
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")  # else TRUNCATE waits for the checks of foreign keys
    for table, verbs in KEPT.items():
        name = column(table)
        statements = {
            "UPDATE": f"UPDATE {table} SET {name} = {name}",
            "DELETE": f"DELETE FROM {table}",
            "TRUNCATE": f"TRUNCATE {table} CASCADE",
        }
        for verb in verbs:
            with refused(f"{table} is append-only: {verb} is refused"):
                execute(statements[verb], replica)


def execute(statement: str, replica: bool) -> None:
    with connection.cursor() as cursor:
        if replica:
            cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement)


@pytest.mark.parametrize("replica", [False, True])
def test_details_of_a_command_go_only_after_its_summary_is_written(replica: bool) -> None:
    world = build()
    row = command(world)
    world.drain()
    details = (CommandTarget, Request, Attempt)
    statements = [f"DELETE FROM {model._meta.db_table} WHERE command_id = {row.pk}" for model in details]
    for statement in statements:
        with refused("is kept until the command is compacted"):
            execute(statement, replica)
    CommandSummary.objects.create(command=row, summary={})
    for model, statement in zip(details, statements, strict=True):
        execute(statement, replica)
        assert not model.objects.exists()


def test_locators_may_go() -> None:
    world = build()
    command(world)
    world.drain()
    assert ReceiptLocator.objects.all().delete()[0] == 1


def test_a_receipts_digest_is_that_of_its_body() -> None:
    world = build()
    command(world)
    world.drain()
    with connection.cursor() as cursor, refused("receipt_digest"):
        cursor.execute(
            "INSERT INTO ledger_receipt (command_id, command_key, tenant_id, run_id, policy_id, bucket_id, outcome, event_id,"
            " target_count, bytes, body, digest) SELECT 0, 'other', tenant_id, run_id, policy_id, bucket_id, outcome,"
            " event_id, target_count, bytes, body || 'x', digest FROM ledger_receipt"
        )


def test_the_counts_of_a_run_are_insert_only() -> None:
    world = build()
    command(world)
    world.drain()
    with refused("is append-only"):
        RunTally.objects.update(commands=0)
