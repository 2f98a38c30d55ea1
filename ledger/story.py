"""The story of a command: everything on record about it, in the order of time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cleanup_project.base.canonical import instant
from ledger.models import (
    Attempt,
    CleanupCommand,
    CleanupRun,
    InFlight,
    ItemDisposition,
    ManifestItem,
    Receipt,
    SkippedItem,
)
from ledger.receipts import EVENT
from webhooks.models import Delivery, DeliveryAttempt, OutboxEvent

ITEMS_TOLD = 50  # manifests that named it, the newest


# Outcomes of a claim that brought the command to its end, and those by which it failed; the rest is neither.
GOOD: Final = frozenset({Attempt.Outcome.DELETED, Attempt.Outcome.BY_ABSENCE, Attempt.Outcome.ALREADY_ABSENT})
BAD: Final = frozenset({Attempt.Outcome.FAILED, Attempt.Outcome.AMBIGUOUS, Attempt.Outcome.LEASE_LOST})


@dataclass(frozen=True, slots=True)
class Moment:
    """One thing that happened. `who` is a person, a worker, or empty for the system.

    `began`: what took time ended `at`; `tone` is good, bad or neither.
    """

    at: datetime
    what: str
    who: str = ""
    began: datetime | None = None
    tone: str = ""


def in_order(moments: Iterator[Moment]) -> list[Moment]:
    return sorted(moments, key=lambda moment: moment.at)


def of_items(key: str) -> Iterator[Moment]:
    """Every manifest that named it, with what its run went through, and where it was left out."""
    items = ManifestItem.objects.filter(command_key=key).select_related("part", "run__opened_by", "run__authorised_by")
    told = list(items.order_by("-id")[:ITEMS_TOLD])
    disposed = dispositions_of(told)
    for item in told:
        kind = "dry run" if item.run.mode == CleanupRun.Mode.DRY_RUN else "run"
        yield Moment(item.part.frozen_at, f"Frozen as item {item.ordinal} of {kind} {item.run}.")
        yield from of_run(item.run)
        decided = disposed.get((item.run_id, item.ordinal))
        if decided is not None:
            until = f" until {instant(decided.until)}" if decided.until else ""
            what = f"{decided.get_kind_display().capitalize()}{until}: {decided.reason}"
            yield Moment(decided.at, what, str(decided.by))
    for skipped in SkippedItem.objects.filter(command_key=key).select_related("run").order_by("-id")[:ITEMS_TOLD]:
        yield Moment(skipped.at, f"Left out when {skipped.run} was published: {skipped.reason}")


def dispositions_of(items: Sequence[ManifestItem]) -> dict[tuple[int, int], ItemDisposition]:
    """What reviewers decided about these items, by run and ordinal."""
    runs, ordinals = {each.run_id for each in items}, {each.ordinal for each in items}
    found = ItemDisposition.objects.filter(run__in=runs, ordinal__in=ordinals).select_related("by")
    return {(each.run_id, each.ordinal): each for each in found}


def of_run(run: CleanupRun) -> Iterator[Moment]:
    yield Moment(run.opened_at, f"Run {run} opened.", str(run.opened_by or ""))
    if run.sealed_at is not None:
        yield Moment(run.sealed_at, f"Manifest sealed: root {run.manifest_root}.")
    if run.authorised_at is not None:
        yield Moment(run.authorised_at, f"Run authorised: {run.authorisation}", str(run.authorised_by or ""))
    if run.ended_at is not None:
        yield Moment(run.ended_at, f"Run {run.get_state_display()}: {run.end_reason}.")


def of_command(command: CleanupCommand) -> Iterator[Moment]:
    yield Moment(command.published_at, "Command published.")
    for request in command.requests.all():
        yield Moment(
            request.made_at,
            f"Request {request.token} committed; nothing of it is sent after {instant(request.sent_before)}.",
            request.worker,
        )
    for attempt in command.tries.all():
        tone = "good" if attempt.outcome in GOOD else "bad" if attempt.outcome in BAD else ""
        yield Moment(attempt.settled_at, attempt_told(attempt), attempt.worker, attempt.claimed_at, tone)
    for decision in command.decisions.select_related("by", "run"):
        repaired = f" Repaired before: {decision.repair}." if decision.repair else ""
        of = f" {decision.run}" if decision.run else ""
        what = f"Cycle {decision.cycle} begins, {decision.get_kind_display().lower()}{of}: {decision.reason}{repaired}"
        yield Moment(decision.at, what, str(decision.by or ""))
    for incident in command.incidents.all():
        yield Moment(incident.at, f"Incident: {incident.detail}", tone="bad")
    for entry in command.dead_letters.select_related("resolved_by"):
        yield Moment(entry.entered_at, f"Into quarantine, {entry.failure_class}: {entry.last_error}", tone="bad")
        if entry.resolved_at is not None:
            words = f"Out of quarantine, {entry.get_resolution_display().lower()}. {entry.reason}".strip()
            yield Moment(entry.resolved_at, words, str(entry.resolved_by or ""))
    for flight in InFlight.objects.filter(command=command):
        under = f"legal hold {flight.report_id}"
        yield Moment(flight.reported_at, f"Request {flight.token} was in flight when {under} was placed.")
        if flight.ended_at is not None:
            yield Moment(flight.ended_at, f"What was in flight under {under} ended: {flight.ended_as}.")
    if command.compacted_at is not None:
        yield Moment(command.compacted_at, "Targets, requests and attempts compacted into a summary.")


def attempt_told(attempt: Attempt) -> str:
    charged = "" if attempt.charged or attempt.late else ", not charged"
    late = ", late: it decided nothing" if attempt.late else ""
    kind = f" ({attempt.failure_class})" if attempt.failure_class else ""
    detail = f" {attempt.detail}" if attempt.detail else ""
    return f"Attempt {attempt.token}{late}{charged}: {attempt.get_outcome_display().lower()}{kind}.{detail}"


def of_evidence(receipt: Receipt | None, event: OutboxEvent | None, deliveries: Sequence[Delivery]) -> Iterator[Moment]:
    if receipt is not None:
        yield Moment(receipt.issued_at, f"Receipt issued: SHA-256 {bytes(receipt.digest).hex()}.", tone="good")
    if event is not None:
        yield Moment(event.emitted_at, f"Event {EVENT} {event.event_id} written to the outbox.")
        if event.settled_at is not None:
            yield Moment(event.settled_at, "Event settled: nobody is owed it any more.")
    yield from of_deliveries(deliveries)


def of_deliveries(deliveries: Sequence[Delivery]) -> Iterator[Moment]:
    """Every attempt, and how each delivery ended; a redelivery is a delivery of its own, which somebody asked for."""
    by_id = {each.pk: each for each in deliveries}
    for attempt in DeliveryAttempt.objects.filter(delivery__in=by_id).order_by("delivery", "token"):
        delivery = by_id[attempt.delivery_id]
        again = f", redelivery {delivery.round}" if delivery.round else ""
        who = str(delivery.requested_by or "")
        what = f"Delivery attempt {attempt.number} at {delivery.endpoint.name}{again}: {exchange_told(attempt)}"
        tone = "bad" if attempt.failure_class else "good" if attempt.finished_at else ""
        yield Moment(attempt.finished_at or attempt.started_at, what, who, attempt.started_at, tone)
    for delivery in deliveries:
        if delivery.finished_at is not None:
            words = delivery.cancel_reason or delivery.last_error
            what = f"Delivery to {delivery.endpoint.name} {delivery.state}. {words}".strip()
            tone = {Delivery.State.DELIVERED: "good", Delivery.State.DEAD: "bad"}.get(
                Delivery.State(delivery.state), ""
            )
            yield Moment(delivery.finished_at, what, tone=tone)


def exchange_told(attempt: DeliveryAttempt) -> str:
    if attempt.finished_at is None:
        return "begun; how it ended is not on record."
    said = f"HTTP {attempt.status}" if attempt.status else "no answer"
    kind = f" ({attempt.failure_class})" if attempt.failure_class else ""
    peer = f", from {attempt.peer}" if attempt.peer else ""
    return f"{said}{kind}{peer}. {attempt.error}".strip()
