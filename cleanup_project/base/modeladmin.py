"""Admin base classes: fast on large tables, and unable to change what the machine owns."""

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from cleanup_project.base.paginator import CappedPaginator

M = TypeVar("M", bound=Model)


class LargeTableAdmin(admin.ModelAdmin[M]):
    """Stays fast at ten million rows: capped count, no facets, and search by exact value on indexed columns.

    `exact_search` names the columns that the search box looks in. The term is taken whole and exactly, blanks included:
    object keys may contain anything.
    """

    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 100
    list_max_show_all = 200
    actions: Any = None
    exact_search: ClassVar[tuple[str, ...]] = ()

    def get_search_fields(self, request: HttpRequest) -> Sequence[str]:
        return self.exact_search

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[M], search_term: str
    ) -> tuple[QuerySet[M], bool]:
        term = request.GET.get("q", search_term)
        if not term:
            return queryset, False
        if "\x00" in term:
            return queryset.none(), False  # PostgreSQL text cannot hold it, so nothing can match
        return self.search_exactly(queryset, term), False

    def search_exactly(self, queryset: QuerySet[M], term: str) -> QuerySet[M]:
        """Rows that carry the term in one of `exact_search`; each column must have an index."""
        found = queryset.none()
        for field in self.exact_search:
            found = found | queryset.filter(**{field: term})
        return found


class ReadOnlyAdmin(LargeTableAdmin[M]):
    """For rows that the machine owns: shown to whoever may view them, changed by nobody."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False


class SettingsAdmin(admin.ModelAdmin[M]):
    """For what administrators configure: needs the right `manage_settings`; nothing is deleted."""

    actions: Any = None

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("base.manage_settings")

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return request.user.has_perm("base.manage_settings")

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False
