"""System checks of the queue: limits in order, nothing that doubles work, connections that survive a fork."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections

from cleanup_project.base import brokers, limits, queue

GRACE: Final = 3  # django-q2 ends a task by force so many seconds after its timeout
DRIFT: Final = 10  # what a task may take beyond its timeout, all told
SQS_BULK: Final = 10
SQS_WAIT: Final = 20
SQS_INVISIBLE: Final = 12 * 3600
WORKER_COMMANDS: Final = frozenset({"worker", "qcluster"})


@register
def queue_settings(**_: Any) -> list[CheckMessage]:
    """queue.E001 to E010, see the functions below."""
    found = [*chains(), *database(), *broker()]
    for name, cluster in clusters():
        found += [*cluster_limits(name, cluster), *sqs_limits(name, cluster)]
    return found


def clusters() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each cluster's settings by its name, as django-q2 puts them together."""
    default = settings.Q_CLUSTER
    yield default["name"], default
    for name, own in default["ALT_CLUSTERS"].items():
        yield name, {**default, **own}


def chains() -> Iterator[CheckMessage]:
    """E001: each chain of limits ascends."""
    for name, chain in limits.CHAINS.items():
        if list(chain) != sorted(set(chain)):
            yield Error(
                f"The limits of {name} must ascend: budget {chain[0]}, timeout {chain[1]}, lease {chain[2]}, retry "
                f"{chain[3]} seconds.",
                hint="Correct cleanup_project/base/limits.py.",
                id="queue.E001",
            )


def cluster_limits(name: str, cluster: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """E002 timeout and retry as the chains say, E003 retry covers what waits inside, E004 forced end, E005 no repeats."""
    longest = max(timeout for _, timeout, _, _ in limits.CHAINS.values())
    if cluster["timeout"] != longest or cluster["retry"] != limits.QUEUE_RETRY:
        yield Error(
            f"Cluster {name} has timeout {cluster['timeout']} and retry {cluster['retry']}; the chains of limits need "
            f"{longest} and {limits.QUEUE_RETRY}.",
            hint="Take Q_CLUSTER's timeout and retry from cleanup_project/base/limits.py.",
            id="queue.E002",
        )
    # A message is leased from when the cluster takes it, and may wait inside for those before it.
    rounds = ceil((cluster["queue_limit"] + cluster["bulk"]) / cluster["workers"]) + 1
    needed = rounds * (cluster["timeout"] + DRIFT)
    if cluster["retry"] <= needed:
        yield Error(
            f"Cluster {name} may hold a message for {needed} s, and it comes again after retry = {cluster['retry']} s.",
            hint="Lower queue_limit or bulk, or raise workers or retry.",
            id="queue.E003",
        )
    for _, timeout, _, _ in limits.CHAINS.values():
        if (timeout + GRACE) % cluster["guard_cycle"]:
            yield Error(
                f"Cluster {name}: (timeout {timeout} + {GRACE}) must be a multiple of guard_cycle "
                f"{cluster['guard_cycle']}, or django-q2 never ends a hanging task.",
                hint="Use guard_cycle 0.5 and whole seconds.",
                id="queue.E004",
            )
    if not cluster["ack_failures"] or cluster["max_attempts"] != 1:
        yield Error(
            f"Cluster {name} would repeat failed tasks without end.",
            hint="Set ack_failures to True and max_attempts to 1: the ledger decides what is tried again.",
            id="queue.E005",
        )


def broker() -> Iterator[CheckMessage]:
    """E006 a broker that `wake` knows how to tell, E009 one that can be made, with the package and options that it needs."""
    told = settings.Q_CLUSTER
    if told.get("orm") == "default":
        return
    if "orm" in told or told.get("broker_class") not in (brokers.REDIS, brokers.SQS):
        yield Error(
            "Messages must commit with the ledger or be told after its commit, and Q_CLUSTER has another broker.",
            hint="Take Q_CLUSTER's broker from brokers.options, and set BROKER.",
            id="queue.E006",
        )
        return
    try:
        queue.broker_of(told["name"])
    except Exception as error:  # noqa: BLE001 - whatever it raises, no message would be sent
        yield Error(
            f"The broker that BROKER names cannot be used: {error}.",
            hint="Correct BROKER. Where a package is missing, install what uv.lock names, as docs/deployment.md has it.",
            id="queue.E009",
        )


def sqs_limits(name: str, cluster: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """E010 what SQS allows (Amazon SQS, API reference, ReceiveMessage), and answers that are waited for."""
    if "sqs" not in cluster:
        return
    wait, read = cluster["sqs"]["wait_seconds"], cluster["sqs"]["read_seconds"]
    within = cluster["retry"] <= SQS_INVISIBLE and cluster["bulk"] <= SQS_BULK and 1 <= wait <= SQS_WAIT
    if not within or wait >= read:
        yield Error(
            f"Cluster {name} asks SQS for {cluster['bulk']} messages, waits {wait} s for them, gives the connection up "
            f"after {read} s, and hides them for {cluster['retry']} s. At most {SQS_BULK}, {SQS_WAIT} s and "
            f"{SQS_INVISIBLE} s are allowed, no wait is a loop without a pause, and a connection is kept for longer.",
            hint="Correct bulk, wait_seconds, read_seconds or retry.",
            id="queue.E010",
        )


def database() -> Iterator[CheckMessage]:
    """E007 no pool in workers, E008 connections that are tested and locks that end."""
    ledger = settings.DATABASES["default"]
    options = ledger.get("OPTIONS", {})
    if "pool" in options and (not settings.WEB_PROCESS or WORKER_COMMANDS.intersection(sys.argv[1:2])):
        yield Error(
            "A psycopg pool does not survive the fork of django-q2's workers.",
            hint="Unset WEB_PROCESS: cleanup_project.wsgi alone sets it.",
            id="queue.E007",
        )
    checked = "pool" in options or (ledger.get("CONN_HEALTH_CHECKS") and ledger.get("CONN_MAX_AGE"))
    if not checked or "lock_timeout" not in options.get("options", ""):
        yield Error(
            "Workers need connections that are kept and tested, and waits for locks that end.",
            hint="Set CONN_MAX_AGE, CONN_HEALTH_CHECKS and lock_timeout as cleanup_project/settings.py does.",
            id="queue.E008",
        )


@register(Tags.database)
def queue_schedule(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """queue.W001: somebody else's rows on django-q2's schedule, any of which can stop all of them."""
    if "default" not in (databases or ()) or not is_migrated():
        return []
    foreign = queue.foreign_schedules()
    if not foreign:
        return []
    return [
        Warning(
            f"django-q2's schedule has rows that are not this product's: {', '.join(foreign)}.",
            hint="Remove them from django_q_schedule: one that cannot be read stops every other, the tick included.",
            id="queue.W001",
        )
    ]


def is_migrated() -> bool:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT to_regclass('django_q_schedule') IS NOT NULL")
        return bool(cursor.fetchone()[0])
