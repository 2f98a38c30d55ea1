"""What the audit record can be searched by. Each question has an index, so that ten million acts are no more than ten."""

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from cleanup_project.base.audit import SYSTEM
from cleanup_project.base.models import User

EXACT = {"spellcheck": "false", "autocomplete": "off"}
TIME = {"type": "datetime-local", "step": "1"}


class AuditForm(forms.Form):
    """Everything that is asked must be so. An answer to one question is a condition."""

    who = forms.CharField(required=False, max_length=150, help_text="A username, or system.")
    act = forms.CharField(
        label="Action", required=False, max_length=64, help_text="Its beginning, for example hold. or run.approved.",
        widget=forms.TextInput(attrs=EXACT),
    )  # fmt: skip
    item = forms.CharField(
        required=False, max_length=130, help_text="Its type and number, for example ledger.cleanuprun:12.",
        widget=forms.TextInput(attrs=EXACT),
    )  # fmt: skip
    request = forms.CharField(
        label="Request id", required=False, max_length=64, help_text="Exactly.", widget=forms.TextInput(attrs=EXACT)
    )
    since = forms.DateTimeField(
        label="From (UTC)", required=False, help_text="Inclusive.", widget=forms.DateTimeInput(attrs=TIME)
    )
    until = forms.DateTimeField(
        label="Before (UTC)", required=False, help_text="Exclusive.", widget=forms.DateTimeInput(attrs=TIME)
    )

    def clean_who(self) -> Q:
        name = self.cleaned_data["who"]
        if name in {"", SYSTEM}:
            return Q(actor=None) if name else Q()
        person = User.objects.filter(username=name).first()
        if person is None:
            raise ValidationError("Nobody has this username. Write it exactly, or system.")
        return Q(actor=person)

    def clean_act(self) -> Q:
        beginning = self.cleaned_data["act"]
        return Q(action__startswith=beginning) if beginning else Q()

    def clean_item(self) -> Q:
        kind, colon, number = self.cleaned_data["item"].rpartition(":")
        if number and not colon:
            raise ValidationError("Write its type, a colon and its number, for example ledger.cleanuprun:12.")
        return Q(subject_type=kind, subject_id=number) if colon else Q()

    def clean_request(self) -> Q:
        number = self.cleaned_data["request"]
        return Q(request_id=number) if number else Q()

    def clean_since(self) -> Q:
        since = self.cleaned_data["since"]
        return Q(at__gte=since) if since else Q()

    def clean_until(self) -> Q:
        until = self.cleaned_data["until"]
        return Q(at__lt=until) if until else Q()


NAMES = tuple(AuditForm.base_fields)


class AuditFilter(admin.ListFilter):
    """The form beside the list. What cannot be understood shows no rows, and says why."""

    title = "what you look for"
    template = "admin/base/auditevent/filter.html"

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: type[Model], pages: Any) -> None:
        super().__init__(request, params, model, pages)
        asked = {name: params.pop(name)[-1] for name in NAMES if name in params}
        self.used_parameters.update(asked)
        self.form = AuditForm(asked or None)

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: Any) -> Iterator[Any]:
        return iter(())

    def expected_parameters(self) -> list[str | None]:
        return list(NAMES)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.form.is_bound:
            return queryset
        return queryset.filter(*self.form.cleaned_data.values()) if self.form.is_valid() else queryset.none()
