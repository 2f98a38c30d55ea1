"""Deleting exact versions: batches, what to do with each answer, and one outcome for every version.

Requests go in waves, several side by side: a store works through one batch key by key, and one key at a time where it
takes no batches. A batch that is refused as malformed is halved until the culprit stands alone. After a throttled one,
requests are halved and go one by one, and only what failed is sent again. Whatever was once in doubt stays in doubt,
unless a later answer acknowledges it.

Sources: AWS, DeleteObjects, DeleteObject; XML 1.0, production 2 (Char).
"""

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, pairwise
from math import ceil
from typing import Final

from retention.storage.answers import Verdict, account, unaccounted
from retention.storage.client import DEADLINE_CODE, Ask, Reply
from retention.storage.failures import Failure, FailureClass, Scope
from retention.storage.inspecting import PARALLEL, in_parallel, lock_state
from retention.storage.port import STOPPED_CODE, DeleteOutcome, LockState, VersionRef

BATCH: Final = 125  # keys of one request; AWS would take 1,000
WAVE: Final = PARALLEL  # requests side by side
MAX_THROTTLES: Final = 5
_PAUSE: Final = 0.1  # seconds after the first throttled answer; doubles
_NO_BATCHES: Final = frozenset({"NotImplemented", "MissingContentMD5", "MethodNotAllowed"})

