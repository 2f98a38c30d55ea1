"""Why an object version is eligible for destruction, or why not: the verdict of this moment, with everything behind it."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from cleanup_project.base import clock, display
from cleanup_project.base.modeladmin import Tool
from cleanup_project.base.verbpages import VerbPages
from retention import why
from retention.eligibility import WORDS, Finding, Reason, Verdict
from retention.exceptions import TooMuch
from retention.models import LegalHold, ObjectVersion, PolicyRevision

WRONG_TIME = "Write a time with its zone, for example 2027-01-31T00:00:00Z."


class WhyPages(VerbPages[ObjectVersion]):
    """Mixin: `<id>/why/` tells why, now or as of another time with today's catalogue, policies, holds and decisions."""

    def get_urls(self) -> list[Any]:
        return [self.verb_url("why", self.why_view), *super().get_urls()]

    def tools(self, request: HttpRequest, obj: ObjectVersion) -> Iterable[Tool]:
        yield Tool("Why?", why_url(obj))
        yield from super().tools(request, obj)

    def why_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        obj = self.wanted(request, str(object_id))
        asked = request.GET.get("as_of", "").strip()
        as_of = time_of(asked)
        now = clock.now()
        context = {
            **self.admin_site.each_context(request),
            "title": "Why?",
            "subtitle": display.visible(str(obj)),
            "button": True,  # the breadcrumbs end below the object's own page
            "opts": self.opts,
            "original": obj,
            "media": self.media,
            "has_view_permission": True,
            "asked": asked,
            "wrong": WRONG_TIME if asked and as_of is None else "",
            "as_of": as_of or now,
            "now": now,
            **told(obj, as_of or now),
        }
        return TemplateResponse(request, "admin/retention/objectversion/why.html", context)


def why_url(obj: ObjectVersion) -> str:
    return reverse("admin:retention_objectversion_why", args=[obj.pk])


def time_of(text: str) -> datetime | None:
    """A time with its zone, in UTC; None for anything else, and for what lies outside of the calendar there."""
    try:
        found = parse_datetime(text)
        return found.astimezone(UTC) if found is not None and found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def told(obj: ObjectVersion, as_of: datetime) -> dict[str, Any]:
    """What the template shows of the verdict, or why there is none here."""
    try:
        return shown(obj, why.why(obj, as_of, why.READ))
    except TooMuch as refusal:
        return {"refusal": str(refusal)}


def shown(obj: ObjectVersion, verdict: Verdict) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "reason": WORDS[verdict.reason],
        "gone": verdict.reason is Reason.GONE,
        "findings": list(findings(verdict)),
        "holds": list(LegalHold.objects.filter(pk__in=[each.id for each in verdict.holds]).order_by("pk")),
        "next": why.next_evaluation(verdict),
        "latest": why.maximum(verdict),
        "sentences": list(why.explain(obj, verdict, why.READ)),
    }


def findings(verdict: Verdict) -> Iterator[dict[str, Any]]:
    """What each revision in force says, the one that governs marked."""
    revisions = PolicyRevision.objects.select_related("policy").in_bulk(
        [each.rule.revision_id for each in verdict.findings]
    )
    for each in verdict.findings:
        yield {
            "revision": revisions[each.rule.revision_id],
            "trigger": trigger(each),
            "started": each.trigger_at,
            "period": "for ever" if each.rule.retain_permanently else each.rule.period,
            "cutoff": PolicyRevision.CutOff(each.rule.cutoff).label,
            "ends": each.eligible_since,
            "said": "Its retention has ended." if each.reason is Reason.ELIGIBLE else WORDS[each.reason],
            "governs": each.rule == verdict.governed_by,
        }


def trigger(finding: Finding) -> str:
    if not finding.rule.waits:
        return PolicyRevision.Trigger(finding.rule.trigger).label
    met = f" {finding.event.id}" if finding.event else ", not posted yet"
    return f"retention event {finding.rule.event_type}{met}"
