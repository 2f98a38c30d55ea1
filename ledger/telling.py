"""An explanation in sentences, for terminals and pages alike: the six questions, each with its answer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cleanup_project.base import display
from cleanup_project.base.canonical import instant
from ledger.explain import NO_COMMAND, Explanation
from ledger.models import CleanupCommand
from ledger.next_action import Turn
from retention.models import PolicyRevision

TURNS = {
    Turn.AUTOMATIC: "Automatic: the system goes on by itself.",
    Turn.PERSON: "A person's: nothing goes on before somebody acts.",
    Turn.NOBODY: "Nobody's.",
}
LOOKS_TOLD = 20
TARGETS_TOLD = 200


def answers(told: Explanation) -> list[tuple[str, list[str]]]:
    """Each question with the sentences that answer it. Names from outside are made visible."""
    return [
        ("Which immutable versions were selected?", list(selected(told))),
        ("Why were they eligible?", list(eligible(told))),
        ("Was the deletion confirmed?", list(deletion(told))),
        ("Which event represents it?", list(event(told))),
        ("How many delivery attempts were there?", list(deliveries(told))),
        ("Whose is the next action?", list(following(told))),
    ]


def selected(told: Explanation) -> Iterator[str]:
    chosen = told.selected
    for target in chosen.targets[:TARGETS_TOLD]:
        if "key" in target:
            name = (
                f"{target['bucket']}/{display.visible(target['key'])} version {display.visible(target['version_id'])}"
            )
        else:
            name = f"commitment {target['commitment']}"
        etag = f", ETag {display.visible(target['etag'])}" if target["etag"] else ""
        yield f"{name} ({target['role'].replace('_', ' ')}, {target['size']:,} bytes{etag})"
    if len(chosen.targets) > TARGETS_TOLD:
        yield f"and {len(chosen.targets) - TARGETS_TOLD:,} more"
    if not chosen.names_from:
        yield "The names were forgotten when their retention ended; the receipt's commitments still prove them."
    root = f", manifest root {chosen.manifest_root}" if chosen.manifest_root else ", not sealed yet"
    yield f"Item {chosen.ordinal} of run {chosen.run}{root}; SHA-256 of its line {chosen.item_sha256}."


def eligible(told: Explanation) -> Iterator[str]:
    rule, why = told.eligible, told.eligible.why
    yield f"{rule.policy}/{rule.revision}, {rule.title}, on the authority of: {rule.authority}"
    cutoff = "" if why["cutoff"] == "none" else f", cut off at the end of the {why['cutoff']}"
    trigger = why["trigger"].replace("_", " ")
    since = instant(rule.eligible_since)
    yield f"{trigger.capitalize()} {why['trigger_at']} + {why['period']}{cutoff}: eligible since {since}."
    yield f"Judged as of {instant(rule.as_of)}; considered {', '.join(why['considered'])}; {why['holds']} legal holds."
    given = told.authorisation
    if given.at is not None:
        yield f"Run authorised {instant(given.at)}{f' by {given.by}' if given.by else ''}: {given.words}"
    else:
        yield f"Its run is not authorised: it is {given.state}."


class Fact(NamedTuple):
    """One thing that was checked before the line was frozen: what it was, and what followed from it."""

    name: str
    value: str
    verdict: str


def trace(told: Explanation, revision: PolicyRevision) -> list[Fact]:
    """Every fact by which the line was found eligible, in the order in which they are judged."""
    rule, why = told.eligible, told.eligible.why
    label = f"{rule.policy}/{rule.revision}"
    others = [each for each in why["considered"] if each != label]
    kept = revision.keep_newest
    facts = [
        Fact("Trigger", PolicyRevision.Trigger(why["trigger"]).label.capitalize(), "It starts the clock."),
        Fact("Date of the trigger", moment(why["trigger_at"]), event_of(why)),
        Fact("Period", why["period"], f"Of revision {label}, on the authority of: {rule.authority}"),
        Fact("Cut-off", PolicyRevision.CutOff(why["cutoff"]).label.capitalize(), cutoff_of(why)),
        Fact("Eligible since", moment(instant(rule.eligible_since)), overdue(told)),
        Fact("Revisions in force", ", ".join(why["considered"]), governs(label, others)),
        Fact(
            "Newest generations kept", str(kept), "As many newer ones were there." if kept else "None is kept by this."
        ),
        Fact(
            "Legal holds that covered it",
            str(why["holds"]),
            "None: held objects are left out, and looked at again by each claim.",
        ),
        Fact("Judged as of", moment(instant(rule.as_of)), "The same instant for the whole run."),
    ]
    if "extended_until" in why:
        facts.insert(
            4, Fact("Extended until", moment(why["extended_until"]), "Somebody extended it beyond the policy.")
        )
    return facts


def moment(stamp: str) -> str:
    """A time of canonical JSON, as pages show times."""
    return f"{stamp[:10]} {stamp[11:19]} UTC"


def event_of(why: Mapping[str, Any]) -> str:
    return f"When the retention event {why['event']} occurred." if "event" in why else "From the catalogue."


def cutoff_of(why: Mapping[str, Any]) -> str:
    return (
        "The period counts from that day."
        if why["cutoff"] == "none"
        else f"It counts from the end of the {why['cutoff']}."
    )


def overdue(told: Explanation) -> str:
    waited = told.eligible.as_of - told.eligible.eligible_since
    return f"Before the run judged it, so it was eligible: {display.counted(waited.days, 'day')} overdue."


def governs(label: str, others: Sequence[str]) -> str:
    return f"{label} governs: its retention ends last of them." if others else f"{label} governs: no other covers it."


def deletion(told: Explanation) -> Iterator[str]:
    done = told.deletion
    if not done.confirmed:
        yield "No command was ever made of it." if told.state == NO_COMMAND else f"No. The command is {told.state}."
    else:
        outcome = CleanupCommand.Outcome(done.outcome).label.lower()
        at = instant(done.issued_at) if done.issued_at else ""
        yield f"Yes, {outcome}. Receipt of {at}, SHA-256 {done.receipt_sha256}."
        if not done.intact:
            yield "The receipt's body differs from its digest: it was tampered with."
        for number, look in enumerate(done.looks[:LOOKS_TOLD], 1):
            yield f"Target {number}: before {seen(look['before'])}; gone {seen(look['after'])}."
    if told.state != NO_COMMAND:
        yield tried(told)


def seen(look: dict[str, str]) -> str:
    asked = f" (request {display.visible(look['request_id'])})" if look.get("request_id") else ""
    return " ".join(part for part in (look.get("at"), "by", look.get("method", "nothing")) if part) + asked


def tried(told: Explanation) -> str:
    tries = told.tries
    counts = ", ".join(f"{number} {outcome.replace('_', ' ')}" for outcome, number in sorted(tries.by_outcome.items()))
    late = f", {tries.late} of them late" if tries.late else ""
    return (
        f"Claimed {times(tries.claims)}, requested {times(tries.requests)}; attempts: {counts or 'none'}{late}. "
        f"Cycle {told.cycle}."
    )


def times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number:,} times")


def event(told: Explanation) -> Iterator[str]:
    if told.event is None:
        yield "None: nothing was destroyed under this key."
        return
    yield f"{told.event.type} {told.event.id}, number {told.event.sequence} of {told.event.subject}."
    settled = f"settled {instant(told.event.settled_at)}" if told.event.settled_at else "not settled yet"
    yield f"Emitted {instant(told.event.emitted_at)}, {settled}; SHA-256 of its body {told.event.body_sha256}."


def deliveries(told: Explanation) -> Iterator[str]:
    if not told.deliveries:
        yield "None: no endpoint subscribed to it." if told.event else "None: there is no event."
    for each in told.deliveries:
        said = f", last answer {each.last_status}" if each.last_status else ""
        error = f": {display.visible(each.last_error)}" if each.last_error else ""
        when = f", ended {instant(each.finished_at)}" if each.finished_at else ""
        due = f", due {instant(each.due_at)}" if each.due_at else ""
        again = f", redelivery {each.round}" if each.round else ""
        yield f"{each.endpoint}{again}: {each.state}, attempted {times(each.attempts)}{said}{error}{when}{due}."


def following(told: Explanation) -> Iterator[str]:
    yield TURNS[told.next.turn]
    when = f" When: {instant(told.next.at)}." if told.next.at else ""
    yield f"{told.next.what}{when}"
