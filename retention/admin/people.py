"""The pages of people and of tokens, with the tenants to whose things they are limited."""

from django import forms
from django.contrib import admin
from django.contrib.auth.forms import UserChangeForm

from cleanup_project.base import admin as base
from cleanup_project.base.models import ApiToken, User
from cleanup_project.base.tokenpages import TokenAdmin, TokenForm
from retention.models import Tenant

admin.site.unregister(User)


def tenants() -> list[tuple[str, str]]:
    return [(code, f"{code}: {name}") for code, name in Tenant.objects.order_by("code").values_list("code", "name")]


class PersonForm(UserChangeForm):  # type: ignore[type-arg]
    tenants = forms.MultipleChoiceField(
        required=False,
        choices=tenants,
        widget=forms.CheckboxSelectMultiple,
        help_text="The person sees and decides about what belongs to these, and nothing else. None ticked: of every tenant.",
    )


@admin.register(User)
class PersonAdmin(base.PersonAdmin):
    form = PersonForm


class TokenOfTenants(TokenForm):
    tenants = forms.MultipleChoiceField(
        required=False,
        choices=tenants,
        widget=forms.CheckboxSelectMultiple,
        help_text="The program sees and decides about what belongs to these, and nothing else.",
    )


@admin.register(ApiToken)
class ApiTokenAdmin(TokenAdmin):
    form_class = TokenOfTenants
