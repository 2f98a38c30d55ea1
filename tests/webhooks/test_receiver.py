"""What receivers copy: whatever a request holds, it is verified or Refused, and each event has its effect once."""

import io
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import parse_headers
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction
from django.http import HttpRequest
from hypothesis import given
from hypothesis import strategies as st

from tests.webhooks.vector import BODY, ID, OTHER, SECRET, STAMP, signed
from webhooks.receiver import (
    LARGEST_BODY,
    DatabaseSeen,
    Refused,
    Seen,
    Store,
    parse_secret,
    read_body,
    verify,
)


def test_both_secrets_verify_while_one_replaces_the_other() -> None:
    headers = signed(secrets=(OTHER, SECRET))
    assert headers["webhook-signature"].split(" ")[0] == signed(secrets=(OTHER,))["webhook-signature"]
    for known in ([SECRET], [OTHER], [SECRET, OTHER]):
        assert verify(known, headers, BODY, now=STAMP).id == ID
    with pytest.raises(Refused):
        verify([OTHER], signed(), BODY, now=STAMP)


@pytest.mark.parametrize("bit", range(8))
def test_each_flipped_bit_is_refused(bit: int) -> None:
    for place in range(len(BODY)):
        changed = BODY[:place] + bytes([BODY[place] ^ (1 << bit)]) + BODY[place + 1 :]
        with pytest.raises(Refused):
            verify([SECRET], signed(), changed, now=STAMP)
    for name, value in signed().items():
        for place in range(len(value)):
            changed_value = value[:place] + chr(ord(value[place]) ^ (1 << bit)) + value[place + 1 :]
            with pytest.raises(Refused):
                verify([SECRET], signed() | {name: changed_value}, BODY, now=STAMP)


@pytest.mark.parametrize(
    "value",
    ["", "v1", "v1,", "v1,a,b", "v1,%%%", "v1,Grüße", "v2,abc", "v1,g0hM9SsE+OTPJTGt  /tmI", "v1," + "A" * 10_000],
)
def test_a_hostile_signature_header_is_refused(value: str) -> None:
    with pytest.raises(Refused):
        verify([SECRET], signed() | {"webhook-signature": value}, BODY, now=STAMP)


def test_unknown_versions_beside_a_good_one_are_passed_over() -> None:
    headers = signed()
    headers["webhook-signature"] = f"v1a,abc v9,x {headers['webhook-signature']} v1,nonsense"
    assert verify([SECRET], headers, BODY, now=STAMP).id == ID


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_or_doubled_header_is_refused(name: str) -> None:
    headers = signed()
    with pytest.raises(Refused):
        verify([SECRET], headers | {name.upper(): headers[name]}, BODY, now=STAMP)
    del headers[name]
    with pytest.raises(Refused):
        verify([SECRET], headers, BODY, now=STAMP)


def test_the_case_of_header_names_does_not_matter() -> None:
    assert verify([SECRET], {name.title(): value for name, value in signed().items()}, BODY, now=STAMP)


@pytest.mark.parametrize("off", [-301, 301])
def test_a_time_too_far_away_is_refused(off: int) -> None:
    with pytest.raises(Refused):
        verify([SECRET], signed(), BODY, now=STAMP + off)
    assert verify([SECRET], signed(), BODY, now=STAMP + off * 299 // 301)


@pytest.mark.parametrize(
    "stamp", ["1614265330.0", " 1614265330", "1e9", "1_614_265_330", "١٦١٤٢٦٥٣٣٠", "nan", "-1", ""]
)
def test_a_time_that_is_no_number_of_seconds_is_refused(stamp: str) -> None:
    with pytest.raises(Refused):
        verify([SECRET], signed() | {"webhook-timestamp": stamp}, BODY, now=STAMP)


@pytest.mark.parametrize(
    "shape",
    [
        lambda told: told,
        lambda told: list(told.items()),
        lambda told: [(name.encode(), value.encode()) for name, value in told.items()],
        lambda told: parse_headers(
            io.BytesIO("".join(f"{name}: {value}\r\n" for name, value in told.items()).encode() + b"\r\n")
        ),
        lambda told: django_headers(told),
    ],
    ids=["a dictionary", "pairs", "pairs of bytes, as ASGI has", "http.server", "Django"],
)
def test_headers_of_any_server_are_read(shape: Callable[[dict[str, str]], Any]) -> None:
    assert verify([SECRET], shape(signed()), BODY, now=STAMP).id == ID


def django_headers(told: dict[str, str]) -> Any:
    request = HttpRequest()
    request.META = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in told.items()}
    return request.headers


@pytest.mark.parametrize(
    "headers",
    [None, b"webhook-id", "webhook-id", 7, [], [("webhook-id",)], {"webhook-id": None}, {None: "x"}, [None]],
    ids=repr,
)
def test_what_is_no_headers_is_refused(headers: Any) -> None:
    with pytest.raises(Refused):
        verify([SECRET], headers, BODY, now=STAMP)


