"""Policies and their revisions."""

from collections.abc import Iterable, Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminSplitDateTime, AdminTimeWidget
from django.core.exceptions import PermissionDenied
from django.db.models import Model, Prefetch, QuerySet
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from retention import policies
from retention.admin.scope import ScopeColumns, ScopeForm
from retention.exceptions import RetentionError
from retention.models import PolicyRevision, RetentionPolicy

STATES = {"draft": "waiting", "published": "plain", "suspended": "overdue", "nothing published": "waiting"}

SCOPE_FIELDS = ("bucket_ids", "prefixes", "retention_classes")
CLOCK = (("trigger", "event_type"), ("period_number", "period_unit"), "cutoff", "keep_newest", "retain_permanently")
DESTRUCTION = (
    "authorisation",
    "cooling_off_minutes",
    "window_days",
    ("window_start", "window_end", "window_zone"),
    "already_absent",
    "remove_expired_markers",
    "evidence_max_age_hours",
    "priority",
    ("breaker_percent", "breaker_minimum"),
)
CAPS = (("cap_objects", "cap_bytes", "cap_share_percent"),)
FORCE = ("retroactive", "effective_from")


class PolicyForm(forms.ModelForm[RetentionPolicy]):
    class Meta:
        model = RetentionPolicy
        fields = ("tenant", "code", "schedule")


class DraftForm(ScopeForm):
    retroactive = forms.TypedChoiceField(
        label="Objects stored before the effective date",
        choices=[
            ("yes", "Retroactive: this revision governs them too."),
            ("no", "Not retroactive: they stay with the revision before."),
        ],
        coerce=lambda answer: answer == "yes",
        widget=forms.RadioSelect,
        error_messages={"required": "Choose one: there is no default."},
    )

    class Meta:
        model = PolicyRevision
        fields = (
            "policy", "title", "authority", "bucket_ids", "prefixes", "retention_classes", "trigger", "event_type",
            "period_number", "period_unit", "cutoff", "keep_newest", "retain_permanently", "authorisation",
            "cooling_off_minutes",
            "window_days", "window_start", "window_end", "window_zone", "already_absent", "remove_expired_markers",
            "evidence_max_age_hours", "priority", "breaker_percent", "breaker_minimum",
            "cap_objects", "cap_bytes", "cap_share_percent", "effective_from",
        )  # fmt: skip
        field_classes = {"effective_from": forms.SplitDateTimeField}
        widgets = {
            "effective_from": AdminSplitDateTime,
            "window_start": AdminTimeWidget,
            "window_end": AdminTimeWidget,
            "authority": forms.Textarea(attrs={"rows": 3, "cols": 80}),
            "title": forms.TextInput(attrs={"size": 60}),
        }
        help_texts = {"effective_from": "UTC."}

    fieldsets = (
        (None, {"fields": ("policy", "title", "authority")}),
        ("Scope", {"fields": SCOPE_FIELDS}),
        ("Retention", {"fields": CLOCK}),
        ("In force", {"fields": FORCE}),
        ("Destruction", {"fields": DESTRUCTION}),
        ("Caps: a run above any of them waits for approval", {"fields": CAPS}),
    )


def policy_state(policy: RetentionPolicy, published: Sequence[PolicyRevision]) -> SafeString:
    state = "suspended" if policy.suspended_at else "published" if published else "nothing published"
    return display.pill(state, STATES[state])


@admin.register(RetentionPolicy)
class RetentionPolicyAdmin(VerbPages[RetentionPolicy], ReadOnlyAdmin[RetentionPolicy]):
    """Columns besides the code speak of the newest published revision."""

    list_display = ("code", "tenant", "title", "trigger", "period", "effective_from", "schedule", "state")
    list_select_related = ("tenant",)
    ordering = ("code",)
    exact_search = ("code",)
    search_help_text = "A policy code, exactly."
    fields = (
        "code",
        "tenant",
        "state",
        "suspended_at",
        "suspended_reason",
        "schedule",
        "missed_slots",
        "revision_table",
    )
    refusals = (RetentionError,)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.draft_policy")

    def get_queryset(self, request: HttpRequest) -> QuerySet[RetentionPolicy]:
        published = PolicyRevision.objects.filter(published_at__isnull=False).order_by("-number")
        return super().get_queryset(request).prefetch_related(Prefetch("revisions", published, to_attr="published"))

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = PolicyForm(request.POST or None)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            policy = policies.create(by=person(request), **values)
            return policy, f"Policy {policy} created. It covers nothing until a revision is published."

        return self.verb_page(
            request,
            form,
            act,
            title="Add a retention policy",
            button="Add policy",
            fieldsets=[(None, {"fields": ("tenant", "code", "schedule")})],
            about="A policy is a name and a schedule. What it says stands in its revisions.",
        )

    def tools(self, request: HttpRequest, obj: RetentionPolicy) -> Iterable[Tool]:
        if request.user.has_perm("base.draft_policy"):
            yield Tool("Draft a revision", f"{reverse('admin:retention_policyrevision_add')}?policy={obj.pk}")

    @admin.display(description="title")
    def title(self, obj: Any) -> str:
        return obj.published[0].title if obj.published else display.NOTHING

    @admin.display(description="trigger")
    def trigger(self, obj: Any) -> str:
        return obj.published[0].get_trigger_display() if obj.published else display.NOTHING

    @admin.display(description="period")
    def period(self, obj: Any) -> str:
        return period_of(obj.published[0]) if obj.published else display.NOTHING

    @admin.display(description="effective from")
    def effective_from(self, obj: Any) -> SafeString | str:
        return display.moment(obj.published[0].effective_from) if obj.published else display.NOTHING

    @admin.display(description="state")
    def state(self, obj: Any) -> SafeString:
        return policy_state(obj, obj.published)

    @admin.display(description="revisions")
    def revision_table(self, obj: RetentionPolicy) -> SafeString:
        rows = obj.revisions.select_related("policy", "author", "published_by").order_by("-number")
        return display.table(
            ("Revision", "Title", "Period", "Effective from", "State", "Author", "Published by"),
            (
                (
                    display.link(revision),
                    revision.title,
                    period_of(revision),
                    display.moment(revision.effective_from),
                    revision_state(revision),
                    revision.author,
                    revision.published_by,
                )
                for revision in rows
            ),
        )


