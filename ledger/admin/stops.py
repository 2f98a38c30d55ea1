"""The stop switch in the admin: pressed and lifted with a reason, on top of every page while it is on."""

from collections.abc import Iterable, Iterator
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from cleanup_project.base import display, notices, tenancy
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.models import User
from cleanup_project.base.notices import Notice
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from ledger import stops
from ledger.models import CleanupCommand, StopReport
from retention import control
from retention.exceptions import RetentionError
from retention.models import StopSwitch

LISTED_AT_MOST = 200
REASON_SHOWN = 300  # characters of a reason on top of a page
SHOWN_AT_MOST = 5  # switches on top of a page, the newest; the rest is a number
UNDER_WAY = "Might still be executed when it was pressed"
ABOUT = (
    "In force at once: no request is sent for what you name any more, and only what was on its way may still be executed. "
    "Scans and manifests go on. Only somebody with the right to lift it ends it."
)


# What somebody who decides for some tenants alone may stop: not what others share.
OWN_SCOPES = [(each.value, each.label) for each in (StopSwitch.Scope.TENANT, StopSwitch.Scope.POLICY)]


class PressForm(forms.ModelForm[StopSwitch]):
    class Meta:
        model = StopSwitch
        fields = ("scope", "tenant", "bucket", "policy", "reason")
        widgets = {"reason": forms.Textarea(attrs={"rows": 3, "cols": 80})}

    scope = forms.ChoiceField(choices=StopSwitch.Scope.choices, widget=forms.RadioSelect)


