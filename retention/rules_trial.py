"""Try a key rule on real keys before it is saved."""

from typing import Final

from retention import buckets, catalogue
from retention.models import Bucket, KeyRule, ObjectVersion
from retention.prefixes import successor
from retention.rules import TOKEN, KeyFacts, compile_rule
from retention.storage import ObjectStore

MAX_LIMIT: Final = 1000


def try_rule(rule: KeyRule, limit: int = 20, *, store: ObjectStore | None = None) -> list[tuple[str, KeyFacts | None]]:
    """What a rule, saved or not, says about up to `limit` keys of its bucket; None where its pattern does not match.

    Most keys are taken from under the fixed beginning of the pattern, some from elsewhere, to show what it leaves out.
    They come from the catalogue; from the bucket itself where the catalogue has none of it and a `store` is given.
    Raises RuleError for a rule that cannot work, and StorageError.
    """
    compiled = compile_rule(rule)
    limit = min(limit, MAX_LIMIT)
    keys = known_keys(rule.bucket, fixed_beginning(rule.pattern), limit)
    if not keys and store is not None:
        page = store.list_versions(buckets.ref(rule.bucket), max_keys=MAX_LIMIT)
        keys = sorted({each.key for each in page.versions})[:limit]
    return [(key, compiled.match(key)) for key in keys]


def known_keys(bucket: Bucket, beginning: str, limit: int) -> list[str]:
    """Keys of the catalogue in order: at least three quarters under `beginning`, as far as there are so many."""
    present = ObjectVersion.objects.present().filter(bucket=bucket)
    keys = present.order_by("key").values_list("key", flat=True).distinct()
    end = successor(beginning)
    outside = list[str]()
    if end is not None:
        spare = limit // 4
        outside = [*keys.filter(key__lt=beginning)[: spare // 2], *keys.filter(key__gte=end)[: spare - spare // 2]]
    inside = keys.filter(catalogue.under("key", beginning))[: limit - len(outside)]
    return sorted([*inside, *outside])


def fixed_beginning(pattern: str) -> str:
    """The text that every key of the pattern begins with."""
    beginning, position = "", 0
    for token in TOKEN.finditer(pattern):
        beginning += pattern[position : token.start()]
        if token.group() not in ("{{", "}}"):
            return beginning
        beginning, position = beginning + token.group()[0], token.end()
    return beginning + pattern[position:]
