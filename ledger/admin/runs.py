"""Runs in the admin: read, their manifests downloaded; approved, paused, resumed and cancelled with a reason."""

from collections.abc import Callable, Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Count, Model, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool, list_url
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person
from ledger import downloads, runs
from ledger.admin import guardwords, reviews
from ledger.exceptions import LedgerError
from ledger.models import (
    CleanupCommand,
    CleanupRun,
    ErasureRequest,
    ItemDisposition,
    ManifestItem,
    ManifestPart,
    Receipt,
    SkippedItem,
)
from ledger.states import RUN_MEANING, RUN_OPEN, RunState
from retention.models import Bucket, PolicyRevision, RetentionPolicy

LISTED_AT_MOST = 200
KINDS = {
    RunState.NEEDS_APPROVAL: "waiting",
    RunState.COOLING_OFF: "waiting",
    RunState.PAUSED: "waiting",
    RunState.TRIPPED: "overdue",
    RunState.CLOSED: "ended",
    RunState.CANCELLED: "ended",
}
VERBS = {
    "approve": {RunState.NEEDS_APPROVAL},
    "pause": {RunState.DRAINING},
    "resume": {RunState.PAUSED},
    "rearm": {RunState.TRIPPED},
    "cancel": set(RUN_OPEN),
}
LISTS: dict[type[Model], str] = {
    ManifestPart: "Parts",
    ManifestItem: "Items",
    CleanupCommand: "Commands",
    SkippedItem: "Left out",
    ItemDisposition: "Exempted",
    Receipt: "Receipts",
}
ROOT_TYPED = 8
UNAIDED = {"autocomplete": "off", "spellcheck": "false", "class": "exact"}
# What one page of the list adds up over a run's parts, and in which words.
TALLIES = {
    "read": "object versions looked at",
    "item_count": "items",
    "target_count": "targets",
    "held": "eligible, left out because a hold covers them",
    "not_enforced": "eligible, left out because enforcement is off there",
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


@admin.register(CleanupRun)
class CleanupRunAdmin(VerbPages[CleanupRun], ReadOnlyAdmin[CleanupRun]):
    none_yet = "No run yet: the schedule of each policy opens them."
    list_display = (
        "key", "state_pill", "mode", "policy", "as_of", "item_count", "target_count", "bytes", "opened_by",
    )  # fmt: skip
    list_select_related = ("policy", "opened_by")
    list_filter = ("state", "mode")
    ordering = ("-id",)
    exact_search = ("key",)
    search_help_text = "A run key or a policy code, exactly."
    refusals = (LedgerError,)
    empty_words = {
        "opened_by": "the system",
        "scheduled_for": "by hand",
        "authorised_by": "nobody: a standing authorisation, or none yet",
    }
    fieldsets = (
        (None, {"fields": ("key", "state_pill", "mode", "policy", "tenant", "as_of", "scheduled_for")}),
        ("Manifest", {"fields": ("manifest_root", "sealed_at", "bytes", "tallies")}),
        ("What remains after exemptions", {"fields": ("remaining_count", "exempt_count", "remaining_root")}),
        ("Guards", {"fields": ("findings", "by_revision", "by_bucket")}),
        ("Authorisation", {"fields": ("authorised_by", "authorised_at", "authorisation", "cooling_until")}),
        ("Progress", {"fields": ("published_parts", "progress")}),
        ("Read in this order", {"fields": ("stream_table",)}),
        ("People and times", {"fields": ("opened_by", "opened_at", "idempotency_key", "ended_at", "end_reason")}),
    )

    def search_exactly(self, queryset: QuerySet[CleanupRun], term: str) -> QuerySet[CleanupRun]:
        named = list(RetentionPolicy.objects.filter(code=term).values_list("pk", flat=True))
        return queryset.filter(Q(key=term) | Q(policy__in=named))

    def get_urls(self) -> list[Any]:
        download = path(
            "<int:run_id>/manifest.<str:form>",
            self.admin_site.admin_view(downloads.manifest),
            name="ledger_cleanuprun_manifest",
        )
        verbs = [
            self.verb_url("approve", self.approve_view),
            self.verb_url("pause", self.pause_view),
            self.verb_url("resume", self.resume_view),
            self.verb_url("rearm", self.rearm_view),
            self.verb_url("cancel", self.cancel_view),
        ]
        return [download, *verbs, *reviews.urls(self), *super().get_urls()]

    def tools(self, request: HttpRequest, obj: CleanupRun) -> Iterable[Tool]:
        erasure = ErasureRequest.objects.filter(run=obj).first()
        if erasure is not None:
            yield Tool("Erasure request", display.change_url(erasure))
        for model, label in LISTS.items():
            yield Tool(label, list_url(model, f"?run={obj.pk}"))
        if obj.sealed_at and downloads.may_download(request.user):
            for form, label in (("csv", "Download CSV"), ("jsonl", "Download JSONL")):
                yield Tool(label, reverse("admin:ledger_cleanuprun_manifest", args=[obj.pk, form]))
        yield from reviews.tools(request, obj)
        for verb, states in VERBS.items():
            if RunState(obj.state) in states and MAY[verb](request, obj):
                yield Tool(named(verb), reverse(f"admin:ledger_cleanuprun_{verb}", args=[obj.pk]))

    def approve_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        form = forms.modelform_factory(CleanupRun, form=ApprovalForm, fields=())(
            request.POST or None, instance=obj, initial={"shown_root": obj.remaining_root}
        )

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            said = {"confirmation": values["confirmation"], "reason": values["reason"]}
            run = runs.approve(run=obj, by=person(request), root=values["shown_root"], **said)
            return run, f"Run {run} approved: it is {run.get_state_display()}."

        return self.decision(
            request, obj, "approve", form, act, ("shown_root", "typed", "confirmation", "reason"),
            about=f"You approve exactly what remains of the manifest, under the root {obj.remaining_root}: "
            f"{obj.remaining_count or 0:,} of {display.counted(obj.item_count or 0, 'item')}. The whole manifest names "
            f"{display.counted(obj.target_count or 0, 'object version')}, {display.human_size(obj.bytes or 0)}. "
            "Read it first.",
        )  # fmt: skip

    def pause_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        about = "Nothing more of it is sent until somebody resumes it. What was sent already may still be executed."
        return self.with_reason(request, object_id, "pause", runs.pause, "paused", about)

    def resume_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        about = "What is due goes on at once."
        return self.with_reason(request, object_id, "resume", runs.resume, "resumed", about)

    def rearm_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        about = "What is due goes on at once, and the circuit breaker counts anew. Repair first what made it trip."
        return self.with_reason(request, object_id, "rearm", runs.rearm, "re-armed", about)

    def cancel_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        about = "A cancelled run never goes on. Its manifest stays, and a later run may find the same objects again."
        return self.with_reason(request, object_id, "cancel", runs.cancel, "cancelled", about)

    def with_reason(
        self,
        request: HttpRequest,
        object_id: int,
        verb: str,
        call: Callable[..., CleanupRun],
        done: str,
        about: str,
    ) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        form = forms.modelform_factory(CleanupRun, form=ReasonForm, fields=())(request.POST or None, instance=obj)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            run = call(run=obj, by=person(request), reason=values["reason"])
            return run, f"Run {run} {done}."

        return self.decision(request, obj, verb, form, act, ("reason",), about=about)

    def decision(
        self,
        request: HttpRequest,
        obj: CleanupRun,
        verb: str,
        form: forms.BaseForm,
        act: Callable[[dict[str, Any]], tuple[Model, str]],
        fields: tuple[str, ...],
        *,
        about: str,
    ) -> HttpResponse:
        """The run as its page shows it, and the form of one verb."""
        if not MAY[verb](request, obj):
            raise PermissionDenied
        return self.verb_page(
            request,
            form,
            act,
            title=f"{named(verb)} a run",
            button=f"{named(verb)} the run",
            fieldsets=[*self.get_fieldsets(request, obj), ("Your decision", {"fields": fields})],
            readonly=self.get_readonly_fields(request, obj),
            about=about,
            obj=obj,
        )

    @admin.display(description="state")
    def state_pill(self, obj: CleanupRun) -> SafeString:
        state = RunState(obj.state)
        pill = display.pill(obj.get_state_display(), KINDS.get(state, "plain"))
        shown = format_html('<span title="{}">{}</span>', RUN_MEANING[state], pill)
        opens = runs.window_opens(obj)
        if opens is None:
            return shown
        return format_html("{} {} {}", shown, display.pill("waits for its window", "waiting"), display.moment(opens))

    @admin.display(description="tallies over its parts")
    def tallies(self, obj: CleanupRun) -> SafeString:
        sums = obj.parts.aggregate(parts=Count("pk"), **{name: Sum(name) for name in TALLIES})
        rows = [("parts", sums["parts"]), *((words, sums[name] or 0) for name, words in TALLIES.items())]
        return display.table((), ((words, display.number(count)) for words, count in rows))

    @admin.display(description="findings")
    def findings(self, obj: CleanupRun) -> SafeString | str:
        """Why a person must look first, and what else the guards found."""
        found = list(guardwords.findings(obj))
        return display.bullets(found) if found else "none"

    @admin.display(description="by revision")
    def by_revision(self, obj: CleanupRun) -> SafeString | str:
        return guardwords.by_revision(obj) or "not counted yet"

    @admin.display(description="by bucket of the original")
    def by_bucket(self, obj: CleanupRun) -> SafeString | str:
        return guardwords.by_bucket(obj) or "not counted yet"

    @admin.display(description="commands by outcome")
    def progress(self, obj: CleanupRun) -> SafeString | str:
        """As counted when it closed; before that, as settled so far."""
        if obj.counts is not None:
            sums = dict(obj.counts)
        else:
            tallied = obj.tallies.values_list("outcome").annotate(number=Sum("commands")).order_by("outcome")
            sums = {outcome: number for outcome, number in tallied if number}
        rows = ((name.replace("_", " "), display.number(number)) for name, number in sorted(sums.items()))
        return display.table((), rows) if sums else "none settled yet"

    @admin.display(description="streams")
    def stream_table(self, obj: CleanupRun) -> SafeString:
        erasure = ErasureRequest.objects.filter(run=obj).first()
        if erasure is not None:
            return format_html("the list of {}", display.link(erasure))
        shown = obj.streams[:LISTED_AT_MOST]
        buckets = dict(Bucket.objects.filter(pk__in={each["bucket_id"] for each in shown}).values_list("pk", "name"))
        wanted = {each["revision_id"] for each in shown}
        revisions = {each.pk: each for each in PolicyRevision.objects.filter(pk__in=wanted).select_related("policy")}
        rows = [
            (
                display.link(revisions[each["revision_id"]]),
                buckets.get(each["bucket_id"]),
                display.exact(each["prefix"]) if each["prefix"] else "the whole bucket",
                display.exact(each["retention_class"]) if each["retention_class"] else "unclassified",
                "delete markers" if each["markers"] else "objects",
                "key" if each["by_key"] else "date",
            )
            for each in shown
        ]
        table = display.table(("Revision", "Bucket", "Prefix", "Class", "What", "In the order of"), rows)
        return display.cut(table, len(obj.streams) - len(shown), "streams")


def named(verb: str) -> str:
    return "Re-arm" if verb == "rearm" else verb.capitalize()


def may_approve(request: HttpRequest, run: CleanupRun) -> bool:
    return request.user.has_perm("base.approve_run") and run.opened_by_id != request.user.pk


def may_operate(request: HttpRequest, run: CleanupRun) -> bool:
    return request.user.has_perm("base.operate")


def may_rearm(request: HttpRequest, run: CleanupRun) -> bool:
    return request.user.has_perm("base.rearm")


def may_cancel(request: HttpRequest, run: CleanupRun) -> bool:
    return request.user.has_perm("base.approve_run") or request.user.has_perm("base.operate")


MAY = {
    "approve": may_approve, "pause": may_operate, "resume": may_operate, "rearm": may_rearm, "cancel": may_cancel,
}  # fmt: skip
