"""Admin base classes: fast on large tables, and unable to change what the machine owns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

from django.contrib import admin, messages
from django.contrib.admin.filters import SimpleListFilter
from django.contrib.admin.utils import flatten_fieldsets, unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import FieldDoesNotExist, PermissionDenied
from django.db.models import Field, Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.text import capfirst

from cleanup_project.base import display, tenancy
from cleanup_project.base.lists import ABOUT
from cleanup_project.base.models import AuditEvent, User
from cleanup_project.base.navigation import LISTS
from cleanup_project.base.paginator import EXACT_UP_TO, CappedPaginator
from cleanup_project.base.settings_audit import record_settings

M = TypeVar("M", bound=Model)

HISTORY_SHOWN = 200
READING = {"change", "history", "why", "verify", "compare", "certificate"}  # pages of a row that decide nothing


def person(request: HttpRequest) -> User:
    """Who is logged in; admin views let nobody else in."""
    assert isinstance(request.user, User)
    return request.user


class Tool(NamedTuple):
    """A link at the top of an item's page."""

    label: str
    url: str

    @property
    def decides(self) -> bool:
        """Whether it leads to the form of a verb (`…/<id>/<verb>/`, `…/add/`), and not just elsewhere."""
        *_, before, last = urlsplit(self.url).path.rstrip("/").rsplit("/", 2)
        named = last.replace("-", "_").isidentifier()
        return last == "add" or (before.isdecimal() and named and last not in READING)


class RecordAdmin(admin.ModelAdmin[M]):
    """Shown to whoever may view it or read everything, with its audit record as history; nothing is ever deleted.

    Of rows that belong to a tenant, people see those of their tenants (`base.tenancy`): in lists, on pages and in choices.
    Others' are not there for them. `tenant_path` leads from a row to its tenant's code; empty where rows have none, and then
    `shared` says why everybody sees them, or `own` is overridden to say who does.
    """

    tenant_path: ClassVar[str]
    shared: ClassVar[str] = ""
    actions: Any = None
    empty_words: ClassVar[Mapping[str, str]] = {}
    none_yet: ClassVar[str] = ""  # what it means that the list is empty

    def own(self, rows: QuerySet[M], user: User) -> QuerySet[M]:
        """Of these rows, those that this person may see."""
        return tenancy.scoped(rows, user, self.tenant_path) if self.tenant_path else rows

    def get_queryset(self, request: HttpRequest) -> QuerySet[M]:
        return self.own(super().get_queryset(request), person(request))

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponse:
        """Django's would lead to the index: what is not there, and what is another tenant's, answers 404 everywhere."""
        raise Http404(f"There is no {self.opts.verbose_name} {object_id}.")

    def has_view_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return super().has_view_permission(request, obj) or request.user.has_perm("base.read_everything")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def presented(self, name: Any, *, linked: bool = True) -> Any:
        """A model field by its presentation (`base.display`); anything else as it is."""
        if isinstance(name, tuple):
            return tuple(self.presented(each) for each in name)
        if not isinstance(name, str):
            return name
        try:
            field = self.opts.get_field(name)
        except FieldDoesNotExist:
            return name
        if not isinstance(field, Field):
            return name
        return display.column(field, self.empty_words.get(name, display.NOTHING), linked)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        """The first column leads to the row, and so to nothing else."""
        first, *rest = self.list_display
        return [self.presented(first, linked=False), *(self.presented(name) for name in rest)]

    def get_list_display_links(self, request: HttpRequest, list_display: Sequence[Any]) -> list[Any]:
        return list(list_display[:1])

    def get_fieldsets(self, request: HttpRequest, obj: M | None = None) -> Any:
        """What cannot be changed here is presented; the rest are form fields."""
        fixed = obj is not None and not self.has_change_permission(request, obj)
        return [
            (
                title,
                {
                    **options,
                    "fields": [
                        self.presented(name) if fixed or name in self.readonly_fields else name
                        for name in options["fields"]
                    ],
                },
            )
            for title, options in super().get_fieldsets(request, obj)
        ]

    def tools(self, request: HttpRequest, obj: M) -> Iterable[Tool]:
        """Links at the top of an item's page, besides its history."""
        return ()

    def narrowed(self, request: HttpRequest) -> str | None:
        """What a list is narrowed to by the link that led to it, in words."""
        return None

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Under the name by which the navigation leads to it, with what a row is."""
        label = self.opts.label
        told = {
            "title": LISTS[label].page.label,
            "subtitle": self.narrowed(request),
            "about": ABOUT[label],
        }
        return super().changelist_view(request, told | (extra_context or {}))

    def live(self, obj: M) -> bool:
        """Whether an item's page follows what is going on: it then asks for itself anew until this is no longer so."""
        return False

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: M | None = None,
    ) -> HttpResponse:
        if obj is not None:
            context |= {
                "title": capfirst(self.opts.verbose_name),
                "subtitle": display.visible(str(obj)),
                "tools": sorted(self.tools(request, obj), key=lambda tool: not tool.decides),
                "live": self.live(obj),
            }
        return super().render_change_form(request, context, add=add, change=change, form_url=form_url, obj=obj)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """What the audit record says about one item: Django's own log knows only what was done in the admin."""
        obj = self.get_object(request, unquote(object_id))
        if obj is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)
        if not self.has_view_or_change_permission(request, obj):
            raise PermissionDenied
        about = AuditEvent.objects.filter(subject_type=self.opts.label_lower, subject_id=str(obj.pk))
        events = list(tenancy.scoped(about, person(request), "tenant").order_by("-id")[: HISTORY_SHOWN + 1])
        shown = events[:HISTORY_SHOWN]
        headings = ("When", "Who", "Action", "Reason", "What changed")
        context = {
            **self.admin_site.each_context(request),
            "title": f"{capfirst(self.opts.verbose_name)}: history",
            "subtitle": display.visible(str(obj)),
            "opts": self.opts,
            "original": obj,
            "events": display.table(headings, map(event_row, shown)) if shown else "",
            "at_limit": len(events) > HISTORY_SHOWN,
            "record": record_of(obj) if may_view(request, AuditEvent) else "",
        }
        return TemplateResponse(request, "admin/history.html", context)


