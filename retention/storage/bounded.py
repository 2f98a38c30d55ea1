"""botocore's HTTP connections, held to an outer deadline: its `read_timeout` alone limits one socket read."""

from contextlib import AbstractContextManager
from typing import Any

from botocore.awsrequest import AWSHTTPConnection, AWSHTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from cleanup_project.base.bounded import Bounded, Call, under


def deadline(at: float) -> AbstractContextManager[Call]:
    """Hold the connections used in this thread and block to the deadline `at` (time.monotonic())."""
    return under(Call(at))


def keep_deadlines(client: Any) -> None:
    """Make `client` use the connections below, which work inside `deadline` alone.

    botocore has no public place for a connection class. The dictionary is shared by its pool and proxy managers, so
    that TLS and proxy settings stay as botocore made them; were it renamed, this raises before the client is used.
    """
    client._endpoint.http_session._pool_classes_by_scheme.update(http=_Pool, https=_TLSPool)


class _Connection(Bounded, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _TLSConnection(Bounded, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection  # type: ignore[assignment]


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection  # type: ignore[assignment]
