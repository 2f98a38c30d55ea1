"""What stands on top of every page: `{% notices %}` what must not be overlooked, `{% standing %}` where things stand."""

from typing import Any

from django import template

from cleanup_project.base import clock, waiting
from cleanup_project.base import notices as asked
from cleanup_project.base.models import User

register = template.Library()


def staff(context: dict[str, Any]) -> User | None:
    user = context.get("user")
    return user if isinstance(user, User) and user.is_authenticated and user.is_staff else None


@register.inclusion_tag("admin/notices.html", takes_context=True)
def notices(context: dict[str, Any]) -> dict[str, Any]:
    user = staff(context)
    return {"notices": list(asked.notices(user)) if user else []}


@register.inclusion_tag("admin/standing.html", takes_context=True)
def standing(context: dict[str, Any]) -> dict[str, Any]:
    user = staff(context)
    number = sum(each.number for each in waiting.waiting(user)) if user else 0
    return {"now": clock.now(), "waiting": number, "perms": context.get("perms")}
