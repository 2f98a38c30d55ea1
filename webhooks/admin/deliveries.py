"""Endpoints are managed here through their verbs; events, deliveries and attempts are read."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Min, Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, add_errors, person
from webhooks import endpoints
from webhooks.exceptions import WebhooksError
from webhooks.models import Delivery, DeliveryAttempt, Endpoint, OutboxEvent

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


class EndpointForm(forms.ModelForm[Endpoint]):
    """The verb judges the row, this form does not."""

    class Meta:
        model = Endpoint
        fields = ("tenant", "name", "url", "event_types")

    def _post_clean(self) -> None:
        pass


class NoReasonForm(forms.ModelForm[Endpoint]):
    class Meta:
        model = Endpoint
        fields = ()

    def _post_clean(self) -> None:
        pass


@admin.register(Endpoint)
class EndpointAdmin(VerbPages[Endpoint], ReadOnlyAdmin[Endpoint]):
    list_display = ("name", "tenant", "state", "url", "event_types", "waiting_since", "created_at")
    list_select_related = ("created_by",)
    ordering = ("tenant", "name")
    exact_search = ("tenant", "name")  # endpoints are few: no index
    search_help_text = "A tenant's code or an endpoint's name, exactly."
    refusals = (WebhooksError,)
    fieldsets = (
        (None, {"fields": ("name", "tenant", "state", "url", "event_types", "waiting_since")}),
        ("Secrets", {"fields": ("secret_table",)}),
        ("People and times", {"fields": ("created_by", "created_at", "disabled_at", "disabled_reason")}),
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.operate")

    def get_urls(self) -> list[Any]:
        verbs = [self.verb_url("disable", self.disable_view), self.verb_url("enable", self.enable_view)]
        return [*verbs, *super().get_urls()]

    def tools(self, request: HttpRequest, obj: Endpoint) -> Iterable[Tool]:
        if request.user.has_perm("base.operate"):
            verb = "enable" if obj.disabled_at else "disable"
            yield Tool(verb.title(), reverse(f"admin:webhooks_endpoint_{verb}", args=[obj.pk]))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = EndpointForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                endpoint, secret = endpoints.create(by=person(request), **form.cleaned_data)
            except ValidationError as error:
                add_errors(form, error)
            else:
                return self.secret_page(request, endpoint, secret)
        context = {
            "button": "Add endpoint",
            "about": "It gets the events that are emitted from now on, signed with a secret that the next page shows once.",
        }
        fieldsets = [(None, {"fields": EndpointForm.Meta.fields})]
        return self.form_page(request, form, "admin/verb.html", context, "Add an endpoint", fieldsets)

    def secret_page(self, request: HttpRequest, endpoint: Endpoint, secret: str) -> HttpResponse:
        """The answer to the POST itself: the secret is in no message, session, address or cache."""
        context = {
            **self.admin_site.each_context(request),
            "title": "Endpoint added",
            "subtitle": display.visible(str(endpoint)),
            "opts": self.opts,
            "original": endpoint,
            "secret": secret,
            "url": display.change_url(endpoint),
        }
        return TemplateResponse(
            request, "admin/webhooks/endpoint/secret.html", context, headers={"Cache-Control": "no-store"}
        )

    def disable_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.deciding(request, object_id)
        form = forms.modelform_factory(Endpoint, form=ReasonForm, fields=())(request.POST or None, instance=obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            endpoint = endpoints.disable(endpoint=obj, by=person(request), reason=values["reason"])
            return endpoint, f"Endpoint {endpoint} is disabled. Its events are held."

        return self.verb_page(
            request,
            form,
            act,
            title="Disable an endpoint",
            button="Disable the endpoint",
            fieldsets=[("Your decision", {"fields": ("reason",)})],
            about="Nothing more is sent to it. Its events, also those to come, are held in their order until it is enabled.",
            obj=obj,
        )

    def enable_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.deciding(request, object_id)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            endpoint = endpoints.enable(endpoint=obj, by=person(request))
            return endpoint, f"Endpoint {endpoint} is enabled. What was held goes out first."

        return self.verb_page(
            request,
            NoReasonForm(request.POST if request.method == "POST" else None, instance=obj),
            act,
            title="Enable an endpoint",
            button="Enable the endpoint",
            fieldsets=[],
            about=f"Disabled: {obj.disabled_reason or 'no'}. What was held is sent in its order.",
            obj=obj,
        )

    def deciding(self, request: HttpRequest, object_id: int) -> Endpoint:
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm("base.operate"):
            raise PermissionDenied
        return obj

    @admin.display(description="state")
    def state(self, obj: Endpoint) -> SafeString:
        return display.pill("disabled, events are held", "overdue") if obj.disabled_at else display.pill("enabled")

    @admin.display(description="oldest due")
    def waiting_since(self, obj: Endpoint) -> Any:
        pending = obj.deliveries.filter(state=Delivery.State.PENDING)
        due = pending.aggregate(due=Min("due_at"))["due"]
        return display.moment(due) if due else display.NOTHING

    @admin.display(description="secrets")
    def secret_table(self, obj: Endpoint) -> SafeString:
        rows = (
            (
                display.moment(each.created_at),
                *(when and display.moment(when) for when in (each.expires_at, each.revoked_at)),
            )
            for each in obj.secrets.order_by("-pk")
        )
        return display.table(("Made", "Expires", "Revoked"), rows)


@admin.register(OutboxEvent)
class OutboxEventAdmin(ReadOnlyAdmin[OutboxEvent]):
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
class DeliveryAdmin(ReadOnlyAdmin[Delivery]):
    list_display = (
        "event", "endpoint", "state_pill", "next_attempt", "attempts", "last_status", "last_class", "finished_at",
    )  # fmt: skip
    list_select_related = ("event", "endpoint")
    list_filter = ("state",)
    ordering = ("-id",)
    exact_search = ("event",)
    search_help_text = "An event id or a command key, exactly."
    empty_words = {"last_class": "none", "finished_at": "not yet"}
    fieldsets = (
        (None, {"fields": ("event", "endpoint", "tenant", "subject", "sequence", "state_pill", "cancel_reason")}),
        ("Attempts", {"fields": ("attempt_table", "next_attempt", "last_error", "finished_at")}),
        ("Lease", {"fields": ("lease_token", "lease_until")}),
    )

    def search_exactly(self, queryset: QuerySet[Delivery], term: str) -> QuerySet[Delivery]:
        return queryset.filter(event__in=named_events(term))

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
    list_display = ("delivery", "endpoint", "number", "started_at", "outcome_pill", "milliseconds", "url", "error")
    list_select_related = ("delivery", "endpoint")
    ordering = ("-id",)
    exact_search = ("delivery",)
    search_help_text = "An event id or a command key, exactly."
    fieldsets = (
        (None, {"fields": ("delivery", "endpoint", "number", "token", "url")}),
        ("What came of it", {"fields": ("outcome_pill", "error", "started_at", "finished_at", "milliseconds")}),
        ("Answer", {"fields": ("response_text",)}),
    )

    def search_exactly(self, queryset: QuerySet[DeliveryAttempt], term: str) -> QuerySet[DeliveryAttempt]:
        named = Delivery.objects.filter(event__in=named_events(term))
        return queryset.filter(delivery__in=list(named.values_list("pk", flat=True)))

    @admin.display(description="outcome")
    def outcome_pill(self, obj: DeliveryAttempt) -> SafeString:
        return outcome(obj)

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
