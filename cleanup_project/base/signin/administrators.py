"""Who may do something about another person's way to sign in."""

from cleanup_project.base.models import User


class SignInRefused(Exception):
    """What was asked for about somebody's way to sign in is not allowed, and why."""


def permit(by: User, person: User) -> None:
    """Raise SignInRefused unless this is an administrator of every tenant, and a superuser where the person is one."""
    if not by.has_perm("base.manage_settings") or by.tenants:
        raise SignInRefused(f"{by} does not manage people: an administrator who sees every tenant does.")
    if person.is_superuser and not by.is_superuser:
        raise SignInRefused(f"{person} is a superuser: only another superuser does this.")
