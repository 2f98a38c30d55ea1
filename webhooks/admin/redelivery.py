"""Sending again in the admin: what can be chosen, how much that is, and the confirmation of it."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import uuid4

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.widgets import AdminSplitDateTime
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from cleanup_project.base import clock, display, jobs, tenancy
from cleanup_project.base.models import FASTEST_JOB
from cleanup_project.base.signin import proof
from cleanup_project.base.verbpages import Fieldsets, ReasonForm, VerbPages, offered, person
from webhooks import redelivery
from webhooks.exceptions import WebhooksError
from webhooks.models import Delivery, Endpoint, OutboxEvent
from webhooks.redelivery import Chosen, Counted

TYPED_ABOVE: Final = 1000  # deliveries; for more, their number is typed
ONE_BY_ONE: Final = 200  # a page of the list
SEEN: Final = 1000  # of the newest rows, from which a filter takes what it offers
SPANS: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
ABOUT: Final = (
    "Each is sent with the same id and the same body, so a receiver that had it already recognises it. What you confirm "
    "becomes a job with an outcome for every delivery, which can be paused and cancelled."
)
ABOUT_ONE: Final = (
    "It is sent with the same id and the same body, so a receiver that had it already recognises it. It neither waits for "
    "other events of its subject nor holds them up."
)


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state__exact"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state, state) for state in ("pending", "held", "delivered", "dead", "cancelled")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == redelivery.HELD:
            return queryset.filter(state=Delivery.State.PENDING, endpoint__disabled_at__isnull=False)
        return queryset.filter(state=self.value()) if self.value() else queryset


class EndpointFilter(admin.SimpleListFilter):
    title = "endpoint"
    parameter_name = "endpoint"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        seen = tenancy.scoped(Endpoint.objects.all(), request.user, "tenant")
        return [(str(each.pk), display.named(each)) for each in seen]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        number = self.value()
        if not number:
            return queryset
        return queryset.filter(endpoint=int(number)) if number.isdecimal() else queryset.none()


class SeenFilter(admin.SimpleListFilter):
    """Offers what the newest rows have: looking for every value there is would read the table."""

    field = ""

    def newest(self) -> QuerySet[Any]:
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        rows = tenancy.scoped(self.newest(), request.user, "tenant")
        seen = set(rows.order_by("-pk").values_list(self.field, flat=True)[:SEEN])
        asked = request.GET.get(str(self.parameter_name))
        return [(value, value.replace("_", " ")) for value in sorted(seen | {asked}, key=str) if value]


class TypeFilter(SeenFilter):
    title = "type"
    parameter_name = "type"
    field = "type"

    def newest(self) -> QuerySet[Any]:
        return OutboxEvent.objects.all()

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(event__type=self.value()) if self.value() else queryset


class ClassFilter(SeenFilter):
    title = "last failure"
    parameter_name = "class"
    field = "last_class"

    def newest(self) -> QuerySet[Any]:
        return Delivery.objects.filter(state__in=[Delivery.State.DEAD, Delivery.State.CANCELLED])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(last_class=self.value()) if self.value() else queryset


class EmittedFilter(admin.SimpleListFilter):
    title = "emitted"
    parameter_name = "emitted"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, f"in the last {name}") for name in SPANS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        since = since_of(self.value())
        return queryset.filter(event__emitted_at__gte=since) if since else queryset


FILTERS: Final = (StateFilter, EndpointFilter, TypeFilter, ClassFilter, EmittedFilter)


def since_of(span: str | None) -> datetime | None:
    return clock.now() - SPANS[span] if span in SPANS else None


class ChosenForm(forms.Form):
    """Which deliveries. Ids stand alone: they were ticked in the list."""

    ids = forms.RegexField(r"\A[0-9]{1,18}(,[0-9]{1,18})*\Z", required=False, widget=forms.HiddenInput)
    state = forms.ChoiceField(
        required=False, choices=[("", "---------"), *((each, each) for each in redelivery.STATES)]
    )
    endpoint = forms.ModelChoiceField(Endpoint.objects.all(), required=False)
    event_type = forms.CharField(required=False, help_text="Exactly, such as media.deleted.")
    failure_class = forms.CharField(label="Last failure", required=False, help_text="Its class, exactly.")
    since = forms.SplitDateTimeField(
        label="Emitted from", required=False, widget=AdminSplitDateTime, help_text="UTC, inclusive."
    )
    until = forms.SplitDateTimeField(
        label="Emitted before", required=False, widget=AdminSplitDateTime, help_text="UTC, exclusive."
    )

    def chosen(self) -> Chosen:
        values = self.cleaned_data
        if values["ids"]:
            return Chosen(ids=tuple(int(each) for each in values["ids"].split(",")[:ONE_BY_ONE]))
        named = {name: values[name] for name in ("state", "event_type", "failure_class", "since", "until")}
        return Chosen(endpoint_id=values["endpoint"].pk if values["endpoint"] else None, **named)


class RedeliverForm(ChosenForm):
    """What a person confirms: `counted`, `expected` and `token` are of the page that they saw."""

    rate = forms.IntegerField(label="Items a second", min_value=1, max_value=FASTEST_JOB, initial=jobs.RATE)
    typed = forms.IntegerField(label="Their number", required=False)
    reason = forms.CharField(widget=forms.Textarea(attrs={"rows": 3, "cols": 80}), help_text="Kept for ever.")
    counted = forms.CharField(widget=forms.HiddenInput)
    expected = forms.IntegerField(widget=forms.HiddenInput)
    token = forms.UUIDField(widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or {}
        if self.errors:
            return values
        if self.chosen().words() != values["counted"]:
            raise forms.ValidationError("What is chosen was not counted as it is now: look at the count first.")
        if values["expected"] > TYPED_ABOVE and values["typed"] != values["expected"]:
            self.add_error("typed", f"Type {values['expected']}, the number of deliveries that you confirm.")
        return values


class RedeliveryPages(VerbPages[Delivery]):
    """Mixin for deliveries: send one again, the ticked ones, or all that match."""

    refusals = (WebhooksError, jobs.JobRefused)
    actions = ("redeliver_selected",)

    def get_urls(self) -> list[Any]:
        bulk = path("redeliver/", self.admin_site.admin_view(self.bulk_view), name="webhooks_delivery_bulk")
        return [bulk, self.verb_url("redeliver", self.redeliver_view), *super().get_urls()]

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(redelivery.RIGHT)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        bulk = bulk_url(request) if self.has_operate_permission(request) else ""
        return super().changelist_view(request, {"bulk_url": bulk} | (extra_context or {}))

    @admin.action(description="Redeliver the selected ones", permissions=["operate"])
    def redeliver_selected(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> HttpResponse | None:
        """To the page that confirms it, for what is ticked, or for all that the list's filters match."""
        across = request.POST.get("select_across") == "1"
        ids = [str(pk) for pk in queryset.order_by("pk").values_list("pk", flat=True)[: ONE_BY_ONE + 1]]
        if len(ids) <= ONE_BY_ONE:
            return HttpResponseRedirect(bulk_url(request, ids=",".join(ids)))
        if across and not request.GET.get("q"):
            return HttpResponseRedirect(bulk_url(request))
        many = len(request.POST.getlist(ACTION_CHECKBOX_NAME))
        messages.error(
            request, f"Choose at most {ONE_BY_ONE} by ticking them, not {many:,}; for more, use the filters."
        )
        return None

    def redeliver_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        if not self.has_operate_permission(request):
            raise PermissionDenied

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            row, outcome = redelivery.redeliver(delivery=obj, by=person(request), reason=values["reason"])
            return row, outcome.words

        shown = [self.presented(name) for name in ("event", "endpoint", "state_pill", "last_error")]
        return self.verb_page(
            request,
            forms.modelform_factory(Delivery, form=ReasonForm, fields=())(request.POST or None, instance=obj),
            act,
            title="Redeliver",
            button="Send it again",
            fieldsets=[(None, {"fields": shown}), ("Your decision", {"fields": ("reason",)})],
            readonly=shown,
            about=ABOUT_ONE,
            obj=obj,
        )

    def bulk_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_operate_permission(request):
            raise PermissionDenied
        posted = request.method == "POST"
        which = offered(ChosenForm(request.POST if posted else request.GET), request)
        form: forms.Form = which
        if posted and "_count" not in request.POST:
            form = offered(RedeliverForm(request.POST), request)
            if form.is_valid():
                if form.cleaned_data["expected"] > TYPED_ABOVE and (asked := proof.ask(request, "Redeliver")):
                    return asked
                try:
                    return self.begin(request, form.chosen(), form.cleaned_data)
                except self.refusals as refusal:
                    form.add_error(None, str(refusal))
        elif which.is_valid():
            kept = {name: request.POST[name] for name in ("reason", "rate") if name in request.POST}
            form = offered(RedeliverForm(initial=which.cleaned_data | kept), request)
        else:
            form = offered(RedeliverForm(which.data), request)
        return self.confirmation(request, form, which)

    def begin(self, request: HttpRequest, chosen: Chosen, values: dict[str, Any]) -> HttpResponse:
        said = {name: values[name] for name in ("expected", "token", "reason", "rate")}
        job = redelivery.redeliver_all(chosen=chosen, by=person(request), **said)
        messages.success(
            request, f"{display.counted(job.total, 'delivery', 'deliveries')} to be sent again, one by one."
        )
        return HttpResponseRedirect(display.change_url(job))

    def confirmation(self, request: HttpRequest, form: forms.Form, which: ChosenForm) -> HttpResponse:
        """The page that says how much is chosen. Without a count there is nothing to confirm."""
        context: dict[str, Any] = {"button": "Redeliver", "about": ABOUT, "counts": "", "why_not": ""}
        total = 0
        if which.is_valid() and (which.cleaned_data["ids"] or which.cleaned_data["state"]):
            chosen = which.chosen()
            try:
                counted = redelivery.count(chosen, by=person(request))
            except OperationalError:
                context["why_not"] = "Counting them takes too long: narrow what is chosen."
            else:
                context |= told(counted, chosen, request)
                total = counted.total
        return self.form_page(request, form, "admin/many.html", context, "Redeliver", self.asked(which, total))

    def asked(self, which: ChosenForm, total: int) -> Fieldsets:
        by_id = which.is_valid() and which.cleaned_data["ids"]
        chosen = ("ids",) if by_id else ("state", "endpoint", "event_type", "failure_class", ("since", "until"), "ids")
        decision = ("rate", *(("typed",) if total > TYPED_ABOVE else ()), "reason")
        return [("Deliveries", {"fields": chosen}), *([("Your decision", {"fields": decision})] if total else [])]


