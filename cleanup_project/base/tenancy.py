"""Whose things a person sees and decides: of the tenants that are named in their account, or of all where none is.

A row that no single tenant owns, such as an alarm about a bucket which several share, is for those who see every tenant.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.db.models import ForeignKey, Model, Q, QuerySet, prefetch_related_objects

from cleanup_project.base.models import User

M = TypeVar("M", bound=Model)


def scoped(rows: QuerySet[M], user: User | AnonymousUser, path: str) -> QuerySet[M]:
    """The rows of this person's tenants. `path` is the lookup that leads from a row to its tenant's code."""
    if not isinstance(user, User):
        return rows.none()
    return rows.filter(owned(rows.model, path, user.tenants)) if user.tenants else rows


def owned(model: type[Model], path: str, codes: Collection[str]) -> Q:
    """The condition that a row belongs to one of these tenants.

    What the row names is looked up first: of numbers the planner knows how common they are, and it can use an index that
    begins with them; of a join it knows neither.
    """
    first, _, rest = path.partition("__")
    if not rest:
        return Q(**{f"{path}__in": codes})
    owner: Any = model._meta.get_field(first).related_model
    ids = owner._base_manager.filter(**{f"{rest}__in": codes}).values_list("pk", flat=True)
    return Q(**{f"{first}__in": list(ids)})


def within(codes: Collection[str], user: User) -> bool:
    """Whether what belongs to these tenants, or where there are none to all, is this person's business."""
    return not user.tenants or (bool(codes) and set(codes) <= set(user.tenants))


def permit(by: User | None, row: Model | str | None, refusal: type[Exception]) -> None:
    """Raise `refusal` where this person may not decide about what belongs to the row's tenant; None is the system itself.

    The row may also be the tenant's code. A row that no single tenant owns is for those who decide about every tenant.
    """
    if by is not None and by.tenants and not within([code] if (code := code_of(row)) else [], by):
        raise refusal(f"{by} decides about what belongs to {', '.join(by.tenants)}, and about nothing else.")


def permit_each(by: User, rows: Sequence[Model], refusal: type[Exception]) -> None:
    """`permit` for many rows of one model."""
    for code in set(codes_of(rows)) if by.tenants else ():
        permit(by, code, refusal)


def code_of(row: Model | str | None) -> str:
    """The code of the tenant that a row belongs to, by its `owner` or else its `tenant`; empty: no single one's."""
    if isinstance(row, str):
        return row
    return str(getattr(row, "owner", None) or getattr(row, "tenant", None) or "")


def codes_of(rows: Sequence[Model]) -> list[str]:
    """`code_of` each, rows of one model; the tenants of all of them are looked up at once."""
    if len(rows) > 1 and any(isinstance(each, ForeignKey) and each.name == "tenant" for each in rows[0]._meta.fields):
        prefetch_related_objects(rows, "tenant")
    return [code_of(row) for row in rows]
