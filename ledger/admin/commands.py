"""Commands in the admin: each with the six answers and its story; replayed one at a time."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import clock, display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from ledger import present, quarantine
from ledger.admin import commandpage
from ledger.admin.manifests import of_run
from ledger.exceptions import LedgerError
from ledger.explain import Explanation, explain
from ledger.models import CleanupCommand, DeadLetter
from ledger.next_action import Turn
from ledger.states import COMMAND_MEANING, CommandState
from ledger.telling import answers

KINDS = {
    CommandState.HELD: "waiting",
    CommandState.DEAD: "overdue",
    CommandState.WITHDRAWN: "ended",
    CommandState.NOTIFIED: "ended",
}
TURNS = {
    Turn.AUTOMATIC: ("automatic", "plain"),
    Turn.PERSON: ("a person's", "waiting"),
    Turn.NOBODY: ("nobody's", "ended"),
}
# What follows, as far as a row by itself says; its page looks closer.
FOLLOWS = {
    CommandState.READY: "by itself, when it is due",
    CommandState.HELD: "a later run, once nothing holds it",
    CommandState.WITHDRAWN: "a later run, if it is still eligible",
    CommandState.DELETED: "its notices",
    CommandState.NOTIFIED: "nothing",
}
ABOUT_REPLAY = (
    "Tried again at once, in its next cycle, under the same key. Holds, enforcement, suspension and eligibility are checked "
    "first, and again when a worker takes it."
)


class ReplayForm(ReasonForm):
    repair = forms.CharField(
        required=False,
        max_length=200,
        help_text="What was repaired before, if anything: credentials, policy, locator, the store.",
        widget=forms.TextInput(attrs={"size": 80}),
    )


def state_pill(state: str) -> SafeString:
    meaning = COMMAND_MEANING[CommandState(state)]
    return format_html(
        '<span title="{}">{}</span>', meaning, display.pill(state, KINDS.get(CommandState(state), "plain"))
    )


@admin.register(CleanupCommand)
class CleanupCommandAdmin(VerbPages[CleanupCommand], ReadOnlyAdmin[CleanupCommand]):
    tenant_path = "tenant__code"
    list_display = (
        "key", "state_pill", "following", "failed_as", "attempts", "due", "outcome", "run",
    )  # fmt: skip
    list_select_related = ("run", "policy")
    list_filter = ("state",)
    lookups = frozenset({"run"})
    ordering = ("-id",)
    exact_search = ("key",)
    search_help_text = "A command key, exactly."
    refusals = (LedgerError,)
    fieldsets = (
        (None, {"fields": ("key", "state_pill", "turn", "run", "cycle")}),
        ("Answers", {"fields": ("answers",)}),
    )

    @admin.display(description="failure class")
    def failed_as(self, obj: CleanupCommand) -> str:
        return obj.failure_class.replace("_", " ") or display.NOTHING

    def get_queryset(self, request: HttpRequest) -> QuerySet[CleanupCommand]:
        unresolved = Prefetch("dead_letters", DeadLetter.objects.filter(resolved_at=None), to_attr="open_entries")
        return super().get_queryset(request).prefetch_related(unresolved)

    def narrowed(self, request: HttpRequest) -> str | None:
        return of_run(request)

    def get_urls(self) -> list[Any]:
        looks = [self.verb_url("now", self.now_view), self.verb_url("store", self.store_view)]
        return [self.verb_url("replay", self.replay_view), *looks, *super().get_urls()]

    def tools(self, request: HttpRequest, obj: CleanupCommand) -> Iterable[Tool]:
        yield from commandpage.links(request, explained(obj), obj)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        obj = kwargs["obj"]
        context |= {"title": "Command", **commandpage.context(request, explained(obj), obj)}
        return super().render_change_form(request, context, *args, **kwargs)

    def now_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """What is so of it now, looked up for this request: a part of its page, or the page with that part filled in."""
        obj = self.wanted(request, str(object_id))
        return self.looked(request, obj, "now", {"present": present.present(obj)})

    def store_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """What the store says of its objects. Asked outside of any transaction, within a few seconds."""
        obj = self.wanted(request, str(object_id))
        return self.looked(request, obj, "store", {"seen": present.look(obj), "looked_at": present.LOOKED_AT_MOST})

    def looked(self, request: HttpRequest, obj: CleanupCommand, part: str, found: dict[str, Any]) -> HttpResponse:
        if not request.headers.get("HX-Request"):
            return self.change_view(request, str(obj.pk), extra_context=found)
        context = {"original": obj, "now": clock.now(), **found}
        return TemplateResponse(request, f"admin/ledger/cleanupcommand/{part}.html", context)

    def replay_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm("base.operate"):
            raise PermissionDenied
        form = forms.modelform_factory(CleanupCommand, form=ReplayForm, fields=())(request.POST or None, instance=obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            command = quarantine.replay(
                command=obj, by=person(request), reason=values["reason"], repair=values["repair"]
            )
            return command, f"Command {command} is ready again, in cycle {command.cycle}."

        return self.verb_page(
            request,
            form,
            act,
            title="Replay a command",
            button="Replay it",
            fieldsets=[*self.get_fieldsets(request, obj)[:2], ("Your decision", {"fields": ("reason", "repair")})],
            readonly=self.get_readonly_fields(request, obj),
            about=ABOUT_REPLAY,
            obj=obj,
        )

    @admin.display(description="state")
    def state_pill(self, obj: CleanupCommand) -> SafeString:
        return state_pill(obj.state)

    @admin.display(description="due")
    def due(self, obj: CleanupCommand) -> SafeString | str:
        return display.moment(obj.due_at) if obj.state == CommandState.READY else display.NOTHING

    @admin.display(description="next action")
    def following(self, obj: Any) -> str:
        if obj.state == CommandState.DEAD:
            return (
                obj.open_entries[0].next_action if obj.open_entries else "closed; a later run, if it is still eligible"
            )
        return FOLLOWS[CommandState(obj.state)]

    @admin.display(description="next action")
    def turn(self, obj: CleanupCommand) -> SafeString:
        following = explained(obj).next
        when = format_html(" {}", display.moment(following.at)) if following.at else ""
        return format_html("{} {}{}", display.pill(*TURNS[following.turn]), following.what, when)

    @admin.display(description="six questions")
    def answers(self, obj: CleanupCommand) -> SafeString:
        rows = (
            (format_html('<strong class="question">{}</strong>', question), display.bullets(told))
            for question, told in answers(explained(obj))
        )
        return display.table((), rows)


def explained(obj: CleanupCommand) -> Explanation:
    """Asked for by several columns of one page, answered once."""
    found: Explanation | None = getattr(obj, "_explained", None)
    if found is None:
        found = explain(obj.key)
        obj._explained = found  # type: ignore[attr-defined]
    return found
