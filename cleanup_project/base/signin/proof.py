"""Before a decision: a person shows again who they are, on the page where they decide, with what they filled in kept."""

import time
from typing import Any, Final

from allauth.account.adapter import get_adapter
from allauth.account.forms import ReauthenticateForm as PasswordForm
from allauth.account.internal.flows.reauthentication import reauthenticate_by_password
from allauth.mfa.base.forms import ReauthenticateForm as CodeForm
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.http import urlencode

PROVED: Final = "proved"
PREFIX: Final = "proof"


def accept(request: HttpRequest, at: float | None = None) -> None:
    """This person has shown who they are: now, or when their identity provider says that they did."""
    request.session[PROVED] = time.time() if at is None else min(at, time.time())


def step_completed(sender: Any, request: HttpRequest, **told: Any) -> None:
    """Receiver of allauth's `authentication_step_completed`."""
    if told.get("reauthenticated"):
        accept(request)


def recent(request: HttpRequest) -> bool:
    return bool(time.time() - request.session.get(PROVED, 0) < settings.REAUTHENTICATION_SECONDS)


def ask(request: HttpRequest, what: str) -> HttpResponse | None:
    """The page that asks for the password or a code; None where that is recent, or was answered with this very request.

    For a POST; `what` is decided by it, as the page's heading says. Everything that was sent is sent again; a file cannot be
    kept, and its field comes back empty.
    """
    if recent(request):
        return None
    form = question(request)
    if form is not None and form.is_bound and form.is_valid():
        if isinstance(form, CodeForm):
            form.save()
        else:
            reauthenticate_by_password(request)
        return None
    context = {
        "what": what,
        "form": form,
        "kept": list(kept(request)),
        "provider": next((each for each in get_adapter().get_reauthentication_methods(request.user) if not form), None),
        "files": bool(request.FILES),
        "minutes": settings.REAUTHENTICATION_SECONDS // 60,
    }
    return TemplateResponse(request, "account/prove.html", context)


def lead(request: HttpRequest) -> HttpResponse | None:
    """Off to the page that asks, and back to this one; None where the proof is recent.

    For a form in which somebody writes a password: no page keeps that, so they are asked before they fill it in.
    """
    if recent(request):
        return None
    ways = get_adapter().get_reauthentication_methods(request.user)
    if not ways:
        raise PermissionDenied
    if request.method == "POST":
        messages.warning(
            request, "Nothing was changed: it took too long. A password is not kept, so fill in the form anew."
        )
    return HttpResponseRedirect(f"{ways[0]['url']}?{urlencode({'next': request.get_full_path()})}")


def question(request: HttpRequest) -> CodeForm | PasswordForm | None:
    """A code for whoever has a second factor, else the password; None where only the identity provider can tell."""
    ways = {each["id"] for each in get_adapter().get_reauthentication_methods(request.user)}
    for way, form, field in (("mfa_reauthenticate", CodeForm, "code"), ("reauthenticate", PasswordForm, "password")):
        if way in ways:
            sent = request.POST if f"{PREFIX}-{field}" in request.POST else None
            return form(sent, prefix=PREFIX, user=request.user)
    return None


def kept(request: HttpRequest) -> Any:
    """(name, value) of what was sent, but for the answer itself."""
    for name, values in request.POST.lists():
        if name != "csrfmiddlewaretoken" and not name.startswith(f"{PREFIX}-"):
            yield from ((name, value) for value in values)
