"""OpenID Connect: people who are known here sign in where they sign in anyway.

A person is who the issuer says: issuer and subject together, which stay the same when names and addresses change
(OpenID Connect Core 1.0, section 5.7). The first time, a verified e-mail address leads to the person; from then on, only
the subject does.
"""

from typing import Any, Final

from allauth.account.utils import get_next_redirect_url
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter, get_adapter
from allauth.socialaccount.internal import jwtkit
from allauth.socialaccount.models import SocialAccount, SocialLogin
from allauth.socialaccount.providers.base import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from cleanup_project.base import audit
from cleanup_project.base.models import User
from cleanup_project.base.signin import administrators, factors, proof, sessions
from cleanup_project.base.signin.administrators import SignInRefused
from cleanup_project.base.signin.entrance import refusal

ID: Final = "oidc"
SUBJECT: Final = "issuer_and_subject"
LONGEST_SUBJECT: Final = 191  # allauth's column
NEEDED: Final = ("issuer", "authorization_endpoint", "token_endpoint", "userinfo_endpoint", "jwks_uri")


def name() -> str:
    return str(settings.OIDC_NAME)


def start(request: HttpRequest, *, again: bool = False) -> HttpResponse:
    """Off to the provider. `again`: it must ask the person anew, although it knows them."""
    if not settings.OIDC_ISSUER:
        raise Http404("No identity provider is set up.")
    asked = {"prompt": "login", "max_age": "0"} if again else {}
    try:
        there = get_adapter().get_provider(request, ID)
        answer: HttpResponse = there.redirect(
            request, AuthProcess.LOGIN, get_next_redirect_url(request), auth_params=asked, again=again
        )
    except OSError:  # what `requests` raises, and what it stands on
        return refusal(request, f"{name()} does not answer. Try again, or sign in with a password of your own.", 503)
    return answer


def discovered() -> dict[str, Any]:
    """What the provider says of itself, asked for now and as a sign-in does. Raises OSError, and ValueError for no JSON."""
    said: dict[str, Any] = SignedTokens(HttpRequest(), ID).openid_config
    return said


@login_required
def start_again(request: HttpRequest) -> HttpResponse:
    return start(request, again=True)


def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    """Where the provider sends people back to."""
    if not settings.OIDC_ISSUER or provider_id != ID:
        raise Http404("No identity provider is set up.")
    answer: HttpResponse = OAuth2CallbackView.adapter_view(SignedTokens(request, ID))(request)
    return answer


@login_required
def came_again(request: HttpRequest) -> HttpResponse:
    """Said in the window in which somebody signed in again, while their form waits in another."""
    return TemplateResponse(request, "account/proved.html", {})


class SignedTokens(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """As allauth's, except that the token's signature is checked although it came over TLS, and both answers agree."""

    def complete_login(self, request: HttpRequest, app: Any, token: Any, **told: Any) -> SocialLogin:
        try:
            claims = jwtkit.verify_and_decode(
                credential=told["response"]["id_token"],
                keys_url=self.openid_config["jwks_uri"],
                issuer=self.openid_config["issuer"],
                audience=app.client_id,
                lookup_kid=jwtkit.lookup_kid_jwk,
            )
        except KeyError as lacking:
            raise OAuth2Error(f"The provider's answer lacks {lacking}.") from lacking
        about = self._fetch_user_info(token.token)
        if about.get("sub") != claims["sub"]:
            raise OAuth2Error("The token and the answer about the person name different people.")
        subject = f"{claims['iss']} {claims['sub']}"
        if len(subject) > LONGEST_SUBJECT:
            raise OAuth2Error(f"Issuer and subject together are longer than {LONGEST_SUBJECT} characters.")
        return self.get_provider().sociallogin_from_response(
            request, {"userinfo": about | {SUBJECT: subject}, "id_token": claims}
        )


class Provider(DefaultSocialAccountAdapter):  # type: ignore[misc]
    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return False

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Lets known people on, and nobody else."""
        if not sociallogin.is_existing:
            link(request, sociallogin)
        if sociallogin.state.get("again"):
            raise ImmediateHttpResponse(self.prove(request, sociallogin))

    def prove(self, request: HttpRequest, sociallogin: SocialLogin) -> HttpResponse:
        if sociallogin.user != request.user:
            return refusal(request, f"You signed in at {name()} as somebody else than here. Nothing was decided.", 403)
        proof.accept(request, proved_at(sociallogin))
        return HttpResponseRedirect(sociallogin.state.get("next") or reverse("signin_proved"))

    def on_authentication_error(self, request: HttpRequest, provider: Any, **told: Any) -> None:
        raise ImmediateHttpResponse(
            refusal(request, f"Signing in at {name()} did not succeed. Nothing was changed: try again.", 401)
        )


def link(request: HttpRequest, sociallogin: SocialLogin) -> None:
    """The first time: what the provider says belongs to the one person who has the address that it vouches for."""
    person = known(request, [each.email for each in sociallogin.email_addresses if each.verified])
    with transaction.atomic():
        sociallogin.connect(request, person)
        audit.record(
            action="provider.linked",
            subject=person,
            by=person,
            after={"provider": name(), "subject": sociallogin.account.uid},
        )


def known(request: HttpRequest, addresses: list[str]) -> User:
    """The one person with a verified address of these. Raises ImmediateHttpResponse with a page that says why not."""
    if not addresses:
        words = f"{name()} does not vouch for an e-mail address of yours, so nobody here can be found by it."
    else:
        people = list(User.objects.filter(email__iexact=addresses[0])[:2])
        if len(people) == 1 and not SocialAccount.objects.filter(user=people[0]).exists():
            return people[0]
        words = {
            0: f"Nobody here has the address {addresses[0]}.",
            1: f"{addresses[0]} belongs to somebody here who signs in at {name()} as another person: an address may have "
            "changed hands.",
            2: f"Several people here have the address {addresses[0]}.",
        }[len(people)]
    raise ImmediateHttpResponse(refusal(request, f"{words} Ask an administrator to put it right.", 403))


def believe(request: HttpRequest, sociallogin: SocialLogin) -> None:
    """What the provider says about how this person signed in there counts for the session that begins here."""
    proof.accept(request, proved_at(sociallogin))
    claims = sociallogin.account.extra_data.get("id_token", {})
    ways = claims.get("amr")
    if claims.get("acr") in settings.OIDC_MFA_ACR or set(ways if isinstance(ways, list) else ()) & set(
        settings.OIDC_MFA_AMR
    ):
        factors.show(request, factors.PROVIDER)


def proved_at(sociallogin: SocialLogin) -> float | None:
    """When the person last signed in at the provider. Silent about it, it was just now where we asked for that, else never.

    Asked by `max_age`, a provider must say it (OpenID Connect Core 1.0, section 2, `auth_time`).
    """
    said = sociallogin.account.extra_data.get("id_token", {}).get("auth_time")
    if isinstance(said, int | float):
        return float(said)
    return None if sociallogin.state.get("again") else 0.0


def unlink(*, person: User, by: User, reason: str) -> User:
    """Forget who this person is at the provider: the next sign-in there links them anew, by their address.

    Raises SignInRefused.
    """
    administrators.permit(by, person)
    with transaction.atomic():
        held = SocialAccount.objects.select_for_update(no_key=True).filter(user=person)
        subjects = [each.uid for each in held]
        if not subjects:
            raise SignInRefused(f"{person} is not linked to an identity provider.")
        held.delete()
        audit.record(action="provider.unlinked", subject=person, by=by, reason=reason, before={"subjects": subjects})
        sessions.end(person=person, by=by, reason=reason)
    return person
