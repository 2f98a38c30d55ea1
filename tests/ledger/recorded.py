"""An object store in a folder that deletes as the S3 adapter does, request by request, and writes down each of them."""

import time
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from cleanup_project.base import clock
from retention.storage import BucketRef, DeleteOutcome, Failure, FailureClass, VersionRef
from retention.storage.client import Reply
from retention.storage.deletes import Deletion
from tests.ledger.folder import FolderStore

SLOW_DOWN = Failure.of(FailureClass.THROTTLED, "SlowDown", "slower, please", ambiguous=True)


class RecordedStore(FolderStore):
    """`reading`, `sending` and `sent` are called before each control read, behind it, and behind the request.

    The first `throttled` requests are refused as a whole, so that the adapter halves them.
    """

    throttled = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.reading = self.sending = self.sent = _nothing

    def delete_versions(
        self,
        bucket: BucketRef,
        refs: Collection[VersionRef],
        *,
        deadline_seconds: float,
        proceed: Callable[[], bool] = lambda: True,
    ) -> dict[VersionRef, DeleteOutcome]:
        read_at = clock.now()

        def allowed() -> bool:
            nonlocal read_at
            self.reading()
            read_at = clock.now()
            return proceed()

        def ask(operation: str, until: float, **said: Any) -> Reply:
            named = said["Delete"]["Objects"] if operation == "delete_objects" else [said]
            return self.answer(bucket, [VersionRef(each["Key"], each["VersionId"]) for each in named], read_at)

        return Deletion(ask, list(refs), time.monotonic() + deadline_seconds, allowed).run()

    def answer(self, bucket: BucketRef, refs: list[VersionRef], read_at: datetime) -> Reply:
        self.sending()
        with self.log.open("a") as log:
            log.write("".join(f"{read_at.isoformat()} {quote(ref.key, safe='')}\n" for ref in refs))
        if self.throttled:
            self.throttled -= 1
            return Reply({}, 503, "", "", True, SLOW_DOWN)
        for ref in refs:
            self.path(bucket, ref).unlink(missing_ok=True)
        self.sent()
        gone = [{"Key": ref.key, "VersionId": ref.version_id} for ref in refs]
        return Reply({"Deleted": gone}, 200 if len(refs) > 1 else 204, "", "", True)

    def keys_sent(self) -> list[tuple[datetime, str]]:
        """Every key that a request named, by whichever process, and when the control read before it began."""
        lines = (line.split() for line in self.log.read_text().splitlines())
        return [(datetime.fromisoformat(at), unquote(key)) for at, key in lines]


def _nothing() -> None: ...
