"""Tokens of the API in the admin: made, replaced and revoked by their verbs, and shown once.

Who may be chosen as a tenant is known to the application that keeps them: it registers these pages with its own form.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from cleanup_project.base import apitokens, display
from cleanup_project.base.apitokens import TokenRefused
from cleanup_project.base.modeladmin import ReadOnlyAdmin, Tool, list_url, may_view
from cleanup_project.base.models import LONGEST_TOKEN, ApiToken, AuditEvent, User
from cleanup_project.base.scopes import SCOPES
from cleanup_project.base.signin import proof
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person

DAYS: Final = 90
CREATE, REPLACE, REVOKE = "Make an API token", "Replace an API token", "Revoke an API token"
INSTALL: Final = "Keep it where the program reads its secrets, and nowhere else: whoever has it can do what it may."


class LastingForm(ReasonForm):
    days = forms.IntegerField(
        label="Days that it lasts", min_value=1, max_value=LONGEST_TOKEN, initial=DAYS,
        help_text=f"{LONGEST_TOKEN} at most. Two weeks before the end an alarm says so.",
    )  # fmt: skip


class TokenForm(LastingForm):
    name = forms.CharField(
        label="Name of the program",
        max_length=63,
        help_text="Lower-case letters, digits and hyphens, as nightly-import.",
    )
    scopes = forms.MultipleChoiceField(
        choices=[(name, f"{name}: {scope.words}") for name, scope in SCOPES.items()],
        widget=forms.CheckboxSelectMultiple,
        help_text="What it may do, and nothing else. Nothing is ever approved through the API.",
    )
    tenants = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple)
    every_tenant = forms.BooleanField(required=False, label="every tenant, also those that come later")

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if bool(values.get("tenants")) == bool(values.get("every_tenant")):
            raise ValidationError({"tenants": "Choose the tenants whose things it sees and decides, or every tenant."})
        return values


class ReplaceForm(LastingForm):
    overlap = forms.IntegerField(
        label="Hours of overlap", min_value=0, max_value=apitokens.LONGEST_OVERLAP, initial=apitokens.OVERLAP,
        help_text="So long the old token also opens. 0 where it may be known to others: it is revoked at once.",
    )  # fmt: skip


class TokenAdmin(VerbPages[ApiToken], ReadOnlyAdmin[ApiToken]):
    """Seen by whoever sees every tenant that the token reaches."""

    tenant_path = ""
    form_class: ClassVar[type[TokenForm]] = TokenForm
    refusals = (TokenRefused,)
    none_yet = "No program has a token: nothing comes in through the API."
    list_display = ("account", "public_id", "state", "scope_list", "tenant_list", "expires_at", "last_used_at")
    list_select_related = ("account", "replaced_by")
    ordering = ("-id",)
    exact_search = ("public_id", "account__username")
    search_help_text = "The program's name with program: before it, or the twelve characters after cleanup_, exactly."
    empty_words = {"last_used_at": "never", "last_used_from": "not known", "revoked_at": "no", "replaces": "none"}
    fieldsets = (
        (None, {"fields": ("account", "public_id", "state", "expires_at", "last_used_at", "last_used_from")}),
        ("May", {"fields": ("scope_list", "tenant_list")}),
        (
            "People and times",
            {
                "fields": (
                    "created_by",
                    "created_at",
                    "replaces",
                    "successor",
                    "revoked_at",
                    "revoked_by",
                    "revoked_reason",
                )
            },
        ),
    )

    def own(self, rows: QuerySet[ApiToken], user: User) -> QuerySet[ApiToken]:
        of_theirs = rows.filter(account__tenants__contained_by=user.tenants).exclude(account__tenants=[])
        return of_theirs if user.tenants else rows

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiToken]:
        return super().get_queryset(request).annotate(now=Now())

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(apitokens.RIGHT)

    def get_urls(self) -> list[Any]:
        verbs = {"replace": self.replace_view, "revoke": self.revoke_view}
        return [*(self.verb_url(name, view) for name, view in verbs.items()), *super().get_urls()]

    def tools(self, request: HttpRequest, obj: ApiToken) -> Iterable[Tool]:
        if may_view(request, AuditEvent):
            yield Tool("What it did", list_url(AuditEvent, f"?{urlencode({'who': obj.account.get_username()})}"))
        if obj.revoked_at or not request.user.has_perm(apitokens.RIGHT):
            return
        if not hasattr(obj, "replaced_by"):
            yield Tool("Replace", reverse("admin:base_apitoken_replace", args=[obj.pk]))
        yield Tool("Revoke", reverse("admin:base_apitoken_revoke", args=[obj.pk]))

    def deciding(self, request: HttpRequest, object_id: int) -> ApiToken:
        obj = self.wanted(request, str(object_id))
        if not request.user.has_perm(apitokens.RIGHT):
            raise PermissionDenied
        return obj

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = bound(self.form_class, request, ApiToken())
        limited = person(request).tenants
        if limited:
            tenants: Any = form.fields["tenants"]
            tenants.choices = [each for each in tenants.choices if each[0] in limited]
            del form.fields["every_tenant"]

        def call(values: dict[str, Any]) -> tuple[ApiToken, str]:
            values.pop("every_tenant", None)
            return apitokens.create(by=person(request), **values)

        about = (
            "The program gets an account of its own, under whose name everything that it does is on record. The next page "
            "shows the token once."
        )
        fields = ("name", "scopes", "tenants", *([] if limited else ["every_tenant"]), "days", "reason")
        return self.making(request, form, call, CREATE, [(None, {"fields": fields})], about)

    def replace_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.deciding(request, object_id)

        def call(values: dict[str, Any]) -> tuple[ApiToken, str]:
            return apitokens.replace(token=obj, by=person(request), **values)

        about = "The new token may do the same, for the same program. The next page shows it once."
        fieldsets = [("Your decision", {"fields": ("days", "overlap", "reason")})]
        return self.making(request, bound(ReplaceForm, request, obj), call, REPLACE, fieldsets, about, obj)

    def making(
        self,
        request: HttpRequest,
        form: forms.ModelForm[Any],
        call: Callable[[dict[str, Any]], tuple[ApiToken, str]],
        title: str,
        fieldsets: Any,
        about: str,
        obj: ApiToken | None = None,
    ) -> HttpResponse:
        """Answers with the page of the token, where another decision would lead to its row."""
        if request.method == "POST" and (asked := proof.ask(request, title)):
            return asked
        if request.method == "POST" and form.is_valid():
            try:
                token, text = call(form.cleaned_data)
            except TokenRefused as refusal:
                form.add_error(refusal.field if refusal.field in form.fields else None, str(refusal))
            else:
                return self.secret_page(request, token, text, "API token", "The token of this program.", INSTALL)
        return self.form_page(
            request, form, "admin/verb.html", {"button": title, "about": about}, title, fieldsets, obj=obj
        )

    def revoke_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.deciding(request, object_id)

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            apitokens.revoke(token=obj, by=person(request), reason=values["reason"])
            return obj, f"Token {obj} is revoked: it opens nothing any more."

        return self.verb_page(
            request,
            bound(ReasonForm, request, obj),
            act,
            title=REVOKE,
            button=REVOKE,
            fieldsets=[("Your decision", {"fields": ("reason",)})],
            about="It opens nothing any more, from the next request on. With a program's last token its bulk jobs pause.",
            obj=obj,
            deciding=True,
        )

    @admin.display(description="state")
    def state(self, obj: ApiToken) -> SafeString:
        now = obj.now  # type: ignore[attr-defined]
        if obj.revoked_at:
            return display.pill("revoked", "ended")
        if obj.expires_at <= now:
            return display.pill("expired", "ended" if hasattr(obj, "replaced_by") else "overdue")
        if hasattr(obj, "replaced_by"):
            return display.pill("replaced, still valid", "waiting")
        soon = obj.expires_at <= now + apitokens.EXPIRES_SOON
        return display.pill("expires soon", "overdue") if soon else display.pill("valid")

    @admin.display(description="replaced by")
    def successor(self, obj: ApiToken) -> SafeString | str:
        return display.link(obj.replaced_by) if hasattr(obj, "replaced_by") else "none"

    @admin.display(description="may")
    def scope_list(self, obj: ApiToken) -> SafeString:
        return display.bullets(obj.scopes)

    @admin.display(description="for")
    def tenant_list(self, obj: ApiToken) -> SafeString | str:
        return display.bullets(obj.account.tenants) if obj.account.tenants else "every tenant"


def bound(form: type[forms.ModelForm[Any]], request: HttpRequest, obj: ApiToken) -> forms.ModelForm[Any]:
    made = forms.modelform_factory(ApiToken, form=form, fields=())
    return made(request.POST if request.method == "POST" else None, instance=obj)
