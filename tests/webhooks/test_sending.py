"""Whose turn it is: threads go to the endpoint that has the fewest on their way, and none has all of them."""

from webhooks.claiming import Claimed
from webhooks.sender import Sending
from webhooks.sending import Senders


def claims(endpoint_id: int, number: int) -> list[Claimed]:
    sending = Sending(None, None, None, "https://receiver.example/", "evt_1", b"{}")
    return [
        Claimed(
            sending, [], event_row=1, endpoint_id=endpoint_id, lane_id=None, token=1, attempts=0, clock=0.0, is_probe=False,
            is_unwell=False, duplicate_is_success=False, held=False,
        )
        for _ in range(number)
    ]  # fmt: skip


def taken(senders: Senders, number: int) -> list[int]:
    found = [senders._take() for _ in range(number)]
    return [each.endpoint_id for each in found if each is not None]


def test_one_that_swallows_everything_leaves_threads_to_the_next() -> None:
    senders = Senders(8)
    senders.add(claims(1, 20))
    assert taken(senders, 6) == [1] * 6
    assert senders._next_endpoint() is None, "three quarters of the threads are its share while it is alone"
    senders.add(claims(2, 5))
    assert taken(senders, 4) == [2] * 4
    assert senders._next_endpoint() is None, "and half of them, beside another"
    senders.close()


def test_those_that_have_the_fewest_on_their_way_come_first() -> None:
    senders = Senders(8)
    senders.add([*claims(1, 3), *claims(2, 3)])
    assert sorted(taken(senders, 4)) == [1, 1, 2, 2]
    senders.close()
