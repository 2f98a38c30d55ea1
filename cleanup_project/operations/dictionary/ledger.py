"""Tables of the application `ledger`."""

from typing import Final

from cleanup_project.operations.dictionary.tables import COMPACTED, EVER, Personal, Table

NAMES, WHO, WORDS, ANSWERS = Personal.NAMES, Personal.WHO, Personal.WORDS, Personal.ANSWERS

TABLES: Final = {
    "CleanupRun": Table(
        "ledger.runs ledger.manifest ledger.dispositions ledger.publish ledger.breaker ledger.closing", EVER, """
key: Its name: the policy and the instant at which it was opened.
mode: Whether it destroys anything.
idempotency_key: Of the request that opened it: sent twice, it makes one run.
opened_at: When it was opened.
opened_by: Who opened it; null: its schedule.
sealed_at: When its manifest was whole; null: it is being scanned.
item_count: Items of the manifest.
target_count: Object versions that the manifest names.
remaining_count: Items that are not exempted; null: not counted yet.
exempt_count: Items that reviewers took out.
authorised_at: When it was authorised.
cooling_until: Until then it can be cancelled without effect on any object.
published_parts: How many parts have become commands.
ended_at: When it ended.
end_reason: How it ended, or why it was cancelled.
""", {"authorisation": WORDS, "end_reason": WORDS}),
    "CleanupCommand": Table(
        "ledger.publish ledger.claim ledger.outcomes ledger.settle ledger.quarantine ledger.reconcile ledger.closing "
        "ledger.inflight ledger.compact", EVER, """
key: tenant:asset:version:policy-revision, unique for ever.
bucket: Of the original.
target_count: How many object versions it names.
eligible_since: Since when its retention has ended.
published_at: When it was made of its manifest item.
outcome: How it was destroyed; empty until it is.
due_at: When it is next to be worked at.
inspect_due: Set while an earlier request may have been executed: it may then be looked at, and nothing else.
claims: How often it was claimed.
lease_losses: How often whoever had it was lost.
held_by: Whose hold keeps it.
hold: Which hold of ours keeps it.
changed_at: When its state last changed.
""", {"key": NAMES, "asset": NAMES, "reason": WORDS}),
    "CommandTarget": Table("ledger.publish ledger.settle ledger.outcomes ledger.closing ledger.inflight ledger.quarantine "
                           "ledger.reconcile ledger.compact", COMPACTED, """
ordinal: 1 is the original; its derivatives follow.
object_version_id: In the catalogue.
key: Object key, byte by byte.
version_id: As the store names it; `null` where it names none.
incarnation: Of a `null` version, a digest of ETag and LastModified; else empty.
stored_at: LastModified, as it was catalogued.
role: What it is to the asset.
active: While its command is ready or has succeeded: at most one such command for an object version.
""", {"key": NAMES, "version_id": NAMES}),
    "Decision": Table("ledger.publish ledger.quarantine", EVER, """
cycle: The cycle that it began.
kind: A person's replay, or adoption by a later run.
by: Who decided; null: a later run took it up.
run: The run that took it up.
""", {"reason": WORDS, "repair": WORDS}),
    "Incident": Table("ledger.reconcile", EVER, """
from_state: How it was parked.
detail: What was found.
"""),
    "SkippedItem": Table("ledger.publish", EVER, personal={"command_key": NAMES}),
    "DeadLetter": Table("ledger.outcomes ledger.publish ledger.quarantine ledger.reconcile ledger.compact", EVER, """
version_id: Of the original; empty once its command is compacted.
http_status: Of the store's last refusal.
attempts: Charged attempts of this cycle.
first_error: What the store said first.
last_error: What the store said last.
resolved_at: When it left quarantine.
resolution: How it left quarantine.
resolved_by: Who decided it.
""", {"key": NAMES, "version_id": NAMES, "first_error": ANSWERS, "last_error": ANSWERS, "reason": WORDS}),
    "Request": Table("ledger.execute ledger.compact", COMPACTED, """
made_at: When it was committed: before anything was sent.
"""),
    "Attempt": Table("ledger.claim ledger.outcomes ledger.settle ledger.compact", COMPACTED, """
late: Whether whoever tells of it had lost its lease by then: it decides nothing.
outcome: What became of the claim.
charged: Whether it counts against the attempts of the command.
claimed_at: When it was claimed.
settled_at: When its outcome was written.
""", {"detail": ANSWERS}),
    "CommandSummary": Table("ledger.compact", EVER, """
summary: Times, counts, outcomes and evidence, as `manage.py explain` tells them.
compacted_at: When the details were removed.
"""),
    "Certificate": Table("ledger.certificate", EVER, """
body: Canonical JSON; docs/certificates.md names its members.
issued_by: Who asked for it first.
issued_at: When it was made.
""", {"body": WHO}),
    "ManifestComparison": Table("ledger.compare", EVER, """
other: The run whose manifest stands beside it.
asked_by: Who asked; null: the system, for a run that waits for its approval.
asked_at: When it was asked for.
same: Items with the same original and the same line.
only_here: Items of the run alone.
only_there: Items of the other run alone.
changed: Items with the same original and another line.
"""),
    "ManifestDifference": Table("ledger.compare", EVER, """
comparison: The comparison that it belongs to.
kind: Where the item is.
"""),
    "ManifestPart": Table("ledger.manifest", EVER, """
key: `<run>:part-0042`.
item_count: How many items it has.
target_count: How many object versions it names.
frozen_at: When it was written.
"""),
    "ManifestItem": Table("ledger.manifest", EVER, """
part: The part that it belongs to.
eligible_since: Since when its retention has ended.
target_count: How many object versions it names.
line: Its canonical JSON, object keys included; docs/manifest.md names the members.
digest: SHA-256 of the line's bytes.
""", {"command_key": NAMES, "line": NAMES}),
    "ItemDisposition": Table("ledger.dispositions", EVER, """
item: The manifest item.
kind: Kept for good, or for longer.
""", {"reason": WORDS}),
    "ManifestReview": Table("ledger.reviewing", EVER, """
job: The bulk job that carries it out.
kind: Kept for good, or for longer.
"""),
    "ErasureRequest": Table("ledger.erasure", EVER, """
version_count: How many object versions it names.
run: The run that its approval opened.
""", {"reference": WORDS, "authority": WORDS, "reason": WORDS, "left_out": NAMES, "decision_reason": WORDS}),
    "ErasureTarget": Table("ledger.erasure", EVER, """
request: The erasure request.
"""),
    "ReceiptExport": Table("ledger.exports ledger.exportfiles", EVER, """
form: For people or for machines.
way: How it was handed over.
rows: How many receipts it holds.
bytes: Size of all its parts.
removed_at: When its files were removed.
"""),
    "ReceiptExportPart": Table("ledger.exports", EVER, """
export: The export that it belongs to.
rows: How many receipts it holds.
bytes: Size of the file.
first_receipt: Number of its first receipt.
last_receipt: Number of its last receipt.
"""),
    "HoldReport": Table("ledger.inflight", EVER, """
hold: The legal hold.
reported_at: When no claim could miss the hold any more.
marked_at: When the commands that waited had been held.
"""),
    "InFlight": Table("ledger.inflight", EVER, """
report: The report that it belongs to.
reported_at: As the report's.
ended_at: When its end was known.
"""),
    "Pace": Table("ledger.pace", EVER, """
free_at: From then on a key may be sent.
last_cut: When the rate was last halved.
last_raise: When the rate was last raised.
"""),
    "Turn": Table("ledger.publish ledger.claim", EVER, """
last_turn: When the tenant last had its turn.
turns: How many it had.
"""),
    "RunTally": Table("ledger.outcomes ledger.closing ledger.inflight", EVER, """
outcome: What became of the commands.
commands: How many; negative where a parked command left its outcome again.
"""),
    "OutcomeTally": Table("ledger.outcomes", EVER, """
tried: Outcomes that the store's answers decided.
failed: Those of them that ended in quarantine.
"""),
    "Receipt": Table("ledger.settle", EVER, """
command_id: The command.
command_key: Of the command, unique here as well.
outcome: How it was destroyed.
target_count: How many object versions it names.
body: Canonical JSON; docs/receipts.md names its members.
issued_at: When all that it names was confirmed gone.
""", {"command_key": NAMES, "body": WHO}),
    "ReceiptLocator": Table(
        "ledger.settle ledger.compact", "until `manage.py compact --forget-locators DAYS` forgets it", """
receipt: The receipt, by its command.
ordinal: Of the target, 1 is the original.
bucket: Name of the bucket.
key: Object key, byte by byte.
version_id: As the store names it.
""", {"key": NAMES, "version_id": NAMES}),
    "TenantSalt": Table("ledger.receipts cleanup_project.operations.resealing", EVER, """
sealed: The salt, sealed under `ENCRYPTION_KEYS`; `manage.py reseal` lifts the guard to seal the same salt anew.
"""),
    "ScheduleSlot": Table("ledger.schedule", EVER, """
scheduled_for: The instant that the schedule named.
outcome: What became of it.
run: The run that was opened for it.
noticed_at: When it was answered.
reason: Why no run was opened.
"""),
    "StopReport": Table("ledger.stops", EVER, """
switch: The stop switch.
reported_at: When no claim could miss the switch any more.
commands: The commands that might still be executed.
tokens: Their lease tokens, in the same order.
"""),
}  # fmt: skip
