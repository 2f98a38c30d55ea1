"""Receipts to export, in a database that other connections see."""

import csv
import io
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import Group
from django.db import connection

from cleanup_project.base import roles
from cleanup_project.base.models import User
from ledger.exports import Order
from ledger.models import Receipt
from ledger.selection import Selection
from tests.ledger.acting import Acting, build

# More receipts, like the first; the parameters name them, and say how many.
ANOTHER = """
    INSERT INTO ledger_receipt (command_id, command_key, tenant_id, run_id, policy_id, bucket_id, outcome, event_id,
        target_count, bytes, body, digest, issued_at)
    SELECT command_id - n - 1000000::bigint * abs(hashtext(%(name)s)), command_key || %(name)s || n, tenant_id, run_id,
        policy_id, bucket_id, outcome, event_id, target_count, bytes, body, digest, issued_at
    FROM (SELECT * FROM ledger_receipt ORDER BY id LIMIT 1) one, generate_series(1, %(number)s) n
"""
KEYS = ("plain", "=1+1", " -2", "@x", "\t=1", "＝1", "a,b\"c'", "line\r\nbreak", "日本語", "'=1", '"=1')


def destroyed(keys: tuple[str, ...] = KEYS) -> Acting:
    """A world in which these keys were destroyed, the first with a derivative."""
    world = build()
    for number, key in enumerate(keys):
        world.put(key, asset=f"asset-{number}")
    world.put(f"{keys[0]}.webm", asset="asset-0", original_key=keys[0])
    world.run()
    world.drain()
    assert Receipt.objects.count() == len(keys)
    return world


def multiplied(number: int) -> None:
    """So many more receipts."""
    with connection.cursor() as cursor:
        cursor.execute(ANOTHER, {"name": "more", "number": number})


def auditor(name: str = "auditor", **fields: Any) -> User:
    made = User.objects.create_user(name, is_staff=True, **fields)
    made.groups.add(Group.objects.get(name=roles.AUDITOR))
    return made


def order(form: str = "machines", **parts: Any) -> Order:
    return Order(Selection(**parts), form, uuid4())


def rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def whole(content: Iterator[bytes] | None) -> bytes:
    assert content is not None
    return b"".join(content)


def copies_running() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY (SELECT r.id%%' AND state = 'active'"
            " AND datname = current_database()"
        )
        return int(cursor.fetchone()[0])
