"""Where django-allauth asks us: who may come in, what is written down, how secrets are kept."""

from io import BytesIO
from typing import Any, Final

import qrcode  # type: ignore[import-untyped]
import structlog
from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.authentication import get_authentication_records
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.models import SocialAccount
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from qrcode.image.svg import SvgPathFillImage  # type: ignore[import-untyped]

from cleanup_project.base import audit, vault
from cleanup_project.base.models import User
from cleanup_project.base.signin import factors, proof, provider

log = structlog.get_logger(__name__)

WAYS: Final = {"password": "password", "mfa": "second factor", "socialaccount": "identity provider"}


class Account(DefaultAccountAdapter):  # type: ignore[misc]
    """People are made by administrators; each sign-in, failure and sign-out is on record.

    A failure is recorded where it concerns somebody: five in five minutes for one person at most, since then the rate
    limit refuses to look. A name that nobody has is written to the log alone.
    """

    error_messages = DefaultAccountAdapter.error_messages | {
        "username_password_mismatch": "The username or the password is not right.",
        "too_many_login_attempts": "Too many attempts failed. Wait five minutes, then try again.",
        "incorrect_password": "The password is not right.",
        "incorrect_code": "The code is not right. A code counts once, and for half a minute.",
        "rate_limited": "Too many attempts. Wait a minute, then try again.",
        "enter_current_password": "That is not your present password.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def login(self, request: HttpRequest, user: User) -> None:
        ways = [WAYS.get(each["method"], each["method"]) for each in get_authentication_records(request, user)]
        with transaction.atomic():
            super().login(request, user)
            audit.record(action="session.began", subject=user, by=user, after=self.whence(request) | {"with": ways})

    def post_login(self, request: HttpRequest, user: User, **told: Any) -> HttpResponse:
        for each in get_authentication_records(request, user):
            if each["method"] == "mfa":
                factors.show(request, each["type"])
        came = (told.get("signal_kwargs") or {}).get("sociallogin")
        if came is not None:
            provider.believe(request, came)
        answer: HttpResponse = super().post_login(request, user, **told)
        return answer

    def logout(self, request: HttpRequest) -> None:
        assert isinstance(request.user, User)
        with transaction.atomic():
            audit.record(action="session.ended", subject=request.user, by=request.user, after=self.whence(request))
            super().logout(request)

    def _get_login_attempts_cache_key(self, request: HttpRequest, **credentials: Any) -> str:
        """The name alone: allauth's key also holds the Host header, which whoever asks may write in many ways."""
        return str(credentials.get("username", "")).lower()

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        name = str(credentials.get("username", ""))
        person = User.objects.filter(username=name).first() if "\x00" not in name else None
        if person is None:
            log.warning("signin.failed", username=name[:150], **self.whence(request))
        else:
            self.failed(request, person, "password")

    def respond_user_inactive(self, request: HttpRequest, user: User) -> HttpResponse:
        self.failed(request, user, "the account is not active")
        answer: HttpResponse = super().respond_user_inactive(request, user)
        return answer

    def failed(self, request: HttpRequest, person: User, why: str) -> None:
        with transaction.atomic():
            audit.record(action="signin.failed", subject=person, by=None, reason=why, after=self.whence(request))

    def whence(self, request: HttpRequest) -> dict[str, str]:
        return {"address": self.get_client_ip(request)}

    def is_reauthentication_required(self, *, app: str, **_: Any) -> bool:
        return not proof.recent(self.request)

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        """Whoever has a second factor shows that: a browser fills in passwords for whoever sits in front of it."""
        found = super().get_reauthentication_methods(user)
        codes = [each for each in found if each["id"] == "mfa_reauthenticate"]
        linked = user.is_authenticated and SocialAccount.objects.filter(user=user).exists()
        again = {"id": "provider", "description": provider.name(), "url": reverse("signin_provider_again")}
        return codes or [*found, *([again] if linked else [])]


def factor_failed(sender: Any, request: HttpRequest, user: User, **_: Any) -> None:
    """Receiver of allauth's `authentication_failed`."""
    Account().failed(request, user, "second factor")


class Factors(DefaultMFAAdapter):  # type: ignore[misc]
    error_messages = DefaultMFAAdapter.error_messages | {"incorrect_code": Account.error_messages["incorrect_code"]}

    def encrypt(self, text: str) -> str:
        return vault.seal(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return vault.unseal(encrypted_text.encode()).decode()

    def get_totp_label(self, user: User) -> str:
        return user.get_username()

    def build_totp_svg(self, url: str) -> str:
        """On white, so that a telephone can read it on a dark page, too."""
        buffer = BytesIO()
        qrcode.make(url, image_factory=SvgPathFillImage, border=3).save(buffer)
        return buffer.getvalue().decode()
