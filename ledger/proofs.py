"""Is a receipt borne out by what else is on record? Each thing that can be compared, by itself, whenever it is asked."""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

from ledger import receipts
from ledger.models import CleanupCommand, CleanupRun, ManifestItem, Receipt
from webhooks.models import OutboxEvent


class Proof(NamedTuple):
    """`holds` None: it cannot be checked any more, or not yet; `words` say why."""

    claim: str
    holds: bool | None
    words: str


def proofs(receipt: Receipt) -> Iterator[Proof]:
    body = bytes(receipt.body)
    document = json.loads(body)
    digest = sha256(body).hexdigest()
    yield Proof("The digest is the SHA-256 of the document", digest == bytes(receipt.digest).hex(), digest)
    yield of_event(receipt, digest)
    yield of_item(document)
    yield from of_run(document)
    yield of_command(receipt)
    yield of_names(receipt, document)


def of_event(receipt: Receipt, digest: str) -> Proof:
    claim = "The event that tells of it carries the same digest"
    event = OutboxEvent.objects.filter(event_id=receipt.event_id).first()
    if event is None:
        return Proof(claim, None, f"No event {receipt.event_id} is on record here any more. Receivers may have it.")
    told = json.loads(bytes(event.body))["data"]["receipt_sha256"]
    return Proof(claim, told == digest, f"{told} in {event.event_id}")


def of_item(document: dict[str, Any]) -> Proof:
    """Its line in the manifest, which was frozen before anything was deleted."""
    claim = "The manifest lists it, with the digest that the document names"
    said = document["manifest"]
    item = ManifestItem.objects.filter(run__key=said["run"], ordinal=said["ordinal"]).first()
    if item is None:
        return Proof(claim, False, f"There is no item {said['ordinal']} in the manifest of {said['run']}.")
    found = sha256(item.line.encode()).hexdigest()
    same = found == bytes(item.digest).hex() == said["item"] and item.command_key == document["command_key"]
    return Proof(claim, same, f"Item {said['ordinal']} of {said['run']}: {found}")


def of_run(document: dict[str, Any]) -> Iterator[Proof]:
    run = CleanupRun.objects.filter(key=document["manifest"]["run"]).first()
    roots = (run.manifest_root, run.remaining_root) if run else ("", "")
    claims = (
        "The manifest's root is the one that was recorded before the first deletion",
        "What was approved is that root",
    )
    named = (document["manifest"]["root"], document["approval"]["root"])
    for claim, root, said in zip(claims, roots, named, strict=True):
        yield Proof(claim, bool(root) and root == said, root or "The run is not on record.")


def of_command(receipt: Receipt) -> Proof:
    claim = "The command says the same"
    command = CleanupCommand.objects.filter(pk=receipt.command_id).first()
    if command is None:
        return Proof(claim, None, "The command is not on record here any more.")
    said = (command.key, command.outcome, command.event_id)
    same = said == (receipt.command_key, receipt.outcome, receipt.event_id)
    return Proof(claim, same, f"It is {command.state}, {command.get_outcome_display() or 'without an outcome'}.")


def of_names(receipt: Receipt, document: dict[str, Any]) -> Proof:
    """The clear names make the commitments, under the tenant's salt."""
    claim = "The clear names make the commitments"
    names = list(receipt.locators.order_by("ordinal"))
    if not names:
        return Proof(
            claim, None, "The names were forgotten; whoever knows one can still prove it with the tenant's salt."
        )
    salt = receipts.salt(receipt.tenant_id)
    made = [receipts.commitment(salt, each.bucket, each.key, each.version_id) for each in names]
    said = [each["commitment"] for each in document["targets"]]
    return Proof(claim, made == said, f"{len(made):,} of {len(said):,} computed anew.")
