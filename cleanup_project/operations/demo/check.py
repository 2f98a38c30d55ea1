"""Counts the demo again, from the bucket, the evidence and the receiver's own log, and puts each difference into words."""

import json
import re
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from http.cookiejar import CookieJar
from typing import Any, Final

from django.db.models import Min, Q, QuerySet

from cleanup_project.operations.demo.receiver import read_log
from cleanup_project.operations.demo.stage import Played
from cleanup_project.operations.demo.store import Name, listing
from ledger.models import CleanupCommand, CleanupRun, Receipt, ReceiptLocator
from ledger.receipts import commitment, salt
from ledger.states import CommandState, RunState
from retention import why
from retention.eligibility import Reason
from retention.models import ObjectVersion
from webhooks.models import Delivery, Endpoint, OutboxEvent

ALARMS: Final = Q(type__in=("alarm.raised", "alarm.cleared"))
IS_DELIVERED: Final = Q(state=Delivery.State.DELIVERED)


def summary(played: Played, web_url: str, *, quiet: bool) -> dict[str, Any]:
    """The main job in numbers, with a sentence for each deviation. `quiet`: everything had come to its end in time."""
    dry = [run for run in played.runs if run.mode == CleanupRun.Mode.DRY_RUN]
    enforced = [run for run in played.runs if run.mode == CleanupRun.Mode.ENFORCE]
    commands = Counter(CleanupCommand.objects.values_list("state", "outcome", "failure_class"))
    heard = read_log(played.log)
    deviations = [
        *([] if quiet else ["Not everything had come to its end in time."]),
        *expectation_deviations(played, dry),
        *(sentence for run in played.runs for sentence in manifest_deviations(run, played)),
        *run_deviations(enforced),
        *bucket_deviations(played),
        *receipt_deviations(),
        *notice_deviations(heard),
        *web_deviations(web_url, played),
    ]
    return {
        "objects_listed": len(played.listed),
        "candidates": sum(run.item_count or 0 for run in dry),
        "deleted": sum(n for (_, outcome, _), n in commands.items() if outcome in ("deleted", "by_absence")),
        "already_absent": sum(n for (_, outcome, _), n in commands.items() if outcome == "already_absent"),
        "held": sum(n for (state, _, _), n in commands.items() if state == CommandState.HELD)
        + sum(part.held for run in played.runs for part in run.parts.all()),  # parked, so met once
        "dead": {kind: n for (state, _, kind), n in sorted(commands.items()) if state == CommandState.DEAD},
        "receipts": Receipt.objects.count(),
        "events": OutboxEvent.objects.exclude(ALARMS).count(),
        "deliveries_acknowledged": Delivery.objects.filter(IS_DELIVERED).exclude(event__in=alarms()).count(),
        "duplicates_suppressed": sum(each.get("duplicate", False) for each in heard),
        "unscheduled": sum(why.why(row).reason is Reason.UNSCHEDULED for row in ObjectVersion.objects.present()),
        "runs": [
            {"run": run.key, "mode": run.mode, "state": run.state, "root": run.manifest_root, "counts": run.counts}
            for run in played.runs
        ],
        "deviations": deviations,
    }


def alarms() -> QuerySet[OutboxEvent]:
    """What no part of the main job tells, but the minute in which it is looked at: what waits, and for how long."""
    return OutboxEvent.objects.filter(ALARMS)


def expectation_deviations(played: Played, dry: list[CleanupRun]) -> Iterator[str]:
    """What the data set says must be due, against what the manifests name; and whether the listing was whole."""
    if len(played.listed) != played.expected_listing:
        yield f"The store showed {len(played.listed)} versions, but {played.expected_listing} were made."
    known = {(bucket, key) for bucket, key, _version in played.listed}
    for run in dry:
        wanted = {
            (each.bucket, each.key): each.versions
            for each in played.objects
            if each.due_under == run.policy.code and not each.held
        }
        lines = (json.loads(line)["targets"][0] for line in run.items.values_list("line", flat=True))
        found = Counter((first["bucket"], first["key"]) for first in lines)
        for name in sorted(wanted.items() ^ {(name, n) for name, n in found.items() if name in known}):
            yield f"{run.policy.code}: {name[0]} should be named {wanted.get(name[0], 0)} times, is {found[name[0]]}."


def manifest_deviations(run: CleanupRun, played: Played) -> Iterator[str]:
    """Targets that the bucket did not have exactly, and digests that do not lead to the root."""
    root, absent = sha256(), 0
    for part in run.parts.order_by("number"):
        lines = list(part.items.order_by("ordinal").values_list("line", flat=True))
        digest = sha256(b"".join(sha256(line.encode()).digest() for line in lines))
        root.update(digest.digest())
        if digest.hexdigest() != part.digest:
            yield f"{part.key} has another digest than its lines."
        for target in (target for line in lines for target in json.loads(line)["targets"]):
            found = played.listed.get((target["bucket"], target["key"], target["version_id"]))
            absent += found is None
            if found is not None and found.etag != target["etag"]:
                yield f"{part.key} names {target['key']!r} with another ETag than the bucket."
    if root.hexdigest() != run.manifest_root:
        yield f"{run.key} has another manifest root than its parts."
    if absent > played.stale:
        yield f"{run.key} names {absent} versions that the bucket never had; {played.stale} were imported as such."


