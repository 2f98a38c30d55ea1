"""What administrators do about somebody's way to sign in: verbs on the person's page."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django import forms
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from cleanup_project.base.modeladmin import Tool
from cleanup_project.base.models import User
from cleanup_project.base.signin import factors, provider, sessions
from cleanup_project.base.signin.administrators import SignInRefused
from cleanup_project.base.verbpages import ReasonForm, VerbPages, person


class Verb(NamedTuple):
    title: str
    about: str
    call: Callable[..., Any]
    done: str


VERBS: Final = {
    "reset-factor": Verb(
        "Reset second factor",
        "The second factor and the recovery codes are taken away, and every session of this person ends. Whoever signs in "
        "next with the password sets up a new factor: be sure that you talk to the right person.",
        factors.reset,
        "has no second factor any more, and is signed out everywhere.",
    ),
    "end-sessions": Verb(
        "End all sessions",
        "This person is signed out everywhere, at once, and may sign in again.",
        sessions.end,
        "is signed out everywhere.",
    ),
    "unlink-provider": Verb(
        "Unlink from the identity provider",
        "Every session of this person ends. The next sign-in at the provider links the account anew, to whoever has its "
        "e-mail address there.",
        provider.unlink,
        "is not linked to the identity provider any more, and is signed out everywhere.",
    ),
}


class SignInPages(VerbPages[User]):
    refusals = (SignInRefused,)

    def get_urls(self) -> list[Any]:
        return [*(self.verb_url(name, partial(self.decision, name=name)) for name in VERBS), *super().get_urls()]

    def tools(self, request: HttpRequest, obj: User) -> Iterable[Tool]:
        yield from super().tools(request, obj)
        if not self.has_change_permission(request, obj):
            return
        apt = {
            "reset-factor": obj != request.user and Authenticator.objects.filter(user=obj).exists(),
            "end-sessions": True,
            "unlink-provider": SocialAccount.objects.filter(user=obj).exists(),
        }
        for name, verb in VERBS.items():
            if apt[name]:
                yield Tool(verb.title, reverse(f"admin:base_user_{name}", args=[obj.pk]))

    def decision(self, request: HttpRequest, object_id: int, name: str) -> HttpResponse:
        obj, verb = self.wanted(request, str(object_id)), VERBS[name]
        if not self.has_change_permission(request, obj):
            raise PermissionDenied
        form = forms.modelform_factory(User, form=ReasonForm, fields=())

        def act(values: dict[str, Any]) -> tuple[Model, str]:
            verb.call(person=obj, by=person(request), **values)
            return obj, f"{obj} {verb.done}"

        return self.verb_page(
            request,
            form(request.POST if request.method == "POST" else None, instance=obj),
            act,
            title=verb.title,
            button=verb.title,
            fieldsets=[("Your decision", {"fields": ("reason",)})],
            about=verb.about,
            obj=obj,
            deciding=True,
        )
