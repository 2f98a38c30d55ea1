"""People and the audit record in the admin."""

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, Permission
from django.db import transaction
from django.db.models import Prefetch, QuerySet
from django.forms import CheckboxSelectMultiple
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display, jobpages  # noqa: F401 - importing registers its pages
from cleanup_project.base.auditfilter import NAMES, AuditFilter
from cleanup_project.base.modeladmin import ReadOnlyAdmin, RecordAdmin, SettingsAdmin
from cleanup_project.base.models import Alarm, AuditEvent, Heartbeat, User
from cleanup_project.base.settings_audit import record
from cleanup_project.base.signin import proof, sessions
from cleanup_project.base.signin.pages import SignInPages
from cleanup_project.base.verbpages import person as signed_in

admin.site.disable_action("delete_selected")
admin.site.site_header = "Cleanup"
admin.site.site_title = "Cleanup"
admin.site.index_title = "All records"
admin.site.site_url = None  # the admin is the site
admin.site.unregister(Group)
# allauth's pages would give away secrets, and let people change what only verbs may.
admin.site.unregister(
    [
        model
        for app in ("account", "mfa", "socialaccount")
        for model in apps.get_app_config(app).get_models()
        if admin.site.is_registered(model)
    ]
)
# django-q2's pages run any function that one types in, and unpickle what the tables hold.
admin.site.unregister(
    [model for model in apps.get_app_config("django_q").get_models() if admin.site.is_registered(model)]
)


# What a person may, which takes another to change.
OWN = ("is_active", "is_staff", "is_superuser", "groups", "tenants")


def sees_people(request: HttpRequest) -> bool:
    return request.user.has_perm("base.manage_settings") or request.user.has_perm("base.read_everything")


@admin.register(User)
class PersonAdmin(SignInPages, SettingsAdmin[User], UserAdmin):  # type: ignore[type-arg]
    """Deactivate, never delete: a person's decisions outlive the account.

    Rights come from roles alone. Only a superuser makes superusers, or touches one: whoever could set a superuser's
    password would be one. Whoever adds or changes somebody shows again who they are: an open session makes no people.
    """

    tenant_path = ""
    list_display = ("username", "email", "sees", "is_active", "is_superuser", "last_login")
    list_filter = ("is_active", "is_superuser", "groups")
    filter_horizontal = ()
    readonly_fields = ("last_login", "date_joined")
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        (
            "May",
            {
                "fields": ("is_active", "is_staff", "is_superuser", "groups", "tenants"),
                "description": "Nobody changes what they may themselves: another administrator does.",
            },
        ),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )

    def own(self, rows: QuerySet[User], user: User) -> QuerySet[User]:
        """Those who see every tenant, and those who see no other tenant than this person does; programs have tokens."""
        people = rows.filter(is_program=False)
        return people.filter(tenants__contained_by=user.tenants) if user.tenants else people

    def has_view_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return sees_people(request)

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        out_of_reach = obj is not None and obj.is_superuser and not request.user.is_superuser
        return super().has_change_permission(request, obj) and not out_of_reach

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        asked = proof.lead(request) if self.has_add_permission(request) else None
        return asked or super().add_view(request, form_url, extra_context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        posted = request.method == "POST" and self.has_change_permission(request)
        asked = proof.ask(request, "Change a person") if posted else None
        return asked or super().change_view(request, object_id, form_url, extra_context)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Somebody who was deactivated is signed out for good: activated again, they sign in again."""
        super().save_related(request, form, formsets, change)
        if change and "is_active" in form.changed_data and not form.instance.is_active:
            sessions.end(person=form.instance, by=signed_in(request), reason="The account was deactivated.")

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> list[Any]:
        kept = self.kept(request, obj)
        # By their names, so that the form has no such fields; and as they are presented.
        return [*super().get_readonly_fields(request, obj), *kept, *map(self.presented, kept)]

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        kept = self.kept(request, obj)
        return [
            (
                title,
                options | {"fields": [self.presented(name) if name in kept else name for name in options["fields"]]},
            )
            for title, options in super().get_fieldsets(request, obj)
        ]

    def kept(self, request: HttpRequest, obj: User | None) -> tuple[str, ...]:
        """What this administrator cannot change here."""
        superuser = () if request.user.is_superuser else ("is_superuser",)
        return OWN if obj == request.user else superuser

    @admin.display(description="sees")
    def sees(self, obj: User) -> str:
        return ", ".join(obj.tenants) or "every tenant"

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Roles are few: all of them with a box each."""
        return super().formfield_for_manytomany(db_field, request, widget=CheckboxSelectMultiple, **kwargs)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        if self.has_change_permission(request) and (asked := proof.lead(request)):
            return asked
        with transaction.atomic():
            person = self.get_object(request, unquote(id))
            before = person.password if person else None
            response = super().user_change_password(request, id, form_url)
            if person is not None:
                person.refresh_from_db(fields=["password"])
                if person.password != before:
                    record(request, person, "settings.changed", after={"password": "changed"})
        return response


@admin.register(Group)
class RoleAdmin(RecordAdmin[Group], GroupAdmin):
    """The roles are data of the product (`roles.MATRIX`): shown, not edited."""

    tenant_path = ""
    shared = "Roles are the same for every tenant."
    fields = ("name", "permissions")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Group]:
        """With what a permission's name says, which is a query for each otherwise."""
        named = Permission.objects.select_related("content_type")
        return super().get_queryset(request).prefetch_related(Prefetch("permissions", named))

    def has_view_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return sees_people(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return False


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin[AuditEvent]):
    tenant_path = "tenant"
    list_display = ("at", "actor_name", "action", "about", "reason")
    list_filter = (AuditFilter,)
    lookups = frozenset(NAMES)
    fields = (
        "at", "actor_name", "action", "about", "subject_type", "subject_id", "tenant", "reason", "changed", "request_id",
    )  # fmt: skip
    empty_words = {"tenant": "of no single tenant", "reason": "none stated", "request_id": "none: not a request"}

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """The newest first: by the number of the act, or within a time by that, as each has its index."""
        return ("-at", "-id") if {"since", "until"} & request.GET.keys() else ("-id",)

    @admin.display(description="about")
    def about(self, obj: AuditEvent) -> SafeString | str:
        return about(obj)

    @admin.display(description="what changed")
    def changed(self, obj: AuditEvent) -> SafeString | str:
        return display.difference(obj.before, obj.after)


