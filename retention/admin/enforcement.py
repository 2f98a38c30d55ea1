"""Where runs may destroy: asked for by one person, decided by another, switched off by one."""

from collections.abc import Callable, Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from retention import enforcement
from retention.admin.scope import described_prefix
from retention.exceptions import RetentionError
from retention.models import Enforcement, EnforcementRequest

KINDS = {"": "waiting", "approved": "plain", "denied": "ended"}
DECISIONS = {
    "approve": "From now on runs of the tenant may destroy what this prefix covers, as far as its policies say so.",
    "deny": "The prefix stays as it is. Whoever asked may ask again.",
}


class RequestForm(forms.ModelForm[EnforcementRequest]):
    class Meta:
        model = EnforcementRequest
        fields = ("tenant", "bucket", "prefix", "reason")
        widgets = {
            "prefix": forms.TextInput(attrs={"size": 80, "spellcheck": "false", "class": "exact"}),
            "reason": forms.Textarea(attrs={"rows": 3, "cols": 80}),
        }

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["prefix"].strip = False  # type: ignore[attr-defined]

    def _post_clean(self) -> None:
        pass  # the verb judges the row


class EnforcementPages(VerbPages[Any]):
    """What requests and enforcement share: who may, and the page of a decision with a reason."""

    refusals = (RetentionError,)

    def may(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.publish_policy")

    def with_reason(
        self,
        request: HttpRequest,
        obj: Model,
        act: Callable[[dict[str, Any]], tuple[Model, str]],
        *,
        title: str,
        button: str,
        about: str,
    ) -> HttpResponse:
        form = forms.modelform_factory(type(obj), form=ReasonForm, fields=())(request.POST or None, instance=obj)
        return self.verb_page(
            request,
            form,
            act,
            title=title,
            button=button,
            fieldsets=[*self.get_fieldsets(request, obj), ("Your decision", {"fields": ("reason",)})],
            readonly=self.get_readonly_fields(request, obj),
            about=about,
            obj=obj,
            deciding=isinstance(obj, EnforcementRequest),
        )


@admin.register(EnforcementRequest)
class EnforcementRequestAdmin(EnforcementPages, ReadOnlyAdmin[EnforcementRequest]):
    tenant_path = "tenant__code"
    none_yet = "Nobody has asked for enforcement: every run is a dry run."
    list_display = ("prefix", "bucket", "tenant", "state", "requested_by", "requested_at", "decided_by", "decided_at")
    list_select_related = ("tenant", "bucket", "requested_by", "decided_by")
    list_filter = ("decision",)
    ordering = ("-id",)
    empty_words = {"prefix": "the whole bucket", "decided_by": "nobody yet", "decided_at": "not yet"}
    fieldsets = (
        (None, {"fields": ("tenant", "bucket", "covered", "state")}),
        ("Request", {"fields": ("requested_by", "requested_at", "why")}),
        ("Decision", {"fields": ("decided_by", "decided_at", "decision_reason", "switched_on")}),
    )

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.may(request)

    def get_urls(self) -> list[Any]:
        verbs: list[URLPattern] = [
            self.verb_url("approve", self.approve_view),
            self.verb_url("deny", self.deny_view),
        ]
        return verbs + super().get_urls()

    def tools(self, request: HttpRequest, obj: EnforcementRequest) -> Iterable[Tool]:
        if self.may_decide(request, obj) and not obj.decision:
            for verb in DECISIONS:
                yield Tool(verb.capitalize(), reverse(f"admin:retention_enforcementrequest_{verb}", args=[obj.pk]))

    def may_decide(self, request: HttpRequest, obj: EnforcementRequest) -> bool:
        return self.may(request) and obj.requested_by_id != request.user.pk

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = RequestForm(request.POST or None)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            row = enforcement.request(by=person(request), **values)
            return row, f"Enforcement of {row} requested. Nothing changes until another person approves it."

        return self.verb_page(
            request,
            form,
            act,
            title="Request enforcement",
            button="Request",
            fieldsets=[(None, {"fields": ("tenant", "bucket", "prefix", "reason")})],
            about="Without enforcement every run is a dry run. Begin with one prefix of one bucket.",
        )

    def approve_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        return self.decision(request, object_id, "approve", enforcement.approve)

    def deny_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        return self.decision(request, object_id, "deny", enforcement.deny)

    def decision(self, request: HttpRequest, object_id: int, verb: str, call: Callable[..., Model]) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not self.may_decide(request, obj):
            raise PermissionDenied

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            row = call(request=obj, by=person(request), reason=values["reason"])
            return row, f"Enforcement of {obj} {'is on' if verb == 'approve' else 'denied'}."

        title = f"{verb.capitalize()} enforcement"
        return self.with_reason(request, obj, act, title=title, button=title, about=DECISIONS[verb])

    @admin.display(description="state")
    def state(self, obj: EnforcementRequest) -> SafeString:
        return display.pill(obj.get_decision_display(), KINDS[obj.decision])

    @admin.display(description="prefix")
    def covered(self, obj: EnforcementRequest) -> SafeString | str:
        return described_prefix(obj.prefix, [obj.bucket_id], obj.tenant_id)

    @admin.display(description="reason")
    def why(self, obj: EnforcementRequest) -> str:
        """Under another name than the field in which a decision is explained."""
        return obj.reason

    @admin.display(description="enforcement")
    def switched_on(self, obj: EnforcementRequest) -> SafeString | str:
        row = Enforcement.objects.filter(request=obj).first()
        return display.link(row) if row else display.NOTHING


@admin.register(Enforcement)
class EnforcementAdmin(EnforcementPages, ReadOnlyAdmin[Enforcement]):
    tenant_path = "tenant__code"
    none_yet = "Enforcement is on nowhere: every run is a dry run. One person asks for it, another approves."
    list_display = (
        "prefix", "bucket", "tenant", "state", "requested_by", "approved_by", "switched_on_at", "switched_off_at",
    )  # fmt: skip
    list_select_related = ("tenant", "bucket", "requested_by", "approved_by")
    ordering = ("-id",)
    empty_words = {"prefix": "the whole bucket", "switched_off_at": "still on"}
    fieldsets = (
        (None, {"fields": ("tenant", "bucket", "covered", "state")}),
        ("People and times", {"fields": ("requested_by", "why", "approved_by", "switched_on_at", "switched_off_at")}),
        ("Origin", {"fields": ("request",)}),
    )

    def get_urls(self) -> list[Any]:
        off: list[URLPattern] = [self.verb_url("switch_off", self.switch_off_view)]
        return off + super().get_urls()

    def tools(self, request: HttpRequest, obj: Enforcement) -> Iterable[Tool]:
        if self.may(request) and obj.switched_off_at is None:
            yield Tool("Switch off", reverse("admin:retention_enforcement_switch_off", args=[obj.pk]))

    def switch_off_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not self.may(request):
            raise PermissionDenied

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            enforcement.switch_off(row=obj, by=person(request), reason=values["reason"])
            return obj, f"Enforcement of {obj} is off: runs are dry runs there."

        about = "Nothing under this prefix is sent any more. Switching on again takes two people."
        title = "Switch enforcement off"
        return self.with_reason(request, obj, act, title=title, button="Switch off", about=about)

    @admin.display(description="state")
    def state(self, obj: Enforcement) -> SafeString:
        return display.pill("off", "ended") if obj.switched_off_at else display.pill("on")

    @admin.display(description="prefix")
    def covered(self, obj: Enforcement) -> SafeString | str:
        return described_prefix(obj.prefix, [obj.bucket_id], obj.tenant_id)

    @admin.display(description="reason")
    def why(self, obj: Enforcement) -> str:
        return obj.reason
