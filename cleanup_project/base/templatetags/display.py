"""`base.display` in templates: `{{ value|moment }}`, `{{ bytes|size }}`, `{{ key|exact }}`, `{{ row|link }}`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django import template
from django.utils.safestring import SafeString

from cleanup_project.base import display

register = template.Library()
register.filter("moment", display.moment)
register.filter("size", display.size)
register.filter("exact", display.exact)
register.filter("visible", display.visible)
register.filter("link", display.link)
register.filter("structure", display.structure)
register.filter("age", display.age)
register.filter("visible_name", display.named)


@register.filter
def words(code: str) -> str:
    """A code as people read it: `bucket_missing` as bucket missing."""
    return code.replace("_", " ")


@register.filter
def of(values: Mapping[Any, Any] | None, key: Any) -> Any:
    """What a mapping has for a key that stands in a variable."""
    return values.get(key) if values else None


@register.filter
def instant(text: str) -> SafeString:
    """A time as canonical JSON holds it."""
    return display.moment(datetime.fromisoformat(text))
