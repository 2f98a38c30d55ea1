"""Backup and restore, rehearsed: what comes back is whole and guarded, and what happened since converges."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection
from django.utils import timezone

from cleanup_project.base.models import ApiToken, Session
from ledger.explain import explain
from ledger.models import CleanupCommand, Receipt
from ledger.sweep import sweep
from retention import control
from retention.models import ObjectVersion
from tests.ledger.acting import Acting, build
from tests.operations import databases
from tests.webhooks.http import Inbox, receiver
from tests.world import program
from webhooks import dispatch, endpoints

pytestmark = pytest.mark.django_db

# What keeps rows as they must be, with what the next number of each table is.
SHAPE: Final = """
    SELECT 'trigger', tgrelid::regclass::text, tgname, tgenabled::text || pg_get_triggerdef(oid) FROM pg_trigger
    WHERE NOT tgisinternal
    UNION ALL
    SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid <> 0
    UNION ALL
    SELECT 'index', indrelid::regclass::text, indexrelid::regclass::text, pg_get_indexdef(indexrelid)
    FROM pg_index JOIN pg_class c ON c.oid = indrelid WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'function', '', proname, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'sequence', '', sequencename, last_value::text FROM pg_sequences WHERE schemaname = 'public'
    UNION ALL
    SELECT 'storage', '', relname, reloptions::text FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    ORDER BY 1, 2, 3, 4
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[str]:
    """A database that commits, and that nobody has to empty: Django's connection is to it."""
    name = f"{connection.settings_dict['NAME']}_live"
    with databases.restored(databases.dump(tmp_path), name), databases.connected(name):
        yield name


@pytest.fixture(autouse=True)
def loopback(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WEBHOOK_ALLOW_HTTP = True
    settings.WEBHOOK_ALLOW_CIDRS = ["127.0.0.0/8"]
    monkeypatch.setattr(dispatch, "SOON", 0)


def shape() -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(SHAPE)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def subscribed(world: Acting, inbox: Inbox) -> None:
    """The receiver's endpoint, for what tells of objects."""
    endpoint, _secret = endpoints.create(
        tenant="acme", name="archive", url=inbox.url, event_types=["media.deleted"], by=world.people["operator"]
    )
    endpoints.enable(endpoint=endpoint, by=world.people["operator"])


def published(world: Acting, *keys: str) -> None:
    """Commands for these objects, which nobody has carried out."""
    for key in keys:
        world.put(key)
    world.run()


def done(world: Acting) -> None:
    """Everything that is due is carried out, told and noted."""
    sweep()
    world.drain()
    world.settled()
    dispatch.dispatch(threads=1)
    world.settled()


def told(inbox: Inbox) -> set[str]:
    return {request.id for request in inbox.requests}


def answers() -> dict[str, Any]:
    return {command.key: explain(command.key).as_json() for command in CleanupCommand.objects.order_by("pk")}


def deletions(world: Acting) -> list[str]:
    return [ref.key for operation, refs in world.store.calls if operation == "delete_versions" for ref in refs]


GUARDED: Final = (
    "UPDATE ledger_receipt SET outcome = ''",
    "DELETE FROM base_auditevent",
    "TRUNCATE ledger_receipt",
)


def is_whole(shaped: list[tuple[Any, ...]], answered: dict[str, Any], folder: Path) -> None:
    """Everything is as it was saved, every receipt verifies, and what may not change does not."""
    assert shape() == shaped
    assert answers() == answered
    call_command("receipts", "export", out=folder, verbosity=0)
    call_command("receipts", "verify", str(folder), verbosity=0)
    for statement in GUARDED:
        with pytest.raises(IntegrityError, match="append-only"), connection.cursor() as cursor:
            cursor.execute(statement)


def test_what_is_restored_is_whole_and_guarded_and_what_was_done_since_converges(live: str, tmp_path: Path) -> None:
    world = build(already_absent="success")
    with receiver() as inbox:
        subscribed(world, inbox)
        published(world, "clips/before")
        program(person=world.people["operator"], scopes=["runs:read"])
        Session.objects.create(session_key="open", expire_date=timezone.now() + timedelta(days=1))
        done(world)
        before = told(inbox)
        published(world, "clips/after-1", "clips/after-2")
        saved, shaped, answered = databases.dump(tmp_path), shape(), answers()
        done(world)
        since, asked = told(inbox) - before, len(inbox.requests)
        assert (len(since), len(deletions(world))) == (2, 3)

        with databases.restored(saved, f"{live}_restored") as name, databases.connected(name):
            is_whole(shaped, answered, tmp_path / "receipts")
            assert ApiToken.objects.live().count() == 1
            databases.tool("psql", f"--dbname={name}", "--file=docs/deploy/after-restore.sql")
            assert not ApiToken.objects.live().exists()
            assert not Session.objects.exists()
            switch = control.press(scope="everything", by=world.people["operator"], reason="Restored.")
            done(world)
            assert (Receipt.objects.count(), len(inbox.requests)) == (1, asked)
            control.lift(switch=switch, by=world.people["compliance"], reason="Holds are as they should be.")
            done(world)
            # Nothing is deleted twice: it is looked for, found gone, and told of under the same name as before.
            assert len(deletions(world)) == 3
            outcomes = Receipt.objects.order_by("pk").values_list("outcome", flat=True)
            assert list(outcomes) == ["deleted", "already_absent", "already_absent"]
            assert {request.id for request in inbox.requests[asked:]} == since
            assert not ObjectVersion.objects.present().exists()
            published(world, "clips/later")
            done(world)
            assert deletions(world)[3:] == ["clips/later"]
            assert len(told(inbox) - before - since) == 1
            first, *_, last = Receipt.objects.order_by("pk").values_list("pk", flat=True)
            assert last > first + 1_000_000
