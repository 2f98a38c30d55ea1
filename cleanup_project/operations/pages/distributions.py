"""What stands below the tiles of the dashboard: lags over time, attempts and quarantine by class, runs, endpoints."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import urlencode

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from cleanup_project.base import display, rollups
from cleanup_project.base.modeladmin import list_url
from cleanup_project.base.models import RollupMark
from cleanup_project.base.rollups import Point, Span
from cleanup_project.operations.pages.tiles import Looking
from ledger import rollups as of_ledger
from ledger import vitals
from ledger.causes import Groups
from ledger.failures import RULES
from ledger.models import CleanupCommand, CleanupRun, DeadLetter, Receipt
from ledger.states import CommandState, RunState
from ledger.vitals import Going
from webhooks import rollups as of_webhooks
from webhooks.models import Delivery, DeliveryAttempt, Endpoint
from webhooks.vitals import SHOWN, troubled

COLUMNS: Final = ("p50", "p95", "p99", "max")


class Lag(NamedTuple):
    """One duration over time. `whole` is None where nothing happened; `table` holds what the chart draws."""

    code: str
    title: str
    about: str
    whole: Point | None
    figures: Sequence[tuple[str, str]]
    table: SafeString


class Bar(NamedTuple):
    """`share` is in percent of the longest; `note` stands beside the number."""

    code: str
    label: str
    url: str
    number: str
    share: float
    note: str = ""


class Bars(NamedTuple):
    code: str
    title: str
    about: str
    rows: Sequence[Bar]


class Progress(NamedTuple):
    run: Going
    url: str
    kind: str
    state: str
    dead_url: str


class Troubled(NamedTuple):
    endpoint: Endpoint
    url: str
    what: str
    since: datetime | None


def lags(looking: Looking, span: Span) -> Iterator[Lag]:
    if "ledger" in looking.sees:
        about = "From the moment an object was eligible to the receipt of its destruction."
        yield lag(of_ledger.DELETION, "Deletion lag", about, looking, span)
    if "webhooks" in looking.sees:
        about = "From an event to its acknowledgement by each endpoint; redeliveries are left out."
        yield lag(of_webhooks.ACKNOWLEDGEMENT, "Acknowledgement lag", about, looking, span)


def lag(metric: str, title: str, about: str, looking: Looking, span: Span) -> Lag:
    found = rollups.percentiles(metric, span, looking.codes)
    figures = [
        (name, lasting(each)) for whole in found[:1] for name, each in zip(COLUMNS, durations(whole), strict=True)
    ]
    return Lag(metric, title, about, found[0] if found else None, figures, table(found[1:]))


def durations(point: Point) -> tuple[float, float, float, float]:
    return point.p50, point.p95, point.p99, point.greatest


def lasting(seconds: float) -> str:
    return display.duration(timedelta(seconds=seconds))


def table(points: Sequence[Point]) -> SafeString:
    """The rows of the table that the chart is drawn from: the newest first, durations in seconds as their values."""
    row = '<tr><th scope="row"><time datetime="{}">{}</time></th>{}{}{}{}<td class="num">{}</td></tr>'
    rows = (
        (
            f"{each.begins_at:%Y-%m-%dT%H:%M:%SZ}",
            f"{each.begins_at:%Y-%m-%d %H:%M} UTC",
            *map(cell, durations(each)),
            f"{each.number:,}",
        )
        for each in reversed(points)
    )
    return format_html_join("", row, rows)


@lru_cache(maxsize=1024)
def cell(seconds: float) -> SafeString:
    """Most are the middle of a bucket, of which there are few."""
    return format_html('<td class="num"><data value="{}">{}</data></td>', f"{seconds:.4g}", lasting(seconds))


def bars(looking: Looking, span: Span) -> Iterator[Bars]:
    wanted = {"ledger": (of_ledger.ATTEMPTS, of_ledger.DELETION), "webhooks": (of_webhooks.ATTEMPTS,)}
    metrics = [metric for app, names in wanted.items() if app in looking.sees for metric in names]
    found = rollups.by_label(metrics, span, looking.codes)
    since = looking.now - span.length
    if "ledger" in looking.sees:
        yield Bars(
            "delete-attempts", "Attempts to delete, by class",
            "A failure class leads to what of it waits in quarantine, an outcome to its list.",
            bar_rows("delete-attempts", found[of_ledger.ATTEMPTS], since),
        )  # fmt: skip
    if "webhooks" in looking.sees:
        yield Bars(
            "delivery-attempts", "Attempts to deliver, by class", "A failure class leads to the attempts themselves.",
            bar_rows("delivery-attempts", found[of_webhooks.ATTEMPTS], since),
        )  # fmt: skip
    if "ledger" in looking.sees:
        yield quarantine(looking)
        yield Bars(
            "destroyed", "Receipts, by outcome", "What was confirmed gone.",
            bar_rows("destroyed", found[of_ledger.DELETION], since),
        )  # fmt: skip


def bar_rows(code: str, found: dict[str, int], since: datetime) -> list[Bar]:
    most = max([1, *found.values()])
    return [
        Bar(f"{code}-{label}", words(label), behind(code, label, since), f"{number:,}", 100 * number / most)
        for label, number in found.items()
    ]


def behind(code: str, label: str, since: datetime) -> str:
    """The list of what a bar counts, as nearly as there is one."""
    if label == "delivered":
        return list_url(Delivery, "?state__exact=delivered")
    if code == "delivery-attempts":
        return list_url(
            DeliveryAttempt, "?" + urlencode({"failure_class": label, "finished_at__gte": since.isoformat()})
        )
    if label in RULES:
        return list_url(DeadLetter, f"?class={label}")
    if label in CleanupCommand.Outcome:
        return list_url(Receipt, "?" + urlencode({"outcome": label, "issued_from": since.isoformat()}))
    return list_url(CleanupCommand, f"?state__exact={label}" if label in CommandState.__members__.values() else "")


def words(label: str) -> str:
    return label.replace("_", " ")


def quarantine(looking: Looking) -> Bars:
    found = {kind: Groups(each, more=False) for kind, each in looking.quarantine.by_class.items()}
    most = max([1, *(each.number for each in found.values())])
    rows = [
        Bar(
            f"quarantine-{kind}",
            words(kind),
            list_url(DeadLetter, f"?class={kind}"),
            f"{each.number:,}" if each.whole else f"more than {each.number:,}",
            100 * each.number / most,
            f"oldest {display.age(min(one.oldest for one in each.each), looking.now)}, {each.late:,} over a day",
        )
        for kind, each in sorted(found.items(), key=lambda one: -one[1].number)
    ]
    return Bars("quarantine", "In quarantine now, by class and age", "Each waits for a person.", rows)


RUN_KINDS: Final = {
    RunState.NEEDS_APPROVAL: "waiting",
    RunState.COOLING_OFF: "waiting",
    RunState.PAUSED: "waiting",
    RunState.TRIPPED: "overdue",
}


def runs(looking: Looking) -> list[Progress]:
    if "ledger" not in looking.sees:
        return []
    return [
        Progress(
            each,
            display.change_url(CleanupRun(pk=each.id)),
            RUN_KINDS.get(RunState(each.state), "plain"),
            words(each.state),
            list_url(CleanupCommand, f"?run={each.id}&state__exact=dead"),
        )
        for each in vitals.runs(looking.codes)
    ]


def endpoints(looking: Looking) -> list[Troubled]:
    if "webhooks" not in looking.sees:
        return []
    return [
        Troubled(each, display.change_url(each), trouble(each), each.disabled_at or each.failing_since)
        for each in troubled(looking.codes)[:SHOWN]
    ]


def trouble(endpoint: Endpoint) -> str:
    if endpoint.disabled_at:
        return "disabled, its events are held"
    if endpoint.circuit_step:
        return "circuit open"
    return "failing" if endpoint.failing_since else "paused, as it asked"


def counted_until() -> datetime | None:
    """Up to which minute the figures over time are complete; None: nothing has been counted yet."""
    return min(RollupMark.objects.values_list("counted_until", flat=True), default=None)
