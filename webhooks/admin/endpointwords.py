"""How an endpoint is told of: its state in one look, its health in words, its secrets, pings and last answers."""

from collections.abc import Iterator
from datetime import datetime

from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from webhooks import endpoints, health
from webhooks.limits import IN_FLIGHT
from webhooks.models import DeliveryAttempt, Endpoint, EndpointSecret, Exchange
from webhooks.traffic import COUNTED, Traffic

SHOWN = 10
BODY_SHOWN = 200


def state(endpoint: Endpoint) -> SafeString:
    if endpoint.retired_at:
        return display.pill("retired", "ended")
    if endpoint.disabled_at is None:
        return display.pill("enabled")
    if endpoint.disabled_reason == endpoints.UNCONFIRMED:
        return display.pill("not yet confirmed, events are held", "waiting")
    return display.pill("disabled, events are held", "overdue")


def health_pill(endpoint: Endpoint, traffic: Traffic) -> SafeString | str:
    if endpoint.disabled_at:
        return display.NOTHING
    if endpoint.circuit_step:
        return display.pill("circuit open", "overdue")
    if endpoint.paused_until and endpoint.paused_until > traffic.at:
        return display.pill("paused", "waiting")
    return display.pill("failing", "waiting") if endpoint.failing_since else display.pill("good")


def health_words(endpoint: Endpoint, traffic: Traffic) -> SafeString:
    return display.bullets(list(sentences(endpoint, traffic)) or ["Nothing is wrong that its answers have shown."])


def sentences(endpoint: Endpoint, traffic: Traffic) -> Iterator[SafeString | str]:
    if endpoint.failing_since:
        yield dated("No success since {}.", endpoint.failing_since)
    due = health.disable_due_at(endpoint)
    if due:
        yield dated("Will be disabled at {} if it goes on so, and many of its deliveries have failed by then.", due)
    if endpoint.open_until:
        opened = f"The circuit is open, for the {endpoint.circuit_step}. time in a row"
        probe = "the next probe goes out at {}." if endpoint.open_until > traffic.at else "a probe is due since {}."
        yield dated(f"{opened}: one delivery at a time asks whether it can close, and {probe}", endpoint.open_until)
    if endpoint.paused_until and endpoint.paused_until > traffic.at:
        yield dated("Paused until {}, as its answers asked.", endpoint.paused_until)
    if endpoint.concurrency < IN_FLIGHT:
        yield f"It is sent {endpoint.concurrency} at once instead of {IN_FLIGHT}, since it asked for less."
    if endpoint.resumed_at and not endpoint.disabled_at:
        yield "It was enabled not long ago: what was held goes out in its order, at a limited rate."


def dated(words: str, moment: datetime) -> SafeString:
    return format_html(words, display.moment(moment))


def pending(traffic: Traffic) -> str:
    return f"more than {COUNTED:,}" if traffic.pending > COUNTED else display.number(traffic.pending)


def secret_table(endpoint: Endpoint, traffic: Traffic) -> SafeString:
    rows = []
    live = 0
    for each in endpoint.secrets.order_by("-pk")[:SHOWN]:
        ends = (each.expires_at, each.revoked_at)
        signs = each.revoked_at is None and (each.expires_at is None or each.expires_at > traffic.at)
        live += signs
        rows.append((each.pk, display.moment(each.created_at), *map(moment_or_nothing, ends), signs_now(signs, live)))
    return display.table(("Secret", "Made", "Expires", "Revoked", "Signs now"), rows)


def signs_now(signs: bool, place: int) -> SafeString:
    if not signs:
        return display.pill("no", "ended")
    return display.pill("yes, first") if place == 1 else display.pill("yes, also", "waiting")


def secret_label(secret: EndpointSecret) -> str:
    ends = f", expires {secret.expires_at:%Y-%m-%d %H:%M} UTC" if secret.expires_at else ", signs for good"
    return f"secret {secret.pk}, made {secret.created_at:%Y-%m-%d %H:%M} UTC{ends}"


def ping_table(endpoint: Endpoint) -> SafeString | str:
    rows = [
        (display.moment(each.started_at), display.named(each.sent_by), *told(each))
        for each in endpoint.pings.select_related("sent_by")[:SHOWN]
    ]
    headings = ("Sent", "By", "Outcome", "Milliseconds", "Error", "Answer")
    return display.table(headings, rows) if rows else "none yet"


def answer_table(endpoint: Endpoint) -> SafeString | str:
    answered = DeliveryAttempt.objects.filter(endpoint=endpoint, finished_at__isnull=False)
    rows = [
        (display.moment(each.started_at), display.link(each), *told(each))
        for each in answered.order_by("-finished_at")[:SHOWN]
    ]
    headings = ("Sent", "Attempt", "Outcome", "Milliseconds", "Error", "Answer")
    return display.table(headings, rows) if rows else "none yet"


def told(exchange: Exchange) -> tuple[SafeString | str | int | None, ...]:
    """Outcome, milliseconds, error, beginning of the body: whatever the endpoint sent, byte by byte where it is not text."""
    body = bytes(exchange.response or b"")[:BODY_SHOWN].decode(errors="backslashreplace")
    return (
        outcome(exchange),
        exchange.milliseconds,
        display.visible(exchange.error) or display.NOTHING,
        display.exact(body) if body else display.NOTHING,
    )


def outcome(exchange: Exchange) -> SafeString:
    if exchange.finished_at is None:
        return display.pill("sent, no answer known", "waiting")
    words = " ".join(str(each) for each in (exchange.status, exchange.failure_class.replace("_", " ")) if each)
    return display.pill(words, "overdue" if exchange.failure_class else "plain")


def moment_or_nothing(value: datetime | None) -> SafeString | str:
    return display.moment(value) if value else display.NOTHING
