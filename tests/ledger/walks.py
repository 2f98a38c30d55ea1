"""Walks: what happens to a ledger, step by step, drawn from a seed."""

from collections.abc import Callable, Collection
from datetime import timedelta
from random import Random
from typing import Any

from ledger import runs
from retention.storage import Failure, FailureClass
from tests.ledger.chaos import Plan, ambiguous

STEPS = 50
Step = tuple[Any, ...]
KEYS = ("a/1.mp4", "a/2.mp4", "b/1.mp4")
PREFIXES = ("", "a/", "a/1", "b/", "thumbs/", "thumbs/a/1")
LAPSES = (30, 90, 3600)  # seconds: within all deadlines; past those of sending and settling; past every lease
MINUTE = timedelta(minutes=1)

# What a deletion may meet, and whether it is executed all the same.
FAULTS = {
    "lost": Plan(ambiguous(FailureClass.TRANSIENT)),
    "executed, unanswered": Plan(ambiguous(FailureClass.TRANSIENT), "now"),
    "executed late, unanswered": Plan(ambiguous(FailureClass.TRANSIENT), "later"),
    "executed, throttled": Plan(ambiguous(FailureClass.THROTTLED), "now"),
    "throttled": Plan(Failure.of(FailureClass.THROTTLED, "SlowDown")),
    "denied": Plan(Failure.of(FailureClass.PERMISSION, "AccessDenied")),
    "locked": Plan(Failure.of(FailureClass.LOCKED, "AccessDenied")),
    "malformed version": Plan(Failure.of(FailureClass.MALFORMED_VERSION, "NoSuchVersion")),
    "malformed request": Plan(Failure.of(FailureClass.MALFORMED_REQUEST, "MalformedXML")),
    "expired token": Plan(Failure.of(FailureClass.CREDENTIALS, "ExpiredToken")),
}
BLINDNESS = {
    "denied": Failure.of(FailureClass.PERMISSION, "AccessDenied"),
    "failing": Failure.of(FailureClass.TRANSIENT, "InternalError"),
    "expired token": Failure.of(FailureClass.CREDENTIALS, "ExpiredToken"),
}
POINTS = range(1, 41)


def fate(dice: Random) -> tuple[int | None, int | None]:
    """(the point at which a worker dies, the point at which it freezes)"""
    return dice.choice([(None, None), (dice.choice(POINTS), None), (None, dice.choice(POINTS))])


def sometimes(dice: Random, values: Collection[Any]) -> Any:
    return dice.choice([None, dice.choice(sorted(values))])


# How often a kind of step comes, and what is drawn for it.
KINDS: dict[str, tuple[int, Callable[[Random], tuple[Any, ...]]]] = {
    "work": (8, lambda dice: (
        fate(dice), sometimes(dice, FAULTS), sometimes(dice, range(4)), dice.choice([None, sometimes(dice, BLINDNESS)]),
        dice.choice([False, True]), dice.choice(["media", "media", "media", "thumbs"]),
    )),
    "interrupted": (3, lambda dice: (
        dice.choice(["ask 0", "ask 1", "send 0", "send 1"]), dice.choice([False, True]),
        dice.choice(["place_hold", "stop", "suspend", "pause", "takeover", "takeover and hold"]),
    )),
    "time_passes": (5, lambda dice: (dice.choice(LAPSES),)),
    "zombie_goes_on": (3, lambda dice: (dice.randrange(6), dice.choice([False, False, True]))),
    "store_object": (2, lambda dice: (
        dice.choice(["original", "here", "elsewhere"]), dice.choice(KEYS), dice.choice([False, True])
    )),
    "catalogued_late": (1, lambda dice: (dice.choice(KEYS), dice.randrange(6))),
    "removed_behind_our_back": (1, lambda dice: (dice.randrange(6),)),
    "run": (2, lambda dice: ()),
    "follow_up": (3, lambda dice: (
        fate(dice), dice.choice(["look_again", "look_again", "sweep", "withdraw", "acknowledge", "holds"])
    )),
    "place_hold": (1, lambda dice: (dice.choice(PREFIXES), dice.choice([False, True]))),
    "release_hold": (2, lambda dice: (dice.randrange(6),)),
    "replay": (1, lambda dice: (dice.randrange(6),)),
    "close": (1, lambda dice: (dice.randrange(6),)),
    "steer": (1, lambda dice: (dice.choice([runs.pause, runs.resume, runs.cancel]),)),
    "decide": (2, lambda dice: (dice.choice([
        "switch_enforcement_off", "switch_enforcement_on", "suspend", "end_suspension", "end_suspension", "stop", "lift",
        "lift", "publish_revision",
    ]), dice.randrange(6))),
}  # fmt: skip


def steps_of(seed: int) -> list[Step]:
    dice = Random(seed)
    kinds = dice.choices(list(KINDS), [weight for weight, _ in KINDS.values()], k=STEPS)
    return [(kind, *KINDS[kind][1](dice)) for kind in kinds]