def run_deviations(enforced: list[CleanupRun]) -> Iterator[str]:
    for run in enforced:
        if run.state != RunState.CLOSED or sum((run.counts or {}).values()) != run.item_count:
            yield f"{run.key} is {run.state} with the counts {run.counts} for {run.item_count} items."
    unsettled = CleanupCommand.objects.filter(state__in=[CommandState.READY, CommandState.DELETED]).count()
    if unsettled:
        yield f"{unsettled} commands have not come to their end."


def bucket_deviations(played: Played) -> Iterator[str]:
    """What is missing from the bucket against what receipts say, name by name; and what had to stay against what is left."""
    left = dict(listing(played.scene.buckets))
    missing = played.listed.keys() - left.keys()
    receipts = ReceiptLocator.objects.filter(receipt__outcome__in=["deleted", "by_absence"])
    told: set[Name] = set(receipts.values_list("bucket", "key", "version_id"))
    for name in missing ^ told:
        yield f"{name} {'is gone without a receipt' if name in missing else 'has a receipt and was not destroyed'}."
    stay = {(each.bucket, each.key) for each in played.objects if each.held or each.locked or each.denied}
    for bucket, key in stay - {(bucket, key) for bucket, key, _ in left}:
        yield f"{bucket}/{key} had to stay and is gone."
    for name in left.keys() - played.listed.keys():
        yield f"{name} appeared from nowhere."
    present = set(
        ObjectVersion.objects.present().filter(listed_at__isnull=False).values_list("bucket__name", "key", "version_id")
    )
    for name in present ^ left.keys():
        yield f"{name} is {'in the bucket' if name in left else 'in the catalogue'} alone."


def receipt_deviations() -> Iterator[str]:
    """Each receipt against its own digest, its command, its event, and the commitments that its locators lead to."""
    events = {each.command_key: each for each in OutboxEvent.objects.filter(type="media.deleted")}
    succeeded = CleanupCommand.objects.filter(state__in=[CommandState.DELETED, CommandState.NOTIFIED])
    keys = set(succeeded.values_list("key", flat=True))
    receipts = list(Receipt.objects.prefetch_related("locators"))
    if keys != {each.command_key for each in receipts} or keys != events.keys():
        yield f"{len(keys)} commands succeeded, with {len(receipts)} receipts and {len(events)} events."
    for receipt in receipts:
        told = json.loads(bytes(receipt.body))
        event = json.loads(bytes(events[receipt.command_key].body)) if receipt.command_key in events else {"data": {}}
        named = [
            commitment(salt(receipt.tenant_id), each.bucket, each.key, each.version_id)
            for each in receipt.locators.order_by("ordinal")
        ]
        if (
            sha256(bytes(receipt.body)).digest() != bytes(receipt.digest)
            or told["command_key"] != receipt.command_key
            or event["data"].get("receipt_sha256") != bytes(receipt.digest).hex()
            or [each["commitment"] for each in told["targets"]] != named
        ):
            yield f"The receipt of {receipt.command_key} does not agree with its digest, event or locators."


def notice_deviations(heard: list[dict[str, Any]]) -> Iterator[str]:
    """What the receiver says that it got, against the events that there are since it subscribed."""
    since = Endpoint.objects.aggregate(at=Min("created_at"))["at"]
    if not any(each["verified"] and each["duplicate"] for each in heard):
        yield "The acknowledgement that was dropped led to no second delivery."
    others = set(alarms().values_list("event_id", flat=True))
    heard = [each for each in heard if each["id"] not in others]
    told = OutboxEvent.objects.exclude(ALARMS)
    events = set(told.filter(emitted_at__gte=since).values_list("event_id", flat=True)) if since else set()
    first = Counter(each["id"] for each in heard if each["verified"] and not each["duplicate"])
    if set(first) != events or any(n != 1 for n in first.values()):
        yield f"The receiver took {first.total()} events for new, of {len(events)}."
    if any(not each["verified"] for each in heard):
        yield "The receiver got something whose signature it could not verify."
    acknowledged = {each["id"] for each in heard if each["verified"] and each["acknowledged"]}
    settled = Delivery.objects.filter(IS_DELIVERED).exclude(event__in=alarms())
    delivered = set(settled.values_list("event__event_id", flat=True))
    if acknowledged != delivered:
        yield f"The receiver acknowledged {len(acknowledged)} events, and {len(delivered)} count as delivered."


def web_deviations(web_url: str, played: Played) -> Iterator[str]:
    """An auditor signs in and sees the runs."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    login = f"{web_url}/signin/?next=/admin/ledger/cleanuprun/"
    with browser.open(login) as page:
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.read().decode())
    form = {
        "login": "auditor",
        "password": played.scene.password,
        "csrfmiddlewaretoken": token.group(1) if token else "",
        "next": "/admin/ledger/cleanuprun/",
    }
    with browser.open(login, urllib.parse.urlencode(form).encode()) as page:
        text = page.read().decode()
    for run in played.runs:
        if run.key not in text:
            yield f"The auditor does not see {run.key}."
