"""`bench webhooks`: deliveries a second through claim, send and record, to a receiver on loopback that takes 20 ms.

The baseline posts the same bodies, signed, with bare requests: one session, as many threads and connections, no database.
Then: what a dead endpoint costs the others, and how long a claim takes out of many due deliveries.
"""

import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import requests
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.test.utils import override_settings
from requests.adapters import HTTPAdapter

from cleanup_project.base import clock, roles
from cleanup_project.base.models import User
from cleanup_project.operations.bench import Result, peak_memory_mb, scratch_database
from cleanup_project.operations.bench.answering import answering
from webhooks import dispatch, endpoints, outbox, signing
from webhooks.limits import CONNECT_TIMEOUT, IN_FLIGHT, READ_TIMEOUT
from webhooks.models import Delivery, Endpoint, OutboxEvent
from webhooks.outbox import Notice

ANSWER_SECONDS: Final = 0.02
THREADS: Final = 32
ENDPOINTS: Final = 4  # of the tenant that is measured
CROWD: Final = 50  # endpoints among which claims look for what is due
EMITTED_AT_ONCE: Final = 1000
LOOKS: Final = 20
OURS, ALONE, BESIDE, DEAD, CROWDED = "bench-ours", "bench-alone", "bench-beside", "bench-dead", "bench-crowd"


class Through(Exception):
    """Every delivery that is waited for has arrived."""


def run(*, deliveries: int = 5000, rounds: int = 5) -> Result:
    """`value` and `ratio` compare the medians of deliveries a second; each round is of both.

    A dead endpoint has twice as many due, and the claims are out of twenty times as many.
    """
    with scratch_database(), loopback(), answering(ANSWER_SECONDS) as receiver:
        by = User.objects.create(username="bench-operator")
        by.groups.add(Group.objects.get(name=roles.OPERATOR))
        memory = peak_memory_mb()
        measured = [both(f"{OURS}-{each}", f"{receiver}/hook", deliveries, by) for each in range(rounds)]
        grown = peak_memory_mb() - memory
        bare, ours = (statistics.median(each) for each in zip(*measured, strict=True))
        beside = beside_the_dead(receiver, deliveries, by)
        claims = claim_times(receiver, 20 * deliveries, by)
    return Result(
        name="webhooks",
        value=round(ours),
        unit="deliveries/s",
        baseline=f"the same bodies, signed, by bare requests with {THREADS} threads",
        baseline_value=round(bare),
        ratio=round(ours / bare, 3),
        details={
            "deliveries": deliveries // ENDPOINTS * ENDPOINTS,
            "rounds": [{"bare": round(theirs), "ours": round(own)} for theirs, own in measured],
            "answer_ms": round(ANSWER_SECONDS * 1000),
            "threads": THREADS,
            "dead_endpoint": beside,
            "claim": claims,
            "peak_memory_growth_mb": round(grown, 1),
        },
    )


