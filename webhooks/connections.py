"""Connections that go where webhooks may go, end when they must, and say what went wrong where it went wrong.

A name is looked up once, each of its addresses is checked, and exactly these are connected to: no second look-up could
answer otherwise in between. `base.bounded` holds all of it to one deadline. What fails is raised as `Failed`, with its
class, at the step that failed; neither urllib3 nor requests wraps that, since it is no error of theirs.
"""

import errno
import logging
import socket
import ssl
import time
from dataclasses import dataclass, field
from functools import cache
from http.client import HTTPException
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Thread
from typing import Any, Final, cast

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from cleanup_project.base import bounded
from webhooks.addresses import Policy
from webhooks.limits import ADDRESSES, CONNECT_TIMEOUT, DNS_TIMEOUT, HEAD_LIMIT, LOOK_UPS, READ_TIMEOUT

# It logs a header that cannot be parsed with the whole URL, whose query may hold a secret of the receiver's.
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)

SockAddress = tuple[Any, ...]
Found = list[tuple[socket.AddressFamily, SockAddress]]

NO_SUCH_NAME: Final = frozenset({socket.EAI_NONAME, socket.EAI_NODATA, socket.EAI_ADDRFAMILY})
OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
DIED: Final = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)


class Failed(Exception):
    """Why there is no answer. `stale`: the connection was an old one, and died without a byte of an answer."""

    def __init__(self, failure_class: str, text: str, *, stale: bool = False) -> None:
        super().__init__(text)
        self.failure_class, self.stale = failure_class, stale


class Resolver:
    """Looks names up, each in a thread that is given up at the deadline: the C library's look-up knows none.

    Daemon threads, and at most `LOOK_UPS`: neither a name server that hangs nor the process's end waits for the other.
    """

    def __init__(self) -> None:
        self._free = BoundedSemaphore(LOOK_UPS)

    def addresses(self, host: str, port: int, seconds: float) -> Found:
        """Raises `Failed`."""
        until = time.monotonic() + seconds
        if not self._free.acquire(timeout=seconds):
            raise Failed("sender_error", f"{LOOK_UPS} look-ups of names are stuck here.")
        box = SimpleQueue[Found | Exception]()
        try:
            Thread(target=self._look_up, args=(host, port, box), name="webhook-dns", daemon=True).start()
        except RuntimeError as error:
            self._free.release()
            raise Failed("sender_error", f"No thread could be begun here: {error}.") from error
        try:
            found = box.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            raise Failed("dns_temp", f"{host} was not found within {seconds:.1f} seconds.") from None
        if isinstance(found, socket.gaierror):
            failure_class = "dns_name" if found.errno in NO_SUCH_NAME else "dns_temp"
            raise Failed(failure_class, f"{host}: {found.strerror}.")
        if isinstance(found, Exception):
            raise Failed("dns_name", f"{host} is no name: {found}.")
        return found

    def _look_up(self, host: str, port: int, box: "SimpleQueue[Found | Exception]") -> None:
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            box.put([(family, address) for family, _, _, _, address in answers])
        except (OSError, ValueError) as error:  # ValueError: a label is too long, or has no encoding
            box.put(error)
        finally:
            self._free.release()


@dataclass(slots=True, kw_only=True)
class Post(bounded.Call):
    """One POST under way, and what was seen of it. Times are milliseconds, None for a step that did not happen.

    `fresh` asks for a new connection. `status` is set as soon as the status line has come, whatever breaks then.
    `received` counts the bytes of the answer as they come over the wire, and `limit` is where they become too many.
    """

    policy: Policy
    resolver: Resolver
    fresh: bool = False
    reused: bool = False
    peer: str = ""
    dns_ms: int | None = None
    connect_ms: int | None = None
    tls_ms: int | None = None
    first_byte_ms: int | None = None
    status: int | None = None
    received: int = 0
    limit: int = HEAD_LIMIT
    asked: float = field(default_factory=time.monotonic)

    def begin(self, peer: str) -> None:
        """A request is about to be written, to the endpoint or, for a tunnel, to the proxy."""
        self.peer, self.asked = peer, time.monotonic()
        self.first_byte_ms, self.status, self.received, self.limit = None, None, 0, HEAD_LIMIT

    def took(self, count: int) -> None:
        if count and self.first_byte_ms is None:
            self.first_byte_ms = since(self.asked)
        self.received += count
        if self.received > self.limit:
            raise Failed("network", f"The answer does not end: {self.received} bytes and more.")


