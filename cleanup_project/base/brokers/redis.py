"""Redis as the broker: at most once. A message that a cluster has taken is lost with it, and the sweep rings again."""

from typing import Any, Final

import redis
from django.conf import settings
from django_q.brokers import redis_broker
from redis.backoff import NoBackoff
from redis.retry import Retry

CONNECT_SECONDS: Final = 2  # a person may wait for it
ANSWER_SECONDS: Final = 5  # longer than the second for which django-q2 waits for a message
AGAIN: Final = 1  # for a connection that went stale; more would keep people waiting


class Redis(redis_broker.Redis):  # type: ignore[misc]  # django-q2 has no types
    """django-q2's, with waits that end. Its client belongs to no process: it opens connections anew after a fork."""

    @staticmethod
    def get_connection(list_key: str | None = None) -> Any:
        return redis.Redis.from_url(
            settings.Q_CLUSTER["redis"],
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            retry=Retry(NoBackoff(), AGAIN),
        )

    def ping(self) -> bool:
        """Asked before a cluster starts, which should also start while Redis is away."""
        return True

    def set_stat(self, key: str, value: str, timeout: int) -> None:
        """Nobody reads django-q2's statistics, which say that all is well while a cluster stands still."""
