"""The metrics: name, kind, labels and meaning of each. The one source of /metrics and of docs/metrics.md.

Gauges say what is so now. Counters and histograms come from the rollups' totals: what has closed a minute ago, of all
tenants together, since the installation first counted.
"""

from typing import Final, Literal, NamedTuple


class Family(NamedTuple):
    """One metric. A counter's name ends in `_total`; of a histogram there are `_bucket`, `_sum` and `_count`."""

    kind: Literal["gauge", "counter", "histogram"]
    words: str
    labels: tuple[str, ...] = ()


SUMS: Final = "Buckets and count are exact; the sum is within 5 percent."
CAPPED: Final = "At most 100,000 are counted for each endpoint."

FAMILIES: Final[dict[str, Family]] = {
    # What waits, against its deadline.
    "cleanup_deadline_seconds": Family("gauge", "From which age on what the label names is overdue.", ("deadline",)),
    "cleanup_oldest_eligible_age_seconds": Family(
        "gauge", "Since what the last scans found, and nobody has destroyed, became eligible: the oldest. 0: nothing."
    ),
    "cleanup_objects_past_deadline": Family(
        "gauge",
        "Objects that have been eligible for longer than the deadline oldest-eligible and are still there: ready commands, "
        "and items that open runs have not published. At most 100,000 are counted for each tenant and run.",
    ),
    "cleanup_run_items_remaining": Family(
        "gauge", "Items of sealed, enforcing, open runs without an outcome: what is left for the drains to come."
    ),
    "cleanup_queue_age_seconds": Family(
        "gauge",
        "For how long the oldest command has been due that no worker has; paused and stopped ones count. 0: none.",
    ),
    "cleanup_quarantine_entries": Family(
        "gauge", "Open entries. At most 10,000 are counted for each class and tenant.", ("class",)
    ),
    "cleanup_quarantine_oldest_age_seconds": Family(
        "gauge", "Since the oldest open entry of the class entered.", ("class",)
    ),
    "cleanup_runs_open": Family("gauge", "Open runs.", ("state",)),
    "cleanup_approval_oldest_age_seconds": Family(
        "gauge", "Since the oldest run that waits for a person's approval was sealed. 0: none waits."
    ),
    "cleanup_scan_oldest_age_seconds": Family(
        "gauge", "Since the oldest run that is still scanning was opened. 0: none."
    ),
    "cleanup_last_scan_age_seconds": Family("gauge", "Since a manifest was last sealed by any policy. Absent: never."),
    "cleanup_schedule_overdue_seconds": Family(
        "gauge", "For how long the oldest slot of a schedule has waited for an answer. 0: every one has its answer."
    ),
    "cleanup_schedule_missed_slots": Family("gauge", "Slots of schedules of the last 24 hours that were missed."),
    "cleanup_catalogue_age_seconds": Family(
        "gauge", "Of buckets with a limit, since the one that was listed the longest ago was. +Inf: never."
    ),
    "cleanup_catalogue_age_limit_seconds": Family("gauge", "The limit of that bucket."),
    # Who works, and what keeps them from it.
    "cleanup_worker_clusters": Family(
        "gauge", "Clusters of workers that were seen within a minute, of each queue that has to be served.", ("queue",)
    ),
    "cleanup_worker_seen_age_seconds": Family(
        "gauge", "Since the cluster of the queue that was seen last was seen. Absent: none ever was.", ("queue",)
    ),
    "cleanup_worker_restart_age_seconds": Family(
        "gauge", "Since a cluster was last started anew because it stood still. +Inf: none that is known."
    ),
    "cleanup_last_tick_age_seconds": Family("gauge", "Since any cluster began the tick. Absent: none ever has."),
    "cleanup_oldest_snapshot_age_seconds": Family(
        "gauge",
        "Since the oldest transaction of another session began that holds a snapshot. 0: none. Absent: the role of the web "
        "process may not see them (pg_read_all_stats).",
    ),
    "cleanup_stop_switches": Family("gauge", "Stop switches that are on."),
    "cleanup_stop_oldest_age_seconds": Family("gauge", "Since the oldest of them was pressed. 0: none is on."),
    "cleanup_alarms_open": Family("gauge", "Open alarms; a kind of which none is open is absent.", ("kind",)),
    "cleanup_alarms_untold": Family(
        "gauge", "Alarms that are owed an e-mail for more than 15 minutes. 0 where ALERT_EMAILS is not set."
    ),
    # What happened.
    "cleanup_candidates_total": Family("counter", "Items that scans froze into manifests.", ("mode",)),
    "cleanup_commands_published_total": Family("counter", "New commands; one that a later run adopted is not new."),
    "cleanup_commands_completed_total": Family(
        "counter", "Commands that left a receipt, each once for ever.", ("outcome",)
    ),
    "cleanup_delete_attempts_total": Family(
        "counter", "Claims that ended, by failure class, or by outcome where none failed.", ("class",)
    ),
    "cleanup_quarantined_total": Family("counter", "Entries into quarantine.", ("class",)),
    "cleanup_quarantine_resolved_total": Family("counter", "Entries that ended.", ("resolution",)),
    "cleanup_replays_succeeded_total": Family(
        "counter",
        "Receipts of commands that had been parked: replayed by a person, or adopted by a later run.",
        ("kind",),
    ),
    "cleanup_deletion_lag_seconds": Family("histogram", f"From eligible since to the receipt. {SUMS}"),
    "cleanup_run_drain_seconds": Family("histogram", f"From a run's authorisation until its counts added up. {SUMS}"),
    "cleanup_deletion_lag_seconds_last_hour": Family(
        "gauge", "The same of the last hour, within 5 percent, the longest (1) exactly. Absent: nothing.", ("rank",)
    ),
    # Webhooks.
    "cleanup_webhook_oldest_undelivered_age_seconds": Family(
        "gauge", "Since the oldest event that is owed to an endpoint was emitted, whatever keeps it. 0: none."
    ),
    "cleanup_webhook_oldest_due_age_seconds": Family(
        "gauge", "For how long a delivery has been due that nothing but our own slowness keeps. 0: none."
    ),
    "cleanup_webhook_pending": Family(
        "gauge", f"Deliveries that are owed: due, waiting, or held. {CAPPED}", ("state",)
    ),
    "cleanup_webhook_inflight": Family("gauge", "Attempts that are under way."),
    "cleanup_webhook_lease_lost": Family("gauge", f"Attempts that never ended: whoever sent them was lost. {CAPPED}"),
    "cleanup_webhook_dead": Family(
        "gauge",
        "Deliveries that were given up, of the newest 100,000, and not sent again since, by their last failure.",
        ("class",),
    ),
    "cleanup_webhook_endpoint_state": Family("gauge", "Endpoints by the state of their circuit.", ("state",)),
    "cleanup_webhook_endpoints_paused": Family("gauge", "Endpoints that asked to be left alone for a while."),
    "cleanup_webhook_endpoints_failing": Family("gauge", "Endpoints without a success since their last failure."),
    "cleanup_webhook_endpoint_trouble_age_seconds": Family(
        "gauge",
        "Since when each endpoint (by number) has been failing or disabled; 100 of them at most.",
        ("endpoint",),
    ),
    "cleanup_webhook_active_keys": Family("gauge", "Secrets that sign now."),
    "cleanup_webhook_attempts_total": Family(
        "counter", "Attempts that ended, by class; `delivered` for 2xx.", ("class",)
    ),
    "cleanup_webhook_redeliveries_total": Family(
        "counter", "Redeliveries that a person asked for, and that were begun."
    ),
    "cleanup_webhook_first_send_lag_seconds": Family("histogram", f"From an event to the first request. {SUMS}"),
    "cleanup_webhook_acknowledgement_lag_seconds": Family("histogram", f"From an event to the 2xx. {SUMS}"),
    "cleanup_webhook_first_attempt_latency_seconds_last_hour": Family(
        "gauge",
        "From an event to the first request, of the last hour, within 5 percent. Absent: nothing.",
        ("rank",),
    ),
    "cleanup_webhook_delivery_latency_seconds_last_hour": Family(
        "gauge", "From an event to the 2xx, of the last hour, within 5 percent. Absent: nothing.", ("rank",)
    ),
    "cleanup_webhook_attempts_last_hour": Family("gauge", "Attempts that ended within an hour.", ("class",)),
    "cleanup_webhook_blocked_last_hour": Family("gauge", "Of these, those whose address is not allowed."),
    "cleanup_webhook_sender_error_last_hour": Family("gauge", "Of these, those that failed by a fault of our own."),
    "cleanup_webhook_conn_retry_last_hour": Family(
        "gauge", "Of these, those that were sent twice over a dead connection."
    ),
    "cleanup_webhook_attempt_seconds_last_hour": Family(
        "gauge", "What 95 of 100 attempts took at most, in all and by phase. Absent: no attempt.", ("phase", "rank")
    ),
    # The measuring itself.
    "cleanup_rollups_counted_age_seconds": Family("gauge", "Until how long ago counters have counted. Absent: never."),
    "cleanup_clock_skew_seconds": Family(
        "gauge", "By how much the clock of the host that answers is ahead of the database's."
    ),
    "cleanup_scrape_errors": Family("gauge", "1 where this part could not be read and is left out; else 0.", ("part",)),
}


def page() -> str:
    """The table of all, in Markdown."""
    rows = "".join(
        f"| `{name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.words} |\n"
        for name, each in FAMILIES.items()
    )
    return f"| name | kind | labels | meaning |\n|---|---|---|---|\n{rows}"
