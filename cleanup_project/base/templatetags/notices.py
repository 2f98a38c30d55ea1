"""`{% notices %}`: what stands on top of every page."""

from typing import Any

from django import template

from cleanup_project.base import notices as asked
from cleanup_project.base.models import User

register = template.Library()


@register.inclusion_tag("admin/notices.html", takes_context=True)
def notices(context: dict[str, Any]) -> dict[str, Any]:
    user = context.get("user")
    shown = isinstance(user, User) and user.is_authenticated and user.is_staff
    return {"notices": list(asked.notices(user)) if shown and isinstance(user, User) else []}
