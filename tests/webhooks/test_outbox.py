"""Emit: frozen bytes, atomic with their act, numbered without gap, never twice, and owed to whoever subscribed."""

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from threading import Barrier, Thread

import pytest
import rfc8785
from django.db import IntegrityError, connection, transaction

from cleanup_project.base import canonical
from cleanup_project.base.models import User
from tests.webhooks.world import TENANT, assets, endpoint, notice, sql, tell
from webhooks import endpoints, outbox
from webhooks.models import BODY_LIMIT, Delivery, Lane, OutboxEvent
from webhooks.outbox import Notice

pytestmark = pytest.mark.django_db
real_transactions = pytest.mark.django_db(transaction=True)
AT = datetime(2026, 1, 1, 0, 0, 0, 123456, UTC)


def due() -> list[tuple[str, int]]:
    """(subject, sequence) of what may be sent now."""
    rows = Delivery.objects.select_related("lane").order_by("id")
    return [(row.lane.subject, row.sequence) for row in rows if row.due_at is not None]


def test_the_body_is_the_canonical_envelope(operator: User) -> None:
    endpoint(operator)
    told = Notice(
        "media.deleted", "Grüße/1", "acme:1:v:p-1", {"b": 1, "a": [None, True, "\n"]}, command_key="acme:1:v:p-1"
    )
    with transaction.atomic():
        (emitted,) = outbox.emit(TENANT, [told], at=AT)
    event = OutboxEvent.objects.get(pk=emitted.id)
    body = bytes(event.body)
    assert json.loads(body) == {
        "id": emitted.event_id,
        "type": "media.deleted",
        "schema_version": 1,
        "timestamp": "2026-01-01T00:00:00.123456Z",
        "subject": "Grüße/1",
        "sequence": 1,
        "data": {"a": [None, True, "\n"], "b": 1},
    }
    assert body == rfc8785.dumps(json.loads(body)) == canonical.encode(json.loads(body))
    assert bytes(event.body_sha256) == emitted.body_sha256 == sha256(body).digest()
    assert (event.emitted_at, event.command_key, event.settled_at) == (AT, "acme:1:v:p-1", None)


def test_an_id_is_the_same_for_ever_and_for_nothing_else() -> None:
    assert outbox.event_id("media.deleted", "acme:a:v1:p-1") == "evt_" + "ca4ifhw3r6oxpncavyjo7nt5nxkr4kvntv5oxfjc"
    ids = {outbox.event_id(*parts) for parts in (("a", "b"), ("ab", ""), ("", "ab"), ("a", "b", "c"), ("a", "bc"))}
    assert len(ids) == 5
    assert all(re.fullmatch("evt_[a-z2-7]{40}", each) for each in ids)
    with pytest.raises(ValueError, match="NUL"):
        outbox.event_id("a", "b\x00c")


@real_transactions
def test_a_rollback_leaves_nothing_and_a_commit_exactly_one(operator: User) -> None:
    endpoint(operator)
    with transaction.atomic():
        outbox.emit(TENANT, assets(3), at=AT)
        transaction.set_rollback(True)
    assert (OutboxEvent.objects.count(), Delivery.objects.count(), Lane.objects.count()) == (0, 0, 0)
    tell(*assets(3))
    assert (OutboxEvent.objects.count(), Delivery.objects.count(), Lane.objects.count()) == (3, 3, 3)


@real_transactions
def test_emit_needs_the_transaction_of_its_act() -> None:
    with pytest.raises(RuntimeError, match="needs the transaction"):
        outbox.emit(TENANT, assets(1), at=AT)


