"""Seal anew every secret that an older one of `ENCRYPTION_KEYS` sealed, so that all but the first can be taken away.

Secrets of endpoints that sign nothing any more stay as they are: without their key, nobody opens them again.
"""

from collections.abc import Callable, Iterable
from typing import Final

from allauth.mfa.models import Authenticator
from django.db import ProgrammingError, connection, models, transaction

from cleanup_project.base import audit, vault
from ledger.models import TenantSalt
from webhooks.models import EndpointSecret

FACTORS: Final = ("secret", "seed")  # members of an authenticator's data that are sealed


class ResealRefused(Exception):
    """Nothing was changed. The message says what to do."""


def reseal() -> dict[str, int]:
    """All in one transaction, as the owner of the tables; returns how many of each kind were sealed anew.

    Run again, it changes nothing. Raises ResealRefused where a secret cannot be opened, or this role may not write them.
    """
    kinds: dict[str, Callable[[], Iterable[models.Model]]] = {
        "secrets of endpoints": endpoints,
        "salts of tenants": salts,
        "second factors": factors,
    }
    done = dict[str, int]()
    try:
        with transaction.atomic():
            for kind, resealed in kinds.items():
                subjects = list(resealed())
                audit.record_each(action="secret.resealed", subjects=subjects, by=None, after={"kind": kind})
                done[kind] = len(subjects)
    except vault.VaultError as refusal:
        raise ResealRefused(f"{refusal} Nothing was changed. manage.py doctor says of which kind it is.") from refusal
    except ProgrammingError as refusal:
        raise ResealRefused(f"Run this as the owner of the tables, as manage.py migrate: {refusal}") from refusal
    return done


def anew(sealed: bytes) -> bytes:
    return vault.seal(vault.unseal(sealed))


def endpoints() -> Iterable[models.Model]:
    for each in EndpointSecret.objects.live().order_by("pk").select_related("endpoint").select_for_update(of=("self",)):
        sealed = bytes(each.key_encrypted)
        if vault.is_aged(sealed):
            each.key_encrypted = anew(sealed)
            each.save(update_fields=["key_encrypted"])
            yield each.endpoint


def salts() -> Iterable[models.Model]:
    """Append-only to everybody, for another salt would unmake every commitment of a tenant's receipts. These are the same."""
    aged = [
        each for each in TenantSalt.objects.order_by("pk").select_related("tenant") if vault.is_aged(bytes(each.sealed))
    ]
    if not aged:
        return
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_tenantsalt DISABLE TRIGGER append_only")
        for each in aged:
            each.sealed = anew(bytes(each.sealed))
            each.save(update_fields=["sealed"])
            yield each.tenant
        connection.check_constraints()  # ALTER TABLE refuses while any waits for the end
        cursor.execute("ALTER TABLE ledger_tenantsalt ENABLE ALWAYS TRIGGER append_only")


def factors() -> Iterable[models.Model]:
    for each in Authenticator.objects.order_by("pk").select_related("user").select_for_update(of=("self",)):
        aged = [name for name in FACTORS if name in each.data and vault.is_aged(each.data[name].encode())]
        if aged:
            each.data |= {name: anew(each.data[name].encode()).decode() for name in aged}
            each.save(update_fields=["data"])
            yield each.user
