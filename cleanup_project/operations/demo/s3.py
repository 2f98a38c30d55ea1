"""The demo's S3 server: moto, with two answers of AWS that it leaves out, so that failures can be seen.

A policy that denies the deletion of some keys, and 400 for a version id that no version can have (AWS, DeleteObjects,
HeadObject).
"""

import io
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree

from cleanup_project.operations import servers

DENIED: Final = re.compile(r"/denied-[^/]*\Z")  # keys that nobody may delete
VERSION_ID: Final = re.compile(r"\Anull\Z|\A[0-9a-f-]{36}\Z")
S3: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
REFUSAL: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>User: demo is not authorized to '
    b"perform: s3:DeleteObjectVersion because no identity-based policy allows it</Message></Error>"
)
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Store:
    """WSGI around moto."""

    def __init__(self, moto: Wsgi) -> None:
        self.moto = moto

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        query = parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
        version_id = query.get("versionId", ["null"])[0]
        if environ["REQUEST_METHOD"] == "HEAD" and not VERSION_ID.match(version_id):
            start_response("400 Bad Request", [("Content-Length", "0")])
            return []
        if (
            environ["REQUEST_METHOD"] == "DELETE"
            and "versionId" in query
            and DENIED.search(unquote(environ["PATH_INFO"]))
        ):
            start_response(
                "403 Forbidden", [("Content-Length", str(len(REFUSAL))), ("Content-Type", "application/xml")]
            )
            return [REFUSAL]
        if environ["REQUEST_METHOD"] == "POST" and "delete" in query:
            return self.delete(environ, start_response)
        return self.moto(environ, start_response)

    def delete(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """A DeleteObjects in which the denied keys are answered one by one, and the others by moto."""
        asked = ElementTree.fromstring(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))  # noqa: S314 - ours
        denied = [each for each in asked if each.tag == f"{{{S3}}}Object" and DENIED.search(text(each, "Key"))]
        for each in denied:
            asked.remove(each)
        answer = ElementTree.Element("DeleteResult", {"xmlns": S3})
        if any(each.tag == f"{{{S3}}}Object" for each in asked):
            answer = ElementTree.fromstring(self.answer(environ, ElementTree.tostring(asked, default_namespace=S3)))  # noqa: S314
        for each in denied:
            error = ElementTree.SubElement(answer, "Error")
            for name, said in (
                ("Key", text(each, "Key")),
                ("VersionId", text(each, "VersionId")),
                ("Code", "AccessDenied"),
                ("Message", "User: demo is not authorized to perform: s3:DeleteObjectVersion on this key"),
            ):
                ElementTree.SubElement(error, name).text = said
        body = ElementTree.tostring(answer)
        start_response("200 OK", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    def answer(self, environ: dict[str, Any], body: bytes) -> bytes:
        changed = environ | {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        return b"".join(self.moto(changed, lambda *_: None))


def text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(f"{{{S3}}}{name}") or ""


@contextmanager
def server() -> Iterator[str]:
    """On a free port of this machine, in threads of this process; yields the endpoint URL."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    made = make_server("127.0.0.1", 0, Store(DomainDispatcherApplication(create_backend_app)), threaded=True)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        with servers.credentials():
            yield f"http://127.0.0.1:{made.server_port}"
    finally:
        made.shutdown()
        thread.join(servers.STOP_SECONDS)
        made.server_close()
