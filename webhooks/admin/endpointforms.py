"""What people fill in about endpoints. The verbs judge it, these forms do not."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from cleanup_project.base.verbpages import ReasonForm
from webhooks import secrets
from webhooks.admin.endpointwords import secret_label
from webhooks.eventtypes import EVENT_TYPES
from webhooks.models import EVERY_TYPE, Endpoint, EndpointSecret

CHANGEABLE = ("name", "url", "event_types", "include_keys", "duplicate_is_success")


def choices(present: list[str] | None = None) -> list[tuple[str, str]]:
    """Every known type, and those that an endpoint has already, whatever they are."""
    known = [(EVERY_TYPE, "every type, also those that come later")]
    known += [(name, f"{name}: {words}") for name, words in EVENT_TYPES.items()]
    names = {name for name, _ in known}
    return known + [(name, name) for name in present or [] if name not in names]


class EndpointForm(forms.ModelForm[Endpoint]):
    event_types = forms.MultipleChoiceField(choices=choices, widget=forms.CheckboxSelectMultiple)
    reason = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 80}),
        help_text="Needed where object keys are told. Kept for ever.",
    )

    class Meta:
        model = Endpoint
        fields = ("tenant", *CHANGEABLE)

    def _post_clean(self) -> None:
        pass


class ChangeForm(ReasonForm):
    """Knows what it showed, so that only what this person changed is changed."""

    event_types = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple)

    class Meta:
        model = Endpoint
        fields = CHANGEABLE

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["event_types"].choices = choices(self.instance.event_types)  # type: ignore[attr-defined]
        for name in CHANGEABLE:
            self.fields[name].show_hidden_initial = True


class RotateForm(ReasonForm):
    newest = forms.IntegerField(widget=forms.HiddenInput)
    overlap = forms.IntegerField(
        label="Hours of overlap",
        min_value=0,
        max_value=secrets.LONGEST_OVERLAP,
        initial=secrets.OVERLAP,
        help_text="So long the old secrets also sign. 0 where one may be known to others: they are revoked at once.",
    )


class SecretField(forms.ModelChoiceField[EndpointSecret]):
    def label_from_instance(self, obj: EndpointSecret) -> str:
        return secret_label(obj)


class RevokeForm(ReasonForm):
    secret = SecretField(queryset=None, empty_label=None, widget=forms.RadioSelect)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fields["secret"].queryset = self.instance.secrets.live()  # type: ignore[attr-defined]


class RetireForm(ReasonForm):
    typed = forms.CharField(
        label="Name of the endpoint",
        help_text="Type it, exactly. This cannot be undone.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    def clean_typed(self) -> str:
        typed = str(self.cleaned_data["typed"])
        assert isinstance(self.instance, Endpoint)
        if typed != self.instance.name:
            raise ValidationError("This is not the name of the endpoint.")
        return typed


class NoReasonForm(forms.ModelForm[Endpoint]):
    class Meta:
        model = Endpoint
        fields = ()

    def _post_clean(self) -> None:
        pass
