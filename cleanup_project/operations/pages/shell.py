"""A page of ours in the dress of the admin."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.response import TemplateResponse

from cleanup_project.base import clock


def page(request: HttpRequest, template: str, title: str, context: dict[str, Any]) -> TemplateResponse:
    """`template` extends operations/page.html; `now` in it is the database's time, as of which the page is."""
    shared = {**admin.site.each_context(request), "title": title, "now": clock.now()}
    return TemplateResponse(request, template, shared | context)
