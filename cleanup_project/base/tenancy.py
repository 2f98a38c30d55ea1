"""Whose things a person sees: of the tenants that are named in their account, or of all where none is."""

from typing import TypeVar

from django.contrib.auth.models import AnonymousUser
from django.db.models import Model, QuerySet

from cleanup_project.base.models import User

M = TypeVar("M", bound=Model)


def scoped(rows: QuerySet[M], user: User | AnonymousUser, path: str) -> QuerySet[M]:
    """The rows of this person's tenants. `path` is the lookup that leads from a row to its tenant's code."""
    codes = user.tenants if isinstance(user, User) else []
    return rows.filter(**{f"{path}__in": codes}) if codes else rows
