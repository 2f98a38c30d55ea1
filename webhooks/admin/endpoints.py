"""Endpoints: managed through their verbs."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Min, Model
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, add_errors, person
from webhooks import endpoints
from webhooks.exceptions import WebhooksError
from webhooks.models import Delivery, Endpoint


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
