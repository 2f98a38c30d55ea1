"""Tenants, buckets, key rules and the catalogue."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, SettingsAdmin, Tool
from cleanup_project.base.models import User
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from retention import freshness, losses
from retention.admin import dispositions
from retention.admin.dispositions import DispositionPages
from retention.admin.lifecycle import lifecycle_of
from retention.admin.listings import Listings
from retention.admin.why import WhyPages
from retention.buckets import used_by
from retention.exceptions import RetentionError
from retention.models import Bucket, CatalogueSync, KeyRule, LifecycleRule, ObjectVersion, Tenant
from retention.rules import KeyFacts
from retention.rules_trial import try_rule
from retention.why import explain, why

LIFECYCLE = "Lifecycle rules of the store"
KEYS_TRIED = 50
BUCKETS_LISTED = 200
LIMITS = ("catalogue_max_age_hours", "shrink_percent")


@admin.register(Tenant)
class TenantAdmin(SettingsAdmin[Tenant]):
    tenant_path = "code"
    list_display = ("code", "name", "created_at")
    search_fields = ("code", "name")
    readonly_fields = ("created_at",)
    fixed_fields = ("code",)  # command keys begin with it


class LimitsForm(ReasonForm):
    class Meta:
        model = Bucket
        fields = LIMITS


@admin.register(Bucket)
class BucketAdmin(SettingsAdmin[Bucket], VerbPages[Bucket]):
    tenant_path = ""
    list_display = ("name", "endpoint_url", "region", "versioning", "object_lock", "observed_at", "keys_per_second")
    search_fields = ("name",)
    readonly_fields = (
        "catalogue_max_age_hours", "shrink_percent", "versioning", "object_lock", "observed_at", "created_at", "lifecycle",
        "lifecycle_observed_at", "lifecycle_trouble",
    )  # fmt: skip
    refusals = (RetentionError,)
    fixed_fields = ("name", "endpoint_url")  # the catalogue and every manifest mean this very bucket
    empty_words = {
        "endpoint_url": "Amazon S3",
        "breaker_percent": "none: opted out",
        "catalogue_max_age_hours": "no limit: a recorded decision",
        "shrink_percent": "no limit: a recorded decision",
    }
    fieldsets = (
        (None, {"fields": ("name", "endpoint_url", "region", "addressing_style", "credential_profile")}),
        ("Pace", {"fields": ("sync_every_hours", "keys_per_second", "settle_seconds", "breaker_percent")}),
        ("Limits: beyond them nothing is destroyed", {"fields": ("catalogue_max_age_hours", "shrink_percent")}),
        ("As observed", {"fields": ("versioning", "object_lock", "observed_at", "created_at")}),
        (LIFECYCLE, {"fields": ("lifecycle", "lifecycle_observed_at", "lifecycle_trouble")}),
    )

    def own(self, rows: QuerySet[Bucket], user: User) -> QuerySet[Bucket]:
        """Buckets are shared: a person sees those in which something is of their tenants."""
        return rows.filter(pk__in=used_by(user.tenants)) if user.tenants else rows

    def get_fieldsets(self, request: HttpRequest, obj: Bucket | None = None) -> Any:
        """What lifecycle rules could delete names holds and policies of whatever tenant."""
        whole = super().get_fieldsets(request, obj)
        return [each for each in whole if each[0] != LIFECYCLE] if person(request).tenants else whole

    @admin.display(description="rules")
    def lifecycle(self, obj: Bucket) -> SafeString | str:
        return lifecycle_of(obj) if obj.pk else display.NOTHING

    def tools(self, request: HttpRequest, obj: Bucket) -> Iterable[Tool]:
        if self.may_decide(request, "base.publish_policy"):
            yield Tool("Change limits", reverse("admin:retention_bucket_limits", args=[obj.pk]))
        if self.may_decide(request, "base.review_quarantine") and losses.open_alarms(obj):
            yield Tool("Mark losses as seen", reverse("admin:retention_bucket_seen", args=[obj.pk]))

    def may_decide(self, request: HttpRequest, right: str) -> bool:
        """Others share the bucket, or may come to: it takes somebody who sees every tenant."""
        return request.user.has_perm(right) and not person(request).tenants

    def get_urls(self) -> list[Any]:
        own: list[URLPattern] = [
            self.verb_url("seen", self.seen_view),
            self.verb_url("limits", self.limits_view),
        ]
        return own + super().get_urls()

    def seen_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not self.may_decide(request, "base.review_quarantine"):
            raise PermissionDenied
        form = forms.modelform_factory(Bucket, form=ReasonForm, fields=())(request.POST or None, instance=obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            return obj, f"Seen: {display.count(losses.seen(bucket=obj, by=person(request), **values), 'alarm')} ended."

        return self.verb_page(
            request,
            form,
            act,
            title="Mark losses as seen",
            button="Mark as seen",
            fieldsets=[(None, {"fields": ("reason",)})],
            about=" ".join(alarm.message for alarm in losses.open_alarms(obj)) or "Nothing is open.",
            obj=obj,
        )

    def limits_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not self.may_decide(request, "base.publish_policy"):
            raise PermissionDenied
        form = LimitsForm(request.POST or None, instance=obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            row = freshness.change_limits(bucket=obj, by=person(request), **values)
            return row, f"The limits of {row} are changed."

        return self.verb_page(
            request,
            form,
            act,
            title="Change the limits of a bucket",
            button="Change limits",
            fieldsets=[(None, {"fields": (*LIMITS, "reason")})],
            about="Where the catalogue is older, or a listing shows so much less than the one before, no run may destroy "
            "anything. An empty field opts out, which is a decision that is kept for ever.",
            obj=obj,
        )


class BucketFilter(admin.SimpleListFilter):
    """By bucket, while there are few enough to list."""

    title = "bucket"
    parameter_name = "bucket"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        codes = person(request).tenants
        rows = used_by(codes) if codes else Bucket.objects.all()
        return list(rows.order_by("name").values_list("pk", "name")[:BUCKETS_LISTED])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(bucket=int(value)) if value and value.isdecimal() else queryset


@admin.register(LifecycleRule)
class LifecycleRuleAdmin(ReadOnlyAdmin[LifecycleRule]):
    tenant_path = ""
    none_yet = "No listing has found a lifecycle rule at the store."
    list_display = ("rule_id", "bucket", "words", "first_seen_at", "last_seen_at", "ended_at")
    list_select_related = ("bucket",)
    ordering = ("-id",)
    empty_words = {"prefix": "the whole bucket", "ended_at": "still there"}

    def own(self, rows: QuerySet[LifecycleRule], user: User) -> QuerySet[LifecycleRule]:
        return rows.filter(bucket__in=used_by(user.tenants)) if user.tenants else rows


@admin.register(KeyRule)
class KeyRuleAdmin(SettingsAdmin[KeyRule], VerbPages[KeyRule]):
    tenant_path = "tenant__code"
    list_display = ("pattern", "bucket", "position", "tenant", "role", "retention_class")
    list_filter = (BucketFilter,)
    list_select_related = ("bucket", "tenant")
    ordering = ("bucket__name", "position")

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        if request.method == "POST" and "_try" in request.POST:
            return self.trial(request, object_id)
        return super().changeform_view(request, object_id, form_url, extra_context)

    def trial(self, request: HttpRequest, object_id: str | None) -> HttpResponse:
        """The unsaved form again, with what its rule would say about keys of its bucket."""
        obj = self.get_object(request, object_id) if object_id else None
        if object_id and obj is None:
            raise Http404("There is no such rule.")
        if not (self.has_change_permission(request, obj) if obj else self.has_add_permission(request)):
            raise PermissionDenied
        form = self.get_form(request, obj, change=obj is not None)(request.POST, instance=obj)
        tried = try_rule(form.instance, KEYS_TRIED) if form.is_valid() else None
        context = {
            "trial": None if tried is None else trial_table(form.instance, tried),
            "tried": len(tried or ()),
            "matched": sum(facts is not None for _key, facts in tried or ()),
            "change": obj is not None,
            "is_popup": False,
            "save_as": False,
            "has_add_permission": self.has_add_permission(request),
            "has_change_permission": True,
            "has_delete_permission": False,
            "has_editable_inline_admin_formsets": False,
        }
        title = "Try a key rule"
        template = "admin/retention/keyrule/change_form.html"
        return self.form_page(request, form, template, context, title, self.get_fieldsets(request, obj), obj=obj)


def trial_table(rule: KeyRule, tried: Iterable[tuple[str, KeyFacts | None]]) -> SafeString:
    headings = ("Key", "Tenant", "Asset", "Series", "Role", "Original", "Class", "Date")
    return display.table(headings, (trial_row(rule, key, facts) for key, facts in tried))


def trial_row(rule: KeyRule, key: str, facts: KeyFacts | None) -> tuple[Any, ...]:
    if facts is None:
        return display.exact(key), format_html('<span class="quiet">{}</span>', "does not match"), *("",) * 6
    return (
        display.exact(key),
        rule.tenant or "none: unscheduled",
        display.exact(facts.asset),
        "as asset" if facts.series == facts.asset else display.exact(facts.series),
        rule.get_role_display(),
        display.exact(facts.original_key) if facts.original_key else display.NOTHING,
        display.exact(facts.retention_class) if facts.retention_class else "unclassified",
        display.moment(facts.dated_at) if facts.dated_at else "none stated",
    )


@admin.register(ObjectVersion)
class ObjectVersionAdmin(WhyPages, DispositionPages, Listings, ReadOnlyAdmin[ObjectVersion]):
    tenant_path = "tenant__code"
    list_display = ("key", "version_id", "bucket", "size", "stored_at", "tenant", "retention_class", "role", "state")
    list_filter = (BucketFilter,)
    list_select_related = ("bucket", "tenant")
    exact_search = ("key",)
    search_help_text = "A whole key, exactly, blanks included: finds every version under it, in any bucket."
    empty_words = {"retention_class": "unclassified", "tenant": "unscheduled"}
    fieldsets = (
        (None, {"fields": ("key", "version_id", "bucket", "state", "explanation", "decisions")}),
        (
            "As stored",
            {"fields": ("size", "etag", "stored_at", "storage_class", "is_latest", "is_delete_marker", "incarnation")},
        ),
        (
            "As classified",
            {"fields": ("tenant", "asset", "series", "retention_class", "role", "standalone", "dated_at", "stated")},
        ),
        ("Its original", {"fields": ("original_bucket", "original_key", "original_version_id")}),
        (
            "As observed",
            {
                "fields": (
                    "source",
                    "first_observed_at",
                    "observed_at",
                    "listed_at",
                    "gone_at",
                    "gone_reason",
                    "survived_at",
                    "parked_by",
                )
            },
        ),
    )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """By the identity index; for who sees one tenant alone by its own, since others' keys may lie between."""
        one = len(person(request).tenants) == 1
        return ("bucket_id", "id") if one else ("bucket_id", "key", "version_id", "incarnation")

    def search_exactly(self, queryset: QuerySet[ObjectVersion], term: str) -> QuerySet[ObjectVersion]:
        return queryset & ObjectVersion.objects.with_key(term)

    @admin.display(description="state")
    def state(self, obj: ObjectVersion) -> SafeString:
        if obj.survived_at:
            return display.pill("survived its end", "overdue")
        if obj.gone_at:
            return display.pill(obj.get_gone_reason_display(), "ended")
        return display.pill("held", "waiting") if obj.parked_by_id else display.pill("present")

    @admin.display(description="Why?")
    def explanation(self, obj: ObjectVersion) -> SafeString:
        """Judged now, against the policies and holds in force."""
        return display.bullets(display.visible(sentence) for sentence in explain(obj, why(obj)))

    @admin.display(description="decided about it")
    def decisions(self, obj: ObjectVersion) -> SafeString | str:
        return dispositions.table(obj)


@admin.register(CatalogueSync)
class CatalogueSyncAdmin(ReadOnlyAdmin[CatalogueSync]):
    tenant_path = ""
    list_display = (
        "started_at",
        "bucket",
        "prefix",
        "source",
        "finished_at",
        "pages",
        "versions",
        "refused",
        "vanished",
        "survived",
    )
    list_select_related = ("bucket",)
    list_filter = (BucketFilter,)
    ordering = ("-id",)
    empty_words = {"prefix": "the whole bucket", "finished_at": "not finished"}

    def own(self, rows: QuerySet[CatalogueSync], user: User) -> QuerySet[CatalogueSync]:
        return rows.filter(bucket__in=used_by(user.tenants)) if user.tenants else rows

    def get_fields(self, request: HttpRequest, obj: CatalogueSync | None = None) -> list[Any]:
        """How far a listing came is the key of an object of whatever tenant."""
        fields = super().get_fields(request, obj)
        return [name for name in fields if name != "after_key"] if person(request).tenants else fields
