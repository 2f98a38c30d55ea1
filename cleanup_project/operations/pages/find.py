"""The command box: from what somebody has in their hand, exactly as it is written, to the page of what it names."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from cleanup_project.base import clock, display
from cleanup_project.base.modeladmin import list_url, may_view
from cleanup_project.base.tenancy import scoped
from cleanup_project.base.verbpages import person
from cleanup_project.operations.pages import shell
from ledger.models import CleanupCommand, CleanupRun, CommandTarget, ManifestItem, Receipt
from retention import why
from retention.exceptions import TooMuch
from retention.models import ObjectVersion
from webhooks.models import Delivery, OutboxEvent

LISTED: Final = 50  # hits of one kind
EXPLAINED: Final = 10  # object versions, each of which takes a few reads
DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")
NUMBER: Final = re.compile(r"[0-9]{1,18}")
S3_URL: Final = re.compile(r"s3://(?P<bucket>[^/]+)/(?P<key>.+?)(\?versionId=(?P<version>.+))?", re.DOTALL)


class Kind(NamedTuple):
    """Something that can be found. `rows` reads an index; `tenant` leads to the tenant's code."""

    label: str
    takes: str
    model: type[Model]
    tenant: str
    rows: Callable[[str], QuerySet[Any]]


def deliveries(text: str) -> QuerySet[Delivery]:
    found = Delivery.objects.select_related("endpoint", "event")
    return found.filter(pk=int(text)) if NUMBER.fullmatch(text) else found.none()


def receipts(text: str) -> QuerySet[Receipt]:
    return Receipt.objects.filter(digest=bytes.fromhex(text)) if DIGEST.fullmatch(text) else Receipt.objects.none()


def versions(text: str) -> QuerySet[ObjectVersion]:
    """Every version under the key, in any bucket; of `s3://bucket/key?versionId=…` that one."""
    rows = ObjectVersion.objects.select_related("bucket", "tenant").order_by("-stored_at", "-pk")
    named = S3_URL.fullmatch(text)
    if named is None:
        return rows & ObjectVersion.objects.with_key(text)
    rows = (rows & ObjectVersion.objects.with_key(named["key"])).filter(bucket__name=named["bucket"])
    return rows.filter(version_id=named["version"]) if named["version"] else rows


COMMAND: Final = Kind(
    "Command", "a whole command key (tenant:asset:version:policy-revision)", CleanupCommand, "tenant__code",
    lambda text: CleanupCommand.objects.filter(key=text),
)  # fmt: skip
COMMAND_OF_EVENT: Final = Kind(
    "Command", "", CleanupCommand, "tenant__code",
    lambda text: CleanupCommand.objects.filter(key__in=OutboxEvent.objects.filter(event_id=text).values("command_key")),
)  # fmt: skip
EVENT: Final = Kind(
    "Event", "an event id (evt_…)", OutboxEvent, "tenant", lambda text: OutboxEvent.objects.filter(event_id=text)
)
ITEM: Final = Kind(
    "Manifest item", "a command key of which no command was made, as of a dry run", ManifestItem, "run__tenant__code",
    lambda text: ManifestItem.objects.filter(command_key=text).select_related("run").order_by("-pk"),
)  # fmt: skip
OBJECT: Final = Kind(
    "Object version", "an object’s key, or s3://bucket/key?versionId=…", ObjectVersion, "tenant__code", versions
)
KINDS: Final = (
    COMMAND,
    EVENT,
    Kind("Delivery", "the number of a webhook delivery", Delivery, "tenant", deliveries),
    Kind("Run", "a run’s key", CleanupRun, "tenant__code", lambda text: CleanupRun.objects.filter(key=text)),
    Kind("Receipt", "a receipt’s digest (SHA-256, 64 hexadecimal digits)", Receipt, "tenant__code", receipts),
    OBJECT,
)


def page(request: HttpRequest) -> HttpResponse:
    """One hit leads straight to its page; several are listed. Nothing hints at what this person may not see."""
    open_kinds = [each for each in (*KINDS, ITEM) if may_view(request, each.model)]
    if not open_kinds:
        raise PermissionDenied
    text = request.GET.get("q", "")
    found = search(request, text) if text and "\x00" not in text else {}
    hits = [(kind, row) for kind, rows in found.items() for row in rows]
    if len(hits) == 1:
        return HttpResponseRedirect(display.change_url(hits[0][1]))
    objects = found.pop(OBJECT, [])
    sentences, refusal = explained(objects[:EXPLAINED])
    context = {
        "text": text,
        "kinds": open_kinds,
        "found": [(kind, list(map(named, rows[:LISTED])), len(rows) > LISTED) for kind, rows in found.items()],
        "objects": list(told(request, objects[:LISTED], sentences)),
        "refusal": refusal,
        "more_objects": all_versions(text) if len(objects) > LISTED else "",
        "listed": LISTED,
        "nothing": bool(text) and not hits,
    }
    return shell.page(request, "operations/find.html", "Find", context)


def search(request: HttpRequest, text: str) -> dict[Kind, Sequence[Any]]:
    """What each kind finds, one more than is listed at the most. Items stand for commands that were never made."""
    user = person(request)

    def rows(kind: Kind) -> Sequence[Any]:
        if not may_view(request, kind.model):
            return ()
        return list(scoped(kind.rows(text), user, kind.tenant)[: LISTED + 1])

    found = {kind: rows(kind) for kind in KINDS}
    if not found[EVENT]:
        found[COMMAND_OF_EVENT] = rows(COMMAND_OF_EVENT)
    if not found[COMMAND]:
        found[ITEM] = rows(ITEM)
    return {kind: hits for kind, hits in found.items() if hits}


def named(row: Model) -> tuple[str, str]:
    """(what it is called, its address)"""
    called = f"{row} of {row.run}" if isinstance(row, ManifestItem) else str(row)
    return display.visible(called), display.change_url(row)


def explained(objects: Sequence[ObjectVersion]) -> tuple[dict[int, list[str]], str]:
    """(why, in sentences, for each version of which it is told here; why it is not told of the others)"""
    try:
        verdicts = why.why_each(objects, clock.now(), why.READ)
        return {each.pk: list(why.explain(each, verdicts[each.pk], why.READ)) for each in objects}, ""
    except TooMuch as refusal:
        if len(objects) == 1:
            return {}, str(refusal)
    told, refused = dict[int, list[str]](), ""
    for each in objects:  # one of them alone has too much around it, most often
        sentences, words = explained([each])
        told |= sentences
        refused = words or refused
    return told, refused


def told(
    request: HttpRequest, objects: Sequence[ObjectVersion], sentences: Mapping[int, list[str]]
) -> Iterator[dict[str, Any]]:
    """Each version with why, where that is told, and with the command that has it or destroyed it."""
    targets = CommandTarget.objects.filter(object_version_id__in=[each.pk for each in objects], active=True)
    shown = targets.select_related("command") if may_view(request, CleanupCommand) else targets.none()
    commands = {each.object_version_id: each.command for each in shown}
    for each in objects:
        yield {
            "row": each,
            "url": display.change_url(each),
            "why": reverse("admin:retention_objectversion_why", args=[each.pk]),
            "sentences": sentences.get(each.pk, []),
            "command": commands.get(each.pk),
        }


def all_versions(text: str) -> str:
    """The list of every version under the key."""
    named_url = S3_URL.fullmatch(text)
    return list_url(ObjectVersion, "?" + urlencode({"q": named_url["key"] if named_url else text}))
