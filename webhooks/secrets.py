"""Signing secrets of an endpoint: made, replaced with an overlap, revoked. Their sole writer, but for a change of the keys
that seal them (`manage.py reseal`).

Each is 32 random bytes, shown once and kept sealed. While one replaces another both sign, the newest first, so that the
receiver can change over at any moment of the overlap. Signatures are made for each attempt: the next one, a retry too, is
signed by what is live then.
"""

from datetime import timedelta
from typing import Final

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Coalesce, Least, Now

from cleanup_project.base import audit, vault
from cleanup_project.base.models import User
from webhooks import signing
from webhooks.decisions import lock, permitted, stated
from webhooks.exceptions import WebhooksError
from webhooks.models import Endpoint, EndpointSecret

MOST_LIVE: Final = 3
OVERLAP: Final = 24  # hours
LONGEST_OVERLAP: Final = 168


def add(endpoint: Endpoint) -> tuple[EndpointSecret, str]:
    """A new secret, and the text that receivers are given. In the caller's transaction, under the endpoint's lock."""
    key = signing.new_key()
    made = EndpointSecret.objects.create(endpoint=endpoint, key_encrypted=vault.seal(key))
    return made, signing.secret_text(key)


def keys(endpoint: Endpoint) -> tuple[list[int], list[bytes]]:
    """(ids, keys) of what signs now, the newest first. Raises VaultError where one cannot be opened."""
    live = list(endpoint.secrets.live())
    return [each.pk for each in live], [vault.unseal(bytes(each.key_encrypted)) for each in live]


def rotate(*, endpoint: Endpoint, by: User, reason: str, overlap: int = OVERLAP, newest: int | None = None) -> str:
    """A new secret, which signs first from now on; returns it, this once. What signed so far also signs for `overlap` hours.

    0 hours, for a secret that others may know: everything older is revoked at once, and the receiver refuses what comes until
    it has the new one. An overlap never prolongs an earlier end. `newest` is the secret that the person saw as the newest,
    so that the same request twice rotates once. Raises WebhooksError beyond 0 to 168 hours, where three sign already, and
    where another secret is the newest.
    """
    permitted(by, endpoint)
    stated(reason, "rotating the secret")
    if not 0 <= overlap <= LONGEST_OVERLAP:
        raise WebhooksError(f"Old secrets can sign for 0 to {LONGEST_OVERLAP} hours more.")
    with transaction.atomic():
        locked = lock(endpoint)
        old = list(locked.secrets.live())
        if newest is not None and [each.pk for each in old[:1]] != [newest]:
            raise WebhooksError("The secret was rotated or revoked meanwhile: look at the endpoint again.")
        if overlap and len(old) >= MOST_LIVE:
            raise WebhooksError(
                f"{MOST_LIVE} secrets sign already: revoke an old one first, or wait until one of them has expired."
            )
        replaced = EndpointSecret.objects.filter(pk__in=[each.pk for each in old])
        if overlap:
            ends = Now() + timedelta(hours=overlap)
            replaced.update(expires_at=Least(Coalesce(F("expires_at"), ends), ends))
        else:
            replaced.update(revoked_at=Now())
        made, text = add(locked)
        audit.record(
            action="endpoint.secret_rotated", subject=locked, by=by, reason=reason,
            before={"live": [each.pk for each in old]}, after={"made": made.pk, "overlap_hours": overlap},
        )  # fmt: skip
    return text


def revoke(*, secret: EndpointSecret, by: User, reason: str) -> EndpointSecret:
    """It signs nothing more, from the next attempt on.

    Raises WebhooksError where it does not sign now, or where nothing would be left that signs for good.
    """
    permitted(by, secret.endpoint)
    stated(reason, "revoking the secret")
    with transaction.atomic():
        endpoint = lock(secret.endpoint)
        live = {each.pk: each for each in endpoint.secrets.live()}
        if secret.pk not in live:
            raise WebhooksError("This secret does not sign any more.")
        if all(each.expires_at for pk, each in live.items() if pk != secret.pk):
            raise WebhooksError(
                "Without this secret nothing would sign for good: rotate with an overlap of 0 hours, which revokes it too."
            )
        EndpointSecret.objects.filter(pk=secret.pk).update(revoked_at=Now())
        audit.record(
            action="endpoint.secret_revoked", subject=endpoint, by=by, reason=reason,
            before={"live": sorted(live)}, after={"revoked": secret.pk},
        )  # fmt: skip
    secret.refresh_from_db()
    return secret


def revoke_all(endpoint: Endpoint) -> int:
    """In the caller's transaction, under the endpoint's lock: for one that is owed nothing more."""
    return endpoint.secrets.live().order_by().update(revoked_at=Now())
