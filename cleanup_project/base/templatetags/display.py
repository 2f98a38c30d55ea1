"""`base.display` in templates: `{{ value|moment }}`, `{{ bytes|size }}`, `{{ key|exact }}`, `{{ row|link }}`."""

from django import template

from cleanup_project.base import display

register = template.Library()
register.filter("moment", display.moment)
register.filter("size", display.size)
register.filter("exact", display.exact)
register.filter("visible", display.visible)
register.filter("link", display.link)
register.filter("structure", display.structure)
register.filter("age", display.age)
