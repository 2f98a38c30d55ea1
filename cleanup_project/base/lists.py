"""What a row of each list is, and what one does there: one or two sentences for whoever is woken at night."""

from typing import Final

ABOUT: Final = {
    "base.Alarm": (
        "What is wrong now, and what was. An alarm ends by itself when what it says is no longer so; one about losses, "
        "when somebody marks it as seen at the bucket."
    ),
    "ledger.CleanupRun": (
        "One row is one pass over a policy: it freezes a manifest, waits for approval where that is asked for, and "
        "destroys what the manifest names. Open one to see how far it is, to approve, pause or cancel it."
    ),
    "ledger.DeadLetter": (
        "One row is a command that cannot go on by itself. Do what its next action says, then replay it, or close "
        "it without retry."
    ),
    "ledger.CleanupCommand": (
        "One row is the destruction of one asset: an original with its derivatives. Its page answers the six "
        "questions, whatever its state."
    ),
    "ledger.ErasureRequest": (
        "One row is a demand to erase named objects by law. Another person approves it; then a run of its own "
        "overtakes routine destruction."
    ),
    "ledger.ReceiptExport": (
        "One row is one export of receipts: who asked for which, in which form, and the digest of what went out. Its page "
        "has the files, while they are kept."
    ),
    "base.BulkJob": (
        "One row is one decision about many things, carried out item by item. It can be paused, slowed and "
        "cancelled; each item has its outcome."
    ),
    "ledger.ScheduleSlot": (
        "One row is a time at which a policy was due to run, and what came of it: a run, or the reason why there "
        "is none."
    ),
    "retention.StopSwitch": (
        "One row is one pressing. While a switch is on, no request is sent for what it names; whoever may lift it "
        "does so on its page."
    ),
    "retention.RetentionPolicy": (
        "One row is a rule of how long something is kept, and on whose authority. What it says stands in its "
        "revisions; suspended, it destroys nothing."
    ),
    "retention.PolicyRevision": (
        "One row is one wording of a policy. A draft can be edited, previewed and submitted; a second person "
        "publishes it, and from then on it never changes."
    ),
    "retention.ImpactPreview": (
        "One row says what a draft would change: how much becomes eligible sooner or later, is held, or is covered "
        "by nothing. Publishing needs an exact one."
    ),
    "retention.EnforcementRequest": (
        "One row asks that runs may really destroy under a prefix. Without it every run is a dry run. Another "
        "person decides."
    ),
    "retention.LegalHold": (
        "One row keeps what it covers from destruction, whatever its retention. It ends only when one person asks "
        "for its release and another approves."
    ),
    "retention.HoldRelease": (
        "One row asks for the release of a hold. Read what it would free, then approve or deny; whoever asked "
        "cannot decide."
    ),
    "retention.RetentionEvent": (
        "One row is something that happened outside, such as the end of a contract, and starts the clock of what "
        "waits for it."
    ),
    "retention.Disposition": (
        "One row is a person's decision about one object version: to keep it for good, or to extend its retention "
        "until a date."
    ),
    "ledger.Receipt": (
        "One row proves the end of one command: which exact versions, when, by which run and policy. It never changes."
    ),
    "ledger.HoldReport": (
        "One row says what was on its way to destruction when a hold was placed, and how each of it ended. "
        "Compliance acknowledges it."
    ),
    "base.AuditEvent": (
        "One row is one act of a person or of the system: who, when, what, why. It is only ever added to."
    ),
    "retention.ObjectVersion": (
        "One row is one exact version of one object, as it was last seen. Its page says when its retention ends "
        "and why."
    ),
    "retention.Bucket": (
        "One row is a bucket that is listed, with what was observed of it and how fast it may be asked."
    ),
    "retention.KeyRule": (
        "One row says what a key means: whose it is, which class, original or derivative. The first rule that "
        "matches wins."
    ),
    "retention.CatalogueSync": "One row is one listing of a bucket into the catalogue, and how far it came.",
    "retention.LifecycleRule": (
        "One row is a rule of the store itself that deletes objects behind our back. Where it meets a hold, an "
        "alarm says so."
    ),
    "retention.Tenant": (
        "One row is somebody whose objects are kept here. Its code is in every key and never changes."
    ),
    "webhooks.Endpoint": (
        "One row is an address that is told what happens, and how well it answers. Ping it, disable it or rotate its "
        "secret on its page."
    ),
    "webhooks.Delivery": (
        "One row is one event owed to one endpoint, with the next attempt. What is dead can be delivered again, "
        "singly or all that match."
    ),
    "webhooks.OutboxEvent": (
        "One row is something that was told of: its bytes are frozen, and every delivery sends the same."
    ),
    "base.User": "One row is a person. Their roles say what they may do; who leaves is deactivated, never deleted.",
    "base.ApiToken": (
        "One row is a program's way in: what it may do, for whom, and until when. Make one here; replace or revoke it on "
        "its page."
    ),
    "auth.Group": "One row is a role with its rights. Roles are part of the product and are not edited.",
    "base.Heartbeat": "One row is one cluster of workers: when it was last seen, and when it last did something.",
    "base.BulkItem": "One row is one thing that a bulk job was made for, and what became of it.",
    "ledger.ManifestItem": (
        "One row is one line of a run's manifest: an asset that the run may destroy, and why it is eligible."
    ),
    "ledger.ManifestPart": "One row is up to 1,000 lines of a manifest, frozen together under one digest.",
    "ledger.ItemDisposition": "One row is a reviewer's decision to exempt a line of a manifest, or to extend it.",
    "ledger.SkippedItem": "One row is a line of a manifest for which no command was made, and why.",
    "retention.Enforcement": "One row is a prefix under which runs may destroy, since when and by whom.",
    "retention.HoldPrefix": "One row is one prefix that a legal hold covers.",
    "webhooks.DeliveryAttempt": "One row is one request that was sent for a delivery, and what was answered.",
}
