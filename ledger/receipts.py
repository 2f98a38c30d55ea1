"""Receipts: what is gone, why, on whose authority, how it was done and how it was seen (docs/receipts.md).

A receipt names objects by keyed commitments: whoever knows bucket, key and version id, and is given the tenant's salt, can
check that a receipt speaks of that object; nobody can read the key out of it.
"""

import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring as quoted  # for what PostgreSQL has held: no NUL, no lone surrogates
from typing import Final

from django.db import connection

from cleanup_project.base import canonical, vault
from cleanup_project.base.arrays import array
from ledger.batch import Claimed, Target
from ledger.models import CleanupRun, TenantSalt
from ledger.outcomes import Verdict
from retention.models import PolicyRevision, Tenant

SCHEMA: Final = 1
METHOD: Final = "S3 deletion of exact versions; absence seen in a listing or by inspection"
TOOL: Final = "cleanup 0.1.0"
COPIES: Final = "Replicas, backups and copies outside of the named buckets are not covered by this receipt."
EVENT: Final = "media.deleted"


@dataclass(frozen=True, slots=True)
class Issued:
    """A receipt that is about to be written."""

    command: Claimed
    outcome: str
    event_id: str
    body: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Shared:
    """What many receipts have in common, as pieces of canonical JSON, each ready to stand in its place."""

    approval: str
    authority: str
    manifest: str
    policy: str


class Issuer:
    """Makes the receipts of one settlement; reads what they share once."""

    def __init__(
        self, tenant_id: int, at: datetime, worker: str, commands: Sequence[Claimed], buckets: Mapping[int, str]
    ):
        self.tenant = Tenant.objects.values_list("code", flat=True).get(pk=tenant_id)
        self.salt = salt(tenant_id)
        self.at, self.worker, self.buckets = canonical.instant(at), canonical.text(worker), buckets
        self.runs = {run.pk: run for run in CleanupRun.objects.select_related("authorised_by").filter(
            pk__in={each.run_id for each in commands})}  # fmt: skip
        self.revisions = {each.pk: each for each in PolicyRevision.objects.select_related("policy").filter(
            pk__in={each.revision_id for each in commands})}  # fmt: skip
        self.why = reasons([each.item_id for each in commands])
        self.known: dict[tuple[int, int], Shared] = {}

    def issue(self, verdict: Verdict, event_id: str) -> Issued:
        """One receipt, put together by hand in the order of its members: a tenth of the time of an encoder's."""
        command = verdict.command
        shared = self.shared(command)
        ordinal, digest, why = self.why[command.item_id]
        targets = ",".join(self.target(each) for each in command.targets)
        body = (
            f'{{"approval":{shared.approval},"asset":{quoted(command.asset)},"attempts":{command.attempts + 1},'
            f'"authority":{shared.authority},"command_key":{quoted(command.key)},"copies":"{COPIES}",'
            f'"cycle":{command.cycle},"event_id":"{event_id}","issued_at":"{self.at}",'
            f'"manifest":{{"item":"{digest}","ordinal":{ordinal},{shared.manifest}}},"method":"{METHOD}",'
            f'"outcome":"{verdict.outcome}","policy":{shared.policy},"schema":{SCHEMA},"targets":[{targets}],'
            f'"tenant":"{self.tenant}","tool":"{TOOL}","why":{why},"worker":{self.worker}}}'
        ).encode()
        return Issued(command, str(verdict.outcome), event_id, body, sha256(body).digest())

    def shared(self, command: Claimed) -> Shared:
        found = self.known.get((command.run_id, command.revision_id))
        if found is None:
            found = share(self.runs[command.run_id], self.revisions[command.revision_id])
            self.known[command.run_id, command.revision_id] = found
        return found

    def target(self, target: Target) -> str:
        seen = target.evidence or {}
        return (
            f'{{"after":{said(seen.get("after", {}))},"before":{said(seen.get("before", {}))},'
            f'"commitment":"{self.commitment(target)}","etag":{quoted(target.etag)},'
            f'"role":"{target.role}","size":{target.size},"stored_at":"{target.stored_at}"}}'
        )

    def commitment(self, target: Target) -> str:
        return commitment(self.salt, self.buckets[target.bucket_id], target.ref.key, target.ref.version_id)


def share(run: CleanupRun, revision: PolicyRevision) -> Shared:
    approval = {
        "at": canonical.instant(run.authorised_at) if run.authorised_at else None,
        "by": run.authorised_by.get_username() if run.authorised_by else None,
        "root": run.remaining_root,
        "words": run.authorisation,
    }
    policy = {"code": revision.policy.code, "revision": revision.number, "title": revision.title}
    return Shared(
        canonical.text(approval),
        canonical.text(revision.authority),
        f'"root":"{run.manifest_root}","run":{canonical.text(run.key)}',
        canonical.text(policy),
    )


def commitment(salt: bytes, bucket: str, key: str, version_id: str) -> str:
    """HMAC-SHA256 under the tenant's salt over bucket NUL key NUL version id, hex."""
    return hmac.digest(salt, f"{bucket}\x00{key}\x00{version_id}".encode(), "sha256").hex()


def said(evidence: Mapping[str, str]) -> str:
    """A look as canonical JSON: `at` and `method`, and the store's `request_id` where there is one."""
    return members(tuple(sorted(evidence.items())))


@lru_cache(maxsize=128)  # one listing is the evidence of a thousand
def members(evidence: tuple[tuple[str, str], ...]) -> str:
    return f"{{{','.join(f'{quoted(name)}:{quoted(value)}' for name, value in evidence)}}}"


def reasons(items: Sequence[int]) -> dict[int, tuple[int, str, str]]:
    """Of each manifest item: its ordinal, the digest of its line, and the line's `why`, as it stands there."""
    with connection.cursor() as cursor:
        # `why` is the last member of a line. Inside of a string its quotes would be escaped, so this finds nothing else.
        cursor.execute(
            "SELECT id, ordinal, encode(digest, 'hex'), left(split_part(line, ',\"why\":', 2), -1) FROM ledger_manifestitem "
            "WHERE id = ANY (%s::bigint[])",
            [array(items)],
        )
        return {row[0]: row[1:] for row in cursor.fetchall()}


def salt(tenant_id: int) -> bytes:
    """The tenant's salt; made when it is first needed, and never changed."""
    row = TenantSalt.objects.filter(pk=tenant_id).first()
    if row is None:
        TenantSalt.objects.bulk_create(
            [TenantSalt(tenant_id=tenant_id, sealed=vault.seal(secrets.token_bytes(32)))], ignore_conflicts=True
        )
        row = TenantSalt.objects.get(pk=tenant_id)
    return vault.unseal(bytes(row.sealed))
