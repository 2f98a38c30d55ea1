"""The six questions about a command, answered from durable state alone, and its story.

Which immutable versions were selected, why they were eligible, whether their deletion was confirmed, which event represents
it, how often that was delivered, and whether the next action is automatic or a person's. What compaction took away is
answered by the receipt, its locators, the manifest and the summary.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import chain
from typing import Any

from django.db.models import Count

from cleanup_project.base.canonical import instant
from ledger import next_action, story
from ledger.exceptions import Unknown
from ledger.models import (
    CleanupCommand,
    CleanupRun,
    CommandSummary,
    ItemDisposition,
    ManifestItem,
    Receipt,
    SkippedItem,
)
from ledger.next_action import Next
from ledger.story import Moment
from retention.models import PolicyRevision
from webhooks.models import Delivery, OutboxEvent


@dataclass(frozen=True, slots=True)
class Selected:
    """Question 1. `names_from`: where bucket, key and version id were read; empty where only commitments are left.

    `targets` have `role`, `size`, `etag`, `stored_at`, and as far as they are known `bucket`, `key`, `version_id`,
    `commitment`.
    """

    run: str
    manifest_root: str
    ordinal: int
    item_sha256: str
    names_from: str
    targets: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Eligible:
    """Question 2. `why` is what the manifest's line says (docs/manifest.md)."""

    policy: str
    revision: int
    title: str
    authority: str
    as_of: datetime
    eligible_since: datetime
    why: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Authorisation:
    """Who let the run destroy, and when."""

    at: datetime | None
    by: str
    words: str
    state: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """Question 3. `looks`: of each target, the evidence before and after, as the receipt holds them."""

    confirmed: bool
    outcome: str = ""
    receipt_sha256: str = ""
    issued_at: datetime | None = None
    intact: bool | None = None
    looks: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Event:
    """Question 4."""

    id: str
    type: str
    subject: str
    sequence: int
    body_sha256: str
    emitted_at: datetime
    settled_at: datetime | None


@dataclass(frozen=True, slots=True)
class Told:
    """Question 5: one endpoint, and one round of it. `attempts`: how many posts were begun."""

    delivery: int
    endpoint: str
    round: int
    state: str
    attempts: int
    last_status: int | None
    last_error: str
    due_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Tries:
    """How often it was tried, whichever cycle; `late` results decided nothing."""

    claims: int = 0
    requests: int = 0
    attempts: int = 0
    charged: int = 0
    late: int = 0
    by_outcome: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """`state` is the command's, or `no command`, where a frozen item never became one."""

    key: str
    state: str
    cycle: int
    compacted_at: datetime | None
    selected: Selected
    eligible: Eligible
    authorisation: Authorisation
    deletion: Deletion
    event: Event | None
    deliveries: list[Told]
    next: Next
    tries: Tries
    story: list[Moment]

    def as_json(self) -> dict[str, Any]:
        """JSON-ready: times as in receipts."""
        told: dict[str, Any] = plain(asdict(self))
        return told


NO_COMMAND = "no command"


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return instant(value) if isinstance(value, datetime) else value


def explain(key: str) -> Explanation:
    """Explain a command by its key or its event's id, or a frozen item by the key that its command would have.

    Raises Unknown.
    """
    if "\x00" in key:
        raise Unknown("A key cannot hold NUL.")
    named = command_key(key)
    command = CleanupCommand.objects.select_related("run", "policy", "tenant").filter(key=named).first()
    if command is not None:
        return of_command(command)
    item = ManifestItem.objects.filter(command_key=named).order_by("-id").first()
    if item is not None:
        return of_item(item)
    raise Unknown(
        f"Nothing is on record under {key!r}. Give a whole command key (tenant:asset:version:policy-revision) or an event "
        "id (evt_…), exactly; manage.py why explains an object by its own key."
    )


def command_key(key: str) -> str:
    """The key of the command whose event has this id; what is no event's id is such a key itself."""
    return OutboxEvent.objects.filter(event_id=key).values_list("command_key", flat=True).first() or key


def of_command(command: CleanupCommand) -> Explanation:
    receipt = Receipt.objects.filter(command_id=command.pk).first()
    event = OutboxEvent.objects.filter(event_id=command.event_id).first() if command.event_id else None
    deliveries = deliveries_of(event)
    item = ManifestItem.objects.get(pk=command.item_id)
    moments = (
        story.of_items(command.key),
        story.of_command(command),
        story.of_evidence(receipt, event, deliveries),
    )
    return Explanation(
        key=command.key,
        state=command.state,
        cycle=command.cycle,
        compacted_at=command.compacted_at,
        selected=select(item, command, receipt),
        eligible=eligible(item),
        authorisation=authorised(item.run),
        deletion=deletion(receipt),
        event=event_told(event),
        deliveries=list(map(told, deliveries)),
        next=next_action.of_command(command, deliveries),
        tries=tries(command),
        story=story.in_order(chain(*moments)),
    )


