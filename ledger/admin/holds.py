"""The page of a legal hold, with what the ledger knows: commands that it would stop, and what was in flight."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db import OperationalError
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import Tool
from ledger import inflight
from ledger.models import HoldReport
from retention.admin import holds as base
from retention.models import LegalHold

admin.site.unregister(LegalHold)


@admin.register(LegalHold)
class LegalHoldAdmin(base.LegalHoldAdmin):
    fieldsets = (*base.LegalHoldAdmin.fieldsets, ("In flight when it was placed", {"fields": ("in_flight",)}))

    def tools(self, request: HttpRequest, obj: LegalHold) -> Iterable[Tool]:
        yield from super().tools(request, obj)
        report = HoldReport.objects.filter(pk=obj.pk).first()
        if report is not None:
            yield Tool("In-flight report", display.change_url(report))

    @admin.display(description="in flight")
    def in_flight(self, obj: LegalHold) -> SafeString | str:
        report = HoldReport.objects.filter(pk=obj.pk).first()
        if report is None:
            return "not reported yet: claims that may have missed the hold are still running"
        return format_html('<a href="{}">{}</a>', display.change_url(report), inflight.told(report))

    def would_cover(self, hold: LegalHold) -> Iterable[tuple[str, Any]]:
        yield from super().would_cover(hold)
        try:
            waiting, under_way = inflight.would_cover(hold)
        except OperationalError:
            yield "Commands", "not counted in time: there are too many"
            return
        whole = waiting + under_way <= inflight.COUNTED_AT_MOST
        yield "Commands that wait", base.number_of(waiting, whole)
        yield "Commands in flight", base.number_of(under_way, whole)
