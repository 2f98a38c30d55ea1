"""Quarantine in the admin: what waits for a person, by class of failure; replayed or closed one at a time."""

from collections.abc import Iterable, Iterator
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from ledger import quarantine
from ledger.admin.commands import ABOUT_REPLAY, ReplayForm, state_pill
from ledger.exceptions import LedgerError
from ledger.failures import RULES
from ledger.models import DeadLetter


class OpenFilter(admin.SimpleListFilter):
    """What is open, unless asked otherwise."""

    title = "state"
    parameter_name = "entries"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return [("resolved", "resolved"), ("all", "all")]

    def choices(self, changelist: Any) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield choice | ({"display": "open"} if choice["display"] == "All" else {})

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "all":
            return queryset
        return queryset.filter(resolved_at__isnull=self.value() != "resolved")


class ClassFilter(admin.SimpleListFilter):
    title = "class"
    parameter_name = "class"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return sorted((str(kind), str(kind).replace("_", " ")) for kind in RULES)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(failure_class=self.value()) if self.value() else queryset


@admin.register(DeadLetter)
class DeadLetterAdmin(VerbPages[DeadLetter], ReadOnlyAdmin[DeadLetter]):
    none_yet = "Nothing waits for a person."
    list_display = ("command_key", "failed_as", "next_action", "last", "attempts", "entered_at", "state")
    list_select_related = ("command",)
    list_filter = (OpenFilter, ClassFilter)
    exact_search = ("command",)
    search_help_text = "A command key, exactly."
    refusals = (LedgerError,)
    empty_words = {"resolved_at": "open", "resolved_by": "nobody"}
    fieldsets = (
        (None, {"fields": ("command", "command_state", "state", "failed_as", "next_action")}),
        ("Now", {"fields": ("in_the_way",)}),
        (
            "What happened",
            {"fields": ("cycle", "attempts", "first", "last", "entered_at", "bucket", "tenant")},
        ),
        ("Resolution", {"fields": ("resolved_at", "resolution", "resolved_by", "reason")}),
    )

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("-id",) if request.GET.get("entries") in {"resolved", "all"} else ("failure_class", "entered_at", "id")

    def search_exactly(self, queryset: QuerySet[DeadLetter], term: str) -> QuerySet[DeadLetter]:
        return queryset.filter(command__key=term)

    def get_urls(self) -> list[Any]:
        verbs = [self.verb_url("replay", self.replay_view), self.verb_url("close", self.close_view)]
        return [*verbs, *super().get_urls()]

    def tools(self, request: HttpRequest, obj: DeadLetter) -> Iterable[Tool]:
        if obj.resolved_at is not None:
            return
        for verb, right in RIGHTS.items():
            if request.user.has_perm(right):
                yield Tool(verb.capitalize(), reverse(f"admin:ledger_deadletter_{verb}", args=[obj.pk]))

    def replay_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            command = quarantine.replay(
                command=obj.command, by=person(request), reason=values["reason"], repair=values["repair"]
            )
            return command, f"Command {command} is ready again, in cycle {command.cycle}."

        return self.decision(request, obj, "replay", ReplayForm, act, ("reason", "repair"), ABOUT_REPLAY)

    def close_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            entry = quarantine.close(command=obj.command, by=person(request), reason=values["reason"])
            return entry, "Closed without retry."

        about = (
            "The command stays dead and its object stays where it is. A later authorised run that finds the object eligible "
            "still takes it up: to keep it, exempt it, place a hold or change the policy."
        )
        return self.decision(request, obj, "close", ReasonForm, act, ("reason",), about)

    def decision(
        self,
        request: HttpRequest,
        obj: DeadLetter,
        verb: str,
        form: type[ReasonForm],
        act: Any,
        fields: Any,
        about: str,
    ) -> HttpResponse:
        if not request.user.has_perm(RIGHTS[verb]):
            raise PermissionDenied
        return self.verb_page(
            request,
            forms.modelform_factory(DeadLetter, form=form, fields=())(request.POST or None, instance=obj),
            act,
            title="Replay a command" if verb == "replay" else "Close without retry",
            button="Replay it" if verb == "replay" else "Close without retry",
            fieldsets=[*self.get_fieldsets(request, obj)[:3], ("Your decision", {"fields": fields})],
            readonly=[name for name in self.get_readonly_fields(request, obj) if name not in fields],
            about=about,
            obj=obj,
        )

    @admin.display(description="state")
    def state(self, obj: DeadLetter) -> SafeString:
        words = obj.get_resolution_display().lower()
        return display.pill("open", "overdue") if obj.resolved_at is None else display.pill(words, "ended")

    @admin.display(description="command")
    def command_key(self, obj: DeadLetter) -> SafeString:
        return display.exact(obj.command.key)

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

    @admin.display(description="in the way of a replay")
    def in_the_way(self, obj: DeadLetter) -> str:
        """Looked up now: eligibility, holds, enforcement, the stop switch, other commands."""
        return quarantine.why_not(obj.command) or "Nothing."


RIGHTS = {"replay": "base.operate", "close": "base.review_quarantine"}
