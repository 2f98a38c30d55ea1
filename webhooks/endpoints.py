"""Endpoints: add, confirm by a ping, disable, change, retire. The sole writer of what people decide about them.

Nothing is ever deleted. A disabled endpoint is owed its events all the same; a retired one is owed nothing more.
"""

from collections.abc import Sequence
from typing import Any, Final

from django.db import transaction
from django.db.models.functions import Coalesce, Now

from cleanup_project.base import audit, clock, queue
from cleanup_project.base.models import User
from webhooks import cancel, health, pings, secrets
from webhooks.claiming import without_query
from webhooks.decisions import lock, permitted, stated
from webhooks.exceptions import WebhooksError
from webhooks.models import Delivery, Endpoint, Ping

UNCONFIRMED: Final = "Not yet confirmed: install its secret, then send a ping."
BY_A_PERSON: Final = "person"  # where an event names the rule that disabled an endpoint
KEYS: Final = "telling object keys, which may be personal"


def create(
    *,
    tenant: str,
    name: str,
    url: str,
    event_types: Sequence[str],
    by: User,
    include_keys: bool = False,
    duplicate_is_success: bool = False,
    reason: str = "",
) -> tuple[Endpoint, str]:
    """A new endpoint, disabled until `enable`, and its signing secret, which is shown this once and never again.

    It is owed the events that are emitted from now on; they are held until it is enabled. Object keys need a reason. Raises
    WebhooksError, or Django's ValidationError by field.
    """
    permitted(by, tenant)
    if include_keys:
        stated(reason, KEYS)
    endpoint = Endpoint(
        tenant=tenant,
        name=name,
        url=url,
        event_types=sorted(set(event_types)),
        include_keys=include_keys,
        duplicate_is_success=duplicate_is_success,
        created_by=by,
    )
    endpoint.full_clean()
    with transaction.atomic():
        endpoint.disabled_at, endpoint.disabled_reason = Now(), UNCONFIRMED
        endpoint.save(force_insert=True)
        _, text = secrets.add(endpoint)
        told = {"tenant": tenant} | {field: kept(endpoint, field) for field in CHANGEABLE}
        audit.record(action="endpoint.created", subject=endpoint, by=by, reason=reason, after=told)
    endpoint.refresh_from_db()
    return endpoint, text


def enable(*, endpoint: Endpoint, by: User) -> Ping:
    """Send a signed ping, and only if it is answered with 2xx send events again, what was held first; returns the ping.

    `resumed_at` marks it as catching up where something was held. Waits for the answer, outside of any transaction. Raises
    WebhooksError where the endpoint is not disabled, or retired; where the ping fails, with its status and what to do; and
    where the endpoint was changed while the ping was under way. The ping stays on record.
    """
    permitted(by, endpoint)
    asked = Endpoint.objects.get(pk=endpoint.pk)
    if asked.disabled_at is None:
        raise WebhooksError(f"{asked} is not disabled.")
    sent = pings.ping(endpoint=asked, by=by)
    if not pings.is_acknowledged(sent):
        raise WebhooksError(f"Nothing was enabled. {pings.words(sent)}")
    with transaction.atomic():
        locked = lock(asked)
        refuse_changed(locked, asked, sent)
        behind = locked.deliveries.filter(state=Delivery.State.PENDING).exists()
        Endpoint.objects.filter(pk=locked.pk).update(
            disabled_at=None, disabled_by=None, disabled_reason="", resumed_at=Now() if behind else None
        )
        health.reset(locked.pk)
        audit.record(
            action="endpoint.enabled", subject=locked, by=by,
            before={"disabled_reason": locked.disabled_reason}, after={"ping": sent.event_id, "status": sent.status},
        )  # fmt: skip
        queue.wake("webhooks.tasks.dispatch")
    endpoint.refresh_from_db()
    return sent


def refuse_changed(locked: Endpoint, asked: Endpoint, sent: Ping) -> None:
    """The 2xx came for what the endpoint was when the ping was written; it enables nothing else."""
    if locked.disabled_at is None:
        raise WebhooksError(f"Somebody else enabled {locked} while the ping was under way.")
    if locked.disabled_at != asked.disabled_at:
        raise WebhooksError(
            f"{locked} was disabled anew while the ping was under way, and stays so: {locked.disabled_reason}"
        )
    if locked.url != asked.url:
        raise WebhooksError("Its URL was changed while the ping was under way. Nothing was enabled: ping the new one.")
    if [each.pk for each in locked.secrets.live()] != sent.key_ids:
        raise WebhooksError(
            "Its secrets were changed while the ping was under way. Nothing was enabled: ping it with what signs now."
        )


