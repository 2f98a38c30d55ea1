"""Commands in the admin: each with the six answers and its story; replayed one at a time."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool, list_url
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from ledger import quarantine
from ledger.admin.manifests import of_run
from ledger.exceptions import LedgerError
from ledger.explain import Explanation, explain
from ledger.models import CleanupCommand, DeadLetter, ManifestItem, Receipt
from ledger.next_action import Turn
from ledger.states import COMMAND_MEANING, CommandState
from ledger.telling import answers

LISTED_AT_MOST = 200
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
    list_select_related = ("run",)
    list_filter = ("state",)
    lookups = frozenset({"run"})
    ordering = ("-id",)
    exact_search = ("key",)
    search_help_text = "A command key, exactly."
    refusals = (LedgerError,)
    fieldsets = (
        (None, {"fields": ("key", "state_pill", "turn", "run", "cycle", "compacted_at")}),
        ("Answers", {"fields": ("answers",)}),
        ("Targets", {"fields": ("targets",)}),
        ("Attempts", {"fields": ("attempt_table", "request_table")}),
        ("Story", {"fields": ("story",)}),
    )
    empty_words = {"compacted_at": "not compacted"}

    @admin.display(description="failure class")
    def failed_as(self, obj: CleanupCommand) -> str:
        return obj.failure_class.replace("_", " ") or display.NOTHING

    def get_queryset(self, request: HttpRequest) -> QuerySet[CleanupCommand]:
        unresolved = Prefetch("dead_letters", DeadLetter.objects.filter(resolved_at=None), to_attr="open_entries")
        return super().get_queryset(request).prefetch_related(unresolved)

    def narrowed(self, request: HttpRequest) -> str | None:
        return of_run(request)

    def get_urls(self) -> list[Any]:
        return [self.verb_url("replay", self.replay_view), *super().get_urls()]

    def tools(self, request: HttpRequest, obj: CleanupCommand) -> Iterable[Tool]:
        yield Tool("Manifest item", reverse("admin:ledger_manifestitem_change", args=[obj.item_id]))
        receipt = Receipt.objects.filter(command_id=obj.pk).first()
        if receipt is not None:
            yield Tool("Receipt", display.change_url(receipt))
        entry = obj.dead_letters.order_by("-cycle").first()
        if entry is not None:
            yield Tool("Quarantine", display.change_url(entry))
        yield Tool("Named by", list_url(ManifestItem, f"?q={obj.key}"))
        if obj.state in quarantine.PARKED and request.user.has_perm("base.operate"):
            yield Tool("Replay", reverse("admin:ledger_cleanupcommand_replay", args=[obj.pk]))

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

    @admin.display(description="object versions")
    def targets(self, obj: CleanupCommand) -> SafeString:
        found = explained(obj).selected.targets
        rows = (
            (
                each["role"].replace("_", " "),
                each.get("bucket"),
                display.exact(each["key"]) if "key" in each else display.exact(each["commitment"]),
                display.exact(each["version_id"]) if "version_id" in each else display.NOTHING,
                display.size(each["size"]),
            )
            for each in found[:LISTED_AT_MOST]
        )
        table = display.table(("Role", "Bucket", "Key, or its commitment", "Version id", "Size"), rows)
        return display.cut(table, len(found) - LISTED_AT_MOST, "targets")

    @admin.display(description="outcomes of claims")
    def attempt_table(self, obj: CleanupCommand) -> SafeString | str:
        if obj.compacted_at is not None:
            return answers(explained(obj))[2][1][-1]
        found = obj.tries.order_by("token", "late")[:LISTED_AT_MOST]
        headings = ("Token", "Cycle", "Settled", "Worker", "Outcome", "Class", "Charged", "Detail")
        rows = (
            (
                each.token,
                each.cycle,
                display.moment(each.settled_at),
                each.worker,
                f"{each.get_outcome_display().lower()}{', late' if each.late else ''}",
                each.failure_class.replace("_", " ") or display.NOTHING,
                "yes" if each.charged else "no",
                folded(each.detail),
            )
            for each in found
        )
        return display.table(headings, rows) if found else "none"

    @admin.display(description="requests")
    def request_table(self, obj: CleanupCommand) -> SafeString | str:
        found = obj.requests.order_by("token")[:LISTED_AT_MOST]
        rows = (
            (each.token, display.moment(each.made_at), display.moment(each.sent_before), each.worker) for each in found
        )
        return display.table(("Token", "Committed", "Not sent after", "Worker"), rows) if found else "none on record"

    @admin.display(description="in the order of time")
    def story(self, obj: CleanupCommand) -> SafeString:
        rows = ((display.moment(each.at), each.who or "the system", folded(each.what)) for each in explained(obj).story)
        return display.table(("When", "Who", "What"), rows)


def folded(text: str) -> SafeString:
    """Words from outside, folded anywhere: a digest must not push the rest off the page."""
    return format_html('<span class="folded">{}</span>', display.visible(text))


def explained(obj: CleanupCommand) -> Explanation:
    """Asked for by several columns of one page, answered once."""
    found: Explanation | None = getattr(obj, "_explained", None)
    if found is None:
        found = explain(obj.key)
        obj._explained = found  # type: ignore[attr-defined]
    return found