def since(start: float) -> int:
    return round((time.monotonic() - start) * 1000)


def current() -> Post:
    return cast(Post, bounded.current())


class Response(bounded.Response):
    """Passes over interim answers (RFC 9110 §15.2), all of them within the limit of the head."""

    def begin(self) -> None:
        try:
            super().begin()
            while 100 <= self.status < 200 and self.status != 101:
                self.headers = self.msg = None  # type: ignore[assignment]
                super().begin()
        finally:
            # Text until a status line was read.
            if isinstance(self.status, int) and self.status >= 200:
                current().status = self.status


class Guarded(bounded.Bounded):
    """Mixin for urllib3's connections: where they may go, and what their failures mean."""

    response_class = Response
    proxy: Any
    proxy_is_forwarding: Any
    host: str
    port: int
    _dns_host: str
    _tunnel_host: str
    _tunnel_port: int
    _tunnel_headers: dict[str, str]
    peer = ""
    at_proxy = False
    opened = 0.0  # when the endpoint could be spoken to, by time.monotonic()

    def connect(self) -> None:
        """Raises `Failed`. Trouble on the way to a proxy and with it is ours, not the endpoint's."""
        self.at_proxy, self.opened = self.proxy is not None, 0.0
        try:
            super().connect()
        except Failed as failure:
            if self.at_proxy and failure.failure_class != "sender_error":
                raise Failed("sender_error", f"The egress proxy cannot be used: {failure}") from failure
            raise
        except OSError as error:
            if not self.opened:
                raise out_of_time(current()) from error
            if self.at_proxy:
                raise Failed("sender_error", f"The egress proxy cannot be used: {words(error)}.") from error
            if isinstance(error, ssl.SSLCertVerificationError):
                raise Failed("tls_cert", f"The certificate was refused: {error.verify_message}.") from error
            raise Failed("tls", f"TLS could not be agreed on: {words(error)}.") from error
        current().begin(self.peer)

    def _new_conn(self) -> socket.socket:
        post = current()
        try:
            started = time.monotonic()
            found = post.resolver.addresses(self._dns_host, self.port, post.cap(DNS_TIMEOUT))
            post.dns_ms = since(started)
            if self.proxy is None:
                self.refuse_forbidden(post.policy, found)
            started = time.monotonic()
            sock = self.open_first(found[:ADDRESSES])
        except TimeoutError as error:
            raise Failed("timeout_connect", f"No connection to {self.host} in time.") from error
        post.connect_ms, self.opened = since(started), time.monotonic()
        return sock

    def refuse_forbidden(self, policy: Policy, found: Found) -> None:
        """One forbidden address forbids the name: somebody hopes that we try the other one."""
        for _, address in found:
            refusal = policy.refusal_of_address(address[0])
            if refusal:
                raise Failed("blocked", f"{self.host} is not allowed: {refusal}.")

    def open_first(self, found: Found) -> socket.socket:
        """A socket to the first address that answers, each with a time of its own. Raises `TimeoutError` and `Failed`."""
        for number, (family, address) in enumerate(found, 1):
            sock = None
            try:
                sock = socket.socket(family, socket.SOCK_STREAM)
                sock.settimeout(current().cap(CONNECT_TIMEOUT))
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(current().cap(READ_TIMEOUT))  # also what a TLS handshake may take
            except OSError as error:
                if sock is not None:
                    sock.close()
                if error.errno in OUT_OF_RESOURCES:
                    raise Failed("sender_error", f"No socket could be opened here: {words(error)}.") from error
                if number < len(found) and not current().expired:
                    continue
                if isinstance(error, TimeoutError):
                    raise
                raise Failed("network", f"{self.host} cannot be connected to: {words(error)}.") from error
            self.peer = str(address[0])
            return sock
        raise Failed("dns_name", f"{self.host} has no address.")

    def _tunnel(self) -> None:
        """CONNECT (RFC 9110 §9.3.6), so that the proxy's refusal is read as a status and not as text."""
        host = self._tunnel_host.strip("[]")
        place = f"[{host}]:{self._tunnel_port}" if ":" in host else f"{host}:{self._tunnel_port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"host: {place}"]
        lines += [f"{name}: {value}" for name, value in self._tunnel_headers.items() if name.lower() != "host"]
        post = current()
        post.begin(self.peer)
        self.send("".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1"))
        post.sent = False  # nothing that the endpoint could have seen
        answer = self.response_class(self.sock, method="CONNECT")
        try:
            answer.begin()
        except TimeoutError as error:
            self.at_proxy = False
            raise Failed("timeout_connect", "The egress proxy did not connect in time.") from error
        except HTTPException as error:
            raise Failed("sender_error", f"The egress proxy did not answer CONNECT: {words(error)}.") from error
        finally:
            answer.close()
            post.status = None  # the proxy's, and no acknowledgement of the event
        if not 200 <= answer.status < 300:
            self.at_proxy = False
            raise Failed(class_of_proxy(answer.status), f"The egress proxy answered {answer.status} to CONNECT.")
        self.at_proxy, self.opened = False, time.monotonic()

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Raises `Failed`; urllib3 passes over a connection that breaks, since it may have been answered already."""
        post = current()
        if self.sock is not None:
            post.begin(self.peer)
        try:
            super().request(*args, **kwargs)  # type: ignore[misc]
        except TimeoutError as error:
            raise out_of_time(post) from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise self.broken(error) from error

    def getresponse(self) -> Any:
        """Raises `Failed`."""
        try:
            answer = super().getresponse()  # type: ignore[misc]
        except TimeoutError as error:
            raise out_of_time(current()) from error
        except (OSError, HTTPException) as error:
            raise self.broken(error) from error
        if answer.status == 407 and self.proxy_is_forwarding:
            current().status = None
            raise Failed("sender_error", "The egress proxy answered 407: it wants other credentials.")
        return answer

    def broken(self, error: Exception) -> Failed:
        post = current()
        stale = post.reused and post.received == 0 and isinstance(error, DIED)
        return Failed("network", f"No answer could be read: {words(error)}.", stale=stale)


class Connection(Guarded, HTTPConnection):  # type: ignore[misc]
    pass


class TLSConnection(Guarded, HTTPSConnection):  # type: ignore[misc]
    def connect(self) -> None:
        super().connect()
        current().tls_ms = since(self.opened)


class ProxySocket(ssl.SSLSocket):
    """The outer of two layers of TLS. The inner one reads a record in as many pieces as come: each keeps the deadline."""

    def recv(self, *args: Any) -> bytes:
        self.settimeout(current().cap(self.gettimeout()))
        return super().recv(*args)

    def send(self, *args: Any) -> int:
        self.settimeout(current().cap(self.gettimeout()))
        return super().send(*args)


class Pool(HTTPConnectionPool):
    ConnectionCls = Connection

    def _get_conn(self, timeout: float | None = None) -> Any:
        return fresh_or_reused(super()._get_conn(timeout))


class TLSPool(HTTPSConnectionPool):
    ConnectionCls = TLSConnection

    def _get_conn(self, timeout: float | None = None) -> Any:
        return fresh_or_reused(super()._get_conn(timeout))


POOLS: Final = {"http": Pool, "https": TLSPool}


def fresh_or_reused(connection: Any) -> Any:
    post = current()
    if post.fresh:
        connection.close()
    post.reused = not connection.is_closed
    return connection


@cache
def tls_context(authorities: str, sockets: type[ssl.SSLSocket] = ssl.SSLSocket) -> ssl.SSLContext:
    """Shared by every connection, since reading the file of certificate authorities takes 20 ms of CPU."""
    context = ssl.create_default_context(cafile=authorities)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = sockets
    return context


def out_of_time(post: Post) -> Failed:
    if not post.sent:
        return Failed("timeout_connect", "The attempt's time was over before anything was sent.")
    return Failed("timeout_ambiguous", "No answer in time; the event may have been processed.")


def class_of_proxy(status: int) -> str:
    """What an answer to CONNECT means: 403 is the proxy's own rule, 5xx the endpoint that it could not reach."""
    if status == 403:
        return "blocked"
    return "network" if status >= 500 else "sender_error"


def words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
