"""What the pages of quarantine are put together from: a page of the list, what is so now, and one entry's story."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db.models import QuerySet
from django.http import QueryDict

from cleanup_project.base import clock
from ledger import present, replayable
from ledger.admin.entryfilter import EntryFilter
from ledger.models import DeadLetter

PAGE: Final = 50
TRIES_SHOWN: Final = 20


class Page(NamedTuple):
    """Some entries in the order of the list; `first` and `last` lead to those before and after, 0 where there are none."""

    entries: Sequence[DeadLetter]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Truth:
    """What is so of an entry now. `in_the_way` of a replay, in words, or nothing; `seen`: what the store says, in words."""

    as_of: datetime
    in_the_way: str
    there: bool | None
    seen: str


def ascending(data: QueryDict) -> bool:
    """What is open is listed by age, the oldest first; what is not, the newest first."""
    return data.get("entries", "") not in {"resolved", "all"}


def page_of(rows: QuerySet[DeadLetter], data: QueryDict) -> Page:
    """By keyset: the rows `after` or `before` an id in the order of the list."""
    after, before = (int(data.get(name, "")) if data.get(name, "").isdecimal() else 0 for name in ("after", "before"))
    up = ascending(data)
    backward = bool(before and not after)
    if after:
        rows = rows.filter(pk__gt=after) if up else rows.filter(pk__lt=after)
    if backward:
        rows = rows.filter(pk__lt=before) if up else rows.filter(pk__gt=before)
    found = list(rows.order_by("pk" if up != backward else "-pk")[: PAGE + 1])
    more = len(found) > PAGE
    entries = found[:PAGE][::-1] if backward else found[:PAGE]
    if not entries:
        return Page((), 0, 0)
    is_first, is_last = (not more, False) if backward else (not after, not more)
    return Page(entries, 0 if is_first else entries[0].pk, 0 if is_last else entries[-1].pk)


def neighbours(entry: DeadLetter, found: EntryFilter) -> dict[str, Any]:
    """The entries before and after this one in the list that led here."""
    rows = found.rows
    lower = rows.filter(pk__lt=entry.pk).order_by("-pk").values_list("pk", flat=True).first()
    higher = rows.filter(pk__gt=entry.pk).order_by("pk").values_list("pk", flat=True).first()
    previous, following = (lower, higher) if ascending(found.data) else (higher, lower)
    return {"previous": previous, "following": following, "words": "" if found.refusal else found.words()}


def now_of(entries: Sequence[DeadLetter]) -> dict[int, Truth]:
    """Look everything up anew, and ask the store. Not inside a transaction."""
    as_of = clock.now()
    judged = replayable.refusals(replayable.cases_of([each.command for each in entries]))
    refused = {case.command.pk: str(refusal) if refusal else "" for case, refusal in judged}
    looks = present.look_each([each.command_id for each in entries])
    told = {}
    for each in entries:
        seen = looks.get(each.command_id, [])
        answers = [look.there for look in seen]
        there = None if not answers or None in answers else all(answers)
        words = " ".join(dict.fromkeys(look.words for look in seen)) or "Its targets are not on record any more."
        told[each.pk] = Truth(as_of, refused[each.command_id], there, words)
    return told


def entry_facts(entry: DeadLetter) -> dict[str, Any]:
    """What its page tells of the cycle in which it failed, and of what was decided about its command."""
    tries = entry.command.tries.filter(cycle=entry.cycle).order_by("-token", "-late")
    shown = list(tries[: TRIES_SHOWN + 1])
    return {
        "tries": shown[:TRIES_SHOWN][::-1],
        "more_tries": len(shown) > TRIES_SHOWN,
        "decisions": list(entry.command.decisions.select_related("by", "run").order_by("cycle")[:TRIES_SHOWN]),
        "others": list(entry.command.dead_letters.exclude(pk=entry.pk).order_by("cycle")[:TRIES_SHOWN]),
    }
