"""Which broker carries the messages, as the setting BROKER says. The settings import this, so it needs none of theirs."""

import re
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

FORMS: Final = "orm, redis://host:6379/0, rediss://host:6379/0 or sqs://region/prefix"
REDIS: Final = "cleanup_project.base.brokers.redis.Redis"
SQS: Final = "cleanup_project.base.brokers.sqs.Sqs"
REDIS_OPTIONS: Final = frozenset({"ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_keyfile"})
PREFIX: Final = "cleanup"  # of the queues' names at SQS

WAIT_SECONDS: Final = 5  # how long SQS keeps a request for messages open; a cluster that stops waits for it
READ_SECONDS: Final = 10  # when a connection to SQS that says nothing is given up


def options(broker: str) -> dict[str, Any]:
    """What `Q_CLUSTER` says of the broker. Raises ImproperlyConfigured where the setting cannot be read.

    With the ORM broker, a message commits with the ledger. Any other is told of it after the commit (`queue.wake`).
    """
    told = broker.strip()
    if told in ("", "orm"):
        return {"orm": "default"}
    try:
        parts = urlsplit(told)
        port = parts.port
    except ValueError:
        raise wrong("it is no URL; what is special in a password is written as %40 and the like") from None
    if not parts.hostname:
        raise wrong("it names no host or region")
    if parts.scheme in ("redis", "rediss"):
        return {"broker_class": REDIS, "redis": redis_url(told, parts)}
    if parts.scheme == "sqs":
        if port or parts.username or parts.password:
            raise wrong("credentials of SQS come from boto3's own chain, and its address from the region or ?endpoint=")
        return {"broker_class": SQS, "sqs": sqs_options(parts)}
    raise wrong(f"{parts.scheme or 'this'} is no broker that is known")


def redis_url(told: str, parts: SplitResult) -> str:
    if not re.fullmatch(r"/?|/\d+", parts.path):
        raise wrong("what follows the host is the number of a Redis database")
    if unknown := query(parts).keys() - REDIS_OPTIONS:
        raise wrong(
            f"{', '.join(sorted(unknown))}: only {', '.join(sorted(REDIS_OPTIONS))} may follow the question mark"
        )
    return told


def sqs_options(parts: SplitResult) -> dict[str, Any]:
    prefix = unquote(parts.path.strip("/")) or PREFIX
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", prefix):
        raise wrong("the prefix of the queues' names has letters, digits, - and _, at most 64 of them")
    told = query(parts)
    endpoint = told.pop("endpoint", "")
    if told:
        raise wrong(f"{', '.join(sorted(told))}: only endpoint may follow the question mark")
    if endpoint and not re.match(r"https?://[^/]", endpoint):
        raise wrong("endpoint is an address that begins with https:// or http://")
    return {
        "region": parts.hostname,
        "prefix": prefix,
        "endpoint_url": endpoint or None,
        "wait_seconds": WAIT_SECONDS,
        "read_seconds": READ_SECONDS,
    }


def query(parts: SplitResult) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}


def wrong(why: str) -> ImproperlyConfigured:
    """Without the value: it may hold a password."""
    return ImproperlyConfigured(f"BROKER must be {FORMS}: {why}.")
