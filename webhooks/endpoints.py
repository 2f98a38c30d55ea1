"""Endpoints: create, disable, enable. Their sole writer."""

from collections.abc import Sequence

from django.db import transaction
from django.db.models.functions import Now

from cleanup_project.base import audit, vault
from cleanup_project.base.models import User
from webhooks import signing
from webhooks.exceptions import WebhooksError
from webhooks.models import Endpoint, EndpointSecret


def create(*, tenant: str, name: str, url: str, event_types: Sequence[str], by: User) -> tuple[Endpoint, str]:
    """A new endpoint, enabled, and its signing secret, which is shown this once and never again.

    It gets the events that are emitted from now on. Raises WebhooksError, or Django's ValidationError by field.
    """
    permitted(by)
    endpoint = Endpoint(tenant=tenant, name=name, url=url, event_types=sorted(set(event_types)), created_by=by)
    endpoint.full_clean()
    key = signing.new_key()
    with transaction.atomic():
        endpoint.save(force_insert=True)
        EndpointSecret.objects.create(endpoint=endpoint, key_encrypted=vault.seal(key))
        told = {"tenant": tenant, "name": name, "url": url.partition("?")[0], "event_types": endpoint.event_types}
        audit.record(action="endpoint.created", subject=endpoint, by=by, after=told)
    endpoint.refresh_from_db()
    return endpoint, signing.secret_text(key)


def disable(*, endpoint: Endpoint, by: User, reason: str) -> Endpoint:
    """Send nothing more. Its deliveries, present and later ones, are held and lose neither order nor count.

    Raises WebhooksError where it is disabled already, or without a reason.
    """
    permitted(by)
    if not reason.strip():
        raise WebhooksError("State a reason for disabling the endpoint.")
    with transaction.atomic():
        locked = Endpoint.objects.select_for_update(no_key=True).get(pk=endpoint.pk)
        if locked.disabled_at is not None:
            raise WebhooksError(f"{endpoint} is disabled already: {locked.disabled_reason}")
        Endpoint.objects.filter(pk=endpoint.pk).update(disabled_at=Now(), disabled_reason=reason)
        audit.record(action="endpoint.disabled", subject=endpoint, by=by, reason=reason)
    endpoint.refresh_from_db()
    return endpoint


def enable(*, endpoint: Endpoint, by: User) -> Endpoint:
    """Send again, what was held first. Raises WebhooksError where it is not disabled."""
    permitted(by)
    with transaction.atomic():
        locked = Endpoint.objects.select_for_update(no_key=True).get(pk=endpoint.pk)
        if locked.disabled_at is None:
            raise WebhooksError(f"{endpoint} is not disabled.")
        Endpoint.objects.filter(pk=endpoint.pk).update(disabled_at=None, disabled_reason="")
        audit.record(
            action="endpoint.enabled", subject=endpoint, by=by, before={"disabled_reason": locked.disabled_reason}
        )
    endpoint.refresh_from_db()
    return endpoint


def permitted(by: User) -> None:
    if not by.has_perm("base.operate"):
        raise WebhooksError(f"{by} may not manage endpoints: that needs the role Operator or Compliance.")
