"""The lines of a manifest: what a verdict becomes, in canonical bytes, and how a part's lines are appended."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from django.db import connection

from cleanup_project.base import canonical
from ledger.keys import command_key
from ledger.models import CleanupRun, ManifestPart
from retention.governing import Governing
from retention.models import Bucket
from retention.scan import Exact, Judged


class Item(NamedTuple):
    """A line of the manifest, ready to be written."""

    command_key: str
    revision_id: int
    object_version_id: int
    eligible_since: str
    target_count: int
    size: int
    line: bytes
    digest: bytes


def items_of(run: CleanupRun, rows: Sequence[Judged], rules: Sequence[Governing]) -> Iterator[Item]:
    """The lines of eligible rows. A line says nothing of the run, so that a dry run and the run after it compare."""
    by_revision = {rule.revision_id: rule for rule in rules}
    buckets = dict(Bucket.objects.values_list("pk", "name"))
    tenant = run.tenant.code
    for row in rows:
        rule, version = by_revision[row.revision_id], row.version
        assert row.since is not None
        key = command_key(
            tenant=tenant,
            asset=row.asset,
            bucket=buckets[version.bucket_id],
            key=version.key,
            version_id=version.version_id,
            incarnation=version.incarnation,
            policy=rule.policy,
            revision=rule.number,
        )
        targets = [target(buckets, "delete_marker" if row.is_delete_marker else "original", version)]
        targets += [target(buckets, "derivative", derivative) for derivative in row.taken_along]
        size = version.size + sum(derivative.size for derivative in row.taken_along)
        line = canonical.encode(
            {
                "asset": row.asset,
                "bytes": size,
                "command_key": key,
                "eligible_since": row.since,
                "policy": rule.policy,
                "revision": rule.number,
                "targets": targets,
                "tenant": tenant,
                "why": {
                    "considered": row.considered,
                    "cutoff": rule.cutoff,
                    "holds": 0,
                    "period": rule.period,
                    "trigger": rule.trigger,
                    "trigger_at": row.trigger_at,
                },
            }
        )
        yield Item(key, row.revision_id, version.id, row.since, len(targets), size, line, sha256(line).digest())


def target(buckets: dict[int, str], role: str, version: Exact) -> dict[str, Any]:
    """One exact version that a command destroys."""
    bucket_id, key, version_id, incarnation, etag, size, stored_at, id = version
    return {
        "bucket": buckets[bucket_id],
        "etag": etag,
        "incarnation": incarnation,
        "key": key,
        "object_version": id,
        "role": role,
        "size": size,
        "stored_at": stored_at,
        "version_id": version_id,
    }


def write(run: CleanupRun, part: ManifestPart, ordinal: int, items: Sequence[Item]) -> None:
    """Append the items of a part after `ordinal`.

    By COPY, in its text format; psycopg's own took three times as long. Command keys and canonical JSON hold no raw tab
    or newline, so the backslash is all that must be escaped.
    """
    columns = (
        "run_id, part_id, ordinal, command_key, revision_id, object_version_id, eligible_since, target_count, bytes"
    )
    rows = [
        b"%d\t%d\t%d\t%s\t%d\t%d\t%s\t%d\t%d\t%s\t\\\\x%s\n"
        % (
            run.pk,
            part.pk,
            number,
            item.command_key.replace("\\", "\\\\").encode(),
            item.revision_id,
            item.object_version_id,
            item.eligible_since.encode(),
            item.target_count,
            item.size,
            item.line.replace(b"\\", b"\\\\"),
            item.digest.hex().encode(),
        )
        for number, item in enumerate(items, ordinal + 1)
    ]
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY ledger_manifestitem ({columns}, line, digest) FROM STDIN") as copy:
            copy.write(b"".join(rows))