def event_row(event: AuditEvent) -> tuple[Any, ...]:
    changed = display.difference(event.before, event.after)
    return (display.moment(event.at), event.actor_name, event.action, event.reason or display.NOTHING, changed)


class LargeChangeList(ChangeList):
    """Rows come in the admin's own order, which follows an index; asked for another, PostgreSQL would sort the table."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str]:  # type: ignore[override]
        return [str(field) for field in self.model_admin.get_ordering(request)]

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        paginator = self.paginator
        if isinstance(paginator, CappedPaginator) and self.page_num != paginator.nearest(self.page_num):
            self.page_num = paginator.nearest(self.page_num)
            messages.warning(
                request,
                f"There is no such page; this is page {self.page_num}. Lists end after {EXACT_UP_TO:,} rows: "
                "narrow them by search or filter.",
            )


class LargeTableAdmin(RecordAdmin[M]):
    """Stays fast at ten million rows: capped count, no facets, and search by exact value on indexed columns.

    `exact_search` names the columns that the search box looks in. The term is taken whole and exactly, blanks included:
    object keys may contain anything. `lookups` names what a link may narrow the list by, beside `list_filter`; each must
    have an index, as must the first columns of `ordering`.
    """

    paginator: ClassVar[Any] = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    list_per_page = 100
    list_max_show_all = 200
    sortable_by: ClassVar[Any] = ()
    exact_search: ClassVar[tuple[str, ...]] = ()
    lookups: ClassVar[frozenset[str]] = frozenset()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return LargeChangeList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only what was declared: Django lets anyone put `line__regex=…` into the address."""
        named = {
            each.parameter_name if isinstance(each, type) and issubclass(each, SimpleListFilter) else f"{each}__exact"
            for each in self.list_filter
        }
        return lookup in self.lookups or lookup in named

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
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

    def get_fields(self, request: HttpRequest, obj: M | None = None) -> list[Any]:
        """As declared, else every field, in the model's order."""
        return list(self.fields or [field.name for field in self.opts.fields if not field.primary_key])

    def get_readonly_fields(self, request: HttpRequest, obj: M | None = None) -> list[Any]:
        return flatten_fieldsets(self.get_fieldsets(request, obj))


class SettingsAdmin(RecordAdmin[M]):
    """For what administrators configure: needs the right `manage_settings`; each change leaves an audit record.

    Settings hold for every tenant, so only an administrator who sees every tenant changes them.
    `fixed_fields` cannot change once they are saved, since evidence or other systems name the row by them.
    """

    fixed_fields: ClassVar[tuple[str, ...]] = ()

    def has_view_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return super().has_view_permission(request, obj) or request.user.has_perm("base.manage_settings")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may_set(request)

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return may_set(request)

    def get_readonly_fields(self, request: HttpRequest, obj: M | None = None) -> list[Any]:
        observed = [self.presented(name) for name in super().get_readonly_fields(request, obj)]
        return [*observed, *(self.fixed_fields if obj else ())]

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """The last step of saving, many-to-many fields included, in the transaction of the whole."""
        super().save_related(request, form, formsets, change)
        record_settings(request, form, change)


def may_set(request: HttpRequest) -> bool:
    return request.user.has_perm("base.manage_settings") and not person(request).tenants


def list_url(model: type[Model], query: str = "") -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist") + query


def record_of(obj: Model) -> str:
    """Where the audit record tells everything about one item."""
    return list_url(AuditEvent, "?" + urlencode({"item": f"{obj._meta.label_lower}:{obj.pk}"}))


def may_view(request: HttpRequest, model: type[Model]) -> bool:
    """Whether this person may open the pages of a model's rows."""
    pages = admin.site._registry.get(model)
    return pages is not None and bool(pages.has_view_permission(request))
