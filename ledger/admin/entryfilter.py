"""What the list of quarantine may be narrowed to, by indexed columns alone: in the address, and in words."""

from collections.abc import Iterator
from typing import Any, Final

import django_filters as filters
from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, QueryDict

from cleanup_project.base import display, tenancy
from cleanup_project.base.canonical import instant
from cleanup_project.base.verbpages import person
from ledger.failures import RULES
from ledger.models import CleanupRun, DeadLetter
from retention.buckets import used_by
from retention.models import Bucket, RetentionPolicy, Tenant
from retention.prefixes import successor

NO_CODE: Final = display.NOTHING  # in place of a storage code: those that have none
IDS: Final = "ids"  # ticked one by one, instead of a filter
STATES: Final = (("resolved", "resolved"), ("all", "open or resolved"))
CLASSES: Final = sorted((str(kind), str(kind).replace("_", " ")) for kind in RULES)


def whose(model: Any, path: str) -> Any:
    return lambda request: tenancy.scoped(model.objects.order_by("code"), request.user, path)


def buckets(request: HttpRequest) -> QuerySet[Bucket]:
    """Those that this person's tenants use."""
    codes = person(request).tenants
    return (used_by(codes) if codes else Bucket.objects.all()).order_by("name")


class Moment(filters.DateTimeFilter):  # type: ignore[misc]
    def __init__(self, lookup: str, **options: Any) -> None:
        widget = forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")
        super().__init__(field_name="entered_at", lookup_expr=lookup, widget=widget, **options)


class EntryFilter(filters.FilterSet):  # type: ignore[misc]
    """Narrows a queryset of quarantine entries to what an address names; nothing named means what is open.

    An address that names something else, or names it wrongly, narrows to nothing: `refusal` says why.
    """

    entries = filters.ChoiceFilter(label="State", choices=STATES, empty_label="open", method="as_it_is")
    class_ = filters.ChoiceFilter(label="Class", field_name="failure_class", choices=CLASSES, empty_label="any")
    code = filters.CharFilter(label="Storage code", method="with_code")
    bucket = filters.ModelChoiceFilter(queryset=buckets, empty_label="any")
    tenant = filters.ModelChoiceFilter(queryset=whose(Tenant, "code"), empty_label="any")
    policy = filters.ModelChoiceFilter(queryset=whose(RetentionPolicy, "tenant__code"), empty_label="any")
    run = filters.CharFilter(label="Run", method="of_run")
    prefix = filters.CharFilter(label="Key begins with", method="under", strip=False)
    since = Moment("gte", label="Failed from (UTC)")
    until = Moment("lt", label="Failed before (UTC)")
    attempts = filters.NumberFilter(label="Attempts, at least", lookup_expr="gte", min_value=0)
    q = filters.CharFilter(label="Command key", field_name="command__key", strip=False)

    @classmethod
    def get_filters(cls) -> dict[str, Any]:
        """`class` cannot be the name of an attribute."""
        return {name.rstrip("_"): each for name, each in super().get_filters().items()}

    @property
    def refusal(self) -> str:
        unknown = sorted(set(self.data) - set(self.base_filters) - {IDS, "after", "before", "look"})
        if unknown:
            return f"The list cannot be narrowed by {', '.join(display.visible(each) for each in unknown)}."
        if IDS in self.data and ids_of(self.data) is None:
            return "Tick the entries that are meant: none is named here, or not by its number."
        if not self.form.is_valid():
            wrong = (
                f"{self.form.fields[name].label}: {' '.join(map(str, errors))}"
                for name, errors in self.form.errors.items()
            )
            return " ".join(wrong)
        return ""

    @property
    def rows(self) -> QuerySet[DeadLetter]:
        if self.refusal:
            return self.queryset.none()  # type: ignore[no-any-return]
        if IDS in self.data:
            return self.queryset.filter(pk__in=ids_of(self.data) or ())  # type: ignore[no-any-return]
        return self.filter_queryset(self.queryset)

    def filter_queryset(self, queryset: QuerySet[DeadLetter]) -> QuerySet[DeadLetter]:
        rows = super().filter_queryset(queryset)
        state = self.form.cleaned_data["entries"]
        return rows if state == "all" else rows.filter(resolved_at__isnull=state != "resolved")  # type: ignore[no-any-return]

    def as_it_is(self, rows: QuerySet[DeadLetter], _name: str, _value: str) -> QuerySet[DeadLetter]:
        return rows

    def with_code(self, rows: QuerySet[DeadLetter], _name: str, value: str) -> QuerySet[DeadLetter]:
        return rows.filter(storage_code="" if value == NO_CODE else value)

    def of_run(self, rows: QuerySet[DeadLetter], _name: str, value: str) -> QuerySet[DeadLetter]:
        """By the run's number, as links have it, or by its key."""
        if value.isdecimal() and len(value) < 19:
            return rows.filter(run=int(value))
        return rows.filter(run__in=list(CleanupRun.objects.filter(key=value).values_list("pk", flat=True)))

    def under(self, rows: QuerySet[DeadLetter], _name: str, value: str) -> QuerySet[DeadLetter]:
        end = successor(value)
        return rows.filter(key__gte=value) if end is None else rows.filter(key__gte=value, key__lt=end)

    @property
    def is_narrowed(self) -> bool:
        return IDS in self.data or any(True for _ in self.named())

    def named(self) -> Iterator[str]:
        """The filters that are set."""
        return (
            (name for name, value in self.form.cleaned_data.items() if value not in (None, ""))
            if self.form.is_valid()
            else iter(())
        )

    def words(self) -> str:
        """What is chosen, for the record and for people."""
        if IDS in self.data:
            return "chosen one by one"
        values = self.form.cleaned_data
        told = {
            "class": "of the class {}", "bucket": "in the bucket {}", "tenant": "of {}", "policy": "of the policy {}",
            "run": "of the run {}", "prefix": "with keys that begin with {}", "since": "failed from {}",
            "until": "failed before {}", "attempts": "with attempts of at least {}", "q": "of the command {}",
            "code": "refused as {}",
        }  # fmt: skip
        state = f"{values['entries'] or 'open'} entries" if values["entries"] != "all" else "entries"
        named = (words.format(shown(values[name])) for name, words in told.items() if name in set(self.named()))
        return ", ".join([state, *named])


def shown(value: Any) -> str:
    return instant(value) if hasattr(value, "tzinfo") else display.visible(str(value))


def ids_of(data: QueryDict) -> list[int] | None:
    """Entries that were ticked, by their numbers; None where none was, or one is named by what is no such number.

    The form of the list always sends an empty one along: without it, nothing ticked would look like everything that is open.
    """
    named = [each for each in data.getlist(IDS) if each]
    if not named or not all(each.isdecimal() and len(each) < 19 for each in named):
        return None
    return [int(each) for each in named]


def narrowed(request: HttpRequest, rows: QuerySet[DeadLetter], data: QueryDict | None = None) -> EntryFilter:
    return EntryFilter(request.GET if data is None else data, queryset=rows, request=request)
