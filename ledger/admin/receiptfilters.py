"""The filters above the list of receipts, which the export page begins with: each an indexed column, named exactly."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from cleanup_project.base import tenancy
from cleanup_project.base.models import User
from cleanup_project.base.verbpages import person
from ledger.exceptions import LedgerError
from ledger.models import CleanupCommand, CleanupRun, Receipt
from ledger.selection import Selection


def time_field(label: str) -> forms.DateTimeField:
    example = {"placeholder": "2026-01-31 14:00", "autocomplete": "off", "size": "19"}
    return forms.DateTimeField(label=label, required=False, widget=forms.DateTimeInput(attrs=example))


def name_field(label: str, size: int) -> forms.CharField:
    plain = {"autocomplete": "off", "spellcheck": "false", "size": str(size)}
    return forms.CharField(label=label, required=False, max_length=255, widget=forms.TextInput(attrs=plain))


class SelectionForm(forms.Form):
    """Fields are those of `Selection`; `run` is a key, or a number as in links from runs."""

    issued_from = time_field("Gone from (UTC)")
    issued_before = time_field("Gone before (UTC)")
    tenant = name_field("Tenant", 10)
    bucket = name_field("Bucket", 14)
    policy = name_field("Policy", 14)
    run = name_field("Run", 24)
    outcome = forms.ChoiceField(label="Outcome", required=False, choices=[("", "any"), *CleanupCommand.Outcome.choices])

    def __init__(self, given: Mapping[str, Any], *, user: User) -> None:
        super().__init__(given, auto_id="selection_%s")
        self.user = user

    def clean_run(self) -> str:
        named: str = self.cleaned_data["run"]
        if not named.isdecimal() or len(named) > 18:
            return named
        seen = tenancy.scoped(CleanupRun.objects.filter(pk=int(named)), self.user, "tenant__code")
        return seen.values_list("key", flat=True).first() or named

    @property
    def selection(self) -> Selection:
        given = {name: self.cleaned_data[name] for name in SELECTED if self.cleaned_data.get(name)}
        return Selection(**given, tenants=tuple(self.user.tenants))

    @property
    def is_wrong(self) -> bool:
        """Whether it cannot be told which receipts are meant."""
        return any(name in self.errors for name in SELECTED)

    def narrow(self, rows: QuerySet[Receipt]) -> QuerySet[Receipt]:
        """These receipts; none, with an error in the form, where it cannot be told which."""
        if self.is_wrong:
            return rows.none()
        try:
            return self.selection.narrow(rows)
        except LedgerError as refusal:
            self.add_error(refusal.field, str(refusal))
            return rows.none()


SELECTED: Final = ("issued_from", "issued_before", "tenant", "bucket", "policy", "run", "outcome")


class ReceiptFilter(admin.ListFilter):
    """One form for all of them, in the place where the admin has its links."""

    title = "receipts"
    template = "admin/ledger/receipt/filters.html"

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        given: dict[str, Any] = {name: params.pop(name)[-1] for name in SELECTED if name in params}
        self.used_parameters = given
        self.form = SelectionForm(given, user=person(request))

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return list(SELECTED)

    def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:
        """What else narrows the list, and goes on doing so."""
        for name, value in changelist.params.items():
            if name not in SELECTED:
                yield {"name": name, "value": value}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Receipt]) -> QuerySet[Receipt]:
        return self.form.narrow(queryset)