@pytest.mark.parametrize("body", [None, BODY.decode(), 7, {}], ids=repr)
def test_a_body_that_something_has_parsed_is_refused(body: Any) -> None:
    with pytest.raises(Refused):
        verify([SECRET], signed(), body, now=STAMP)


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf])
def test_a_clock_that_is_no_number_accepts_nothing(now: float) -> None:
    with pytest.raises(Refused):
        verify([SECRET], signed(), BODY, now=now)


@pytest.mark.parametrize("secrets", [[], [None], [b"whsec_"], SECRET], ids=repr)
def test_what_is_no_list_of_secrets_accepts_nothing(secrets: Any) -> None:
    with pytest.raises(Refused):
        verify(secrets, signed(), BODY, now=STAMP)


HOSTILE = st.one_of(st.none(), st.integers(), st.binary(), st.text())


@given(
    st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "x"]), HOSTILE), HOSTILE
)
def test_nothing_but_refused_comes_of_hostile_requests(headers: dict[str, Any], body: Any) -> None:
    with pytest.raises(Refused):
        verify([SECRET], headers, body, now=STAMP)


def test_a_time_written_in_another_way_is_refused_although_its_number_was_signed() -> None:
    with pytest.raises(Refused):
        verify([SECRET], signed() | {"webhook-timestamp": f"0{STAMP}"}, BODY, now=STAMP)


def test_a_secret_is_written_in_one_way_alone() -> None:
    # The last digit before the padding holds bits that no byte takes.
    assert parse_secret("whsec_" + "A" * 42 + "A=")
    with pytest.raises(Refused):
        parse_secret("whsec_" + "A" * 42 + "B=")


def test_a_body_larger_than_any_of_ours_is_refused() -> None:
    large = b"x" * LARGEST_BODY
    assert verify([SECRET], signed(large), large, now=STAMP)
    with pytest.raises(Refused) as refused:
        verify([SECRET], signed(large + b"x"), large + b"x", now=STAMP)
    assert refused.value.status == 413


@pytest.mark.parametrize(
    ("length", "status"),
    [(None, 411), ("", 411), ("-1", 400), ("1e3", 400), ("١", 400), ("9" * 19, 400), ("11", 413), ("9", 400)],
)
def test_a_body_is_read_by_its_length_and_within_the_limit(length: str | None, status: int) -> None:
    with pytest.raises(Refused) as refused:
        read_body(io.BytesIO(b"12345678"), length, limit=10)
    assert refused.value.status == status
    assert read_body(io.BytesIO(b"12345678"), "8", limit=8) == b"12345678"


def test_a_body_over_the_limit_is_not_read() -> None:
    stream = io.BytesIO(b"x" * 100)
    with pytest.raises(Refused):
        read_body(stream, "100", limit=99)
    assert stream.tell() == 0


class Place:
    """A store and the effects of its receiver, in the same database; `again()` is the store of another process."""

    def __init__(self, again: Callable[[], Store], act: Callable[[Store], None], count: Callable[[], int]) -> None:
        self.again, self.act, self.count = again, act, count


IN_POSTGRESQL = pytest.mark.django_db(transaction=True)


