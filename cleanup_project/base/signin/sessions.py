"""How long a session lasts: eight hours at most, half an hour without its person, and until somebody ends it.

Times are the web server's, in seconds since the epoch, as are those of Django's own sessions.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import resolve_url
from django_htmx.http import HttpResponseClientRefresh

from cleanup_project.base import audit
from cleanup_project.base.models import Session, User
from cleanup_project.base.signin import administrators, proof
from cleanup_project.base.signin.store import SessionStore

SINCE: Final = "since"
SEEN: Final = "seen"
RENEWED_EVERY: Final = 60  # seconds: the row is not written at each request


def begin(sender: Any, request: HttpRequest, user: User, **_: Any) -> None:
    """Receiver of Django's `user_logged_in`: whichever way somebody came in, the clock runs from here."""
    request.session[SINCE] = request.session[SEEN] = time.time()
    proof.accept(request)
    SessionStore.clear_expired()


def end_when_over(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware, after Django's for sessions, people and messages."""

    def middleware(request: HttpRequest) -> HttpResponse:
        if request.user.is_authenticated:
            if because := over(request):
                logout(request)
                messages.warning(request, because)
            else:
                renew(request)
        response = get_response(request)
        if polls(request) and response.status_code == 302 and to_sign_in(response):
            return HttpResponseClientRefresh()  # else the form to sign in would stand where a part of the page was
        return response

    return middleware


def over(request: HttpRequest) -> str:
    """Why this session ends now, in words; empty while it goes on."""
    now = time.time()
    if now - request.session.get(SINCE, 0) >= settings.SESSION_COOKIE_AGE:
        return f"You were signed out: a session ends after {settings.SESSION_COOKIE_AGE // 3600} hours."
    if now - request.session.get(SEEN, 0) >= settings.SESSION_IDLE_SECONDS:
        return f"You were signed out, since you did nothing for {settings.SESSION_IDLE_SECONDS // 60} minutes."
    return ""


def renew(request: HttpRequest) -> None:
    if not polls(request) and time.time() - request.session[SEEN] >= RENEWED_EVERY:
        request.session[SEEN] = time.time()


def polls(request: HttpRequest) -> bool:
    """Whether a page fetches a part of itself, as it does with nobody in front of it."""
    return request.method == "GET" and request.headers.get("HX-Request") == "true"


def to_sign_in(response: HttpResponse) -> bool:
    address = response.headers.get("Location", "")
    return address.startswith((resolve_url(settings.LOGIN_URL), resolve_url("admin:login")))


def end(*, person: User, by: User | None, reason: str) -> int:
    """End every session of this person, wherever it is open; returns how many there were. None is the system itself.

    Raises SignInRefused.
    """
    if by is not None:
        administrators.permit(by, person)
    with transaction.atomic():
        number, _kinds = Session.objects.filter(person=person).delete()
        audit.record(action="sessions.ended", subject=person, by=by, reason=reason, after={"sessions": number})
    return number


def began(request: HttpRequest) -> datetime:
    return datetime.fromtimestamp(request.session[SINCE], UTC)


def ends(request: HttpRequest) -> datetime:
    """When it ends at the latest."""
    return began(request) + timedelta(seconds=settings.SESSION_COOKIE_AGE)
