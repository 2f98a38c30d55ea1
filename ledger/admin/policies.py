"""The page of a retention policy, with the way to its runs."""

from collections.abc import Iterable

from django.contrib import admin
from django.http import HttpRequest

from cleanup_project.base.modeladmin import Tool, list_url
from ledger.models import CleanupRun
from retention.admin import policies as base
from retention.models import RetentionPolicy

admin.site.unregister(RetentionPolicy)


@admin.register(RetentionPolicy)
class RetentionPolicyAdmin(base.RetentionPolicyAdmin):
    def tools(self, request: HttpRequest, obj: RetentionPolicy) -> Iterable[Tool]:
        if request.user.has_perm("ledger.view_cleanuprun") or request.user.has_perm("base.read_everything"):
            yield Tool("Runs", list_url(CleanupRun, f"?q={obj.code}"))
        yield from super().tools(request, obj)