def both(tenant: str, url: str, deliveries: int, by: User) -> tuple[float, float]:
    """Deliveries a second by bare requests, and then ours of the same events."""
    keys = owe(tenant, url, ENDPOINTS, deliveries // ENDPOINTS, by)
    owed = Delivery.objects.filter(tenant=tenant).count()
    bare = timed(lambda: post_all(tenant, url, keys[0]))
    ours = timed(lambda: dispatch.dispatch(budget_seconds=3600, threads=THREADS))
    arrived(tenant)
    return owed / bare, owed / ours


@contextmanager
def loopback() -> Iterator[None]:
    """Plain http to this machine, as in the demo, and nobody to ring; a dead endpoint's failures fill no log."""
    logging.getLogger("webhooks").setLevel(logging.ERROR)
    with override_settings(
        WEBHOOK_ALLOW_HTTP=True, WEBHOOK_ALLOW_CIDRS=["127.0.0.0/8"], WEBHOOKS_SETTLED_TASK=""
    ):  # fmt: skip
        yield


def owe(tenant: str, url: str, number: int, events: int, by: User) -> list[bytes]:
    """Endpoints of a tenant and their events, each of another subject; returns the endpoints' keys."""
    keys = []
    for each in range(number):
        made, secret = endpoints.create(tenant=tenant, name=f"{each}", url=url, event_types=["*"], by=by)
        # Here no person has to see an answer first.
        Endpoint.objects.filter(pk=made.pk).update(disabled_at=None, disabled_by=None, disabled_reason="")
        keys.append(signing.parse_secret(secret))
    for first in range(0, events, EMITTED_AT_ONCE):
        numbers = range(first, min(first + EMITTED_AT_ONCE, events))
        with transaction.atomic():
            outbox.emit(tenant, [notice(tenant, each) for each in numbers], at=clock.now())
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return keys


def notice(tenant: str, number: int) -> Notice:
    """As large as one of a deletion."""
    key = f"{tenant}:asset-{number}:{'v' * 32}:policy-1"
    data = {
        "bytes": 1_000_000, "command_key": key, "outcome": "deleted", "policy": "policy", "receipt_sha256": "0" * 64,
        "revision": 1, "run": f"{tenant}-run", "targets": 3,
    }  # fmt: skip
    return Notice(type="media.deleted", subject=f"asset-{number}", name=key, data=data, command_key=key)


def post_all(tenant: str, url: str, key: bytes) -> None:
    """The baseline: each event as often as it is owed."""
    events = list(OutboxEvent.objects.filter(tenant=tenant).values_list("event_id", "body")) * ENDPOINTS
    with requests.Session() as session, ThreadPoolExecutor(THREADS) as pool:
        session.trust_env = False
        session.mount("http://", HTTPAdapter(pool_connections=1, pool_maxsize=THREADS))

        def post(event: tuple[str, bytes]) -> int:
            id, body = event[0], bytes(event[1])
            signed = signing.headers([key], id, int(time.time()), body)
            told = {"content-type": "application/json", "accept-encoding": "identity", **signed}
            return session.post(url, data=body, headers=told, timeout=(CONNECT_TIMEOUT, READ_TIMEOUT)).status_code

        answers = list(pool.map(post, events))
    if set(answers) != {204}:
        raise RuntimeError(f"The baseline got {sorted(set(answers))}.")


def beside_the_dead(receiver: str, deliveries: int, by: User) -> dict[str, Any]:
    """p95 from due to recorded, of endpoints alone and beside one that takes what it is sent and says nothing."""
    alone = milliseconds(ALONE, receiver, deliveries, by)
    owe(DEAD, f"{receiver}/silent", 1, 2 * deliveries, by)
    beside = milliseconds(BESIDE, receiver, deliveries, by)
    return {
        "due": 2 * deliveries,
        "others": deliveries // ENDPOINTS * ENDPOINTS,
        "p95_ms_without": round(alone),
        "p95_ms_with": round(beside),
        "with_to_without": round(beside / alone, 3),
    }


def milliseconds(tenant: str, receiver: str, deliveries: int, by: User) -> float:
    owe(tenant, f"{receiver}/hook", ENDPOINTS, deliveries // ENDPOINTS, by)
    waited_for = Delivery.objects.filter(tenant=tenant, state=Delivery.State.PENDING)

    def progress(_attempts: int) -> None:
        if not waited_for.exists():
            raise Through

    with connection.cursor() as cursor:
        cursor.execute("UPDATE webhooks_delivery SET due_at = now() WHERE state = 'pending' AND due_at < now()")
    with suppress(Through):
        dispatch.dispatch(budget_seconds=3600, threads=THREADS, progress=progress)
    arrived(tenant)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - due_at)) * 1000 "
            "FROM webhooks_delivery WHERE tenant = %s",
            [tenant],
        )
        found: float = cursor.fetchone()[0]
    return found


def arrived(tenant: str) -> None:
    left = Delivery.objects.filter(tenant=tenant).exclude(state=Delivery.State.DELIVERED).count()
    if left:
        raise RuntimeError(f"{left} deliveries of {tenant} did not arrive.")


def claim_times(receiver: str, due: int, by: User) -> dict[str, Any]:
    """Claims out of so many due deliveries, one at each endpoint, their commit included."""
    owe(CROWDED, f"{receiver}/hook", CROWD, due // CROWD, by)
    crowd = list(Endpoint.objects.filter(tenant=CROWDED).values_list("pk", flat=True))
    claims = [timed(partial(claimed, pk)) for pk in crowd]
    looks = [timed(dispatch.due_endpoints) for _ in range(LOOKS)]
    return {
        "due": Delivery.objects.filter(tenant=CROWDED).count(),
        "deliveries_each": IN_FLIGHT,
        "claim_ms": spread(claims),
        "due_endpoints_ms": spread(looks),
    }


def claimed(endpoint_id: int) -> None:
    if not dispatch.claim_from(endpoint_id, IN_FLIGHT):
        raise RuntimeError("A claim found nothing.")


def spread(seconds: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(seconds) * 1000, 2), "max": round(max(seconds) * 1000, 2)}


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started
