"""A signed `endpoint.ping`, sent when a person asks: does the receiver answer, and does it know the secret?

Written before it is sent and finished once, like an attempt; nothing is sent inside a transaction. A ping is no event of a
lane: its sequence is 0, and nothing waits for it.
"""

from dataclasses import asdict
from typing import Any, Final

from django.db import connection, transaction
from django.db.models.functions import Now

from cleanup_project.base import audit, canonical, clock, vault
from cleanup_project.base.models import User
from webhooks import failures, outbox, secrets, sender
from webhooks.claiming import without_query
from webhooks.decisions import lock, permitted
from webhooks.eventtypes import PING
from webhooks.exceptions import WebhooksError
from webhooks.models import Endpoint, Ping
from webhooks.sender import Answer, Sending

# What to do about a ping that failed, by the class of its failure.
ADVICE: Final = {
    "redirect": "Change the URL to the one that it redirects to: redirects are never followed.",
    "auth": "Let the receiver judge by the signature: install the newest secret there; no other credentials are sent.",
    "not_found": "Correct the path of the URL, or deploy the receiver there.",
    "gone": "Correct the URL, or retire the endpoint.",
    "conflict": "Let the receiver answer 2xx to a ping.",
    "throttled": "Wait as long as the receiver asks, then try again.",
    "blocked": "Use an https URL at a public address and an allowed port: nothing was sent.",
    "tls_cert": "Renew or correct the receiver's certificate: it is always verified.",
    "tls": "Look at the receiver's TLS: version 1.2 or later, with a certificate for this very name.",
    "dns_name": "Correct the host name of the URL, or create it in DNS.",
    "dns_temp": "Try again soon; if it stays, look at the name servers.",
    "timeout_connect": "Let connections through from here: host, port, firewall.",
    "timeout_ambiguous": "Let the receiver answer first and work later.",
    "sender_error": "The fault is on our side, at the proxy or on this machine: repair that, then try again.",
}
ELSE_ADVICE: Final = "Look at the receiver's log for this ping, repair what it says, then try again."


def ping(*, endpoint: Endpoint, by: User) -> Ping:
    """Send one and wait for its answer, 15 seconds at the most; returns it finished, whatever came of it.

    Changes nothing else, and is sent to a disabled endpoint too. Raises WebhooksError for a retired endpoint, and for one
    without a secret that signs; RuntimeError inside a transaction.
    """
    permitted(by, endpoint)
    begun, sending, keys, timestamp = begin(endpoint, by)
    with sender.session(1) as through:
        answer = sender.send(through, sending, keys, timestamp)
    finish(begun, answer)
    begun.refresh_from_db()
    return begun


def begin(endpoint: Endpoint, by: User) -> tuple[Ping, Sending, list[bytes], int]:
    """Write down what is about to be sent: URL and secrets as they are at one moment."""
    with transaction.atomic(durable=True):
        locked = lock(endpoint)
        try:
            key_ids, keys = secrets.keys(locked)
        except vault.VaultError as error:
            raise WebhooksError(str(error)) from None
        if not keys:
            raise WebhooksError(f"{locked} has no secret that signs: rotate its secret first.")
        # The id is derived from the row's number, so that is drawn first.
        with connection.cursor() as cursor:
            cursor.execute("SELECT nextval(pg_get_serial_sequence('webhooks_ping', 'id'))")
            (number,) = cursor.fetchone()
        subject, now = f"endpoint:{locked.pk}", clock.now()
        event_id = outbox.event_id(PING, subject, str(number))
        begun = Ping(
            pk=number, endpoint=locked, event_id=event_id, sent_by=by, url=without_query(locked.url), key_ids=key_ids
        )
        begun.save(force_insert=True)
        audit.record(action="endpoint.pinged", subject=locked, by=by, after={"event_id": event_id, "url": begun.url})
    told = outbox.Notice(type=PING, subject=subject, name=subject, data={"endpoint": locked.name})
    body = outbox.envelope(told, event_id, 0, canonical.instant(now))
    sending = Sending(None, None, None, locked.url, event_id, body)
    return begun, sending, keys, int(now.timestamp())


def finish(begun: Ping, answer: Answer) -> None:
    told: dict[str, Any] = asdict(answer)
    del told["retry_after"]
    Ping.objects.filter(pk=begun.pk, finished_at=None).update(finished_at=Now(), **told)


def is_acknowledged(ping: Ping) -> bool:
    return ping.status is not None and failures.of_status(ping.status) == failures.DELIVERED


def words(ping: Ping) -> str:
    """What came of a finished ping, with its class, its error and what to do, in one line."""
    if is_acknowledged(ping):
        return f"The ping was answered with {ping.status} after {ping.milliseconds:,} ms."
    what = f"status {ping.status}, {ping.failure_class}" if ping.status else ping.failure_class
    advice = ADVICE.get(ping.failure_class, ELSE_ADVICE)
    return f"The ping was not acknowledged ({what.replace('_', ' ')}): {ping.error} {advice}"
