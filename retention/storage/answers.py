"""Accounting for the answer of DeleteObjects: every version asked for finds its own line, or is in doubt.

Not by order (some stores shuffle) and not by absence of errors (an empty answer, or a proxy's HTML page, parses to
nothing). Sources: AWS, DeleteObjects; answers recorded from AWS, moto, SeaweedFS and Ceph RGW.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from retention.storage.failures import Failure, FailureClass, classify
from retention.storage.port import VersionRef

UNACCOUNTED: Final = "Unaccounted"
Verdict = Failure | None
"""None: reported as deleted."""


def account(refs: Iterable[VersionRef], answer: Mapping[str, Any]) -> dict[VersionRef, Verdict]:
    """What `answer` (Deleted[], Errors[]) says of each ref; unaccounted or contradictory refs are ambiguous."""
    open_refs = set(refs)
    said: dict[VersionRef, list[Verdict]] = defaultdict(list)
    nameless: list[tuple[str, Verdict]] = []
    for key, version_id, verdict in _lines(answer):
        ref = VersionRef(key, version_id)
        if ref in open_refs:
            said[ref].append(verdict)
        elif not version_id:
            nameless.append((key, verdict))
    _assign_nameless(open_refs - said.keys(), nameless, said)
    return {ref: _single(said.get(ref, [])) for ref in open_refs}


def unaccounted(message: str) -> Failure:
    """The store answered, but not about this version: it may be gone."""
    return Failure.of(FailureClass.TRANSIENT, UNACCOUNTED, message, ambiguous=True)


def _lines(answer: Mapping[str, Any]) -> Iterable[tuple[str, str, Verdict]]:
    for item in answer.get("Deleted", ()):
        # SeaweedFS names a removed delete marker only by DeleteMarkerVersionId. A store that wrote a *new* marker
        # instead of deleting gives a foreign id there, which matches nothing.
        yield item.get("Key", ""), item.get("VersionId") or item.get("DeleteMarkerVersionId", ""), None
    for item in answer.get("Errors", ()):
        failure = classify(item.get("Code", ""), item.get("Message", ""), per_key=True)
        yield item.get("Key", ""), item.get("VersionId", ""), failure


def _assign_nameless(
    waiting: Iterable[VersionRef], nameless: Sequence[tuple[str, Verdict]], said: dict[VersionRef, list[Verdict]]
) -> None:
    """Lines without a version id (moto's errors, 'null' versions): used where no mistake is possible.

    That is when a key has as many such lines as versions still waiting, and all of them say the same.
    """
    refs_by_key: dict[str, list[VersionRef]] = defaultdict(list)
    for ref in waiting:
        refs_by_key[ref.key].append(ref)
    lines = Counter(nameless)
    for (key, verdict), count in lines.items():
        if len(refs_by_key[key]) == count and sum(n for (other, _), n in lines.items() if other == key) == count:
            for ref in refs_by_key[key]:
                said[ref].append(verdict)


def _single(verdicts: list[Verdict]) -> Verdict:
    distinct = set(verdicts)
    if not distinct:
        return unaccounted("the answer does not mention this version")
    if len(distinct) > 1:
        return unaccounted("the answer contradicts itself about this version")
    return distinct.pop()
