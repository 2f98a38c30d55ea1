"""Seal anew every secret that an older one of `ENCRYPTION_KEYS` sealed, so that all but the first can be taken away.

Secrets of endpoints that sign nothing any more stay as they are: without their key, nobody opens them again.
"""

from collections.abc import Callable, Iterator
from typing import Final

from allauth.mfa.models import Authenticator
from django.db import OperationalError, ProgrammingError, connection, models, transaction
from psycopg.errors import InsufficientPrivilege

from cleanup_project.base import audit, vault
from ledger.models import TenantSalt
from webhooks.models import EndpointSecret

FACTORS: Final = ("secret", "seed")  # members of an authenticator's data that are sealed

Resealed = Iterator[tuple[models.Model, int]]  # whose it is, and the number of its row


class ResealRefused(Exception):
    """All is as it was, unless the database went away at the very end. The message says what to do."""


def reseal() -> dict[str, int]:
    """All in one transaction, as the owner of the tables; returns how many of each kind were sealed anew.

    Run again, it changes nothing. Raises ResealRefused where a secret cannot be opened, where somebody is changing one at the
    moment, and where this role may not write them.
    """
    kinds: dict[str, Callable[[], Resealed]] = {
        "secrets of endpoints": endpoints,
        "salts of tenants": salts,
        "second factors": factors,
    }
    try:
        with transaction.atomic():
            return {kind: recorded(kind, resealed()) for kind, resealed in kinds.items()}
    except vault.VaultError as refusal:
        raise ResealRefused(f"{refusal} Nothing was changed. manage.py doctor says of which kind it is.") from refusal
    except OperationalError as refusal:
        # Of a COMMIT whose answer was lost nobody knows; what it sealed, the next run finds done.
        words = "It did not come to its end: somebody is changing a secret, or the database went away. Run it again"
        raise ResealRefused(f"{words}: what is sealed anew already stays so. {refusal}") from refusal
    except ProgrammingError as refusal:
        if not isinstance(refusal.__cause__, InsufficientPrivilege):
            raise
        raise ResealRefused(f"Run this as the owner of the tables, as manage.py migrate: {refusal}") from refusal


def recorded(kind: str, resealed: Resealed) -> int:
    number = 0
    for subject, row in resealed:
        after = {"kind": kind, "row": row, "key": vault.fingerprint()}
        audit.record(action="secret.resealed", subject=subject, by=None, after=after)
        number += 1
    return number


def anew(sealed: bytes) -> bytes:
    return vault.seal(vault.unseal(sealed))


def endpoints() -> Resealed:
    for each in (
        EndpointSecret.objects.live()
        .order_by("pk")
        .select_related("endpoint")
        .select_for_update(no_key=True, of=("self",))
    ):
        sealed = bytes(each.key_encrypted)
        if vault.is_aged(sealed):
            each.key_encrypted = anew(sealed)
            each.save(update_fields=["key_encrypted"])
            yield each.endpoint, each.pk


def salts() -> Resealed:
    """Append-only to everybody, for another salt would unmake every commitment of a tenant's receipts. These are the same."""
    kept = TenantSalt.objects.order_by("pk").select_related("tenant")
    aged = [each for each in kept if vault.is_aged(bytes(each.sealed))]
    if not aged:
        return
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_tenantsalt DISABLE TRIGGER append_only")
        for each in aged:
            each.sealed = anew(bytes(each.sealed))
            each.save(update_fields=["sealed"])
            yield each.tenant, each.pk
        connection.check_constraints()  # ALTER TABLE refuses while any waits for the end
        cursor.execute("ALTER TABLE ledger_tenantsalt ENABLE ALWAYS TRIGGER append_only")


def factors() -> Resealed:
    for each in (
        Authenticator.objects.order_by("pk").select_related("user").select_for_update(no_key=True, of=("self",))
    ):
        aged = [name for name in FACTORS if name in each.data and vault.is_aged(each.data[name].encode())]
        if aged:
            each.data |= {name: anew(each.data[name].encode()).decode() for name in aged}
            each.save(update_fields=["data"])
            yield each.user, each.pk
