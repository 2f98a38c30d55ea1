"""Many quarantine entries at once, in the admin: how many they are and of what causes, and the confirmation of it."""

from typing import Any, Final
from uuid import uuid4

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display, jobs
from cleanup_project.base.modeladmin import list_url
from cleanup_project.base.models import FASTEST_JOB
from cleanup_project.base.signin import proof
from cleanup_project.base.verbpages import VerbPages, person
from ledger import bulk
from ledger.admin.entryfilter import EntryFilter, narrowed
from ledger.bulk import Counted, Sampled
from ledger.exceptions import LedgerError
from ledger.models import DeadLetter
from retention.models import Bucket, Tenant

TOO_LONG: Final = "Counting them takes too long: narrow what is chosen."
TYPED_ABOVE: Final = 50  # entries; for more, their number is typed
TITLES: Final = {bulk.REPLAY: "Replay", bulk.CLOSE: "Close without retry"}
ABOUT: Final = {
    bulk.REPLAY: (
        "Each is tried again under its key, in its next cycle. Holds, enforcement, suspension and eligibility are checked "
        "for each in its turn, and again when a worker takes it; what may not be replayed then stays here, with the reason."
    ),
    bulk.CLOSE: (
        "What is closed stays dead, and its object stays where it is. A later authorised run that finds the object eligible "
        "still takes it up: to keep it, exempt it, place a hold or change the policy."
    ),
}
THEN: Final = (
    "The set is frozen when you confirm: what comes later is not in it. It becomes a job with an outcome for each entry, "
    "which can be slowed, paused and cancelled."
)


