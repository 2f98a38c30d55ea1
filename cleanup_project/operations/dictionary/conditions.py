"""What the database demands of a row, in words: made from the constraints themselves, so that it is what they say."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from django.db.models import CheckConstraint, F, Model, Q, UniqueConstraint, Value
from django.db.models.constants import LOOKUP_SEP
from django.db.models.expressions import CombinedExpression

COMPARED: Final[dict[str, Callable[[str], str]]] = {
    "gte": lambda value: f"is {value} at least",
    "lte": lambda value: f"is {value} at most",
    "gt": lambda value: f"is more than {value}",
    "lt": lambda value: f"is less than {value}",
    "contains": lambda value: f"holds {value}",
    "contained_by": lambda value: f"holds nothing but {value}",
    "startswith": lambda value: f"begins with {value}",
    "regex": lambda value: f"matches {value}",
    "not_regex": lambda value: f"does not match {value}",
}
# Conditions that are calls of functions.
SAID: Final = {
    "revision_second_person": "`only_lengthens`, or whoever published it has neither drafted nor edited it",
    "object_version_asset": "`asset` matches `^[!-$&-9;-~]+$` and has 200 characters at most",
    "event_digest": "`body_sha256` is the SHA-256 of `body`",
    "event_body_limit": "`body` has 65,536 bytes at most",
    "detailed_body_digest": "`body_sha256` is the SHA-256 of `body`",
    "detailed_body_limit": "`body` has 65,536 bytes at most",
    "deliveryattempt_response_limit": "`response` has 4,096 bytes at most",
    "ping_response_limit": "`response` has 4,096 bytes at most",
    "stop_report_paired": "`commands` and `tokens` have as many entries",
}


def told(model: type[Model], constraint: Any) -> str:
    """One constraint of a model. Raises TypeError for one that this module has no words for."""
    if isinstance(constraint, CheckConstraint):
        return f"`{constraint.name}`: {SAID.get(constraint.name) or condition(model, constraint.condition)}."
    if isinstance(constraint, UniqueConstraint):
        where = f", where {condition(model, constraint.condition)}" if constraint.condition else ""
        alike = ", nothing counting as equal to nothing" if constraint.nulls_distinct is False else ""
        named = ", ".join(column(model, name) for name in constraint.fields)
        return f"`{constraint.name}`: one row for each {named}{alike}{where}."
    raise TypeError(f"There are no words for {constraint!r}: add them to conditions.py.")


def column(model: type[Model], name: str) -> str:
    return f"`{model._meta.get_field(name).column}`"  # type: ignore[union-attr]


def condition(model: type[Model], asked: Any) -> str:
    """A condition in words. Raises TypeError for an expression: SAID has the words for those."""
    if isinstance(asked, tuple):
        return lookup(model, *asked)
    if not isinstance(asked, Q):
        raise TypeError(f"There are no words for {asked!r}: add its constraint to conditions.SAID.")
    first: Any = asked.children[0]
    if asked.negated and len(asked.children) == 1 and isinstance(first, tuple):
        return lookup(model, *first, negated=True)
    parts = [grouped(model, child, within=asked) for child in asked.children]
    words = " and ".join(parts) if asked.connector == Q.AND else ", or ".join(parts)
    return f"not ({words})" if asked.negated else words


def grouped(model: type[Model], child: Any, within: Q) -> str:
    """In brackets where an *or* stands inside of an *and*."""
    words = condition(model, child)
    inner = isinstance(child, Q) and child.connector == Q.OR and len(child.children) > 1 and not child.negated
    return f"({words})" if inner and within.connector == Q.AND else words


def lookup(model: type[Model], path: str, wanted: Any, *, negated: bool = False) -> str:
    name, *how = path.split(LOOKUP_SEP)
    subject = column(model, name)
    if how[:1] == ["len"]:
        subject, how = f"the number of entries of {subject}", how[1:]
    kind = how[0] if how else "exact"
    if kind == "isnull" or wanted is None:
        is_null = bool(wanted) if kind == "isnull" else True
        return f"{subject} is {'null' if is_null != negated else 'not null'}"
    if kind == "regex" and wanted == r"\S":
        return f"{subject} {'is blank' if negated else 'is not blank'}"
    if kind in COMPARED:
        said = COMPARED[f"not_{kind}" if negated and f"not_{kind}" in COMPARED else kind](value(model, wanted))
        return f"{subject} {said}" if not negated or kind == "regex" else f"not ({subject} {said})"
    return f"{subject} is {'not ' if negated else ''}{values(model, kind, wanted)}"


def values(model: type[Model], kind: str, wanted: Any) -> str:
    if kind == "range":
        return f"from {wanted[0]} to {wanted[1]}"
    if kind == "in":
        return "one of " + ", ".join(value(model, each) for each in sorted(wanted))
    if kind != "exact":
        raise TypeError(f"There are no words for the lookup {kind}: add them to conditions.py.")
    return "empty" if wanted in ("", []) else value(model, wanted)


def value(model: type[Model], wanted: Any) -> str:
    if isinstance(wanted, F):
        return column(model, wanted.name)  # type: ignore[attr-defined] # which the stubs lack
    if isinstance(wanted, CombinedExpression) and isinstance(wanted.rhs, Value):
        return f"{value(model, wanted.lhs)} {wanted.connector} {value(model, wanted.rhs.value)}"
    if isinstance(wanted, bool):
        return "true" if wanted else "false"
    if isinstance(wanted, timedelta):
        return f"{wanted.days} days" if wanted.days > 1 else f"{wanted // timedelta(hours=1)} hours"
    if isinstance(wanted, list | tuple | frozenset):
        return ", ".join(f"`{each}`" for each in wanted)
    return f"`{wanted}`" if isinstance(wanted, str) else f"{wanted:,}"