def period_of(revision: PolicyRevision) -> str:
    if revision.retain_permanently:
        return "permanent"
    one = revision.period_number == 1
    return f"{revision.period_number} {revision.period_unit.removesuffix('s') if one else revision.period_unit}"


def revision_state(revision: PolicyRevision) -> SafeString:
    if revision.published_at is None:
        return display.pill("draft", "waiting")
    return display.pill("published" if revision.effective_from <= timezone.now() else "published, not yet effective")


@admin.register(PolicyRevision)
class PolicyRevisionAdmin(ScopeColumns, VerbPages[PolicyRevision], ReadOnlyAdmin[PolicyRevision]):
    list_display = (
        "__str__", "title", "trigger", "period", "effective_from", "state", "author", "published_by", "published_at",
    )  # fmt: skip
    list_select_related = ("policy", "author", "published_by")
    ordering = ("policy__code", "-number")
    empty_words = {"breaker_percent": "none: opted out", "window_days": "every day"}
    exact_search = ("policy__code",)
    search_help_text = "A policy code, exactly."
    refusals = (RetentionError,)
    fieldsets = (
        (None, {"fields": ("policy", "number", "title", "authority", "state")}),
        ("Scope", {"fields": ("tenant", "buckets", "covered_prefixes", "classes")}),
        ("Retention", {"fields": (("trigger", "event_type"), "period", "cutoff", "keep_newest", "retain_permanently")}),
        ("In force", {"fields": FORCE}),
        ("Destruction", {"fields": DESTRUCTION}),
        ("Caps: a run above any of them waits for approval", {"fields": CAPS}),
        ("People", {"fields": ("author", "created_at", "published_by", "published_at")}),
    )

    @admin.display(description="period")
    def period(self, obj: PolicyRevision) -> str:
        return period_of(obj)

    @admin.display(description="state")
    def state(self, obj: PolicyRevision) -> SafeString:
        return revision_state(obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.draft_policy")

    def get_urls(self) -> list[Any]:
        publish: list[URLPattern] = [self.verb_url("publish", self.publish_view)]
        return publish + super().get_urls()

    def tools(self, request: HttpRequest, obj: PolicyRevision) -> Iterable[Tool]:
        if (
            obj.published_at is None
            and obj.author_id != request.user.pk
            and request.user.has_perm("base.publish_policy")
        ):
            yield Tool("Publish", reverse("admin:retention_policyrevision_publish", args=[obj.pk]))
        if self.has_add_permission(request):
            yield Tool("Draft the next from this", f"{reverse('admin:retention_policyrevision_add')}?from={obj.pk}")

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = DraftForm(request.POST or None, initial=draft_initial(request))

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            revision = policies.draft(by=person(request), **values)
            return revision, f"{revision} drafted. It changes nothing until a second person publishes it."

        return self.verb_page(
            request,
            form,
            act,
            title="Draft a policy revision",
            button="Save draft",
            fieldsets=DraftForm.fieldsets,
            about="A draft changes nothing. A second person publishes it, and after that it never changes.",
        )

    def publish_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm("base.publish_policy"):
            raise PermissionDenied
        form = forms.modelform_factory(PolicyRevision, form=ReasonForm, fields=())(request.POST or None, instance=obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            revision = policies.publish(revision=obj, by=person(request), reason=values["reason"])
            return revision, f"{revision} published. It never changes from now on."

        shown = self.get_fieldsets(request, obj)
        return self.verb_page(
            request,
            form,
            act,
            title="Publish a policy revision",
            button="Publish",
            fieldsets=[*shown, ("Your decision", {"fields": ("reason",)})],
            readonly=self.get_readonly_fields(request, obj),
            about="Once published, a revision never changes; only a later revision can supersede it.",
            obj=obj,
        )


def draft_initial(request: HttpRequest) -> dict[str, Any]:
    """What a draft begins with: an earlier revision's fields, but for those that must be chosen anew."""
    earlier, policy = request.GET.get("from", ""), request.GET.get("policy", "")
    found = PolicyRevision.objects.filter(pk=int(earlier)).first() if earlier.isdecimal() else None
    if found is None:
        return {"policy": policy} if policy.isdecimal() else {}
    chosen_anew = {"effective_from"}
    return model_to_dict(found, fields=set(DraftForm.base_fields) - chosen_anew - {"retroactive"})
