"""The lines of a manifest: what a verdict becomes, in canonical bytes, and how a part's lines are appended."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple, Self

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


@dataclass(frozen=True, slots=True)
class Template:
    """The members of a line that are the same for every item of one revision, written out in canonical order.

    A line is put together from text, since it costs a third of encoding a tree of objects: its members are sorted, and
    every value that could need escaping goes through the canonical encoder.
    """

    tenant: str
    rule: Governing
    buckets: dict[int, str]
    middle: bytes
    end: bytes

    @classmethod
    def of(cls, tenant: str, rule: Governing, buckets: dict[int, str]) -> Self:
        middle = canonical.encode({"policy": rule.policy, "revision": rule.number})
        tail = canonical.encode({"cutoff": rule.cutoff, "holds": 0, "period": rule.period, "trigger": rule.trigger})
        return cls(
            tenant,
            rule,
            buckets,
            b",%s" % middle[1:-1],
            b'],"tenant":%s,"why":{"considered":%%s,%s,"trigger_at":"%%s"}}' % (canonical.encode(tenant), tail[1:-1]),
        )

    def item(self, row: Judged) -> Item:
        """The line of one eligible row. It says nothing of the run, so that a dry run and the run after it compare."""
        version = row.version
        assert row.since is not None
        assert row.trigger_at is not None
        since = canonical.printed_instant(row.since)
        key = command_key(
            tenant=self.tenant,
            asset=row.asset,
            bucket=self.buckets[version.bucket_id],
            key=version.key,
            version_id=version.version_id,
            incarnation=version.incarnation,
            policy=self.rule.policy,
            revision=self.rule.number,
        )
        targets = [self.target(b"delete_marker" if row.is_delete_marker else b"original", version)]
        targets += [self.target(b"derivative", derivative) for derivative in row.taken_along]
        size = version.size + sum(derivative.size for derivative in row.taken_along)
        line = b'{"asset":%s,"bytes":%d,"command_key":%s,"eligible_since":"%s"%s,"targets":[%s' % (
            canonical.encode(row.asset),
            size,
            canonical.encode(key),
            since.encode(),
            self.middle,
            b",".join(targets),
        ) + self.end % (canonical.encode(row.considered), canonical.printed_instant(row.trigger_at).encode())
        return Item(key, row.revision_id, version.id, since, len(targets), size, line, sha256(line).digest())

    def target(self, role: bytes, version: Exact) -> bytes:
        """One exact version that a command destroys."""
        bucket_id, key, version_id, incarnation, etag, size, stored_at, id = version
        return (
            b'{"bucket":%s,"etag":%s,"incarnation":"%s","key":%s,"object_version":%d,"role":"%s","size":%d,'
            b'"stored_at":"%s","version_id":%s}'
        ) % (
            canonical.encode(self.buckets[bucket_id]),
            canonical.encode(etag),
            incarnation.encode(),
            canonical.encode(key),
            id,
            role,
            size,
            canonical.printed_instant(stored_at).encode(),
            canonical.encode(version_id),
        )


def items_of(run: CleanupRun, rows: Sequence[Judged], rules: Sequence[Governing]) -> list[Item]:
    """The lines of eligible rows."""
    buckets = dict(Bucket.objects.values_list("pk", "name"))
    templates = {rule.revision_id: Template.of(run.tenant.code, rule, buckets) for rule in rules}
    return [templates[row.revision_id].item(row) for row in rows]


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
    statement = f"COPY ledger_manifestitem ({columns}, line, digest) FROM STDIN"
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(b"".join(rows))
