"""Where somebody goes who may not come in yet: to sign in, or to set up the second factor that they lack."""

from urllib.parse import urlencode

from allauth.account.utils import get_next_redirect_url
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from cleanup_project.base.signin import factors


def lead(request: HttpRequest, may_come_in: bool) -> HttpResponse:
    wanted = get_next_redirect_url(request) or reverse("my-work")
    if may_come_in:
        return HttpResponseRedirect(wanted)
    if not request.user.is_authenticated:
        return HttpResponseRedirect(f"{reverse('account_login')}?{urlencode({'next': wanted})}")
    if factors.missing(request):
        messages.warning(request, "Your role decides things, so you need a second factor before you can go on.")
        return redirect("mfa_activate_totp")
    return refusal(request, "This account may not open any page here. Ask an administrator to make it staff.", 403)


def refusal(request: HttpRequest, words: str, status: int) -> HttpResponse:
    """A page of its own that says why somebody does not come in."""
    return TemplateResponse(request, "account/refused.html", {"words": words}, status=status)