@admin.register(StopSwitch)
class StopSwitchAdmin(VerbPages[StopSwitch], ReadOnlyAdmin[StopSwitch]):
    tenant_path = ""
    none_yet = "Nothing was ever stopped. The link Stop… on top of every page does that."
    list_display = ("what", "state", "pressed_by", "pressed_at", "reason", "lifted_by", "lifted_at")
    list_select_related = ("tenant", "bucket", "policy", "pressed_by", "lifted_by")
    list_filter = ("scope",)
    lookups = frozenset({"lifted_at__isnull"})
    ordering = ("-id",)
    refusals = (RetentionError,)
    empty_words = {"pressed_by": "the system", "lifted_by": display.NOTHING, "lifted_at": "still on"}
    fieldsets = (
        (None, {"fields": ("what", "state", "why", "pressed_by", "pressed_at")}),
        ("Lifted", {"fields": ("lifted_by", "lifted_at", "lift_reason")}),
        (UNDER_WAY, {"fields": ("under_way", "claims")}),
    )

    def own(self, rows: QuerySet[StopSwitch], user: User) -> QuerySet[StopSwitch]:
        """What stops everything or a bucket explains to everybody why nothing goes on."""
        return rows.filter(pk__in=StopSwitch.objects.seen_by(user.tenants)) if user.tenants else rows

    def get_fieldsets(self, request: HttpRequest, obj: StopSwitch | None = None) -> Any:
        """The commands of a switch that is nobody's alone are of whatever tenant."""
        whole = super().get_fieldsets(request, obj)
        hidden = obj is not None and not tenancy.within([tenancy.code_of(obj)], person(request))
        return [each for each in whole if each[0] != UNDER_WAY] if hidden else whole

    def narrowed(self, request: HttpRequest) -> str | None:
        return "On now" if request.GET.get("lifted_at__isnull") == "True" else None

    @admin.display(description="stops")
    def what(self, obj: StopSwitch) -> str:
        return display.visible(str(obj))

    @admin.display(description="reason")
    def why(self, obj: StopSwitch) -> str:
        """Under another name than the field in which lifting it is explained."""
        return obj.reason

    @admin.display(description="state")
    def state(self, obj: StopSwitch) -> SafeString:
        return display.pill("lifted", "ended") if obj.lifted_at else display.pill("on", "overdue")

    @admin.display(description="how many")
    def under_way(self, obj: StopSwitch) -> SafeString | str:
        report = report_of(obj)
        if report is None:
            return "not counted yet"
        _claims, unknown = stops.ends(report, 1)
        commands = display.count(report.commands, "command")
        return format_html(
            "{} at {}; of {} the end is not known.", commands, display.moment(report.reported_at), f"{unknown:,}"
        )

    @admin.display(description="commands")
    def claims(self, obj: StopSwitch) -> SafeString | str:
        report = report_of(obj)
        found, _unknown = stops.ends(report, LISTED_AT_MOST) if report is not None else ([], 0)
        if report is None or not found:
            return "not counted yet" if report is None else "none"
        rows = (
            (
                format_html('<a href="{}">{}</a>', command_url(each.command_id), each.key),
                each.token,
                each.ended_as.replace("_", " ") or display.pill("not known yet", "waiting"),
                display.moment(each.ended_at) if each.ended_at else display.NOTHING,
            )
            for each in found
        )
        table = display.table(("Command", "Token", "Ended as", "At"), rows)
        return display.cut(table, len(report.commands) - len(found), "commands")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.stop")

    def get_urls(self) -> list[Any]:
        return [self.verb_url("lift", self.lift_view), *super().get_urls()]

    def tools(self, request: HttpRequest, obj: StopSwitch) -> Iterable[Tool]:
        own = tenancy.within([tenancy.code_of(obj)], person(request))
        if own and obj.lifted_at is None and request.user.has_perm("base.rearm"):
            yield Tool("Lift", reverse("admin:retention_stopswitch_lift", args=[obj.pk]))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = PressForm(request.POST or None)
        if person(request).tenants:
            del form.fields["bucket"]
            form.fields["scope"].choices = OWN_SCOPES  # type: ignore[attr-defined]

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            switch = control.press(by=person(request), **values)
            return switch, f"Stopped: {switch}. No request is sent for it until somebody lifts this switch."

        return self.verb_page(
            request,
            form,
            act,
            title="Press the stop switch",
            button="Stop",
            fieldsets=[(None, {"fields": tuple(form.fields)})],
            about=ABOUT,
        )

    def lift_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm("base.rearm"):
            raise PermissionDenied
        form = forms.modelform_factory(StopSwitch, form=ReasonForm, fields=())(request.POST or None, instance=obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            switch = control.lift(switch=obj, by=person(request), reason=values["reason"])
            return switch, f"Lifted: {switch}. What is due goes on."

        return self.verb_page(
            request,
            form,
            act,
            title="Lift the stop switch",
            button="Lift it",
            fieldsets=[*self.get_fieldsets(request, obj), ("Your decision", {"fields": ("reason",)})],
            readonly=self.get_readonly_fields(request, obj),
            about="What is due goes on, unless another switch covers it.",
            obj=obj,
            deciding=True,
        )


def report_of(obj: StopSwitch) -> StopReport | None:
    return StopReport.objects.filter(pk=obj.pk).first()


def command_url(pk: int) -> str:
    return reverse(f"admin:{CleanupCommand._meta.app_label}_{CleanupCommand._meta.model_name}_change", args=[pk])


@notices.register
def switches_on(user: User) -> Iterator[Notice]:
    """Who has stopped what, since when and why: for everybody whom it concerns, since it explains why nothing goes on."""
    concerning = StopSwitch.objects.seen_by(user.tenants) if user.tenants else StopSwitch.objects.all()
    switches = concerning.active().select_related("tenant", "bucket", "policy", "pressed_by").order_by("-pk")
    found = list(switches[: SHOWN_AT_MOST + 1])
    for each in found[:SHOWN_AT_MOST]:
        who = f"{each.pressed_by or 'the system'} since {each.pressed_at:%Y-%m-%d %H:%M} UTC"
        why = Truncator(display.visible(each.reason)).chars(REASON_SHOWN)
        what = display.visible(str(each))
        yield Notice("stop", f"Stopped by {who}: {what}. {why}", display.change_url(each), f"Stopped: {what}")
    if len(found) > SHOWN_AT_MOST:
        more = "More is stopped: see all stop switches that are on."
        yield Notice("stop", more, list_of_active(), "More is stopped")


def list_of_active() -> str:
    return reverse("admin:retention_stopswitch_changelist") + "?lifted_at__isnull=True"
