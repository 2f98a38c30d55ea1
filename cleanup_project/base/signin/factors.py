"""The second factor: who must have one, whether this session showed it, and taking one away from somebody who lost it."""

from typing import Final

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest

from cleanup_project.base import audit, roles
from cleanup_project.base.models import User
from cleanup_project.base.signin import administrators, sessions
from cleanup_project.base.signin.administrators import SignInRefused

FACTOR: Final = "factor"  # in the session: which factor was shown when it began
PROVIDER: Final = "provider"  # a second factor was shown to the identity provider, which says so


def show(request: HttpRequest, factor: str) -> None:
    request.session[FACTOR] = factor


def drop(request: HttpRequest) -> None:
    request.session.pop(FACTOR, None)


def required(user: User) -> bool:
    """Whoever may decide something needs a second factor."""
    return bool(settings.MFA_REQUIRED) and any(user.has_perm(f"base.{right}") for right in roles.DECIDING)


def missing(request: HttpRequest) -> bool:
    """Whether this person can do nothing before they have shown a second factor."""
    user = request.user
    return isinstance(user, User) and not request.session.get(FACTOR) and required(user)


def reset(*, person: User, by: User, reason: str) -> User:
    """Take away the second factor and the recovery codes, and end every session: the next one begins with a new factor."""
    administrators.permit(by, person)
    if person == by:
        raise SignInRefused("Another administrator must do this for you; you may replace your own factor yourself.")
    with transaction.atomic():
        held = Authenticator.objects.select_for_update(no_key=True).filter(user=person)
        kinds = sorted(each.type for each in held)
        if not kinds:
            raise SignInRefused(f"{person} has no second factor.")
        held.delete()
        audit.record(action="factor.reset", subject=person, by=by, reason=reason, before={"factors": kinds})
        sessions.end(person=person, by=by, reason=reason)
    return person
