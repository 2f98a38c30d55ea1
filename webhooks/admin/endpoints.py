"""Endpoints: managed through their verbs."""

from collections.abc import Callable, Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import LargeChangeList, ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, add_errors, person
from webhooks import endpoints, pings, secrets, vitals
from webhooks.admin import endpointwords as words
from webhooks.admin.endpointforms import (
    CHANGEABLE,
    ChangeForm,
    EndpointForm,
    NoReasonForm,
    RetireForm,
    RevokeForm,
    RotateForm,
)
from webhooks.exceptions import WebhooksError
from webhooks.models import EVERY_TYPE, Endpoint
from webhooks.traffic import Traffic, traffic

WAIT = "This waits for the answer, 15 seconds at the most."
SHOWN = "The secret of this endpoint."


class EndpointList(LargeChangeList):
    """Reads what goes on at all endpoints of the page at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        found = traffic(each.pk for each in self.result_list)
        for each in self.result_list:
            each._traffic = found[each.pk]


def traffic_of(obj: Endpoint) -> Traffic:
    found: Traffic | None = getattr(obj, "_traffic", None)
    if found is None:
        found = traffic([obj.pk])[obj.pk]
        obj._traffic = found  # type: ignore[attr-defined]
    return found


class TroubleFilter(admin.SimpleListFilter):
    title = "trouble"
    parameter_name = "trouble"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "in trouble"), ("no", "well, or retired")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return (
            queryset.filter(vitals.TROUBLE if self.value() == "yes" else ~vitals.TROUBLE) if self.value() else queryset
        )


@admin.register(Endpoint)
class EndpointAdmin(VerbPages[Endpoint], ReadOnlyAdmin[Endpoint]):
    tenant_path = "tenant"
    none_yet = "No endpoint yet: nobody is told what happens."
    list_display = ("name", "tenant", "state", "health", "oldest_due", "pending", "succeeded", "failed")
    list_filter = (TroubleFilter,)
    lookups = frozenset({"disabled_at__isnull", "retired_at__isnull"})  # endpoints are few
    ordering = ("tenant", "name")
    exact_search = ("tenant", "name")  # endpoints are few: no index
    search_help_text = "A tenant's code or an endpoint's name, exactly."
    refusals = (WebhooksError,)
    empty_words = {"disabled_at": "no", "retired_at": "no"}
    fieldsets = (
        (None, {"fields": ("name", "tenant", "state", "url", "types", "include_keys", "duplicate_is_success")}),
        ("Health", {"fields": ("health_words", "pending", "oldest_due", "succeeded", "failed", "answer_table")}),
        ("Secrets", {"fields": ("secret_table",)}),
        ("Pings", {"fields": ("ping_table",)}),
        (
            "People and times",
            {"fields": ("created_by", "created_at", "disabled_at", "disabler", "disabled_reason", "retired_at")},
        ),
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return EndpointList

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.operate")

    def get_urls(self) -> list[Any]:
        verbs = {
            "ping": self.ping_view,
            "enable": self.enable_view,
            "disable": self.disable_view,
            "edit": self.edit_view,
            "rotate": self.rotate_view,
            "revoke": self.revoke_view,
            "retire": self.retire_view,
        }
        return [*(self.verb_url(name, view) for name, view in verbs.items()), *super().get_urls()]

    def tools(self, request: HttpRequest, obj: Endpoint) -> Iterable[Tool]:
        if obj.retired_at or not request.user.has_perm("base.operate"):
            return
        verbs = {
            "ping": "Ping",
            **({"enable": "Enable"} if obj.disabled_at else {"disable": "Disable"}),
            "edit": "Change",
            "rotate": "Rotate the secret",
            "revoke": "Revoke a secret",
            "retire": "Retire",
        }
        for verb, label in verbs.items():
            yield Tool(label, reverse(f"admin:webhooks_endpoint_{verb}", args=[obj.pk]))

    def deciding(self, request: HttpRequest, object_id: int) -> Endpoint:
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm("base.operate"):
            raise PermissionDenied
        return obj

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = EndpointForm(request.POST or None)
        if codes := person(request).tenants:
            form.fields["tenant"] = forms.ChoiceField(choices=[(code, code) for code in codes], label="Tenant")
        if request.method == "POST" and form.is_valid():
            try:
                endpoint, secret = endpoints.create(by=person(request), **form.cleaned_data)
            except ValidationError as error:
                add_errors(form, error)
            except WebhooksError as refusal:
                form.add_error(None, str(refusal))
            else:
                next_step = "Install it at the receiver, then enable the endpoint, which sends a ping first."
                return self.secret_page(request, endpoint, secret, "Endpoint added", SHOWN, next_step)
        context = {
            "button": "Add endpoint",
            "about": "It is owed the events that are emitted from now on, signed with a secret that the next page shows "
            "once. They are held until the endpoint is enabled.",
        }
        fieldsets = [(None, {"fields": (*EndpointForm.Meta.fields, "reason")})]
        return self.form_page(request, form, "admin/verb.html", context, "Add an endpoint", fieldsets)

    def ping_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.deciding(request, object_id)

        def call(values: dict[str, Any]) -> str:
            sent = pings.ping(endpoint=obj, by=person(request))
            if not pings.is_acknowledged(sent):
                raise WebhooksError(pings.words(sent))
            return pings.words(sent)

        about = f"Sends one signed endpoint.ping and changes nothing else. {WAIT}"
        form = bound(NoReasonForm, request, obj)
        return self.decision(request, obj, form, call, "Ping an endpoint", "Ping", about)

    def enable_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.deciding(request, object_id)

        def call(values: dict[str, Any]) -> str:
            sent = endpoints.enable(endpoint=obj, by=person(request))
            return f"Endpoint {obj} is enabled. {pings.words(sent)} What was held goes out first."

        about = (
            "Sends a signed endpoint.ping first, and enables the endpoint only if that is answered with 2xx. What was held "
            f"is sent in its order, at a limited rate. {WAIT}"
        )
        form = bound(NoReasonForm, request, obj)
        return self.decision(request, obj, form, call, "Enable an endpoint", "Ping and enable", about)

    def disable_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.deciding(request, object_id)

        def call(values: dict[str, Any]) -> str:
            endpoints.disable(endpoint=obj, by=person(request), reason=values["reason"])
            return f"Endpoint {obj} is disabled. Its events are held."

        about = "Nothing more is sent to it. Its events, later ones too, are held in their order until it is enabled."
        form = bound(ReasonForm, request, obj)
        return self.decision(request, obj, form, call, "Disable an endpoint", "Disable the endpoint", about)

    def edit_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.deciding(request, object_id)
        form = bound(ChangeForm, request, obj)

        def call(values: dict[str, Any]) -> str:
            changed = {name: values[name] for name in CHANGEABLE if name in form.changed_data}
            endpoints.change(endpoint=obj, by=person(request), reason=values["reason"], **changed)
            return f"Endpoint {obj} is changed."

        about = (
            "A new URL holds from the next attempt on. What waits of an event type that is given up is cancelled; what is "
            "being sent at this moment may still arrive. Object keys are in the events that are emitted from now on."
        )
        return self.decision(request, obj, form, call, "Change an endpoint", "Change", about, CHANGEABLE)

    def rotate_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """Answers with the page of the secret, where a decision would lead back to the endpoint."""
        obj = self.deciding(request, object_id)
        newest = obj.secrets.live().values_list("pk", flat=True).first() or 0
        form = bound(RotateForm, request, obj, newest=newest)
        if request.method == "POST" and form.is_valid():
            try:
                secret = secrets.rotate(endpoint=obj, by=person(request), **form.cleaned_data)
            except WebhooksError as refusal:
                form.add_error(None, str(refusal))
            else:
                next_step = "Install it at the receiver beside the old one, or instead of it where that was revoked."
                return self.secret_page(request, obj, secret, "Secret rotated", SHOWN, next_step)
        context = {
            "button": "Rotate the secret",
            "about": "The new secret signs first from the next attempt on; the next page shows it once.",
        }
        fieldsets = [("Your decision", {"fields": ("newest", "overlap", "reason")})]
        return self.form_page(request, form, "admin/verb.html", context, "Rotate the secret", fieldsets, obj=obj)

    def revoke_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.deciding(request, object_id)

        def call(values: dict[str, Any]) -> str:
            revoked = secrets.revoke(secret=values["secret"], by=person(request), reason=values["reason"])
            return f"Secret {revoked.pk} of {obj} is revoked."

        about = "It signs nothing more, from the next attempt on: a receiver that knows no other one will refuse what comes."
        form = bound(RevokeForm, request, obj)
        return self.decision(request, obj, form, call, "Revoke a secret", "Revoke", about, ("secret",))

    def retire_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.deciding(request, object_id)

        def call(values: dict[str, Any]) -> str:
            endpoints.retire(endpoint=obj, by=person(request), reason=values["reason"])
            return f"Endpoint {obj} is retired."

        about = (
            "For ever: what waits is cancelled, later events are not owed to it, its secrets are revoked. Everything stays "
            "readable."
        )
        form = bound(RetireForm, request, obj)
        return self.decision(request, obj, form, call, "Retire an endpoint", "Retire", about, ("typed",))

    def decision(
        self,
        request: HttpRequest,
        obj: Endpoint,
        form: forms.ModelForm[Any],
        call: Callable[[dict[str, Any]], str],
        title: str,
        button: str,
        about: str,
        asked: tuple[str, ...] = (),
    ) -> HttpResponse:
        fields = (*asked, *(["reason"] if "reason" in form.fields else []))
        return self.verb_page(
            request,
            form,
            lambda values: (obj, call(values)),
            title=title,
            button=button,
            fieldsets=[("Your decision", {"fields": fields})] if fields else [],
            about=f"{about} It is disabled: {obj.disabled_reason}" if obj.disabled_at else about,
            obj=obj,
        )

    @admin.display(description="state")
    def state(self, obj: Endpoint) -> SafeString:
        return words.state(obj)

    @admin.display(description="health")
    def health(self, obj: Endpoint) -> SafeString | str:
        return words.health_pill(obj, traffic_of(obj))

    @admin.display(description="event types")
    def types(self, obj: Endpoint) -> SafeString | str:
        if obj.event_types == [EVERY_TYPE]:
            return "every type, also those that come later"
        return display.bullets(display.exact(each) for each in obj.event_types)

    @admin.display(description="disabled by")
    def disabler(self, obj: Endpoint) -> str:
        if obj.disabled_at is None:
            return display.NOTHING
        return display.named(obj.disabled_by) if obj.disabled_by else "the rules"

    @admin.display(description="health")
    def health_words(self, obj: Endpoint) -> SafeString:
        return words.health_words(obj, traffic_of(obj))

    @admin.display(description="oldest due")
    def oldest_due(self, obj: Endpoint) -> SafeString | str:
        return words.moment_or_nothing(traffic_of(obj).oldest_due)

    @admin.display(description="pending")
    def pending(self, obj: Endpoint) -> str:
        return words.pending(traffic_of(obj))

    @admin.display(description="last success")
    def succeeded(self, obj: Endpoint) -> SafeString | str:
        return words.moment_or_nothing(traffic_of(obj).succeeded)

    @admin.display(description="last failure")
    def failed(self, obj: Endpoint) -> SafeString | str:
        return words.moment_or_nothing(traffic_of(obj).failed)

    @admin.display(description="last answers")
    def answer_table(self, obj: Endpoint) -> SafeString | str:
        return words.answer_table(obj)

    @admin.display(description="secrets")
    def secret_table(self, obj: Endpoint) -> SafeString:
        return words.secret_table(obj, traffic_of(obj))

    @admin.display(description="pings")
    def ping_table(self, obj: Endpoint) -> SafeString | str:
        return words.ping_table(obj)


def bound(
    form: type[forms.ModelForm[Any]], request: HttpRequest, obj: Endpoint, **initial: Any
) -> forms.ModelForm[Any]:
    """The form about this endpoint, with what was posted; without fields an empty post is one, too."""
    fields = CHANGEABLE if issubclass(form, ChangeForm) else ()
    made = forms.modelform_factory(Endpoint, form=form, fields=fields)
    return made(request.POST if request.method == "POST" else None, instance=obj, initial=initial)
