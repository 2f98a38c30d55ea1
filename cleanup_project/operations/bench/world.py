"""Large catalogues, made inside the database."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models.functions import Now

from cleanup_project.base import roles
from cleanup_project.base.models import User
from retention import policies, preview
from retention.models import Bucket, CatalogueSync, KeyRule, LegalHold, ObjectVersion, PolicyRevision, Tenant

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)


def people() -> tuple[User, User]:
    """Two retention managers, so that one can publish what the other drafted."""
    from django.contrib.auth.models import Group

    group = Group.objects.get(name=roles.RETENTION_MANAGER)
    pair = (User.objects.create(username="bench-author"), User.objects.create(username="bench-publisher"))
    for person in pair:
        person.groups.add(group)
    return pair


def policy(tenant: Tenant, bucket: Bucket, code: str, prefix: str, *, standing: bool = False) -> PolicyRevision:
    """A published 30-day policy over one prefix of one bucket."""
    author, publisher = User.objects.filter(username__startswith="bench-").order_by("pk")
    created = policies.create(tenant=tenant, code=code, by=author)
    revision = policies.draft(
        policy=created,
        by=author,
        title="Benchmark",
        authority="Benchmark",
        bucket_ids=[bucket.pk],
        prefixes=[prefix],
        retention_classes=["*"],
        trigger=PolicyRevision.Trigger.STORED_AT,
        period_number=30,
        period_unit=PolicyRevision.Unit.DAYS,
        retroactive=True,
        authorisation=PolicyRevision.Authorisation.STANDING if standing else PolicyRevision.Authorisation.APPROVAL,
        cap_objects=1_000_000_000,
        cap_bytes=1 << 60,
        cap_share_percent=100,
        effective_from=EPOCH,
    )
    policies.submit(revision=revision, by=author)
    while not preview.count_slice(preview.request(revision=revision, by=author).pk, budget_seconds=60):
        pass
    return policies.publish(revision=revision, by=publisher, reason="Benchmark")


def key_rule(bucket: Bucket, tenant: Tenant) -> None:
    """Everything under media/ is an original of the tenant's."""
    KeyRule.objects.create(
        bucket=bucket, position=1, pattern="media/{_}/{asset}.mp4", tenant=tenant, retention_class="video"
    )


def listed(bucket: Bucket) -> None:
    """As if its catalogue had just been brought up to date."""
    CatalogueSync.objects.create(bucket=bucket, finished_at=Now())


def add_originals(
    tenant: Tenant,
    bucket: Bucket,
    *,
    first: int,
    last: int,
    stored_at: str,
    prefix: str = "media/",
    parked_by: LegalHold | None = None,
    listed_at: str = "NULL",
) -> None:
    """Originals number `first` to `last`; `stored_at` and `listed_at` are SQL expressions over the number `n`."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO retention_objectversion (
                bucket_id, tenant_id, key, version_id, incarnation, etag, size, stored_at, storage_class, is_latest,
                is_delete_marker, asset, series, retention_class, role, original_key, original_version_id, standalone,
                source, first_observed_at, observed_at, listed_at, gone_reason, parked_by_id
            )
            SELECT %(bucket)s, %(tenant)s, %(prefix)s || lpad((n * 7919 %% 100003)::text, 6, '0') || '/' || n || '.mp4',
                md5(n::text), '', md5('e' || n), 1048576, {stored_at}, 'STANDARD', true,
                false, 'asset-' || n, 'asset-' || n, 'video', 'original', '', '', true,
                'listing', %(observed)s, %(observed)s, coalesce({listed_at}, %(observed)s), '', %(hold)s
            FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
            """,  # noqa: S608 - the expression is ours
            {
                "bucket": bucket.pk,
                "tenant": tenant.pk,
                "prefix": prefix,
                "observed": EPOCH,
                "first": first,
                "last": last,
                "hold": parked_by.pk if parked_by else None,
            },
        )


def add_thumbnails(bucket: Bucket, *, each: int, last: int) -> None:
    """One thumbnail for every `each`-th of the first `last` originals, stored a minute later."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO retention_objectversion (
                bucket_id, tenant_id, key, version_id, incarnation, etag, size, stored_at, storage_class, is_latest,
                is_delete_marker, asset, series, retention_class, role, original_key, original_bucket_id,
                original_version_id, standalone, source, first_observed_at, observed_at, listed_at, gone_reason
            )
            SELECT bucket_id, tenant_id, 'thumbs/' || key, version_id, '', etag, 2048, stored_at + interval '1 minute',
                'STANDARD', true, false, asset, series, '', 'derivative', key, bucket_id, '', false,
                'listing', first_observed_at, observed_at, listed_at, ''
            FROM retention_objectversion
            WHERE bucket_id = %s AND role = 'original' AND id %% %s = 0
                AND id <= (SELECT min(id) + %s FROM retention_objectversion)
            """,
            [bucket.pk, each, last],
        )


@contextmanager
def filling(table: str = ObjectVersion._meta.db_table) -> Iterator[None]:
    """While a table is filled: no index but the primary key, no guard, and no check of each row's references."""
    with connection.cursor() as cursor:
        unique = names(
            cursor,
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE conrelid = %s::regclass AND contype = 'u'",
            table,
        )
        for name, _definition in unique:
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        indexes = names(
            cursor,
            "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index"
            " WHERE indrelid = %s::regclass AND NOT indisprimary",
            table,
        )
        for name, _definition in indexes:
            cursor.execute(f"DROP INDEX {name}")
        guards = names(
            cursor,
            "SELECT tgname, '' FROM pg_trigger WHERE tgrelid = %s::regclass AND tgenabled = 'A' AND NOT tgisinternal",
            table,
        )
        for name, _ in guards:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {name}")
        cursor.execute("SET session_replication_role = replica")
        yield
        cursor.execute("SET session_replication_role = origin")
        for name, _ in guards:
            cursor.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}")
        for _name, definition in indexes:
            cursor.execute(definition)
        for name, definition in unique:
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")


def names(cursor: CursorWrapper, sql: str, table: str) -> list[tuple[str, str]]:
    cursor.execute(sql, [table])
    return list(cursor.fetchall())


def settle() -> None:
    """Bring statistics and the visibility map up to date, as autovacuum would have, and write out what the filling left."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE retention_objectversion")
        cursor.execute("CHECKPOINT")
    os.sync()
