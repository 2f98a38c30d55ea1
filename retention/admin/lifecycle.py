"""Lifecycle rules on the pages of buckets and holds."""

from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import clock, display
from retention import lifecycle
from retention.models import Bucket, LegalHold, LifecycleRule

HEADINGS = ("Rule", "Does", "First seen", "Could delete")


def lifecycle_of(bucket: Bucket) -> SafeString | str:
    """The bucket's rules as last seen, and what each could delete although it is kept."""
    if bucket.lifecycle_observed_at is None:
        return "not read yet: the next sync reads them"
    conflicts = {each.rule.pk: each for each in lifecycle.conflicts(bucket, clock.now())}
    rules = LifecycleRule.objects.current().filter(bucket=bucket).order_by("rule_id")
    rows = [
        (
            display.exact(rule.rule_id),
            rule.words,
            display.moment(rule.first_seen_at),
            display.pill(lifecycle.kept(conflicts[rule.pk]), "overdue")
            if rule.pk in conflicts
            else "nothing that is kept",
        )
        for rule in rules
    ]
    return display.table(HEADINGS, rows) if rows else "none"


def lifecycle_against(hold: LegalHold) -> SafeString | str:
    """The rules that could delete what this hold covers, and buckets of which that is not known."""
    if hold.released_at is not None:
        return "The hold is released."
    said: list[SafeString | str] = []
    for bucket in Bucket.objects.filter(pk__in=hold.bucket_ids).order_by("name"):
        if bucket.lifecycle_observed_at is None or bucket.lifecycle_trouble:
            why = bucket.lifecycle_trouble or "no sync has read them yet"
            said.append(format_html("{}: its lifecycle rules are not known ({})", display.link(bucket), why))
        for each in lifecycle.conflicts(bucket, clock.now()):
            if hold in each.holds:
                could = display.pill("could delete what this hold covers", "overdue")
                said.append(
                    format_html("{}: {} {} {}", display.link(bucket), each.rule.rule_id, could, each.rule.words)
                )
    return display.bullets(said) if said else "None of its buckets has a rule that could delete what it covers."
