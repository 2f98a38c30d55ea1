"""A small world in which commands are executed: a store in memory, its catalogue, a policy under enforcement."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import md5
from typing import Any

from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import Max, QuerySet

from cleanup_project.base import clock, roles
from cleanup_project.base.models import User
from ledger import closing, manifest, publish, runs
from ledger.drain import Drained, drain
from ledger.models import CleanupCommand, CleanupRun
from retention.buckets import ref
from retention.models import Bucket, ObjectVersion, PolicyRevision, Tenant
from retention.storage import BucketRef, ObjectStore, VersionRef
from retention.storage.memory import MemoryStore
from tests.webhooks.world import endpoint
from tests.world import EPOCH, enforced, published, version
from webhooks.models import Endpoint


@dataclass
class Acting:
    """Everything that a test of the ledger needs; `stores` is what `drain` takes."""

    store: Any
    tenant: Tenant
    bucket: Bucket
    revision: PolicyRevision
    people: dict[str, User]
    versions: dict[str, list[ObjectVersion]] = field(default_factory=dict)

    @property
    def place(self) -> BucketRef:
        return ref(self.bucket)

    def stores(self, bucket: BucketRef) -> ObjectStore:
        return self.store

    def put(self, key: str, body: bytes = b"x", **fields: Any) -> ObjectVersion:
        """Store one object and catalogue it as a listing of a moment ago would have."""
        name = self.store.put(self.place, key, body)
        self.versions.setdefault(key, [])
        for earlier in self.versions[key]:
            ObjectVersion.objects.filter(pk=earlier.pk).update(is_latest=False)
        row = version(
            self.bucket,
            self.tenant,
            key,
            version_id=name.version_id,
            etag=md5(body, usedforsecurity=False).hexdigest(),
            size=len(body),
            listed_at=clock.now(),
            **fields,
        )
        self.versions[key].append(row)
        return row

    def fill(self, keys: Sequence[str]) -> QuerySet[ObjectVersion]:
        """Store and catalogue many objects of one byte, each of them the only one of its key; returns their rows."""
        names = [self.store.put(self.place, key, b"x") for key in keys]
        last = ObjectVersion.objects.aggregate(last=Max("pk"))["last"] or 0
        with connection.cursor() as cursor:
            cursor.execute(
                """
                INSERT INTO retention_objectversion (
                    bucket_id, tenant_id, key, version_id, incarnation, etag, size, stored_at, storage_class, is_latest,
                    is_delete_marker, asset, series, retention_class, role, original_key, original_version_id, standalone,
                    source, first_observed_at, observed_at, listed_at, gone_reason
                )
                SELECT %s, %s, key, version_id, '', md5('x'), 1, at, '', true, false, key, key, '', 'original', '', '', true,
                    'listing', at, at, statement_timestamp(), ''
                FROM unnest(%s::text[], %s::text[]) AS u (key, version_id), (SELECT %s::timestamptz AS at) t
                """,
                [
                    self.bucket.pk,
                    self.tenant.pk,
                    [name.key for name in names],
                    [name.version_id for name in names],
                    EPOCH,
                ],
            )
        return ObjectVersion.objects.filter(pk__gt=last).order_by("pk")

    def run(self) -> CleanupRun:
        """An enforcing run, sealed and authorised, with its commands published."""
        run, _new = runs.open_run(policy=self.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
        run = manifest.freeze(run)
        publish.publish(run.pk)
        run.refresh_from_db()
        return run

    def drain(self, **options: Any) -> Drained:
        return drain(self.bucket.pk, stores=self.stores, **options)

    def due_now(self) -> None:
        """Let time pass: everything that waits is due."""
        CleanupCommand.objects.filter(state="ready").update(due_at=EPOCH)

    def leases_expire(self) -> None:
        """Let time pass: whoever has a lease has lost it, and what its requests did is settled at the store."""
        CleanupCommand.objects.filter(lease_until__isnull=False).update(lease_until=EPOCH)

    def settled(self) -> None:
        closing.notify()
        closing.close_drained()

    def subscribe(self, name: str = "receiver", event_types: Sequence[str] = ("*",)) -> Endpoint:
        """An endpoint for events of the tenant; nothing is sent to it by itself."""
        url = f"https://{name}.example/hook"
        by = self.people["operator"]
        return endpoint(by, url, tenant=self.tenant.code, name=name, event_types=list(event_types))[0]

    def story(self, key: str) -> list[str]:
        """What the attempts tell of a command, in order; of results that came too late, with a word before."""
        tries = self.command(key).tries.order_by("token", "late")
        return [f"late {each.outcome}" if each.late else str(each.outcome) for each in tries]

    def command(self, key: str) -> CleanupCommand:
        (found,) = CleanupCommand.objects.filter(targets__key=key).distinct()
        return found

    def there(self, row: ObjectVersion) -> bool:
        name = VersionRef(row.key, row.version_id)
        return str(self.store.inspect(self.place, [name])[name].state) != "gone"


def people() -> dict[str, User]:
    made = {}
    for name, role in (
        ("manager", roles.RETENTION_MANAGER),
        ("manager2", roles.RETENTION_MANAGER),
        ("compliance", roles.COMPLIANCE),
        ("compliance2", roles.COMPLIANCE),
        ("operator", roles.OPERATOR),
    ):
        made[name] = User.objects.create_user(name, is_staff=True)
        made[name].groups.add(Group.objects.get(name=role))
    return made


def build(store: Any = None, **revision: Any) -> Acting:
    """The world; keyword arguments are fields of the policy's revision. No share is too much: most tests destroy all."""
    cast = people()
    tenant = Tenant.objects.create(code="acme", name="Acme Media")
    bucket = Bucket.objects.create(name="media", keys_per_second=1_000_000)
    store = store or MemoryStore()
    if isinstance(store, MemoryStore):
        store.create_bucket(ref(bucket))
    fields: dict[str, Any] = {
        "authorisation": PolicyRevision.Authorisation.STANDING,
        "cap_share_percent": 100,
        **revision,
    }
    made = published(tenant, bucket, author=cast["manager"], publisher=cast["manager2"], code="originals", **fields)
    enforced(tenant, bucket, "", by=cast["manager"], approver=cast["manager2"])
    return Acting(store, tenant, bucket, made, cast)


__all__ = ["EPOCH", "Acting", "build"]