@admin.register(Heartbeat)
class HeartbeatAdmin(ReadOnlyAdmin[Heartbeat]):
    tenant_path = ""
    shared = "Workers serve every tenant, and their rows tell of none."
    list_display = (
        "queue",
        "host",
        "seen_at",
        "last_start_at",
        "last_ack_at",
        "last_tick_at",
        "restarts",
        "stopped_at",
    )
    ordering = ("host", "queue", "id")
    empty_words = {
        "stopped_at": "not in order",
        "unacked_since": "all acknowledged",
        "restart_reason": "never restarted",
    }


@admin.register(Alarm)
class AlarmAdmin(ReadOnlyAdmin[Alarm]):
    """What is wrong now, and what was; nobody ends an alarm here."""

    tenant_path = "tenant"
    none_yet = "Nothing is wrong that the system knows of."
    list_display = ("kind", "about", "message", "raised_at", "noticed_at", "cleared_at")
    ordering = ("-id",)
    readonly_fields = (
        "raised_at", "told_at", "end_told_at", "tried_at", "tries", "trouble", "announced_at", "end_announced_at",
    )  # fmt: skip
    lookups = frozenset({"cleared_at__isnull", "kind__in"})
    exact_search = ("kind",)
    search_help_text = "A kind of alarm, exactly, for example catalogue.stale."
    empty_words = {
        "cleared_at": "still so", "announced_at": "not yet", "end_announced_at": "not yet", "told_at": "not told",
        "end_told_at": "not told", "tried_at": "never", "trouble": "none",
    }  # fmt: skip

    def narrowed(self, request: HttpRequest) -> str | None:
        return "Open now" if request.GET.get("cleared_at__isnull") == "True" else None

    @admin.display(description="about")
    def about(self, obj: Alarm) -> SafeString | str:
        return about(obj)


def about(row: Alarm | AuditEvent) -> SafeString | str:
    """Links to the page of what it is about."""
    label = display.visible(row.subject_label)
    try:
        address = reverse(f"admin:{row.subject_type.replace('.', '_')}_change", args=[row.subject_id])
    except NoReverseMatch:  # it has no page of its own
        return label
    return format_html('<a href="{}">{}</a>', address, label)