# Characters that XML 1.0 cannot carry, and \r, which several stores read or answer as \n. Such keys travel in the URL
# of a DeleteObject: in a batch, the first kind has the whole request refused.
_NOT_FOR_XML: Final = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Deletion:
    """One call of `delete_versions`."""

    def __init__(self, ask: Ask, refs: Sequence[VersionRef], until: float, proceed: Callable[[], bool]) -> None:
        self._ask, self._until, self._proceed = ask, until, proceed
        self._outcomes: dict[VersionRef, DeleteOutcome] = {}
        self._size, self._abreast, self._throttles = max(1, min(BATCH, len(refs))), WAVE, 0
        self._halted: Failure | None = None
        batch = [ref for ref in refs if not _NOT_FOR_XML.search(ref.key)]
        # What each request names, in their order; one version alone is a DeleteObject.
        self._todo: deque[Sequence[VersionRef]] = deque([ref] for ref in refs if _NOT_FOR_XML.search(ref.key))
        self._put_back(batch)

    def run(self) -> dict[VersionRef, DeleteOutcome]:
        while self._todo:
            if self._halted is None and time.monotonic() >= self._until:
                self._halted = Failure.of(FailureClass.TRANSIENT, DEADLINE_CODE, "not sent in time")
            if self._halted is None and not self._proceed():
                self._halted = Failure.of(FailureClass.TRANSIENT, STOPPED_CODE, "not sent: no longer allowed")
            if self._halted is not None:
                self._leave_the_rest(self._halted)
            else:
                self._send_wave()
        self._tell_denials_apart()
        return self._outcomes

    def _put_back(self, refs: Sequence[VersionRef]) -> None:
        """Queue at the front, in pieces of at most the present size, all about as large: a rest of one would be no batch."""
        number = ceil(len(refs) / self._size)
        ends = [len(refs) * part // number for part in range(number + 1)] if refs else []
        self._todo.extendleft(reversed([refs[start:end] for start, end in pairwise(ends)]))

    def _next_wave(self) -> list[Sequence[VersionRef]]:
        """Batches, or single versions: whether a denied one is a matter of the bucket, batches tell."""
        wave = list[Sequence[VersionRef]]()
        while self._todo and len(wave) < self._abreast:
            if len(self._todo[0]) > self._size:  # it was queued before the size was halved
                self._put_back(self._todo.popleft())
            elif wave and (len(wave[0]) == 1) != (len(self._todo[0]) == 1):
                break
            else:
                wave.append(self._todo.popleft())
        return wave

    def _send_wave(self) -> None:
        wave = self._next_wave()
        throttled, pauses = list[VersionRef](), list[float]()
        for piece, reply in zip(wave, in_parallel(self._send, wave), strict=True):
            if reply.failure is not None:
                again = self._refused(piece, reply, reply.failure)
            elif len(piece) == 1:
                again = self._settle_items({piece[0]: _verdict_of_single(piece[0], reply)}, reply)
            else:
                again = self._settle_items(account(piece, reply.data), reply)
            throttled += again
            if again and reply.failure is not None and reply.failure.retry_after is not None:
                pauses.append(reply.failure.retry_after)
        if throttled:
            self._slow_down(throttled, max(pauses, default=None))

    def _send(self, piece: Sequence[VersionRef]) -> Reply:
        if len(piece) == 1:
            return self._ask("delete_object", self._until, Key=piece[0].key, VersionId=piece[0].version_id)
        items = [{"Key": ref.key, "VersionId": ref.version_id} for ref in piece]
        return self._ask("delete_objects", self._until, Delete={"Objects": items, "Quiet": False})

    def _settle_items(self, verdicts: dict[VersionRef, Verdict], reply: Reply) -> list[VersionRef]:
        """What a request that was answered says of each of its versions; returns those that were throttled."""
        throttled = list[VersionRef]()
        for ref, verdict in verdicts.items():
            self._settle(ref, verdict, reply)
            if verdict is None:
                continue
            if verdict.kind is FailureClass.THROTTLED:
                throttled.append(ref)
            elif verdict.kind is FailureClass.MALFORMED_REQUEST and len(verdicts) > 1:
                self._todo.append([ref])
        return throttled

    def _refused(self, refs: Sequence[VersionRef], reply: Reply, failure: Failure) -> Sequence[VersionRef]:
        """The request failed as a whole; returns what of it was throttled: all, or nothing."""
        if failure.kind is FailureClass.MALFORMED_REQUEST and len(refs) > 1:
            self._isolate(refs, reply, failure)
            return ()
        if failure.kind is FailureClass.PERMISSION and len(refs) > 1:
            failure = replace(failure, scope=Scope.BUCKET)  # locks are answered key by key, by every store measured
        for ref in refs:
            self._settle(ref, failure, reply)
        if failure.kind is FailureClass.THROTTLED:
            return refs
        beyond = failure.scope in (Scope.WORKER, Scope.BUCKET) or (
            failure.kind is FailureClass.TRANSIENT and not reply.sent
        )
        # What is wrong with us explains the rest.
        if beyond and (self._halted is None or failure.scope is Scope.WORKER):
            self._halted = replace(failure, ambiguous=False)
        return ()

    def _isolate(self, batch: Sequence[VersionRef], reply: Reply, failure: Failure) -> None:
        """Nothing was executed, for a store parses a batch before it starts; but one item has spoilt it for all."""
        for ref in batch:
            self._settle(ref, failure, reply)
        if failure.code in _NO_BATCHES or failure.http_status == 501:
            self._todo.extend([ref] for ref in batch)
            return
        half = len(batch) // 2
        for part in (batch[half:], batch[:half]):
            self._put_back(part)

    def _slow_down(self, refs: Sequence[VersionRef], retry_after: float | None) -> None:
        self._throttles += 1
        pause = retry_after if retry_after is not None else _PAUSE * 2 ** (self._throttles - 1)
        if self._halted is None and (self._throttles > MAX_THROTTLES or time.monotonic() + pause >= self._until):
            self._halted = Failure.of(FailureClass.THROTTLED, "SlowDown", "not sent: throttled")
        if self._halted is None:
            time.sleep(pause)
            self._size, self._abreast = max(1, self._size // 2), 1
            self._put_back(refs)

    def _leave_the_rest(self, failure: Failure) -> None:
        for ref in chain.from_iterable(self._todo):
            before = self._outcomes.get(ref)
            if before is None or before.failure is None or before.failure.kind is FailureClass.MALFORMED_REQUEST:
                self._fail(ref, failure, sent=False)
        self._todo.clear()

    def _settle(self, ref: VersionRef, verdict: Verdict, reply: Reply) -> None:
        if verdict is None:
            self._outcomes[ref] = DeleteOutcome.acknowledge(reply.request_id)
        else:
            self._fail(ref, verdict, sent=reply.sent, request_id=reply.request_id)

    def _fail(self, ref: VersionRef, failure: Failure, *, sent: bool, request_id: str = "") -> None:
        before = self._outcomes.get(ref)
        in_doubt = before is not None and before.failure is not None and before.failure.ambiguous
        self._outcomes[ref] = DeleteOutcome.failed(
            replace(failure, ambiguous=failure.ambiguous or in_doubt),
            sent=sent or (before is not None and before.sent),
            request_id=request_id,
        )

    def _tell_denials_apart(self) -> None:
        """AccessDenied may mean retention, a legal hold or a missing permission; not every store says which."""
        denied = [
            (ref, outcome.failure)
            for ref, outcome in self._outcomes.items()
            if outcome.failure is not None
            and outcome.failure.kind is FailureClass.PERMISSION
            and outcome.failure.scope is Scope.OBJECT
        ]
        locks = in_parallel(partial(lock_state, self._ask, until=self._until), [ref for ref, _ in denied])
        for (ref, failure), lock in zip(denied, locks, strict=True):
            self._outcomes[ref] = replace(self._outcomes[ref], failure=explain_denial(failure, lock), lock=lock)


def explain_denial(failure: Failure, lock: LockState) -> Failure:
    """The same failure as LEGAL_HOLD, LOCKED or PERMISSION, by the lock that was read and by what the store said."""
    if lock.legal_hold:
        return replace(failure, kind=FailureClass.LEGAL_HOLD)
    retained = lock.retain_until is not None and lock.retain_until > datetime.now(UTC)
    if retained or "object lock" in failure.message.lower():
        return replace(failure, kind=FailureClass.LOCKED)
    return failure


def _verdict_of_single(ref: VersionRef, reply: Reply) -> Verdict:
    """Success is 204 and, where an id is given, ours. A proxy's page is 200; a new marker has an id of its own."""
    if reply.status == 204 and reply.data.get("VersionId", ref.version_id) == ref.version_id:
        return None
    return unaccounted(f"DeleteObject was answered with {reply.status} for version {reply.data.get('VersionId')!r}")