class ManyForm(forms.Form):
    """What a person confirms: `expected` and `token` are of the page that they saw."""

    reason = forms.CharField(widget=forms.Textarea(attrs={"rows": 3, "cols": 80}), help_text="Kept for ever.")
    repair = forms.CharField(
        label="What was repaired", required=False, max_length=200, widget=forms.TextInput(attrs={"size": 80}),
        help_text="Before this, if anything: credentials, policy, locator, the store.",
    )  # fmt: skip
    rate = forms.IntegerField(label="Entries a second", min_value=1, max_value=FASTEST_JOB, initial=jobs.RATE)
    typed = forms.IntegerField(label="Their number", required=False, help_text="Type how many you confirm.")
    expected = forms.IntegerField(widget=forms.HiddenInput)
    token = forms.UUIDField(widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        expected = values.get("expected")
        if expected is not None and expected > TYPED_ABOVE and values.get("typed") != expected:
            self.add_error("typed", f"Type {expected}, the number of entries that you confirm.")
        return values


class ManyPages(VerbPages[DeadLetter]):
    """Mixin for quarantine entries: replay or close the ticked ones, or all that match."""

    refusals = (LedgerError, jobs.JobRefused)

    def get_urls(self) -> list[Any]:
        many = [
            path(f"{verb}/", self.admin_site.admin_view(self.many_view(verb)), name=f"ledger_deadletter_{verb}_many")
            for verb in TITLES
        ]
        return [*many, *super().get_urls()]

    def many_view(self, verb: str) -> Any:
        return lambda request: self.many(request, verb)

    def many(self, request: HttpRequest, verb: str) -> HttpResponse:
        if not (request.user.has_perm(bulk.RIGHTS[verb]) and self.has_view_permission(request)):
            raise PermissionDenied
        found = narrowed(request, bulk.mine(self.get_queryset(request), person(request)))
        form = ManyForm(request.POST) if request.method == "POST" else ManyForm()
        if request.method == "POST" and not found.refusal and form.is_valid():
            many = form.cleaned_data["expected"] > TYPED_ABOVE
            if many and (asked := proof.ask(request, TITLES[verb])):
                return asked
            try:
                return self.begin(request, verb, found, form.cleaned_data)
            except OperationalError:
                form.add_error(None, TOO_LONG)
            except self.refusals as refusal:
                field = getattr(refusal, "field", None)
                form.add_error(field if field in form.fields else None, str(refusal))
        return self.confirmation(request, verb, found, form)

    def begin(self, request: HttpRequest, verb: str, found: EntryFilter, values: dict[str, Any]) -> HttpResponse:
        said = {name: values[name] for name in ("expected", "token", "reason", "rate")}
        by = person(request)
        if verb == bulk.REPLAY:
            job = bulk.replay_all(rows=found.rows, selection=found.words(), by=by, repair=values["repair"], **said)
        else:
            job = bulk.close_all(rows=found.rows, selection=found.words(), by=by, **said)
        messages.success(
            request, f"{display.counted(job.total, 'entry', 'entries')}, one after the other, in your name."
        )
        return HttpResponseRedirect(display.change_url(job))

    def confirmation(self, request: HttpRequest, verb: str, found: EntryFilter, form: ManyForm) -> HttpResponse:
        """The page that says how much is chosen. Without a count there is nothing to confirm."""
        query = request.GET.urlencode()
        context: dict[str, Any] = {
            "button": TITLES[verb],
            "about": ABOUT[verb],
            "then": THEN,
            "counts": "",
            "why_not": found.refusal,
            "back": list_url(DeadLetter, f"?{query}" if query and not found.refusal else ""),
        }
        total = 0
        if not found.refusal:
            try:
                counted = bulk.count(found.rows)
                sampled = bulk.sample(found.rows) if verb == bulk.REPLAY and counted.total else None
            except OperationalError:
                context["why_not"] = TOO_LONG
            else:
                total = counted.total
                context |= told(counted, found, request.POST.get("token", ""))
                context["sampled"] = sampled and sample_words(sampled, total)
        fields = ["reason", *(["repair"] if verb == bulk.REPLAY else ()), "rate"]
        fields += ["typed"] if total > TYPED_ABOVE else ()
        asked = [("Your decision", {"fields": fields})] if context["counts"] else []
        title = f"{TITLES[verb]}: {display.counted(total, 'entry', 'entries')}" if total else TITLES[verb]
        return self.form_page(request, form, "admin/ledger/deadletter/many.html", context, title, asked)


def told(counted: Counted, found: EntryFilter, token: str) -> dict[str, Any]:
    """What the page says of the count, and what it sends along with the confirmation."""
    if not counted.total:
        return {"why_not": "Nothing that is open matches."}
    if not counted.whole:
        return {"why_not": f"More than {jobs.MOST:,} match: narrow what is chosen, and make several jobs."}
    return {
        "counts": causes_table(counted),
        "expected": counted.total,
        "chosen": found.words(),
        "token": token or uuid4(),
    }


def causes_table(counted: Counted) -> SafeString:
    buckets = Bucket.objects.in_bulk({cause.bucket_id for cause, _ in counted.by_cause})
    tenants = Tenant.objects.in_bulk({cause.tenant_id for cause, _ in counted.by_cause})
    rows = (
        (
            cause.failure_class.replace("_", " "),
            display.visible(cause.storage_code) or display.NOTHING,
            buckets[cause.bucket_id],
            tenants[cause.tenant_id],
            format_html('<span class="num">{}</span>', display.number(number)),
        )
        for cause, number in counted.by_cause
    )
    return display.table(("Class", "Storage code", "Bucket", "Tenant", "Entries"), rows)


def sample_words(sampled: Sampled, total: int) -> dict[str, Any]:
    """What would be refused now: of all, where that are few; else of a random sample, which is called one."""
    refused = sum(number for _, number in sampled.reasons)
    if sampled.looked_at == total:
        head = f"{refused:,} of {total:,} would be refused now."
    else:
        head = f"A random sample: {refused:,} of {sampled.looked_at:,} that were looked at would be refused now."
    return {"head": head, "reasons": [(display.visible(words), number) for words, number in sampled.reasons[:10]]}


def many_url(verb: str, query: str) -> str:
    return reverse(f"admin:ledger_deadletter_{verb}_many") + (f"?{query}" if query else "")
