"""Tables of the application `retention`."""

from typing import Final

from cleanup_project.operations.dictionary.tables import EVER, Personal, Table

NAMES, WORDS = Personal.NAMES, Personal.WORDS

TABLES: Final = {
    "Tenant": Table("retention.admin.catalogue", EVER, """
code: Begins every command key, and never changes.
name: What people call it.
"""),
    "Bucket": Table("retention.admin.catalogue retention.sources.listing retention.lifecycle retention.freshness", EVER, """
name: As the store knows it; never changes.
region: Of the store.
addressing_style: Whether the bucket stands in the path or in the host.
observed_at: When versioning and object lock were last observed.
lifecycle_observed_at: When its lifecycle rules were last read.
"""),
    "KeyRule": Table("retention.admin.catalogue", EVER, """
bucket: Whose keys it explains.
tenant: Whose the objects are; null: nobody's, so they are unscheduled.
role: Original or derivative.
"""),
    "ObjectVersion": Table(
        "retention.catalogue retention.sources.listing retention.sources.importing retention.dispositions retention.holds "
        "ledger.manifest ledger.settle",
        EVER, """
key: Object key, byte by byte.
version_id: As the store names it; `null` where it names none.
incarnation: Of a `null` version, a digest of ETag and LastModified; else empty.
storage_class: As the store names it.
is_latest: Whether it was the current version of its key.
is_delete_marker: Whether it is a delete marker.
tenant: Whose it is; null: unscheduled.
series: Whose generations it belongs to, for *keep newest*.
retention_class: As its key rule or an import says.
role: Original or derivative.
original_bucket: Derivatives: the bucket of the original.
original_key: Derivatives: the key of the original.
source: What showed it last.
first_observed_at: When it was first shown.
gone_at: When it was gone; null: it is present.
gone_reason: Why it is gone.
""", {"key": NAMES, "asset": NAMES, "series": NAMES, "original_key": NAMES, "version_id": NAMES}),
    "CatalogueSync": Table("retention.sources.listing retention.sources.importing", EVER, """
prefix: What was listed; empty is the whole bucket.
source: Listing, import or inventory.
pages: How many pages were recorded.
""", {"after_key": NAMES}),
    "RetentionPolicy": Table("retention.policies retention.erasures", EVER, """
code: Its name, part of every command key.
missed_slots: What becomes of slots that nobody noticed in time.
suspended_reason: Why it is suspended.
suspended_by: Who suspended it last.
""", {"suspended_reason": WORDS}),
    "PolicyRevision": Table(
        "retention.policies retention.erasures", "for ever once it is published; a draft until it is discarded", """
bucket_ids: Numbers of the buckets in its scope.
title: What it is about.
period_number: How many units of time.
period_unit: Days, weeks, months or years.
cutoff: To the end of which stretch the trigger is moved before the period begins.
retain_permanently: Nothing that it governs is ever eligible.
already_absent: What it means that an object was gone before any request of ours.
authorisation: Whether each run needs an approval.
cooling_off_minutes: How long an authorised run waits before its first deletion.
cap_objects: Object versions of a run above which it waits for approval.
cap_bytes: Bytes of a run above which it waits for approval.
cap_share_percent: Share of what is present above which a run waits for approval.
effective_from: From when on it says so; it divides older objects from newer ones where it is not retroactive.
author: Who drafted it.
submitted_by: Who handed it over for publication.
submitted_at: When it was handed over.
published_by: Who published it.
published_at: When it was published; it never changes from then on.
""", {"authority": WORDS}),
    "EnforcementRequest": Table("retention.enforcement", EVER, personal={"reason": WORDS, "decision_reason": WORDS}),
    "Enforcement": Table("retention.enforcement", EVER, """
request: The request that two people decided.
approved_by: Who approved it.
switched_on_at: Since when runs may destroy there.
switched_off_at: Until when; null: still.
""", {"reason": WORDS}),
    "Control": Table("retention.control", EVER, """
epoch: Rises with whatever may forbid a request; a worker reads it before each one.
"""),
    "StopSwitch": Table("retention.control", EVER, """
scope: What it stops.
tenant: The tenant that it stops.
bucket: The bucket that it stops.
policy: The policy that it stops.
pressed_by: Who pressed it; null: the circuit breaker of a bucket.
pressed_at: Since when it is on.
lifted_by: Who lifted it.
lifted_at: When it was lifted; null: it is on.
lift_reason: Why it was lifted.
""", {"reason": WORDS, "lift_reason": WORDS}),
    "Disposition": Table("retention.dispositions", EVER, """
object_version: The object version that was decided about.
kind: Exempt, kept longer, or put into another class.
ended_by: Who ended it.
ended_at: When it was ended; null: it is in force.
end_reason: Why it was ended.
""", {"reason": WORDS, "end_reason": WORDS}),
    "RetentionEvent": Table("retention.events", EVER, """
bucket_ids: Numbers of the buckets in its scope.
posted_by: Who posted it.
posted_at: When it was posted.
withdrawn_by: Who withdrew it.
withdrawn_at: When it was withdrawn; null: it stands.
withdrawn_reason: Why it was withdrawn.
""", {"reason": WORDS, "reference": WORDS, "withdrawn_reason": WORDS, "prefixes": NAMES}),
    "LegalHold": Table("retention.holds retention.releases", EVER, """
bucket_ids: Numbers of the buckets in its scope.
title: What it is about.
authority: The order, law or request behind it.
custodian: Whose files these are.
placed_by: Who placed it.
placed_at: Since when it is in force.
released_at: When it was released; null: it is in force.
""", {"matter": WORDS, "title": WORDS, "authority": WORDS, "reason": WORDS, "custodian": WORDS, "prefixes": NAMES}),
    "HoldRelease": Table("retention.releases", EVER, """
hold: The legal hold.
""", {"reason": WORDS, "decision_reason": WORDS}),
    "HoldPrefix": Table("retention.holds", EVER, """
hold: The legal hold.
""", {"prefix": NAMES}),
    "LifecycleRule": Table("retention.lifecycle", EVER, """
rule_id: As the store names it.
prefix: Of the keys that it concerns.
first_seen_at: When a sync first saw it so.
last_seen_at: When a sync last saw it so.
ended_at: When a sync no longer saw it so.
"""),
    "ImpactPreview": Table("retention.preview", "for ever; with a draft that is discarded it goes", """
revision: The draft.
digest: Of which draft, beside which other revisions.
estimate: The figures, from a sample.
figures: The figures, exact once it is finished.
samples: Some of the objects of each kind, with their keys.
cursor: Where the next slice begins.
progressed_at: When the last slice ended.
""", {"samples": NAMES}),
}  # fmt: skip