@pytest.fixture(
    params=["sqlite", pytest.param("django", marks=IN_POSTGRESQL), pytest.param("psycopg", marks=IN_POSTGRESQL)]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield from sqlite(tmp_path)
    else:
        yield from {"django": django, "psycopg": plain}[request.param]()


def sqlite(tmp_path: Path) -> Iterator[Place]:
    def again() -> Seen:
        return Seen(tmp_path / "seen")

    def act(seen: Store) -> None:
        assert isinstance(seen, Seen)
        seen.connection.execute("INSERT INTO effect VALUES (1)")

    def count() -> int:
        with closing(again()._connect()) as looking:
            found: int = looking.execute("SELECT count(*) FROM effect").fetchone()[0]
            return found

    with closing(again()._connect()) as made:
        made.execute("CREATE TABLE effect (n int)")
    yield Place(again, act, count)


def django() -> Iterator[Place]:
    def act(seen: Store) -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO effect VALUES (1)")

    def count() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM effect")
            found: int = cursor.fetchone()[0]
            return found

    yield from in_postgresql(Place(lambda: DatabaseSeen(connection, transaction.atomic), act, count))


def plain() -> Iterator[Place]:
    """psycopg alone, a connection for each store."""
    opened: list[psycopg.Connection[Any]] = []

    def again() -> DatabaseSeen:
        opened.append(psycopg.connect(**parameters(), autocommit=True))
        return DatabaseSeen(opened[-1], opened[-1].transaction)

    def act(seen: Store) -> None:
        with seen.transaction() as cursor:
            cursor.execute("INSERT INTO effect VALUES (1)")

    def count() -> int:
        with psycopg.connect(**parameters()) as looking:
            row = looking.execute("SELECT count(*) FROM effect").fetchone()
            assert row
            return int(row[0])

    try:
        yield from in_postgresql(Place(again, act, count))
    finally:
        for each in opened:
            each.close()


def parameters() -> dict[str, Any]:
    told = connection.get_connection_params()
    return {name: told[name] for name in ("dbname", "user", "host", "port") if name in told}


def in_postgresql(place: Place) -> Iterator[Place]:
    place.again().create_tables()
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE effect (n int)")
    yield place
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE effect, webhook_seen, webhook_sequence")


def test_the_first_time_is_told_from_the_second_for_each_endpoint(place: Place) -> None:
    answers = []
    for endpoint, id in (("a", "1"), ("a", "1"), ("b", "1"), ("a", "2"), ("b", "1")):
        with place.again().first_time(endpoint, id) as first:
            answers.append(first)
    assert answers == [True, False, True, True, False]


def fail(seen: Store, act: Callable[[], object]) -> None:
    """The first copy, whose effect ends with an error."""
    with seen.first_time("a", "1") as first:
        assert first
        act()
        raise ZeroDivisionError


def test_an_effect_that_fails_is_undone_and_not_remembered(place: Place) -> None:
    seen = place.again()
    with pytest.raises(ZeroDivisionError):
        fail(seen, lambda: place.act(seen))
    assert place.count() == 0
    with seen.first_time("a", "1") as first:
        place.act(seen)
    assert (first, place.count()) == (True, 1)


def test_copies_at_once_have_one_effect(place: Place) -> None:
    barrier, firsts = Barrier(4, timeout=10), []

    def handle() -> None:
        seen = place.again()
        barrier.wait()
        with seen.first_time("a", "1") as first:
            firsts.append(first)
            if first:
                place.act(seen)
        connection.close()

    run(*[handle] * 4)
    assert (sorted(firsts), place.count()) == ([False, False, False, True], 1)


def test_a_copy_waits_for_the_first_and_takes_over_where_that_fails(place: Place) -> None:
    begun, follows_now, answers = Event(), Event(), []

    def fails() -> None:
        seen = place.again()

        def act() -> None:
            place.act(seen)
            begun.set()
            follows_now.wait(10)

        with pytest.raises(ZeroDivisionError):
            fail(seen, act)
        connection.close()

    def follows() -> None:
        seen = place.again()
        begun.wait(10)
        follows_now.set()
        with seen.first_time("a", "1") as first:
            answers.append(first)
            place.act(seen)
        connection.close()

    run(fails, follows)
    assert (answers, place.count()) == ([True], 1)


def run(*acts: Callable[[], None]) -> None:
    threads = [Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_an_id_is_remembered_until_it_is_forgotten(place: Place) -> None:
    seen = place.again()
    began = time.time()
    with seen.first_time("a", "1"):
        pass
    assert seen.forget(began) == 0
    with seen.first_time("a", "1") as first:
        assert not first
    assert seen.forget(time.time() + 1) == 1
    with seen.first_time("a", "1") as first:
        assert first


def test_a_gap_and_a_late_event_are_told(place: Place) -> None:
    seen = place.again()
    told = [seen.order("a", "asset", sequence) for sequence in (1, 2, 5, 3, 5, 6)]
    assert told == ["next", "next", "gap", "late", "late", "next"]
    assert [seen.order("b", "asset", 1), seen.order("a", "other", 2)] == ["next", "gap"]


def test_an_event_is_late_whose_successor_is_handled_while_it_waits(tmp_path: Path) -> None:
    """Both saw the same number before: the upsert of the lower one then changes nothing."""
    seen = Seen(tmp_path / "seen.sqlite")
    ask = seen.ask

    def overtaken(cursor: Any, statement: str, *values: Any) -> None:
        if statement.startswith("INSERT INTO webhook_sequence"):
            ask(cursor, "INSERT INTO webhook_sequence VALUES (?, ?, ?)", "a", "asset", 3)
        ask(cursor, statement, *values)

    seen.ask = overtaken  # type: ignore[method-assign]
    assert seen.order("a", "asset", 2) == "late"


def test_headers_that_can_be_read_once_are_read_once() -> None:
    told = signed()
    assert verify([SECRET], iter(told.items()), BODY, now=STAMP).id == ID  # type: ignore[arg-type]
    assert read_body(io.BytesIO(b"12345678"), b"8") == b"12345678"


def test_the_order_of_an_event_whose_effect_fails_is_forgotten_with_it(place: Place) -> None:
    seen = place.again()
    told: list[str] = []
    with pytest.raises(ZeroDivisionError):
        fail(seen, lambda: told.append(seen.order("a", "asset", 1)))
    assert told == ["next"]
    assert seen.order("a", "asset", 1) == "next"


def test_a_connection_outside_a_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        _ = Seen(tmp_path / "seen").connection
