"""The page of one run: whose turn it is, how far it has come, and what it stands on."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final, NamedTuple

from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from cleanup_project.base import clock, display
from cleanup_project.base.modeladmin import Tool, list_url
from cleanup_project.base.models import AuditEvent
from ledger import downloads, standing
from ledger.admin import guardwords
from ledger.admin.runlist import facts, state_pill
from ledger.models import (
    CleanupCommand,
    CleanupRun,
    DeadLetter,
    ErasureRequest,
    ItemDisposition,
    ManifestComparison,
    ManifestItem,
    ManifestPart,
    Receipt,
    SkippedItem,
)
from ledger.standing import OUTCOMES, Progress
from ledger.states import RUN_OPEN, CommandState, RunState
from retention.models import Bucket, PolicyRevision

LISTED_AT_MOST: Final = 200
STORY_AT_MOST: Final = 50
EVERY: Final = 10  # seconds between two looks of an open page
SLOWER_THAN: Final = 0.1  # items a second, below which minutes are told
IN_WORDS: Final = {"by_absence": "confirmed by absence", "dead": "in quarantine"}
KINDS: Final = {"deleted": "good", "absent": "absent", "blocked": "waiting", "quarantined": "overdue"}
ACTS: Final = {
    "run.opened": "Opened",
    "run.sealed": "Manifest sealed",
    "run.exempt": "Items exempted",
    "run.extend": "Items extended",
    "run.review": "Bulk review begun",
    "run.remaining": "What remains counted",
    "run.approved": "Approved",
    "run.cooled": "Cooling-off time over",
    "run.draining": "First commands published",
    "run.paused": "Paused",
    "run.resumed": "Resumed",
    "run.tripped": "Tripped by the circuit breaker",
    "run.closed": "Closed, counts add up",
    "run.cancelled": "Cancelled",
    "manifest.downloaded": "Manifest downloaded",
    "manifest.delivered": "Manifest handed over whole",
    "manifest.compared": "Manifest compared",
    "certificate.issued": "Certificate of destruction issued",
    "certificate.downloaded": "Certificate of destruction downloaded",
}
BAD: Final = frozenset({"run.tripped", "run.cancelled", "run.paused"})
GOOD: Final = frozenset({"run.approved", "run.closed"})


def live(run: CleanupRun) -> dict[str, Any]:
    """What the part of the page shows that asks again by itself while the run is open."""
    come = standing.progress([run])[run.pk]
    following = standing.of_run(run, come)
    return {
        "run": run,
        "pill": state_pill(run),
        "next": following,
        "come": come,
        "stretches": list(stretches(come)),
        "counted": list(counted(run, come)),
        "pace": pace_words(run, come),
        "refresh": f"{reverse('admin:ledger_cleanuprun_live', args=[run.pk])}?{urlencode({'state': run.state})}"
        if RunState(run.state) in RUN_OPEN
        else "",
        "every": EVERY,
        "now": clock.now(),
        "executes": run.mode == CleanupRun.Mode.ENFORCE and run.published_parts > 0,
    }


class Stretch(NamedTuple):
    """A part of the bar, in thousandths of its width."""

    begin: float
    width: float
    kind: str


def stretches(come: Progress) -> Iterator[Stretch]:
    begin = 0.0
    for words, number in come.grouped().items():
        width = min(1000 * number / max(come.total, 1), 1000 - begin)
        yield Stretch(round(begin, 2), round(width, 2), KINDS.get(words, "other"))
        begin += width


def counted(run: CleanupRun, come: Progress) -> Iterator[tuple[str, SafeString | str, str]]:
    """(outcome in words, its number with a link to what has it, how it is marked in the bar)."""
    for outcome, words in OUTCOMES.items():
        number = come.outcomes.get(outcome, 0)
        if number:
            shown = format_html('<a href="{}">{}</a>', listed(run, outcome), display.number(number))
            yield IN_WORDS.get(outcome, outcome.replace("_", " ")), shown, KINDS.get(words, "other")


def listed(run: CleanupRun, outcome: str) -> str:
    """The list of what has this outcome. What is dead counts until it is replayed, also where its entry was closed."""
    if outcome in CleanupCommand.Outcome.values:
        return list_url(Receipt, f"?run={run.pk}&outcome={outcome}")
    if outcome == CommandState.DEAD:
        return list_url(DeadLetter, f"?run={run.pk}&entries=all")
    return list_url(CleanupCommand, f"?run={run.pk}&state__exact={outcome}")


def pace_words(run: CleanupRun, come: Progress) -> str:
    """How fast it goes and when it would end at that; nothing where it does not drain or nothing can be said."""
    found = standing.pace(run, come.left)
    if found is None:
        return ""
    over = f"over the last {in_words(found.over)}"
    if not found.per_second:
        return f"Nothing was settled {over}."
    rate = (
        f"{found.per_second:,.1f} items a second"
        if found.per_second >= SLOWER_THAN
        else f"{found.per_second * 60:,.1f} items a minute"
    )
    end = f" At that, the {come.left:,} that are left take until {found.ends_at:%Y-%m-%d %H:%M} UTC."
    return f"{rate} {over}.{end if found.ends_at and come.left else ''}"


def in_words(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def page(request: HttpRequest, run: CleanupRun) -> dict[str, Any]:
    """Everything else that the page, and the pages of decisions about it, show."""
    around = facts([run])[run.pk]
    erasure = ErasureRequest.objects.filter(run=run).first()
    return {
        **live(run),
        "erasure": erasure,
        "revisions": around.revisions,
        "left_out": around.left_out,
        "findings": list(guardwords.findings(run)),
        "by_revision": guardwords.by_revision(run),
        "by_bucket": guardwords.by_bucket(run),
        "lists": lists(run, erasure),
        "files": files(request, run),
        "digests": sorted(downloads.digests(run).items()),
        "beside": ManifestComparison.objects.filter(run=run, finished_at__isnull=False).select_related("other").first(),
        "story": list(story(run)),
        "streams": stream_table(run, erasure),
        "stream_count": len(run.streams),
    }


LISTS: Final[dict[type[Model], str]] = {
    ManifestItem: "Items",
    ManifestPart: "Parts",
    ItemDisposition: "Exempted",
    CleanupCommand: "Commands",
    SkippedItem: "Left out",
    Receipt: "Receipts",
}


def lists(run: CleanupRun, erasure: ErasureRequest | None) -> list[Tool]:
    own = [Tool("Erasure request", display.change_url(erasure))] if erasure else []
    if run.sealed_at is not None:
        own.append(Tool("Compare", reverse("admin:ledger_cleanuprun_compare", args=[run.pk])))
    certificate = reverse("admin:ledger_cleanuprun_certificate", args=[run.pk])
    own += [Tool("Certificate", certificate)] if run.state == RunState.CLOSED and run.counts is not None else []
    return [*own, *(Tool(label, list_url(model, f"?run={run.pk}")) for model, label in LISTS.items())]


def files(request: HttpRequest, run: CleanupRun) -> list[Tool]:
    if run.sealed_at is None or not downloads.may_download(request.user):
        return []
    address = "admin:ledger_cleanuprun_manifest"
    return [Tool(f"Download {form.upper()}", reverse(address, args=[run.pk, form])) for form in downloads.TYPES]


class Moment(NamedTuple):
    event: AuditEvent
    words: str
    kind: str


def story(run: CleanupRun) -> Iterator[Moment]:
    """What the audit record says of it, the newest first; its history tab says the same with every value."""
    about = AuditEvent.objects.filter(subject_type=run._meta.label_lower, subject_id=str(run.pk))
    for event in about.order_by("-id")[:STORY_AT_MOST]:
        kind = "bad" if event.action in BAD else "good" if event.action in GOOD else ""
        yield Moment(event, act(event), kind)


def act(event: AuditEvent) -> str:
    words = ACTS.get(event.action, event.action)
    if event.action == "run.draining" and event.before.get("state") == RunState.PAUSED:
        return "Resumed"
    if event.action == "run.draining" and event.before.get("state") == RunState.TRIPPED:
        return "Re-armed"
    number = (
        event.after.get("items") if event.action in {"run.sealed", "run.exempt", "run.extend", "run.review"} else None
    )
    return f"{words}: {display.counted(number, 'item')}" if number is not None else words


def stream_table(run: CleanupRun, erasure: ErasureRequest | None) -> SafeString:
    """What it reads, in order."""
    if erasure is not None:
        return format_html("the list of {}", display.link(erasure))
    shown = run.streams[:LISTED_AT_MOST]
    buckets = dict(Bucket.objects.filter(pk__in={each["bucket_id"] for each in shown}).values_list("pk", "name"))
    wanted = {each["revision_id"] for each in shown}
    revisions = {each.pk: each for each in PolicyRevision.objects.filter(pk__in=wanted).select_related("policy")}
    rows = [
        (
            display.link(revisions[each["revision_id"]]),
            buckets.get(each["bucket_id"]),
            display.exact(each["prefix"]) if each["prefix"] else "the whole bucket",
            display.exact(each["retention_class"]) if each["retention_class"] else "unclassified",
            "delete markers" if each["markers"] else "objects",
            "key" if each["by_key"] else "date",
        )
        for each in shown
    ]
    table = display.table(("Revision", "Bucket", "Prefix", "Class", "What", "In the order of"), rows)
    return display.cut(table, len(run.streams) - len(shown), "streams")
