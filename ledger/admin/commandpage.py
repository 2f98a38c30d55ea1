"""The page of one command: whose turn it is, the six answers, every fact that was checked, and all that ever happened."""

from collections.abc import Iterator
from typing import Any, Final

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

from cleanup_project.base import display
from cleanup_project.base.modeladmin import Tool, list_url, may_view
from ledger import quarantine
from ledger.explain import Explanation
from ledger.models import CleanupCommand, CleanupRun, DeadLetter, ManifestItem, Receipt
from ledger.next_action import Turn
from ledger.states import COMMAND_MEANING, CommandState
from ledger.telling import LOOKS_TOLD, TARGETS_TOLD, answers, trace
from retention.models import PolicyRevision
from webhooks.models import Delivery, OutboxEvent

STORY_TOLD: Final = 200  # moments, the newest
BANNERS: Final = {
    Turn.AUTOMATIC: ("automatic", "automatic"),
    Turn.PERSON: ("person", "a person’s"),
    Turn.NOBODY: ("nobody", "nobody’s"),
}


def context(request: HttpRequest, told: Explanation, command: CleanupCommand) -> dict[str, Any]:
    """What the template of the page shows, beside the command itself."""
    kind, turn = BANNERS[told.next.turn]
    questions = answers(told)
    left_out = max(len(told.story) - STORY_TOLD, 0)
    return {
        "told": told,
        "banner": kind,
        "turn": turn,
        "meaning": COMMAND_MEANING[CommandState(command.state)],
        "decisions": list(decisions(request, command)),
        "questions": dict(
            zip(("selected", "eligible", "deletion", "event", "deliveries", "next"), questions, strict=True)
        ),
        "targets": told.selected.targets[:TARGETS_TOLD],
        "targets_left_out": max(len(told.selected.targets) - TARGETS_TOLD, 0),
        "looks_left_out": max(len(told.deletion.looks) - LOOKS_TOLD, 0),
        "trace": trace(told, command.revision),
        "story": told.story[left_out:],
        "story_left_out": left_out,
        "sees_deliveries": may_view(request, Delivery),
    }


def decisions(request: HttpRequest, command: CleanupCommand) -> Iterator[Tool]:
    """What this person may do with it now."""
    if command.state in quarantine.PARKED and request.user.has_perm("base.operate"):
        yield Tool("Replay", reverse("admin:ledger_cleanupcommand_replay", args=[command.pk]))
    entry = command.dead_letters.filter(resolved_at=None).first()
    if entry is not None and request.user.has_perm("base.review_quarantine"):
        yield Tool("Close without retry", reverse("admin:ledger_deadletter_close", args=[entry.pk]))


def links(request: HttpRequest, told: Explanation, command: CleanupCommand) -> Iterator[Tool]:
    """Where more is to be read, as far as this person may open it."""
    if may_view(request, CleanupRun):
        yield Tool("Run", display.change_url(command.run))
    if may_view(request, ManifestItem):
        yield Tool("Manifest item", display.change_url(ManifestItem(pk=command.item_id)))
        yield Tool("Named by", list_url(ManifestItem, f"?{urlencode({'q': command.key})}"))
    if may_view(request, PolicyRevision):
        yield Tool("Policy revision", display.change_url(command.revision))
    entry = command.dead_letters.order_by("-cycle").first()
    if entry is not None and may_view(request, DeadLetter):
        yield Tool("Quarantine", display.change_url(entry))
    receipt = Receipt.objects.filter(command_id=command.pk).only("pk").first()
    if receipt is not None and may_view(request, Receipt):
        yield Tool("Receipt", display.change_url(receipt))
    if told.event is not None and may_view(request, OutboxEvent):
        event = OutboxEvent.objects.filter(event_id=told.event.id).only("pk").get()
        yield Tool("Event", display.change_url(event))
        yield Tool("Deliveries", list_url(Delivery, f"?q={told.event.id}"))
