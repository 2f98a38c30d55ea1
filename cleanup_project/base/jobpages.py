"""Bulk jobs in the admin: how far each is, what became of every item, and the decisions about it."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.timesince import timeuntil

from cleanup_project.base import clock, display, jobpace, jobs, jobwork
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool, list_url
from cleanup_project.base.models import FASTEST_JOB, BulkItem, BulkJob, User
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person

PILLS: Final = {"running": "plain", "paused": "waiting", "done": "ended", "cancelled": "ended"}
WAITING: Final = "waiting"
SHOWN: Final = 20
MINUTE: Final = timedelta(minutes=1)
VERBS: Final = {
    BulkJob.State.RUNNING: ("pause", "rate", "cancel"),
    BulkJob.State.PAUSED: ("resume", "rate", "cancel"),
    BulkJob.State.DONE: (),
    BulkJob.State.CANCELLED: (),
}
TITLES: Final = {"pause": "Pause", "resume": "Resume", "rate": "Change the rate", "cancel": "Cancel"}


class ResumeForm(forms.ModelForm[Model]):
    """Asks for nothing. The verb judges the row, this form does not."""

    def _post_clean(self) -> None:
        pass


class RateForm(ResumeForm):
    rate = forms.IntegerField(min_value=1, max_value=FASTEST_JOB, label="Items a second")


FORMS: Final[dict[str, type[forms.ModelForm[Model]]]] = {
    "pause": ReasonForm, "resume": ResumeForm, "rate": RateForm, "cancel": ReasonForm,
}  # fmt: skip
FIELDS: Final = {"pause": ("reason",), "resume": (), "rate": ("rate",), "cancel": ("reason",)}
ABOUT: Final = {
    "pause": "No further item begins. What was done stays done.",
    "resume": "It goes on where it stopped, in your name.",
    "rate": "Holds from its next items on.",
    "cancel": "What was done stays done; what was not is left as it is, for good. A new job can be made of it.",
}


def own_kinds(request: HttpRequest) -> list[str]:
    """The kinds of which this person could make one. They see those, beside who reads everything."""
    return [name for name, kind in jobs.KINDS.items() if request.user.has_perm(kind.right)]


def may_see(request: HttpRequest, job: BulkJob | None) -> bool:
    own = own_kinds(request)
    return bool(own) if job is None else job.kind in own


def of_tenants(rows: QuerySet[BulkJob], user: User) -> QuerySet[BulkJob]:
    """Jobs whose items are all of this person's tenants, since whoever made them could choose no others."""
    return rows.filter(tenants__contained_by=user.tenants).exclude(tenants=[]) if user.tenants else rows


@admin.register(BulkJob)
class BulkJobAdmin(VerbPages[BulkJob], ReadOnlyAdmin[BulkJob]):
    tenant_path = ""
    none_yet = "Nothing was ever done to many at once."
    list_display = (
        "named",
        "selection",
        "state_pill",
        "progress",
        "rate",
        "requested_by",
        "requested_at",
        "finished_at",
    )
    list_select_related = ("requested_by", "in_charge")
    list_filter = ("state",)
    ordering = ("-id",)
    refusals = (jobs.JobRefused,)
    empty_words = {"finished_at": "not yet"}

    def own(self, rows: QuerySet[BulkJob], user: User) -> QuerySet[BulkJob]:
        return of_tenants(rows, user)

    def has_view_permission(self, request: HttpRequest, obj: BulkJob | None = None) -> bool:
        return super().has_view_permission(request, obj) or may_see(request, obj)

    def get_queryset(self, request: HttpRequest) -> QuerySet[BulkJob]:
        found = super().get_queryset(request)
        kinds = own_kinds(request)  # whoever has none is refused every page, whichever its row
        return found.filter(kind__in=kinds) if kinds and not super().has_view_permission(request) else found

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], **options: Any) -> HttpResponse:  # type: ignore[override]
        job = options.get("obj")
        if job is not None:
            context |= told(job)
        return super().render_change_form(request, context, **options)

    def get_urls(self) -> list[Any]:
        return [*(self.verb_url(verb, self.view_of(verb)) for verb in FORMS), *super().get_urls()]

    def tools(self, request: HttpRequest, obj: BulkJob) -> Iterable[Tool]:
        yield Tool("Items", items_url(obj))
        if self.may_decide(request, obj):
            for verb in VERBS[BulkJob.State(obj.state)]:
                yield Tool(TITLES[verb], reverse(f"admin:base_bulkjob_{verb}", args=[obj.pk]))

    def may_decide(self, request: HttpRequest, obj: BulkJob) -> bool:
        kind = jobs.KINDS.get(obj.kind)
        return kind is not None and request.user.has_perm(kind.right)

    def view_of(self, verb: str) -> Callable[..., HttpResponse]:
        return lambda request, object_id: self.decision(request, object_id, verb)

    def decision(self, request: HttpRequest, object_id: int, verb: str) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not self.may_decide(request, obj):
            raise PermissionDenied
        made = forms.modelform_factory(BulkJob, form=FORMS[verb], fields=())
        sent = request.POST if request.method == "POST" else None

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            call: Any = jobs.set_rate if verb == "rate" else getattr(jobs, verb)
            job = call(job=obj, by=person(request), **values)
            return job, f"{job} is {job.state}, {job.done:,} of {job.total:,} done, {job.rate:,} a second at most."

        return self.verb_page(
            request,
            made(sent, instance=obj, initial={"rate": obj.rate}),
            act,
            title=f"{TITLES[verb]}: a bulk job",
            button=TITLES[verb],
            fieldsets=[("Your decision", {"fields": FIELDS[verb]})] if FIELDS[verb] else [],
            about=ABOUT[verb],
            obj=obj,
            deciding=verb in ("resume", "rate"),
        )

    @admin.display(description="job")
    def named(self, obj: BulkJob) -> str:
        kind = jobs.KINDS.get(obj.kind)
        return f"{kind.label if kind else obj.kind} {obj.pk}"

    @admin.display(description="state")
    def state_pill(self, obj: BulkJob) -> SafeString:
        return display.pill(obj.state, PILLS[obj.state])

    @admin.display(description="progress")
    def progress(self, obj: BulkJob) -> SafeString:
        words = f"{obj.done:,} of {obj.total:,}"
        return format_html(
            '<progress max="{}" value="{}" aria-label="{}"></progress> {}', obj.total, obj.done, words, words
        )


