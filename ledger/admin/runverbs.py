"""Decisions about a run: approve, pause, resume, re-arm, cancel. Each shows what one needs to know on one page."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse

from cleanup_project.base import apitokens, display
from cleanup_project.base.modeladmin import Tool
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from ledger import runs
from ledger.admin import runpage
from ledger.exceptions import LedgerError
from ledger.models import CleanupRun
from ledger.states import RUN_OPEN, RunState

ROOT_TYPED: Final = 8
UNAIDED: Final = {"autocomplete": "off", "spellcheck": "false", "class": "exact"}
# In which states each may be taken.
STATES: Final = {
    "approve": {RunState.NEEDS_APPROVAL},
    "pause": {RunState.DRAINING},
    "resume": {RunState.PAUSED},
    "rearm": {RunState.TRIPPED},
    "cancel": set(RUN_OPEN),
}
DONE: Final = {"pause": "paused", "resume": "resumed", "rearm": "re-armed", "cancel": "cancelled"}
ABOUT: Final = {
    "pause": "Nothing more of it is sent until somebody resumes it. What was sent already may still be executed.",
    "resume": "What is due goes on at once.",
    "rearm": "What is due goes on at once, and the circuit breaker counts anew. Repair first what made it trip.",
    "cancel": "A cancelled run never goes on. Its manifest stays, and a later run may find the same objects again. What was "
    "destroyed already stays destroyed.",
}


class ApprovalForm(ReasonForm):
    """Names the root of what remains, as the page showed it; its first characters are typed, so that it was looked at."""

    shown_root = forms.CharField(widget=forms.HiddenInput)
    typed = forms.CharField(
        label="Root of what remains",
        max_length=64,
        help_text=f"Type its first {ROOT_TYPED} characters, as you read them above.",
        widget=forms.TextInput(attrs=UNAIDED),
    )
    confirmation = forms.CharField(
        label="Items to destroy",
        max_length=120,
        help_text="Type how many items remain, or the key of the run. This cannot be undone.",
        widget=forms.TextInput(attrs=UNAIDED),
    )

    def clean_typed(self) -> str:
        typed = str(self.cleaned_data["typed"]).lower()
        root = str(self.cleaned_data.get("shown_root", ""))
        if len(typed) < ROOT_TYPED or not root.startswith(typed):
            raise ValidationError(f"These are not the first {ROOT_TYPED} characters of the root above.")
        return typed


class RunDecisions(VerbPages[CleanupRun]):
    """Mixin of the admin class of runs."""

    refusals = (LedgerError,)

    def decision_urls(self) -> list[URLPattern]:
        views = {"approve": self.approve_view} | {verb: self.view_of(verb) for verb in DONE}
        return [self.verb_url(verb, view) for verb, view in views.items()]

    def approve_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        form = forms.modelform_factory(CleanupRun, form=ApprovalForm, fields=())(
            request.POST or None, instance=obj, initial={"shown_root": obj.remaining_root}
        )

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            said = {"confirmation": values["confirmation"], "reason": values["reason"]}
            run = runs.approve(run=obj, by=person(request), root=values["shown_root"], **said)
            return run, f"Run {run} approved: it is {run.get_state_display()}."

        about = (
            "You approve exactly what remains of the manifest, under the root that you see here: "
            f"{obj.remaining_count or 0:,} of {display.counted(obj.item_count or 0, 'item')}. The whole manifest names "
            f"{display.counted(obj.target_count or 0, 'object version')}, {display.human_size(obj.bytes or 0)}. "
            "Read it first."
        )
        return self.decision(request, obj, "approve", form, act, about)

    def view_of(self, verb: str) -> Callable[..., HttpResponse]:
        return lambda request, object_id: self.with_reason(request, object_id, verb)

    def with_reason(self, request: HttpRequest, object_id: int, verb: str) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        form = forms.modelform_factory(CleanupRun, form=ReasonForm, fields=())(request.POST or None, instance=obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            run = getattr(runs, verb)(run=obj, by=person(request), reason=values["reason"])
            return run, f"Run {run} {DONE[verb]}."

        return self.decision(request, obj, verb, form, act, ABOUT[verb])

    def decision(
        self,
        request: HttpRequest,
        obj: CleanupRun,
        verb: str,
        form: forms.BaseForm,
        act: Callable[[dict[str, Any]], tuple[Model, str]],
        about: str,
    ) -> HttpResponse:
        if not MAY[verb](request, obj):
            raise PermissionDenied
        fields = ("shown_root", "typed", "confirmation", "reason") if verb == "approve" else ("reason",)
        return self.verb_page(
            request,
            form,
            act,
            title=f"{named(verb)} a run",
            button=f"{named(verb)} the run",
            fieldsets=[("Your decision", {"fields": fields})],
            about=about,
            obj=obj,
            template="admin/ledger/cleanuprun/decide.html",
            shown=runpage.page(request, obj) | {"open_facts": verb == "approve"},
            deciding=verb in ("approve", "resume", "rearm"),
        )


def decisions(request: HttpRequest, run: CleanupRun) -> Iterator[Tool]:
    """What this person may decide about the run as it is."""
    for verb, states in STATES.items():
        if RunState(run.state) in states and MAY[verb](request, run):
            yield Tool(named(verb), reverse(f"admin:ledger_cleanuprun_{verb}", args=[run.pk]))


def named(verb: str) -> str:
    return "Re-arm" if verb == "rearm" else verb.capitalize()


def may_approve(request: HttpRequest, run: CleanupRun) -> bool:
    return request.user.has_perm("base.approve_run") and not apitokens.behind(run.opened_by, person(request))


def may_operate(request: HttpRequest, run: CleanupRun) -> bool:
    return request.user.has_perm("base.operate")


def may_rearm(request: HttpRequest, run: CleanupRun) -> bool:
    return request.user.has_perm("base.rearm")


def may_cancel(request: HttpRequest, run: CleanupRun) -> bool:
    return request.user.has_perm("base.approve_run") or request.user.has_perm("base.operate")


MAY: Final = {
    "approve": may_approve, "pause": may_operate, "resume": may_operate, "rearm": may_rearm, "cancel": may_cancel,
}  # fmt: skip
