"""A scripted S3 on loopback: it answers what AWS was recorded to answer, and misbehaves on demand.

A test gives `respond`, a function from Request to Answer; every request is kept in `requests`.
"""

import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SO_LINGER, SOL_SOCKET
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
SUBRESOURCES = (
    *("versions", "retention", "legal-hold", "versioning", "object-lock", "lifecycle"),
    *("policyStatus", "publicAccessBlock", "acl"),
)
HEAD = '<?xml version="1.0" encoding="UTF-8"?>'


@dataclass(frozen=True)
class Request:
    method: str
    raw_path: str
    key: str
    query: dict[str, str]
    items: tuple[tuple[str, str], ...]  # (key, version id) of a DeleteObjects body; () if it is not well-formed
    well_formed: bool
    headers: dict[str, str]
    peer: tuple[str, int]

    @property
    def operation(self) -> str:
        names = {
            "POST": "delete_objects",
            "DELETE": "delete_object",
            "HEAD": "head_object" if self.key else "head_bucket",
        }
        if self.method != "GET":
            return names[self.method]
        for parameter in SUBRESOURCES:
            if parameter in self.query:
                return f"get_{parameter}"
        return "get_object"


@dataclass(frozen=True)
class Answer:
    status: int = 200
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False  # no answer before the server ends
    reset: bool = False  # RST instead of an answer
    drip: float = 0.0  # seconds between bytes of the body
    drip_headers: bool = False


HANG, RESET = Answer(hang=True), Answer(reset=True)


def error(
    code: str, status: int, message: str = "message", headers: dict[str, str] | None = None, **more: str
) -> Answer:
    fields = {"Code": code, "Message": message, **more, "RequestId": "REQUEST"}
    return Answer(status, f"{HEAD}<Error>{_xml(fields)}</Error>", headers or {})


def delete_result(deleted: Iterable[dict[str, str]] = (), errors: Iterable[dict[str, str]] = ()) -> Answer:
    lines = [f"<Deleted>{_xml(item)}</Deleted>" for item in deleted]
    lines += [f"<Error>{_xml(item)}</Error>" for item in errors]
    return Answer(200, f'{HEAD}<DeleteResult xmlns="{NAMESPACE}">{"".join(lines)}</DeleteResult>')


def all_deleted(request: Request) -> Answer:
    """AWS's success, whatever was named: 204 for one, Deleted for each of many."""
    if request.method == "DELETE":
        return Answer(204, headers={"x-amz-version-id": request.query["versionId"]})
    return delete_result({"Key": key, "VersionId": version_id} for key, version_id in request.items)


def listing(versions: Iterable[dict[str, str]] = (), *, truncated: bool = False) -> Answer:
    usual = {"LastModified": "2026-01-02T03:04:05.000Z", "IsLatest": "true", "Size": "1", "ETag": '"e"'}
    lines = [f"<Version>{_xml(usual | item)}</Version>" for item in versions]
    more = "true" if truncated else "false"
    inside = f"<Name>b</Name><Prefix></Prefix><MaxKeys>1000</MaxKeys><IsTruncated>{more}</IsTruncated>{''.join(lines)}"
    return Answer(200, f'{HEAD}<ListVersionsResult xmlns="{NAMESPACE}">{inside}</ListVersionsResult>')


def _xml(fields: dict[str, str]) -> str:
    return "".join(f"<{name}>{escape(value, {chr(13): '&#13;'})}</{name}>" for name, value in fields.items())


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # a full queue costs a client one second
    daemon_threads = False
    block_on_close = True


class FakeS3:
    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.respond: Callable[[Request], Answer] = all_deleted
        self.ended = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "https" if tls else "http"
        self.endpoint_url = f"{scheme}://127.0.0.1:{self._server.server_port}"

    def begin(self) -> None:
        """Forget everything: the next test starts."""
        self.requests, self.respond, self.ended = [], all_deleted, threading.Event()

    def end(self) -> None:
        """Let go of the requests that hang or drip."""
        self.ended.set()

    def operations(self) -> list[str]:
        return [request.operation for request in self.requests]

    @contextmanager
    def serving(self) -> Iterator["FakeS3"]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self.end()
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def _handler(fake: FakeS3) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10
        ended: threading.Event

        def log_message(self, *args: object) -> None:
            pass

        def answer(self) -> None:
            self.ended = fake.ended
            request = _read(self)
            fake.requests.append(request)
            try:
                self.write(fake.respond(request))
            except OSError:
                self.close_connection = True

        do_GET = do_HEAD = do_POST = do_DELETE = answer

        def write(self, answer: Answer) -> None:
            self.close_connection = True
            if answer.hang:
                self.ended.wait(30)
                return
            if answer.reset:
                self.connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                return
            body = answer.body.encode()
            head = {
                "Content-Length": str(len(body)),
                "Server": "AmazonS3",
                "x-amz-request-id": "REQUEST",
                "Connection": "close",
            }
            lines = "".join(f"{name}: {value}\r\n" for name, value in {**head, **answer.headers}.items())
            start = f"HTTP/1.1 {answer.status} reason\r\n{lines}\r\n".encode()
            body = b"" if self.command == "HEAD" else body
            self.drip(start, answer.drip if answer.drip_headers else 0.0)
            self.drip(body, answer.drip)

        def drip(self, data: bytes, pause: float) -> None:
            if not pause:
                self.wfile.write(data)
                return
            for position in range(len(data)):
                self.wfile.write(data[position : position + 1])
                if self.ended.wait(pause):
                    return

    return Handler


def _read(handler: BaseHTTPRequestHandler) -> Request:
    body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
    url = urlsplit(handler.path)
    query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
    _, _, key = url.path.removeprefix("/").partition("/")
    items: list[tuple[str, str]] = []
    well_formed = True
    if handler.command == "POST":
        try:
            for item in ElementTree.fromstring(body).iterfind(f"{{{NAMESPACE}}}Object"):  # noqa: S314
                items.append((item.findtext(f"{{{NAMESPACE}}}Key", ""), item.findtext(f"{{{NAMESPACE}}}VersionId", "")))
        except ElementTree.ParseError:
            well_formed = False
    headers = {name.lower(): value for name, value in handler.headers.items()}
    peer = handler.client_address
    return Request(handler.command, handler.path, unquote(key), query, tuple(items), well_formed, headers, peer)