def told(job: BulkJob) -> dict[str, Any]:
    """What a job's page shows of how far it is and what became of its items."""
    kind = jobs.KINDS.get(job.kind)
    rows = [
        (in_words(code), number, items_url(job, code), code != jobwork.FAILED and (kind is None or code in kind.well))
        for code, number in job.outcomes.items()
    ]
    if job.done < job.total:
        left = "left as it was" if job.finished_at else WAITING
        rows.append((left, job.total - job.done, items_url(job, WAITING), True))
    ends_at, now = jobpace.ends_at(job), clock.now()
    return {
        "job": job,
        "kind": kind.label if kind else job.kind,
        "state_pill": display.pill(job.state, PILLS[job.state]),
        "share": 100 * job.done // job.total,
        "outcomes": sorted(rows, key=lambda row: (row[3], -row[1])),
        "ends_at": ends_at,
        "ends_in": timeuntil(ends_at, now) if ends_at and ends_at - now > MINUTE else "less than a minute",
        "now": now,
        "look_at": [(subject_of(each, job), each) for each in jobwork.not_done_well(job)[:SHOWN]],
        "items_url": items_url(job),
    }


def subject_of(item: BulkItem, job: BulkJob) -> SafeString | str:
    """What an item is about, with a link where that has a page."""
    try:
        address = reverse(f"admin:{job.subject_type.replace('.', '_')}_change", args=[item.subject_id])
    except NoReverseMatch:  # it has no page of its own
        return str(item.subject_id)
    return format_html('<a href="{}">{}</a>', address, item.subject_id)


def items_url(job: BulkJob, outcome: str = "") -> str:
    named = {"job": str(job.pk)} | ({"outcome": outcome} if outcome else {})
    return list_url(BulkItem, "?" + urlencode(named))


def in_words(code: str) -> str:
    return code.replace("_", " ")


class OutcomeFilter(admin.SimpleListFilter):
    """The outcomes that the job which the list is narrowed to has had."""

    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        number = request.GET.get("job", "")
        jobs_seen = of_tenants(BulkJob.objects.all(), person(request))
        job = jobs_seen.filter(pk=int(number)).first() if number.isdecimal() else None
        return [(code, in_words(code)) for code in [*sorted(job.outcomes if job else ()), WAITING]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        code = self.value()
        return queryset.filter(outcome="" if code == WAITING else code) if code else queryset


@admin.register(BulkItem)
class BulkItemAdmin(ReadOnlyAdmin[BulkItem]):
    tenant_path = ""
    none_yet = "No bulk job was ever made."
    list_display = ("ordinal", "subject", "job", "outcome_words", "detail_text", "done_at")
    list_select_related = ("job",)
    list_filter = (OutcomeFilter,)
    lookups = frozenset({"job"})
    empty_words = {"done_at": "not yet"}
    fields = ("job", "ordinal", "subject", "outcome_words", "detail_text", "done_at")

    def own(self, rows: QuerySet[BulkItem], user: User) -> QuerySet[BulkItem]:
        return rows.filter(job__in=of_tenants(BulkJob.objects.all(), user)) if user.tenants else rows

    def has_view_permission(self, request: HttpRequest, obj: BulkItem | None = None) -> bool:
        return super().has_view_permission(request, obj) or may_see(request, obj.job if obj else None)

    def get_queryset(self, request: HttpRequest) -> QuerySet[BulkItem]:
        found = super().get_queryset(request)
        kinds = own_kinds(request)
        return found.filter(job__kind__in=kinds) if kinds and not super().has_view_permission(request) else found

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        return ("job_id", "ordinal") if "job" in request.GET else ("-id",)

    @admin.display(description="about")
    def subject(self, obj: BulkItem) -> SafeString | str:
        return subject_of(obj, obj.job)

    @admin.display(description="outcome")
    def outcome_words(self, obj: BulkItem) -> SafeString:
        if not obj.outcome:
            ended = obj.job.finished_at is not None
            return display.pill("left as it was", "ended") if ended else display.pill(WAITING, "waiting")
        return display.pill(in_words(obj.outcome), "overdue" if obj.outcome == jobwork.FAILED else "plain")

    @admin.display(description="in words")
    def detail_text(self, obj: BulkItem) -> str:
        return display.visible(obj.detail) or display.NOTHING
