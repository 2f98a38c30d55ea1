"""What an answer, or none, means: its class, and what follows from each class. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DELIVERED: Final = ""
DUPLICATE: Final = "delivered_duplicate"  # 409, where the endpoint says that this acknowledges
SENDER_ERROR: Final = "sender_error"
MINUTE: Final = 60.0

FULL: Final = 15
SHORT: Final = 6

# An answer's class, by status; what is not named here is rejected (4xx) or transient (5xx).
BY_STATUS: Final = {
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "transient",
    409: "conflict",
    410: "gone",
    413: "too_large",
    425: "transient",
    429: "throttled",
    501: "rejected",
}


class Health(StrEnum):
    """What an attempt says of its endpoint."""

    SUCCESS = "success"
    FAILURE = "failure"
    NONE = "none"  # of the event, of the pace, or of ourselves


@dataclass(frozen=True, slots=True)
class Rule:
    """`meaning` and `next_action` are for people. Waits in seconds.

    `attempts`: charged ones before the delivery is dead. `first_wait` and `every_wait`: the least wait after the first
    attempt, and after each one, whatever the schedule says. `pause`: how long the whole endpoint is left alone after
    one such answer.
    """

    meaning: str
    next_action: str
    attempts: int = FULL
    first_wait: float = 0.0
    every_wait: float = 0.0
    health: Health = Health.FAILURE
    charged: bool = True
    pause: float | None = None


RULES: Final[Mapping[str, Rule]] = {
    DELIVERED: Rule("The endpoint acknowledged it.", "Nothing to do.", health=Health.SUCCESS),
    DUPLICATE: Rule("The endpoint had it already.", "Nothing to do.", health=Health.SUCCESS),
    "redirect": Rule(
        "The endpoint answered with a redirect, which is never followed.",
        "Give the endpoint the URL that it redirects to.",
        first_wait=10 * MINUTE,
    ),
    "rejected": Rule(
        "The endpoint refused the event.",
        "Ask the receiver why it refuses this event; redeliver once that is repaired.",
        attempts=SHORT,
        health=Health.NONE,
    ),
    "auth": Rule(
        "The endpoint refused us: 401 or 403.",
        "See whether the receiver has the right secret and lets our address through.",
        first_wait=10 * MINUTE,
    ),
    "not_found": Rule(
        "Nothing answers at the URL's path: 404.",
        "Correct the endpoint's URL, or have the receiver's route repaired.",
        first_wait=10 * MINUTE,
    ),
    "transient": Rule(
        "The endpoint has trouble of its own.",
        "Nothing, while it is tried again; else ask the receiver, then redeliver.",
    ),
    "conflict": Rule(
        "The endpoint answered 409.",
        "A receiver that has an event must answer 2xx; or state that its 409 is an acknowledgement.",
        attempts=SHORT,
        health=Health.NONE,
    ),
    "gone": Rule(
        "The endpoint says that it is gone for good: 410.",
        "Correct the endpoint's URL, or retire the endpoint.",
        first_wait=5 * MINUTE,
        health=Health.NONE,
    ),
    "too_large": Rule(
        "The event is larger than the endpoint accepts: 413.",
        "Have the receiver accept bodies of 64 KB, then redeliver.",
        attempts=3,
        health=Health.NONE,
    ),
    "throttled": Rule(
        "The endpoint asked for a slower pace: 429.",
        "Nothing: the pace was lowered.",
        health=Health.NONE,
        pause=MINUTE,
    ),
    "tls_cert": Rule(
        "The endpoint's certificate is not valid.",
        "Have the receiver install a valid certificate. Verification is never turned off.",
        first_wait=10 * MINUTE,
    ),
    "tls": Rule(
        "The TLS handshake broke off.", "Nothing, while it is tried again; else ask the receiver, then redeliver."
    ),
    "dns_name": Rule(
        "The URL's host name does not exist.",
        "Correct the endpoint's URL, or have the receiver's DNS repaired.",
        first_wait=10 * MINUTE,
    ),
    "dns_temp": Rule(
        "The URL's host name could not be looked up.",
        "Nothing, while it is tried again; else see whether names can be resolved here.",
    ),
    "network": Rule(
        "The connection was refused or broke off.",
        "Nothing, while it is tried again; else ask the receiver, then redeliver.",
    ),
    "timeout_connect": Rule(
        "No connection came about in time.", "Nothing, while it is tried again; else ask the receiver, then redeliver."
    ),
    "timeout_ambiguous": Rule(
        "No answer came in time; the event may have been processed.",
        "Nothing, while it is tried again; a receiver should answer first and work later.",
    ),
    "blocked": Rule(
        "The URL leads to an address, a scheme or a port that is not allowed here. Nothing was sent.",
        "Find out why it leads there, then correct the URL, or have the receiver's DNS repaired.",
        every_wait=30 * MINUTE,
        health=Health.NONE,
    ),
    SENDER_ERROR: Rule(
        "The fault is our own: the egress proxy, DNS here, a key, or this machine's limits.",
        "Repair it. Nobody is charged, and everything goes on by itself.",
        health=Health.NONE,
        charged=False,
        every_wait=MINUTE,
        pause=MINUTE,
    ),
}
SUCCESSES: Final = frozenset(each for each, rule in RULES.items() if rule.health is Health.SUCCESS)
FAILURES: Final = frozenset(each for each, rule in RULES.items() if rule.health is Health.FAILURE)
NAMES: Final = frozenset({"dns_temp"})  # for which our own resolver may be to blame; no such name is an answer


def of_status(status: int) -> str:
    """The class of an answer; DELIVERED for 2xx."""
    if 200 <= status < 300:
        return DELIVERED
    if 300 <= status < 400:
        return "redirect"
    return BY_STATUS.get(status, "rejected" if 400 <= status < 500 else "transient")