def told(counted: Counted, chosen: Chosen, request: HttpRequest) -> dict[str, Any]:
    """What the page says of the count, and what it sends along with the confirmation."""
    if not counted.total:
        return {"why_not": "Nothing matches."}
    if not counted.whole:
        return {"why_not": f"More than {jobs.MOST:,} match: narrow what is chosen, and make several jobs."}
    rows = [(*place(each, state), display.number(number)) for each, state, number in counted.by_place]
    return {
        "counts": display.table(("Endpoint", "It is", "State", "Deliveries"), rows),
        "expected": counted.total,
        "counted": chosen.words(),
        # Counted anew it is another job, whatever came of the one before.
        "token": uuid4() if "_count" in request.POST else request.POST.get("token") or uuid4(),
    }


def place(endpoint: Endpoint, state: str) -> Iterator[SafeString | str]:
    yield display.link(endpoint)
    if endpoint.retired_at:
        yield display.pill("retired: nothing is sent", "ended")
    elif endpoint.disabled_at:
        yield display.pill("disabled: they are held", "overdue")
    else:
        yield display.pill("enabled")
    yield state


def bulk_url(request: HttpRequest, ids: str = "") -> str:
    """The confirmation page, for these ids or for what the list is narrowed to."""
    since = since_of(request.GET.get("emitted"))
    named = {
        "ids": ids,
        "state": request.GET.get("state__exact", ""),
        "endpoint": request.GET.get("endpoint", ""),
        "event_type": request.GET.get("type", ""),
        "failure_class": request.GET.get("class", ""),
        "since_0": f"{since:%Y-%m-%d}" if since else "",
        "since_1": f"{since:%H:%M:%S}" if since else "",
    }
    asked = {name: value for name, value in named.items() if value} if not ids else {"ids": ids}
    return reverse("admin:webhooks_delivery_bulk") + (f"?{urlencode(asked)}" if asked else "")


def rounds_table(delivery: Delivery) -> SafeString:
    """Every time that its event was to be sent to its endpoint."""
    rounds = Delivery.objects.filter(event=delivery.event_id, endpoint=delivery.endpoint_id)
    rows = (
        (
            format_html('<a href="{}">{}</a>', display.change_url(each), each.round or "as owed"),
            str(each.state),
            each.requested_by or display.NOTHING,
            each.attempts,
        )
        for each in rounds.select_related("requested_by").order_by("round")
    )
    return display.table(("Round", "State", "Requested by", "Attempts"), rows)