def test_the_same_fact_cannot_be_told_twice(operator: User) -> None:
    endpoint(operator)
    tell(notice("a", "1"))
    with pytest.raises(IntegrityError, match="event_id_unique"):
        tell(notice("a", "2"), notice("a", "1"))
    assert Lane.objects.get().n == 1
    tell(notice("a", "1", occurrence="2"))
    assert Lane.objects.get().n == 2


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (notice("a", "1", data={"size": 1.5}), "of type float"),
        (notice("a\x00", "1"), "NUL"),
        (notice("a", "1\x00"), "NUL"),
        (notice("a", "1", command_key="k\x00"), "NUL"),
        (notice("a", "1", data={"text": "x" * BODY_LIMIT}), "is the limit"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(told: Notice, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tell(told)
    assert not Lane.objects.exists()


def test_a_body_of_exactly_the_limit_is_written() -> None:
    (small,) = tell(notice("a", "1", data={"text": ""}))
    room = BODY_LIMIT - len(bytes(OutboxEvent.objects.get(pk=small.id).body))
    (large,) = tell(notice("b", "2", data={"text": "x" * room}))
    assert len(bytes(OutboxEvent.objects.get(pk=large.id).body)) == BODY_LIMIT


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"), transaction.atomic():
        outbox.emit(TENANT, assets(1), at=datetime(2026, 1, 1))  # noqa: DTZ001


def test_numbers_follow_the_order_of_the_notices_and_only_heads_are_due(operator: User) -> None:
    endpoint(operator)
    first = tell(notice("b", "1"), notice("a", "2"), notice("b", "3"))
    second = tell(notice("b", "4"), notice("c", "5"))
    assert [each.sequence for each in first + second] == [1, 1, 2, 3, 1]
    assert due() == [("b", 1), ("a", 1), ("c", 1)]


def test_nothing_is_emitted_for_nothing() -> None:
    assert tell() == []


def test_each_subscriber_is_owed_a_delivery_and_a_disabled_one_too(operator: User) -> None:
    every, _ = endpoint(operator, event_types=["media.deleted", "hold.placed"])
    one, _ = endpoint(operator, name="Search", event_types=["hold.placed"])
    other, _ = endpoint(operator, name="Elsewhere", tenant="beta")
    endpoints.disable(endpoint=every, by=operator, reason="Moving house.")
    deleted, held = tell(notice("a", "1"), notice("a", "2", type="hold.placed"))
    owed = set(Delivery.objects.values_list("event_id", "endpoint_id"))
    assert owed == {(deleted.id, every.pk), (held.id, every.pk), (held.id, one.pk)}
    # The first of each (endpoint, lane) is its head, whatever the other endpoint waits for.
    assert due() == [("a", 1), ("a", 2)]
    assert not Delivery.objects.filter(endpoint=other).exists()


def test_an_event_that_nobody_subscribes_to_is_settled_at_once(operator: User) -> None:
    endpoint(operator, event_types=["hold.placed"])
    deleted, held = tell(notice("a", "1"), notice("b", "2", type="hold.placed"))
    assert OutboxEvent.objects.get(pk=deleted.id).settled_at is not None
    assert OutboxEvent.objects.get(pk=held.id).settled_at is None


def in_threads(count: int, act: Callable[[int], None]) -> None:
    failures = list[BaseException]()

    def run(number: int) -> None:
        try:
            act(number)
        except BaseException as error:  # noqa: BLE001 - told to the test's own thread
            failures.append(error)
        finally:
            connection.close()

    threads = [Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@real_transactions
def test_blocks_that_overlap_in_any_order_do_not_deadlock_and_leave_no_gap(operator: User) -> None:
    endpoint(operator)
    barrier, blocks, subjects = Barrier(4), 12, 6

    def emit_blocks(number: int) -> None:
        chance = random.Random(number)
        barrier.wait()
        for block in range(blocks):
            chosen = [chance.randrange(subjects) for _ in range(8)]
            tell(*[notice(f"s{each}", f"{number}:{block}:{place}") for place, each in enumerate(chosen)])

    in_threads(4, emit_blocks)
    found = defaultdict[str, list[int]](list)
    for subject, sequence in OutboxEvent.objects.values_list("subject", "sequence").order_by("sequence"):
        found[subject].append(sequence)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in found.values())
    assert {lane.subject: lane.n for lane in Lane.objects.all()} == {name: len(them) for name, them in found.items()}
    assert sorted(due()) == sorted((subject, 1) for subject in found)


@real_transactions
def test_sequences_follow_the_order_of_commits(operator: User) -> None:
    """Whoever emits second for a subject waits until the first has committed, and so gets the later number."""
    endpoint(operator)
    told = list[str]()
    first_has_emitted = Barrier(2)

    def emit_one(number: int) -> None:
        if number == 0:
            with transaction.atomic():
                outbox.emit(TENANT, [notice("a", "first")], at=AT)
                first_has_emitted.wait()
                sql("SELECT pg_sleep(0.3)")
                told.append("first")
        else:
            first_has_emitted.wait()
            tell(notice("a", "second"))
            told.append("second")

    in_threads(2, emit_one)
    assert told == ["first", "second"]
    assert list(OutboxEvent.objects.order_by("sequence").values_list("name", flat=True)) == told
    assert due() == [("a", 1)]