def disable(*, endpoint: Endpoint, by: User, reason: str) -> Endpoint:
    """Send nothing more. Its deliveries, present and later ones, are held and lose neither order nor count.

    Raises WebhooksError where it is disabled already, or without a reason.
    """
    permitted(by, endpoint)
    stated(reason, "disabling the endpoint")
    with transaction.atomic():
        locked = lock(endpoint)
        if locked.disabled_at is not None:
            raise WebhooksError(f"{locked} is disabled already: {locked.disabled_reason}")
        Endpoint.objects.filter(pk=locked.pk).update(disabled_at=Now(), disabled_by=by, disabled_reason=reason)
        record = audit.record(action="endpoint.disabled", subject=locked, by=by, reason=reason)
        health.tell_disabled(locked, BY_A_PERSON, record, clock.now())
    endpoint.refresh_from_db()
    return endpoint


CHANGEABLE: Final = ("name", "url", "event_types", "include_keys", "duplicate_is_success")


def change(
    *,
    endpoint: Endpoint,
    by: User,
    reason: str,
    name: str | None = None,
    url: str | None = None,
    event_types: Sequence[str] | None = None,
    include_keys: bool | None = None,
    duplicate_is_success: bool | None = None,
) -> Endpoint:
    """Change what is given; None leaves a thing as it is.

    A new URL holds from the next attempt on; object keys are in the bodies of events that are emitted from now on. Pending
    deliveries of a type that is given up are cancelled with the reason, and their lanes go on; of very many the sweep cancels
    the rest. One that is being sent at this moment may still be delivered, and then is; if it fails, the sweep cancels it.
    Raises WebhooksError without a reason, for a retired endpoint, and where nothing would change; Django's ValidationError by
    field.
    """
    permitted(by, endpoint)
    stated(reason, "changing the endpoint")
    given: dict[str, Any] = {
        "name": name,
        "url": url,
        "event_types": None if event_types is None else sorted(set(event_types)),
        "include_keys": include_keys,
        "duplicate_is_success": duplicate_is_success,
    }
    with transaction.atomic():
        locked = lock(endpoint)
        new = {field: value for field, value in given.items() if value not in (None, getattr(locked, field))}
        if not new:
            raise WebhooksError("Nothing would change: everything is so already.")
        before = {field: kept(locked, field) for field in new}
        for field, value in new.items():
            setattr(locked, field, value)
        locked.full_clean()
        locked.save(update_fields=list(new))
        after = {field: kept(locked, field) for field in new}
        audit.record(action="endpoint.changed", subject=locked, by=by, reason=reason, before=before, after=after)
    if "event_types" in new:
        cancel.unowed(locked.pk, reason, seconds=cancel.AT_ONCE)
    endpoint.refresh_from_db()
    return endpoint


def kept(endpoint: Endpoint, field: str) -> Any:
    """A value as the audit record may keep it for ever: a URL's query may hold a secret of the receiver's."""
    value = getattr(endpoint, field)
    return without_query(value) if field == "url" else value


def retire(*, endpoint: Endpoint, by: User, reason: str) -> Endpoint:
    """For ever: it is owed nothing more, its secrets are revoked, its pending deliveries are cancelled with the reason.

    Of very many the sweep cancels the rest. One that is being sent at this moment may still be delivered, and then is; if it
    fails, the sweep cancels it. Everything stays readable. Raises WebhooksError without a reason, and where it is retired
    already.
    """
    permitted(by, endpoint)
    stated(reason, "retiring the endpoint")
    with transaction.atomic():
        locked = lock(endpoint)
        Endpoint.objects.filter(pk=locked.pk).update(
            retired_at=Now(), disabled_at=Coalesce("disabled_at", Now()), disabled_by=by, disabled_reason=reason
        )
        revoked = secrets.revoke_all(locked)
        health.reset(locked.pk)
        record = audit.record(
            action="endpoint.retired", subject=locked, by=by, reason=reason,
            before={"disabled_reason": locked.disabled_reason}, after={"secrets_revoked": revoked},
        )  # fmt: skip
        if locked.disabled_at is None:
            health.tell_disabled(locked, BY_A_PERSON, record, clock.now())
    cancel.unowed(locked.pk, reason, seconds=cancel.AT_ONCE)
    endpoint.refresh_from_db()
    return endpoint
