"""System checks of the ground that everything stands on."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections

# Each promise rests on these: claims re-check rows as READ COMMITTED does, and a commit that was answered survives.
REQUIRED = {"transaction_isolation": "read committed", "synchronous_commit": "on", "TimeZone": "UTC"}


@register(Tags.database)
def database_promises(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """base.E001: PostgreSQL is 15 or later. base.E002: isolation, durability and time zone are as the ledger needs."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        connection = connections[alias]
        connection.ensure_connection()
        if connection.pg_version < 150000:  # type: ignore[attr-defined]
            found.append(
                Error(
                    f"PostgreSQL 15 or later is needed; this server is {connection.pg_version}.",  # type: ignore[attr-defined]
                    hint="Point DATABASE_URL at a newer server.",
                    id="base.E001",
                )
            )
        with connection.cursor() as cursor:
            for name, wanted in REQUIRED.items():
                cursor.execute("SELECT current_setting(%s)", [name])
                value = cursor.fetchone()[0]
                if value != wanted:
                    found.append(
                        Error(
                            f"The database session has {name} = {value!r}; {wanted!r} is needed.",
                            hint=f"ALTER ROLE … SET {name} = '{wanted}'.",
                            id="base.E002",
                        )
                    )
    return found


@register(Tags.security, deploy=True)
def real_database(**_: Any) -> list[CheckMessage]:
    """base.E003: the embedded server trusts every local user, so it is for the demo and for tests."""
    if settings.EMBEDDED_DATABASE:
        return [
            Error(
                "DATABASE_URL is not set: the embedded PostgreSQL is for the demo and for tests.",
                hint="Set DATABASE_URL=postgresql://user:password@host:5432/name.",
                id="base.E003",
            )
        ]
    return []


@register(Tags.security, deploy=True)
def own_encryption_keys(**_: Any) -> list[CheckMessage]:
    """base.E004: secrets in the database hang on SECRET_KEY, which is changed for reasons of its own."""
    if not settings.ENCRYPTION_KEYS:
        return [
            Error(
                "ENCRYPTION_KEYS is not set: the key that seals secrets in the database is derived from SECRET_KEY.",
                hint="Set ENCRYPTION_KEYS; .env.example says how to make a key.",
                id="base.E004",
            )
        ]
    return []
