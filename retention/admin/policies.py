"""Policies and their revisions."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.widgets import AdminSplitDateTime, AdminTimeWidget
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, Model, OuterRef, Prefetch, QuerySet
from django.db.models.functions import Now
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display, tenancy
from cleanup_project.base.modeladmin import ReadOnlyAdmin
from cleanup_project.base.models import User
from cleanup_project.base.verbpages import person
from retention import policies
from retention.admin import previews
from retention.admin.decisions import PolicyDecisions, RevisionDecisions
from retention.admin.extents import PolicyChangeList, PolicyColumns
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
FORCE = ("retroactive", "effective_from", "destroy_within_days")


class PolicyForm(forms.ModelForm[RetentionPolicy]):
    class Meta:
        model = RetentionPolicy
        fields = ("tenant", "code", "schedule")


# What drafters ask about each field, beside what the model says.
HELP = {
    "policy": "The revision supersedes what this policy says now.",
    "title": "What these objects are, in words that a certificate of destruction can carry.",
    "period_number": "How long objects are kept after the clock has started. 29 February plus one year is 28 February.",
    "cutoff": "The period then counts from the first instant after the month, quarter or year in which the clock started.",
    "retain_permanently": "Nothing that it covers is ever destroyed, whatever other policies say.",
    "authorisation": "Whether a person approves the manifest of each run, or this revision authorises all of them.",
    "cooling_off_minutes": "How long an authorised run waits, and can be cancelled, before it destroys anything.",
    "window_start": "Runs destroy from this time of the day on; empty: at any time.",
    "window_end": "And up to this one.",
    "window_zone": "The time zone of the window, for example Europe/Amsterdam.",
    "already_absent": "An object that was gone before anything was sent: a success, or something that a person looks at.",
    "effective_from": "UTC. From when it holds. What makes anything eligible earlier also waits for the tenant's delay.",
    "cap_objects": "More objects than this in one run.",
    "cap_bytes": "More bytes than this in one run.",
    "cap_share_percent": "More of the objects in scope than this, in percent.",
    "destroy_within_days": "Empty: no maximum. What is still there so long after its retention is listed, held or not.",
}


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
            "destroy_within_days",
        )  # fmt: skip
        field_classes = {"effective_from": forms.SplitDateTimeField}
        widgets = {
            "effective_from": AdminSplitDateTime,
            "window_start": AdminTimeWidget,
            "window_end": AdminTimeWidget,
            "authority": forms.Textarea(attrs={"rows": 3, "cols": 80}),
            "title": forms.TextInput(attrs={"size": 60}),
        }
        help_texts = HELP

    fieldsets = (
        (None, {"fields": ("policy", "title", "authority")}),
        ("Scope", {"fields": SCOPE_FIELDS}),
        ("Retention", {"fields": CLOCK}),
        ("In force", {"fields": FORCE}),
        ("Destruction", {"fields": DESTRUCTION}),
        ("Caps: a run above any of them waits for approval", {"fields": CAPS}),
    )


class EditForm(DraftForm):
    class Meta(DraftForm.Meta):
        fields = tuple(name for name in DraftForm.Meta.fields if name != "policy")  # type: ignore[assignment]

    fieldsets = ((None, {"fields": ("title", "authority")}), *DraftForm.fieldsets[1:])


def policy_state(policy: RetentionPolicy, published: Sequence[PolicyRevision]) -> SafeString:
    state = "suspended" if policy.suspended_at else "published" if published else "nothing published"
    return display.pill(state, STATES[state])


@admin.register(RetentionPolicy)
class RetentionPolicyAdmin(PolicyColumns, PolicyDecisions, ReadOnlyAdmin[RetentionPolicy]):
    """Title, trigger, period and effective date are those of the newest published revision."""

    tenant_path = "tenant__code"
    none_yet = "No policy yet: every object is unscheduled, and nothing is destroyed."
    list_display = (
        "code", "tenant", "title", "trigger", "period", "effective_from", "covered", "due_soon", "due_later", "schedule",
        "state",
    )  # fmt: skip
    list_select_related = ("tenant",)
    ordering = ("code",)
    list_per_page = 50
    exact_search = ("code",)
    search_help_text = "A policy code, exactly."
    fields = (
        "code",
        "tenant",
        "state",
        "suspended_at",
        "suspended_by",
        "suspended_reason",
        "resumed_by",
        "schedule",
        "missed_slots",
        "revision_table",
    )
    refusals = (RetentionError,)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.draft_policy")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[PolicyChangeList]:
        return PolicyChangeList

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
        rows = with_successor(obj.revisions.select_related("policy", "author", "published_by")).order_by("-number")
        return display.table(
            ("Revision", "Title", "Period", "In force from", "State", "Author", "Published by"),
            (
                (
                    display.link(revision),
                    revision.title,
                    period_of(revision),
                    display.moment(revision.in_force_from) if revision.in_force_from else display.NOTHING,
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


def with_successor(revisions: QuerySet[PolicyRevision]) -> QuerySet[PolicyRevision]:
    """Each with `superseded`: whether a later revision in force governs everything in its place."""
    later = PolicyRevision.objects.filter(
        policy=OuterRef("policy"), number__gt=OuterRef("number"), retroactive=True, in_force_from__lte=Now()
    )
    return revisions.annotate(superseded=Exists(later))


def revision_state(revision: Any) -> SafeString:
    if revision.published_at is None:
        return display.pill("submitted" if revision.submitted_at else "draft", "waiting")
    if revision.superseded:
        return display.pill("superseded", "ended")
    return display.pill("published" if revision.in_force_from <= timezone.now() else "published, not yet in force")


@admin.register(PolicyRevision)
class PolicyRevisionAdmin(ScopeColumns, RevisionDecisions, ReadOnlyAdmin[PolicyRevision]):
    tenant_path = "tenant__code"
    none_yet = "No revision yet: draft the first from the page of its policy."
    list_display = (
        "__str__", "title", "trigger", "period", "in_force_from", "state", "author", "published_by", "published_at",
    )  # fmt: skip
    list_select_related = ("policy", "author", "published_by")
    ordering = ("policy__code", "-number")
    lookups = frozenset({"submitted_at__isnull", "published_at__isnull"})
    exact_search = ("policy__code",)
    search_help_text = "A policy code, exactly."
    refusals = (RetentionError,)
    edit_form = EditForm
    empty_words = {
        "breaker_percent": "none: opted out",
        "window_days": "every day",
        "destroy_within_days": "no maximum",
    }
    fieldsets = (
        (None, {"fields": ("policy", "number", "title", "authority", "state", "successor")}),
        ("Scope", {"fields": ("tenant", "buckets", "covered_prefixes", "classes")}),
        ("Retention", {"fields": (("trigger", "event_type"), "period", "cutoff", "keep_newest", "retain_permanently")}),
        ("In force", {"fields": (*FORCE, "in_force_from")}),
        ("Destruction", {"fields": DESTRUCTION}),
        ("Caps: a run above any of them waits for approval", {"fields": CAPS}),
        (
            "People",
            {
                "fields": (
                    "author",
                    "created_at",
                    "editors",
                    ("submitted_by", "submitted_at"),
                    ("published_by", "published_at"),
                    "only_lengthens",
                )
            },
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[PolicyRevision]:
        return with_successor(super().get_queryset(request))

    def get_fieldsets(self, request: HttpRequest, obj: PolicyRevision | None = None) -> Any:
        """Of a draft, first what it would do."""
        whole = list(super().get_fieldsets(request, obj))
        if obj is None or obj.published_at is not None:
            return whole
        decided = [("Impact", {"fields": ("impact",)}), ("What it changes", {"fields": ("changes",)})]
        return [whole[0], *decided, *whole[1:]]

    @admin.display(description="period")
    def period(self, obj: PolicyRevision) -> str:
        return period_of(obj)

    @admin.display(description="state")
    def state(self, obj: PolicyRevision) -> SafeString:
        return revision_state(obj)

    @admin.display(description="successor")
    def successor(self, obj: Any) -> SafeString | str:
        """The next published revision, and what that leaves to this one."""
        after = (
            obj.policy.revisions.filter(number__gt=obj.number, published_at__isnull=False).order_by("number").first()
        )
        if obj.published_at is None or after is None:
            return display.NOTHING
        left = "" if obj.superseded or after.retroactive else ", for objects stored from its effective date on"
        return format_html("{} in force from {}{}", display.link(after), display.moment(after.in_force_from), left)

    @admin.display(description="edited by")
    def editors(self, obj: PolicyRevision) -> SafeString | str:
        people = User.objects.filter(pk__in=obj.editor_ids).order_by("pk")
        return display.bullets(map(str, people)) if people else display.NOTHING

    @admin.display(description="previews")
    def impact(self, obj: PolicyRevision) -> SafeString:
        return previews.impact_of(obj)

    @admin.display(description="against what is published")
    def changes(self, obj: PolicyRevision) -> SafeString | str:
        return previews.changes_of(obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.draft_policy")

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = DraftForm(request.POST or None, initial=draft_initial(request))

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            revision = policies.draft(by=person(request), **values)
            return (
                revision,
                f"Revision {revision} drafted. It changes nothing until it is previewed, submitted and published.",
            )

        return self.verb_page(
            request,
            form,
            act,
            title="Draft a policy revision",
            button="Save draft",
            fieldsets=DraftForm.fieldsets,
            about="A draft changes nothing. A second person publishes it, and after that it never changes.",
        )


def draft_initial(request: HttpRequest) -> dict[str, Any]:
    """What a draft begins with: an earlier revision's fields, but for those that must be chosen anew."""
    earlier, policy = request.GET.get("from", ""), request.GET.get("policy", "")
    seen = tenancy.scoped(PolicyRevision.objects.all(), person(request), "tenant__code")
    found = seen.filter(pk=int(earlier)).first() if earlier.isdecimal() else None
    if found is None:
        return {"policy": policy} if policy.isdecimal() else {}
    chosen_anew = {"effective_from"}
    return model_to_dict(found, fields=set(DraftForm.base_fields) - chosen_anew - {"retroactive"})
