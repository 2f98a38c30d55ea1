"""System checks of the ground that everything stands on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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


@register(Tags.security, deploy=True)
def second_factor(**_: Any) -> list[CheckMessage]:
    """base.E005: whoever decides what is destroyed shows more than a password."""
    if not settings.MFA_REQUIRED:
        return [
            Error(
                "MFA_REQUIRED is off: whoever knows one password may approve what is destroyed.",
                hint="Leave MFA_REQUIRED unset; it is off in the demo alone.",
                id="base.E005",
            )
        ]
    return []


@register(Tags.security)
def identity_provider(**_: Any) -> list[CheckMessage]:
    """base.E006: an identity provider is set up as a whole, and spoken to over TLS unless it is on this machine."""
    given = {name: bool(getattr(settings, name)) for name in ("OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET")}
    missing = [name for name, there in given.items() if not there]
    if any(given.values()) and missing:
        return [
            Error(
                f"An identity provider is set up in part: {', '.join(missing)} is not set.",
                hint="Set all of OIDC_ISSUER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET, or none.",
                id="base.E006",
            )
        ]
    address = urlsplit(settings.OIDC_ISSUER)
    if settings.OIDC_ISSUER and address.scheme != "https" and address.hostname not in {"localhost", "127.0.0.1", "::1"}:
        return [
            Error(
                f"OIDC_ISSUER must be an https address; it is {settings.OIDC_ISSUER}.",
                hint="What the provider says about people would come over a line that others can write to.",
                id="base.E006",
            )
        ]
    return []


@register(Tags.security, deploy=True)
def shared_attempts(**_: Any) -> list[CheckMessage]:
    """base.E007: attempts to sign in are counted for all web processes together."""
    backend = str(settings.CACHES["default"]["BACKEND"])
    if backend.rpartition(".")[2] in {"LocMemCache", "DummyCache"}:
        return [
            Error(
                f"The cache is {backend}: each web process would count failed attempts to sign in for itself.",
                hint="Use the database cache of these settings, or another one that all processes share.",
                id="base.E007",
            )
        ]
    return []


@register(Tags.security, deploy=True)
def collected_files(**_: Any) -> list[CheckMessage]:
    """base.E008: where files are to be collected, they are."""
    if settings.STATIC_ROOT and not (Path(settings.STATIC_ROOT) / "staticfiles.json").exists():
        return [
            Error(
                f"STATIC_ROOT is {settings.STATIC_ROOT}, and no files were collected there: no page can be shown.",
                hint="Run manage.py collectstatic with the same STATIC_ROOT, after each change of the code.",
                id="base.E008",
            )
        ]
    return []
