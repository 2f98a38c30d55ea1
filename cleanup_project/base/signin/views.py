"""allauth's pages for one's own way to sign in, with a record in the transaction of what they do."""

from typing import Any

from allauth.account.views import LoginView, PasswordChangeView
from allauth.mfa.base.views import IndexView
from allauth.mfa.recovery_codes.views import GenerateRecoveryCodesView
from allauth.mfa.totp.views import ActivateTOTPView, DeactivateTOTPView
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse_lazy

from cleanup_project.base import audit
from cleanup_project.base.models import User
from cleanup_project.base.signin import factors, provider, sessions


class SignIn(LoginView):  # type: ignore[misc]
    def get_context_data(self, **told: Any) -> dict[str, Any]:
        shown: dict[str, Any] = super().get_context_data(**told)
        return shown | {"provider_name": provider.name() if settings.OIDC_ISSUER else ""}


class Recorded:
    """Mixin: `action` is what the audit record says was done, by this person about themselves."""

    request: HttpRequest
    action: str

    def form_valid(self, form: Any) -> HttpResponse:
        assert isinstance(self.request.user, User)
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)  # type: ignore[misc]
            audit.record(action=self.action, subject=self.request.user, by=self.request.user)
        return response

    def get_context_data(self, **told: Any) -> dict[str, Any]:
        shown: dict[str, Any] = super().get_context_data(**told)  # type: ignore[misc]
        return shown | {"enrolling": factors.missing(self.request)}


class AddFactor(Recorded, ActivateTOTPView):  # type: ignore[misc]
    action = "factor.added"

    def form_valid(self, form: Any) -> HttpResponse:
        response = super().form_valid(form)
        factors.show(self.request, "totp")
        return response


class RemoveFactor(Recorded, DeactivateTOTPView):  # type: ignore[misc]
    action = "factor.removed"

    def form_valid(self, form: Any) -> HttpResponse:
        response = super().form_valid(form)
        factors.drop(self.request)
        return response


class NewCodes(Recorded, GenerateRecoveryCodesView):  # type: ignore[misc]
    action = "recovery_codes.made"


class ChangePassword(Recorded, PasswordChangeView):  # type: ignore[misc]
    action = "password.changed"
    success_url = reverse_lazy("mfa_index")


class OwnSignIn(IndexView):  # type: ignore[misc]
    """How one signs in, and until when this session lasts."""

    def get_context_data(self, **told: Any) -> dict[str, Any]:
        about = {
            "title": "How you sign in",
            "required": isinstance(self.request.user, User) and factors.required(self.request.user),
            "linked": SocialAccount.objects.filter(user=self.request.user).exists(),
            "provider_name": provider.name(),
            "since": sessions.began(self.request),
            "until": sessions.ends(self.request),
            "idle_minutes": settings.SESSION_IDLE_SECONDS // 60,
            "enrolling": factors.missing(self.request),
        }
        shown: dict[str, Any] = super().get_context_data(**told)
        return admin.site.each_context(self.request) | shown | about


@login_required
def no_password(request: HttpRequest) -> HttpResponse:
    """Where allauth sends whoever has no password here: an administrator gives one, as a way in for emergencies."""
    messages.info(request, "You have no password here. An administrator can give you one.")
    return HttpResponseRedirect(reverse_lazy("mfa_index"))
