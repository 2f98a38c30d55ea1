"""Events, their deliveries and every attempt: read, and sent again."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from webhooks.admin.redelivery import FILTERS, RedeliveryPages, rounds_table
from webhooks.models import Delivery, DeliveryAttempt, OutboxEvent

ROWS_SHOWN = 100
KINDS = {"pending": "waiting", "delivered": "plain", "dead": "overdue", "cancelled": "ended"}


def state_of(delivery: Delivery) -> SafeString:
    return display.pill(delivery.get_state_display().lower(), KINDS[delivery.state])


def due_of(delivery: Delivery) -> Any:
    if delivery.state != Delivery.State.PENDING:
        return display.NOTHING
    return display.moment(delivery.due_at) if delivery.due_at else "after an earlier event of its subject"


def named_events(term: str) -> list[int]:
    """Events that carry the term as their id or as their command key."""
    named = OutboxEvent.objects.filter(Q(event_id=term) | Q(command_key=term))
    return list(named.values_list("pk", flat=True))


@admin.register(OutboxEvent)
class OutboxEventAdmin(ReadOnlyAdmin[OutboxEvent]):
    tenant_path = "tenant"
    list_display = ("event_id", "type", "tenant", "subject", "sequence", "emitted_at", "settled_at")
    ordering = ("-id",)
    search_help_text = "An event id or a command key, exactly."
    exact_search = ("event_id", "command_key")
    empty_words = {"settled_at": "not yet"}
    fieldsets = (
        (None, {"fields": ("event_id", "type", "tenant", "subject", "sequence", "command_key")}),
        ("Deliveries", {"fields": ("delivery_table", "emitted_at", "settled_at")}),
        ("Body, as it is signed and sent", {"fields": ("body_text", "body_sha256", "schema_version")}),
        ("What the id is derived from, beside the type", {"fields": ("name", "occurrence")}),
    )

    @admin.display(description="body")
    def body_text(self, obj: OutboxEvent) -> SafeString:
        return display.exact(bytes(obj.body).decode())

    @admin.display(description="deliveries")
    def delivery_table(self, obj: OutboxEvent) -> SafeString | str:
        rows = [
            (display.link(each), each.endpoint.name, state_of(each), each.attempts, due_of(each), each.last_error)
            for each in obj.deliveries.select_related("event", "endpoint")[:ROWS_SHOWN]
        ]
        headings = ("Delivery", "Endpoint", "State", "Attempts", "Next attempt", "Last error")
        return display.table(headings, rows) if rows else "none is owed: no endpoint subscribed to it"


@admin.register(Delivery)
class DeliveryAdmin(RedeliveryPages, ReadOnlyAdmin[Delivery]):
    tenant_path = "tenant"
    list_display = (
        "event", "endpoint", "round_words", "state_pill", "next_attempt", "attempts", "last_status", "last_class",
        "finished_at",
    )  # fmt: skip
    list_select_related = ("event", "endpoint")
    list_filter = FILTERS
    ordering = ("-id",)
    exact_search = ("event",)
    search_help_text = "An event id or a command key, exactly."
    empty_words = {"last_class": "none", "finished_at": "not yet", "requested_by": "nobody: it is owed"}
    fieldsets = (
        (None, {"fields": ("event", "endpoint", "tenant", "subject", "sequence", "state_pill", "cancel_reason")}),
        ("Attempts", {"fields": ("attempt_table", "next_attempt", "last_error", "finished_at")}),
        ("Sent again", {"fields": ("round_words", "requested_by", "rounds")}),
        ("Lease", {"fields": ("lease_token", "lease_until")}),
    )

    def tools(self, request: HttpRequest, obj: Delivery) -> Iterable[Tool]:
        if self.has_operate_permission(request) and obj.state != Delivery.State.CANCELLED:
            words = "Send now" if obj.state == Delivery.State.PENDING else "Redeliver"
            yield Tool(words, reverse("admin:webhooks_delivery_redeliver", args=[obj.pk]))

    def search_exactly(self, queryset: QuerySet[Delivery], term: str) -> QuerySet[Delivery]:
        return queryset.filter(event__in=named_events(term))

    @admin.display(description="round")
    def round_words(self, obj: Delivery) -> str:
        return f"redelivery {obj.round}" if obj.round else "as owed"

    @admin.display(description="all rounds")
    def rounds(self, obj: Delivery) -> SafeString:
        return rounds_table(obj)

    @admin.display(description="subject")
    def subject(self, obj: Delivery) -> SafeString:
        return display.exact(obj.event.subject)

    @admin.display(description="state")
    def state_pill(self, obj: Delivery) -> SafeString:
        return state_of(obj)

    @admin.display(description="next attempt")
    def next_attempt(self, obj: Delivery) -> Any:
        held = obj.state == Delivery.State.PENDING and obj.endpoint.disabled_at
        return "held: the endpoint is disabled" if held else due_of(obj)

    @admin.display(description="attempts")
    def attempt_table(self, obj: Delivery) -> SafeString | str:
        total = obj.attempt_rows.count()
        rows = [
            (display.link(each), display.moment(each.started_at), outcome(each), each.milliseconds, each.error)
            for each in obj.attempt_rows.order_by("-token")[:ROWS_SHOWN]
        ]
        table = display.table(("Attempt", "Began", "Outcome", "Milliseconds", "Error"), rows)
        return display.cut(table, total - len(rows), "attempts") if rows else "none yet"


@admin.register(DeliveryAttempt)
class DeliveryAttemptAdmin(ReadOnlyAdmin[DeliveryAttempt]):
    tenant_path = "endpoint__tenant"
    list_display = ("delivery", "endpoint", "number", "started_at", "outcome_pill", "milliseconds", "url", "error")
    list_select_related = ("delivery", "endpoint")
    lookups = frozenset({"failure_class", "finished_at__gte"})
    ordering = ("-id",)
    exact_search = ("delivery",)
    search_help_text = "An event id or a command key, exactly."
    empty_words = {"peer": "none: it was not connected"}
    fieldsets = (
        (None, {"fields": ("delivery", "endpoint", "number", "token", "is_probe", "url", "key_ids")}),
        ("What came of it", {"fields": ("outcome_pill", "error", "started_at", "finished_at")}),
        ("Connection", {"fields": ("peer", "reused", "resent", "phases")}),
        ("Answer", {"fields": ("headers", "response_text", "bytes_read", "truncated")}),
    )

    def search_exactly(self, queryset: QuerySet[DeliveryAttempt], term: str) -> QuerySet[DeliveryAttempt]:
        named = Delivery.objects.filter(event__in=named_events(term))
        return queryset.filter(delivery__in=list(named.values_list("pk", flat=True)))

    def narrowed(self, request: HttpRequest) -> str | None:
        kind = request.GET.get("failure_class")
        return f"Class {display.visible(kind.replace('_', ' '))}" if kind else None

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-finished_at", "-id") if "failure_class" in request.GET else ("-id",)

    @admin.display(description="outcome")
    def outcome_pill(self, obj: DeliveryAttempt) -> SafeString:
        return outcome(obj)

    @admin.display(description="milliseconds")
    def phases(self, obj: DeliveryAttempt) -> SafeString:
        named = {
            "Name lookup": obj.dns_ms, "Connect": obj.connect_ms, "TLS": obj.tls_ms, "To the status line": obj.first_byte_ms,
            "In all": obj.milliseconds,
        }  # fmt: skip
        return display.table((), named.items())

    @admin.display(description="body")
    def response_text(self, obj: DeliveryAttempt) -> SafeString | str:
        """Whatever the endpoint sent, byte by byte where it is not text."""
        return display.exact(bytes(obj.response).decode(errors="backslashreplace")) if obj.response else display.NOTHING


def outcome(attempt: DeliveryAttempt) -> SafeString:
    if attempt.finished_at is None:
        return format_html(
            '<span title="{}">{}</span>',
            "It is being sent, or whoever sent it stopped before it could tell.",
            display.pill("started", "waiting"),
        )
    words = str(attempt.status) if attempt.status else attempt.failure_class.replace("_", " ")
    return display.pill(words, "overdue" if attempt.failure_class else "plain")