def of_item(item: ManifestItem) -> Explanation:
    """A dry run's item, one that was left out, or one whose command is still to come."""
    skipped = SkippedItem.objects.filter(command_key=item.command_key, run=item.run_id, item_id=item.pk).first()
    disposed = ItemDisposition.objects.select_related("by").filter(run=item.run_id, ordinal=item.ordinal).first()
    return Explanation(
        key=item.command_key,
        state=NO_COMMAND,
        cycle=0,
        compacted_at=None,
        selected=select(item, None, None),
        eligible=eligible(item),
        authorisation=authorised(item.run),
        deletion=Deletion(confirmed=False),
        event=None,
        deliveries=[],
        next=next_action.of_item(item.run, skipped, disposed),
        tries=Tries(),
        story=story.in_order(story.of_items(item.command_key)),
    )


def select(item: ManifestItem, command: CleanupCommand | None, receipt: Receipt | None) -> Selected:
    source, targets = named_targets(item, command, receipt)
    return Selected(
        run=item.run.key,
        manifest_root=item.run.manifest_root,
        ordinal=item.ordinal,
        item_sha256=bytes(item.digest).hex(),
        names_from=source,
        targets=targets,
    )


def named_targets(
    item: ManifestItem, command: CleanupCommand | None, receipt: Receipt | None
) -> tuple[str, list[dict[str, Any]]]:
    """The targets with the best names that are left: the command's own, the receipt's locators, or the manifest's."""
    committed = commitments(receipt)
    own = list(command.targets.select_related("bucket").order_by("ordinal")) if command else []
    if own:
        shown = [
            {
                "bucket": each.bucket.name, "key": each.key, "version_id": each.version_id, "role": each.role,
                "size": each.size, "etag": each.etag, "stored_at": each.stored_at,
            }
            for each in own
        ]  # fmt: skip
        return "the command", merged(shown, committed)
    if receipt is None:
        members = ("bucket", "key", "version_id", "role", "size", "etag", "stored_at")
        return "the manifest", [{name: each[name] for name in members} for each in json.loads(item.line)["targets"]]
    clear = receipt.locators.order_by("ordinal").values("bucket", "key", "version_id")
    locators = [dict(each) for each in clear]
    return ("the receipt's locators", merged(committed, locators)) if locators else ("", committed)


def commitments(receipt: Receipt | None) -> list[dict[str, Any]]:
    if receipt is None:
        return []
    members = ("commitment", "role", "size", "etag", "stored_at")
    return [{name: each[name] for name in members} for each in json.loads(bytes(receipt.body))["targets"]]


def merged(first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Both lists are in the order of the targets; one may be empty."""
    if not (first and second):
        return list(first or second)
    return [one | other for one, other in zip(first, second, strict=True)]


def eligible(item: ManifestItem) -> Eligible:
    revision = PolicyRevision.objects.select_related("policy").get(pk=item.revision_id)
    return Eligible(
        policy=revision.policy.code,
        revision=revision.number,
        title=revision.title,
        authority=revision.authority,
        as_of=item.run.as_of,
        eligible_since=item.eligible_since,
        why=json.loads(item.line)["why"],
    )


def authorised(run: CleanupRun) -> Authorisation:
    return Authorisation(
        at=run.authorised_at,
        by=run.authorised_by.get_username() if run.authorised_by else "",
        words=run.authorisation,
        state=run.get_state_display(),
    )


def deletion(receipt: Receipt | None) -> Deletion:
    if receipt is None:
        return Deletion(confirmed=False)
    body = bytes(receipt.body)
    return Deletion(
        confirmed=True,
        outcome=receipt.outcome,
        receipt_sha256=bytes(receipt.digest).hex(),
        issued_at=receipt.issued_at,
        intact=sha256(body).digest() == bytes(receipt.digest),
        looks=[{"before": each["before"], "after": each["after"]} for each in json.loads(body)["targets"]],
    )


def event_told(event: OutboxEvent | None) -> Event | None:
    if event is None:
        return None
    return Event(
        id=event.event_id,
        type=event.type,
        subject=event.subject,
        sequence=event.sequence,
        body_sha256=bytes(event.body_sha256).hex(),
        emitted_at=event.emitted_at,
        settled_at=event.settled_at,
    )


def deliveries_of(event: OutboxEvent | None) -> list[Delivery]:
    if event is None:
        return []
    owed = event.deliveries.select_related("endpoint", "requested_by").annotate(posts=Count("attempt_rows"))
    return list(owed.order_by("endpoint__name", "round"))


def told(delivery: Any) -> Told:
    return Told(
        delivery=delivery.pk,
        endpoint=delivery.endpoint.name,
        round=delivery.round,
        state=delivery.state,
        attempts=delivery.posts,
        last_status=delivery.last_status,
        last_error=delivery.last_error,
        due_at=delivery.due_at if delivery.state == Delivery.State.PENDING else None,
        finished_at=delivery.finished_at,
    )


def tries(command: CleanupCommand) -> Tries:
    """From the attempts that are on record, and from the summary of those that were compacted."""
    summary = CommandSummary.objects.filter(pk=command.pk).values_list("summary", flat=True).first()
    before: dict[str, Any] = summary["attempts"] if summary else {}
    counts = dict(before.get("by_outcome", {}))
    attempts = list(command.tries.all())
    for each in attempts:
        counts[each.outcome] = counts.get(each.outcome, 0) + 1
    return Tries(
        claims=command.claims,
        requests=command.requests.count() + (summary["requests"]["count"] if summary else 0),
        attempts=len(attempts) + before.get("count", 0),
        charged=sum(each.charged for each in attempts) + before.get("charged", 0),
        late=sum(each.late for each in attempts) + before.get("late", 0),
        by_outcome=counts,
    )
