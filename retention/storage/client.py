"""boto3 clients, one call at a time: no retries, no redirects, an outer deadline, and failures as values."""

import os
from dataclasses import dataclass
from typing import Any, Final, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from retention.storage.bounded import deadline, keep_deadlines
from retention.storage.failures import Failure, FailureClass, classify_exception
from retention.storage.port import BucketRef

DEADLINE_CODE: Final = "DeadlineExceeded"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds for one connect and one socket read, and for a whole call that is given no deadline of its own."""

    connect: float = 5.0
    read: float = 30.0
    call: float = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, or the reason for having none. `status` is the HTTP status, 0 without an answer."""

    data: dict[str, Any]
    status: int
    server: str
    request_id: str
    sent: bool
    failure: Failure | None = None


class Ask(Protocol):
    """One API call on a bucket. `until` is a deadline on the clock of time.monotonic()."""

    def __call__(self, operation: str, until: float, **params: Any) -> Reply: ...


class Clients:
    """Builds and keeps clients, one for each endpoint, profile, region and style.

    The process id is part of the key: a forked child never shares its parent's sockets. There is no lock, which a fork
    could leave held for ever; two threads may both build a client, and one of the two is dropped.
    """

    def __init__(self, timeouts: Timeouts, pool_size: int) -> None:
        self._timeouts, self._pool_size = timeouts, pool_size
        self._clients: dict[tuple[int | str, ...], Any] = {}

    def asker(self, bucket: BucketRef) -> Ask:
        """The calls of `bucket`. Trouble with credentials or configuration shows in the replies, not here.

        The client is built here, which takes a while: in a call, it would stand between the caller's last look at whether
        it may send, and the request; and in several at once, each would build its own.
        """
        try:
            client = self._client_for(bucket)
        except (BotoCoreError, ValueError) as error:
            failure = classify_exception(error, sent=False)
            return lambda operation, until, **params: Reply({}, 0, "", "", False, failure)
        return lambda operation, until, **params: _ask(client, operation, until, Bucket=bucket.name, **params)

    def _client_for(self, bucket: BucketRef) -> Any:
        place = (bucket.endpoint_url, bucket.credential_profile, bucket.region, bucket.addressing_style)
        key = (os.getpid(), *place)
        if key not in self._clients:
            self._clients.setdefault(key, self._build(bucket))
        return self._clients[key]

    def _build(self, bucket: BucketRef) -> Any:
        # A session of its own: boto3's default session is shared between threads and is not safe to build from.
        session = boto3.Session(profile_name=bucket.credential_profile or None)
        client = session.client(
            "s3",
            region_name=bucket.region,
            endpoint_url=bucket.endpoint_url or None,
            config=Config(  # type: ignore[call-arg]  # the stubs lack ignore_configured_endpoint_urls
                retries={"total_max_attempts": 1, "mode": "standard"},
                connect_timeout=self._timeouts.connect,
                read_timeout=self._timeouts.read,
                max_pool_connections=self._pool_size,
                ignore_configured_endpoint_urls=True,
                s3={"addressing_style": bucket.addressing_style, "us_east_1_regional_endpoint": "regional"},
            ),
        )
        keep_deadlines(client)
        client.meta.events.register("before-call.s3", _stay_in_region)
        return client


def _stay_in_region(context: dict[str, Any], **_: Any) -> None:
    """Have botocore believe that it followed a redirect already: it would resend elsewhere, uncounted by retries."""
    context.setdefault("s3_redirect", {})["redirected"] = True


def _ask(client: Any, operation: str, until: float, **params: Any) -> Reply:
    with deadline(until) as call:
        if call.expired:
            return Reply({}, 0, "", "", False, _out_of_time(sent=False))
        try:
            answer: dict[str, Any] = getattr(client, operation)(**params)
        except ClientError as error:
            return _reply(dict(error.response), classify_exception(error, sent=True))
        except (BotoCoreError, ResponseParserError) as error:
            failure = _out_of_time(sent=call.sent) if call.expired else classify_exception(error, sent=call.sent)
            return Reply({}, 0, "", "", call.sent, failure)
        return _reply(answer, None)


def _reply(data: dict[str, Any], failure: Failure | None) -> Reply:
    metadata = data.get("ResponseMetadata", {})
    headers = metadata.get("HTTPHeaders", {})
    request_id = metadata.get("RequestId") or headers.get("x-amz-request-id", "")
    return Reply(data, metadata.get("HTTPStatusCode", 0), headers.get("server", ""), request_id, True, failure)


def _out_of_time(*, sent: bool) -> Failure:
    return Failure.of(FailureClass.TRANSIENT, DEADLINE_CODE, "our own deadline passed", ambiguous=sent)
