"""What the product speaks to besides stores: receivers of webhooks, the identity provider, the mail server.

Nothing is sent to receivers: a connection is made, TLS agreed on, and closed. A ping would be an event that somebody's
program gets; who wants one sends it from the endpoint's page.
"""

import smtplib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from django.conf import settings
from django.core import mail

from cleanup_project.base import display
from cleanup_project.base.signin import provider
from cleanup_project.operations.doctor.findings import Finding, fault, ok, warning
from webhooks import pings, sender
from webhooks.models import Endpoint
from webhooks.sender import Answer

AT_ONCE: Final = 8
MAIL_SECONDS: Final = 10
SMTP: Final = "django.core.mail.backends.smtp.EmailBackend"
ADVICE: Final = {**pings.ADVICE, "network": "See that the receiver runs, and that this host may connect to it."}


def endpoints() -> Iterator[Finding]:
    """Whether each endpoint that is not retired can be connected to, side by side."""
    rows = list(Endpoint.objects.filter(retired_at=None).order_by("tenant", "name"))
    if not rows:
        yield ok("endpoints", "There are none.")
        return
    with sender.session(AT_ONCE) as through, ThreadPoolExecutor(AT_ONCE) as pool:
        for row, seen in zip(rows, pool.map(lambda row: sender.reach(through, row.url), rows), strict=True):
            yield of_endpoint(row, seen)


def of_endpoint(row: Endpoint, seen: Answer) -> Finding:
    subject = f"endpoint {row}"
    if not seen.failure_class:
        how = f"TLS after {seen.tls_ms} ms" if seen.tls_ms is not None else "without TLS"
        return ok(subject, f"Connected to {seen.peer}, {how}; nothing was sent.")
    say = fault if row.disabled_at is None else warning  # it gets nothing while it is disabled
    return say(subject, f"{seen.error} ({seen.failure_class})", ADVICE.get(seen.failure_class, pings.ELSE_ADVICE))


def identity_provider() -> Iterator[Finding]:
    """What a sign-in asks it first (OpenID Connect Discovery 1.0, section 4), within the limits of a sign-in."""
    subject = "identity provider"
    if not settings.OIDC_ISSUER:
        yield ok(subject, "None is set up: people sign in with passwords.")
        return
    advice = "Correct OIDC_ISSUER, or let this host reach it; meanwhile people sign in with passwords alone."
    try:
        said = provider.discovered()
    except (OSError, ValueError) as error:  # what `requests` raises, and what is no JSON
        yield fault(subject, f"{settings.OIDC_ISSUER} cannot be asked: {type(error).__name__}.", advice)
        return
    missing = [name for name in provider.NEEDED if not said.get(name)]
    if missing:
        yield fault(subject, f"{settings.OIDC_ISSUER} does not say: {', '.join(missing)}.", advice)
    elif str(said["issuer"]).rstrip("/") != settings.OIDC_ISSUER.rstrip("/"):
        words = f"It calls itself {display.visible(str(said['issuer']))}, and is set up as {settings.OIDC_ISSUER}."
        yield warning(
            subject, words, "Write OIDC_ISSUER as the provider does: people are known by what it calls itself."
        )
    else:
        yield ok(subject, f"{settings.OIDC_ISSUER} answers, and says where to sign in.")


def mail_server() -> Iterator[Finding]:
    """Whether it lets us in; no message is sent."""
    subject = "mail server"
    if settings.EMAIL_BACKEND != SMTP or not settings.ALERT_EMAILS:
        yield ok(subject, "None is needed: ALERT_EMAILS names nobody.")
        return
    place = f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}"
    connection = mail.get_connection(timeout=MAIL_SECONDS)
    try:
        connection.open()
    except (OSError, smtplib.SMTPException) as error:
        words = f"{place} cannot be used: {display.visible(' '.join(str(error).split()))}"
        yield fault(subject, words, "Correct the settings of the mail server, or let this host reach it.")
    else:
        connection.close()
        yield ok(subject, f"{place} lets us in; nothing was sent.")
