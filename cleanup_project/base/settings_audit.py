"""What a settings form changed, as the audit record keeps it."""

from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db import transaction
from django.db.models import Field, Model, QuerySet
from django.http import HttpRequest

from cleanup_project.base import audit
from cleanup_project.base.models import User

SECRET = frozenset({"password"})


def record_settings(request: HttpRequest, form: Any, change: bool) -> None:
    """Record a saved form. Called in the transaction that saved it; a form that changed nothing leaves no record."""
    before, after = changes(form, change)
    if not change or after:
        record(request, form.instance, "settings.changed" if change else "settings.added", before=before, after=after)


def record(request: HttpRequest, subject: Model, action: str, **values: Any) -> None:
    assert isinstance(request.user, User)
    with transaction.atomic():
        audit.record(action=action, subject=subject, by=request.user, **values)


def changes(form: Any, change: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The changed model fields before and after; passwords are never among them."""
    before, after = dict[str, Any](), dict[str, Any]()
    for name in form.changed_data:
        field = model_field(form.instance, name)
        if field is None or name in SECRET:
            continue
        after[name] = told(field, form.cleaned_data[name])
        if change:
            before[name] = told(field, form.initial.get(name))
    return before, after


def model_field(instance: Model, name: str) -> Field[Any, Any] | None:
    try:
        field = instance._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    return field if isinstance(field, Field) else None


def told(field: Field[Any, Any], value: Any) -> Any:
    """A value as JSON; rows by their names, since a number means nothing to who reads the record later."""
    if isinstance(value, QuerySet | list | tuple):
        return sorted(str(told(field, each)) for each in value)
    if field.related_model and isinstance(value, int):
        value = field.related_model._base_manager.filter(pk=value).first()
    return value if value is None or isinstance(value, str | int | bool) else str(value)
