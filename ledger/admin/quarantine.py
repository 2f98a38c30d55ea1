"""Quarantine in the admin: by cause, narrowed, with the present truth when asked; replayed or closed, one or many."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from cleanup_project.base import clock, display, paginator
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from ledger import bulk, causes, next_action, quarantine
from ledger.admin.commands import ABOUT_REPLAY, ReplayForm, state_pill
from ledger.admin.entryfilter import EntryFilter, narrowed
from ledger.admin.entrypages import PAGE, entry_facts, neighbours, now_of, page_of
from ledger.admin.manyentries import ABOUT, TITLES, ManyPages, many_url
from ledger.causes import Group
from ledger.models import DeadLetter

USUAL: Final = 6  # filters that are always shown
LIST_BUDGET_MS: Final = 2000
FILTERS: Final = "_changelist_filters"  # Django's own name for where an item's page came from


@admin.register(DeadLetter)
class DeadLetterAdmin(ManyPages, VerbPages[DeadLetter], ReadOnlyAdmin[DeadLetter]):
    tenant_path: ClassVar[str] = "tenant__code"
    empty_words = {"resolved_at": "open", "resolved_by": "nobody"}
    fieldsets = (
        (None, {"fields": ("command", "command_state", "state", "failed_as", "next_action")}),
        ("What happened", {"fields": ("cycle", "attempts", "first", "last", "entered_at", "bucket", "tenant")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[DeadLetter]:
        return super().get_queryset(request).select_related("command", "run", "bucket", "tenant", "resolved_by")

    def get_urls(self) -> list[Any]:
        own = [self.verb_url(verb, self.view_of(verb)) for verb in TITLES]
        return [*own, self.verb_url("now", self.now_view), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        found = narrowed(request, self.get_queryset(request))
        context: dict[str, Any] = {"why_not": found.refusal, "page": None, "filter": found, **halves(found)}
        try:
            with transaction.atomic(), paginator.limited(LIST_BUDGET_MS):
                context |= self.listed(request, found)
        except OperationalError:
            context["why_not"] = "Looking for these takes too long: narrow the list by more, or by something else."
        if request.GET.get("look") and context["page"]:
            context["truths"] = now_of(context["page"].entries)
        return self.shown(request, "admin/ledger/deadletter/change_list.html", context | (extra_context or {}))

    def listed(self, request: HttpRequest, found: EntryFilter) -> dict[str, Any]:
        """The page of the list, how many match, and, where it is not narrowed, the causes."""
        rows = found.rows
        counted = paginator.CappedPaginator(rows, PAGE)
        page = page_of(rows, request.GET)
        kept = without(request.GET, "after", "before", "look")
        return {
            "page": page,
            "number": counted.count,
            "is_estimate": counted.is_estimate,
            "words": "" if found.refusal else found.words(),
            **({} if found.is_narrowed else self.by_cause(request)),
            "kept": kept,
            "older": page.last and with_(request.GET, after=page.last),
            "newer": page.first and with_(request.GET, before=page.first),
            "look": "&".join(filter(None, (without(request.GET, "look"), "look=1"))),
            "from_here": urlencode({FILTERS: kept}) if kept else "",
            "many": [] if found.refusal or request.GET.get("entries") == "resolved" else self.may(request, kept),
        }

    def may(self, request: HttpRequest, query: str) -> list[tuple[str, str, str]]:
        """(verb, title, address for all of this) of what this person may do to many."""
        return [
            (verb, title, many_url(verb, query))
            for verb, title in TITLES.items()
            if request.user.has_perm(bulk.RIGHTS[verb])
        ]

    def by_cause(self, request: HttpRequest) -> dict[str, Any]:
        found = causes.groups(person(request).tenants)
        return {"groups": [self.group(request, each) for each in found.each], "more_causes": found.more}

    def group(self, request: HttpRequest, each: Group) -> dict[str, Any]:
        named = {"class": each.failure_class, "code": each.storage_code or display.NOTHING}
        query = urlencode(named | ({"bucket": str(each.at.pk)} if each.at else {}))
        return {"of": each, "query": query, "many": self.may(request, query)}

    def shown(self, request: HttpRequest, template: str, context: dict[str, Any]) -> HttpResponse:
        shared = {**self.admin_site.each_context(request), "title": "Quarantine", "opts": self.opts, "now": clock.now()}
        return TemplateResponse(request, template, shared | context)

    def now_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """What is so of one entry now, as a part of another page."""
        entry = self.wanted(request, str(object_id))
        return TemplateResponse(request, "admin/ledger/deadletter/now.html", {"truth": now_of([entry])[entry.pk]})

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **options: Any) -> HttpResponse:  # type: ignore[override]
        entry = options.get("obj")
        if entry is not None:
            context |= self.item(request, entry)
        return super().render_change_form(request, context, **options)

    def item(self, request: HttpRequest, entry: DeadLetter) -> dict[str, Any]:
        query = QueryDict(request.GET.get(FILTERS, ""))
        found = narrowed(request, self.get_queryset(request), query)
        return {
            "entry": entry,
            "now": clock.now(),
            "turn": next_action.of_command(entry.command),
            "state_pill": state_pill(entry.command.state),
            "truth": now_of([entry])[entry.pk] if request.GET.get("look") else None,
            "truth_url": reverse("admin:ledger_deadletter_now", args=[entry.pk]),
            "kept": request.GET.get(FILTERS, ""),
            "from_here": urlencode({FILTERS: request.GET.get(FILTERS, "")}),
            **entry_facts(entry),
            **neighbours(entry, found),
        }

    def tools(self, request: HttpRequest, obj: DeadLetter) -> Iterable[Tool]:
        if obj.resolved_at is not None:
            return
        for verb, title in TITLES.items():
            if request.user.has_perm(bulk.RIGHTS[verb]):
                yield Tool(title, reverse(f"admin:ledger_deadletter_{verb}", args=[obj.pk]))

    def view_of(self, verb: str) -> Callable[..., HttpResponse]:
        return lambda request, object_id: self.decision(request, object_id, verb)

    def decision(self, request: HttpRequest, object_id: int, verb: str) -> HttpResponse:
        """Replay or close one."""
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm(bulk.RIGHTS[verb]):
            raise PermissionDenied
        form, fields = (ReplayForm, ("reason", "repair")) if verb == "replay" else (ReasonForm, ("reason",))
        shown = self.get_fieldsets(request, obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            if verb == "close":
                entry = quarantine.close(command=obj.command, by=person(request), reason=values["reason"])
                return entry, "Closed without retry."
            command = quarantine.replay(
                command=obj.command, by=person(request), reason=values["reason"], repair=values["repair"]
            )
            return command, f"Command {command} is ready again, in cycle {command.cycle}."

        return self.verb_page(
            request,
            forms.modelform_factory(DeadLetter, form=form, fields=())(request.POST or None, instance=obj),
            act,
            title="Replay a command" if verb == "replay" else "Close without retry",
            button="Replay it" if verb == "replay" else "Close without retry",
            fieldsets=[*shown, ("Your decision", {"fields": fields})],
            readonly=self.get_readonly_fields(request, obj),
            about=ABOUT_REPLAY if verb == bulk.REPLAY else ABOUT[verb],
            obj=obj,
        )

    @admin.display(description="state")
    def state(self, obj: DeadLetter) -> SafeString:
        words = obj.get_resolution_display().lower()
        return display.pill("open", "overdue") if obj.resolved_at is None else display.pill(words, "ended")

    @admin.display(description="failure class")
    def failed_as(self, obj: DeadLetter) -> str:
        return obj.failure_class.replace("_", " ")

    @admin.display(description="first error")
    def first(self, obj: DeadLetter) -> str:
        return display.visible(obj.first_error)

    @admin.display(description="last error")
    def last(self, obj: DeadLetter) -> str:
        return display.visible(obj.last_error)

    @admin.display(description="its command is")
    def command_state(self, obj: DeadLetter) -> SafeString:
        return state_pill(obj.command.state)


def halves(found: EntryFilter) -> dict[str, Any]:
    """The fields that are asked for most, and the others."""
    fields = list(found.form)
    more = fields[USUAL:]
    return {"usual": fields[:USUAL], "more": more, "more_is_used": any(found.data.get(each.name) for each in more)}


def without(query: QueryDict, *names: str) -> str:
    """The rest of an address's query."""
    kept = query.copy()
    for name in names:
        kept.pop(name, None)
    return kept.urlencode()


def with_(query: QueryDict, **values: int) -> str:
    return "&".join(filter(None, (without(query, "after", "before", "look"), urlencode(values))))
