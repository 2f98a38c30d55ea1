"""People and the audit record in the admin."""

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group
from django.db.models import Model
from django.http import HttpRequest

from cleanup_project.base.modeladmin import ReadOnlyAdmin
from cleanup_project.base.models import AuditEvent, User

admin.site.disable_action("delete_selected")
admin.site.site_header = "Cleanup"
admin.site.site_title = "Cleanup"
admin.site.index_title = "Records"
admin.site.unregister(Group)


@admin.register(User)
class PersonAdmin(UserAdmin):  # type: ignore[type-arg]
    """Deactivate, never delete: a person's decisions outlive the account."""

    list_display = ("username", "email", "is_active", "is_superuser", "last_login")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.manage_settings") or request.user.has_perm("base.read_everything")

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.manage_settings")

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return request.user.has_perm("base.manage_settings")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(Group)
class RoleAdmin(GroupAdmin):
    """The roles are data of the product (`roles.MATRIX`): shown, not edited."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin[AuditEvent]):
    list_display = ("at", "actor_name", "action", "subject_type", "subject_label", "reason")
    list_display_links = ("at",)
    ordering = ("-id",)
    sortable_by = ()
    exact_search = ("subject_id", "actor_name")
