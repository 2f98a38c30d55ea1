"""Key rules: a pattern language small enough to read at a glance and to run without surprises.

A pattern is matched against the whole key. Literal text stands for itself; `{name}` matches one or more characters other
than `/`, `{name*}` one or more characters including `/`, `{_}` and `{_*}` match without remembering. `{{` and `}}` are
literal braces. The names `year`, `month`, `day`, `hour` match digits of their usual width and state the date (UTC; a
missing month or day is the first). Other names may be used in the templates of asset, series, retention class and
original key. A placeholder ends at the first place where the text behind it follows; the last one reaches as far as it can.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, Protocol

DIGITS: Final = {"year": "[0-9]{4}", "month": "[0-9]{2}", "day": "[0-9]{2}", "hour": "[0-9]{2}"}
TOKEN: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)(\*?)\}|[{}]")
# What may stand in a command key unescaped: printable ASCII without blank, `%` and `:`.
PLAIN_ASSET: Final = re.compile(r"[!-$&-9;-~]{1,200}")


class RuleError(ValueError):
    """A rule that cannot work; `field` names the part of it that is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class RuleSource(Protocol):
    """What a rule is compiled from; `retention.models.KeyRule` is one."""

    pattern: str
    role: str
    asset: str
    series: str
    retention_class: str
    original_key: str


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What a rule says about one key. `dated_at` is None when the key states no valid date."""

    asset: str
    series: str
    retention_class: str
    original_key: str
    dated_at: datetime | None


@dataclass(frozen=True, slots=True)
class CompiledRule:
    expression: re.Pattern[str]
    asset: str
    series: str
    retention_class: str
    original_key: str

    def match(self, key: str) -> KeyFacts | None:
        """The facts of a key, or None where the pattern does not match all of it."""
        found = self.expression.fullmatch(key)
        if found is None:
            return None
        captured = found.groupdict()
        asset = short_asset(fill(self.asset, captured) if self.asset else captured.get("asset") or key)
        return KeyFacts(
            asset=asset,
            series=fill(self.series, captured) if self.series else asset,
            retention_class=fill(self.retention_class, captured),
            original_key=fill(self.original_key, captured),
            dated_at=stated_date(captured),
        )


def default_facts(key: str) -> KeyFacts:
    """What is known about a key that no rule matches: nothing but the key."""
    asset = short_asset(key)
    return KeyFacts(asset=asset, series=asset, retention_class="", original_key="", dated_at=None)


def short_asset(value: str) -> str:
    """An asset id of at most 200 bytes: the value itself when short and plain, else a digest of it."""
    if PLAIN_ASSET.fullmatch(value):
        return value
    return "sha256-" + sha256(value.encode()).hexdigest()


def stated_date(captured: Mapping[str, str | None]) -> datetime | None:
    """The UTC instant that the captured year, month, day and hour name; None where there is no such date."""
    year = captured.get("year")
    if not year:
        return None
    month, day, hour = (
        captured.get(name) or default for name, default in (("month", "1"), ("day", "1"), ("hour", "0"))
    )
    try:
        return datetime(int(year), int(month), int(day), int(hour), tzinfo=UTC)
    except ValueError:
        return None  # 2023-02-30: an unknown date, so never eligible


def fill(template: str, captured: Mapping[str, str | None]) -> str:
    """A template with its names replaced by what the pattern captured."""

    def replace(token: re.Match[str]) -> str:
        text = token.group()
        return text[0] if text in {"{{", "}}"} else captured.get(token.group(1)) or ""

    return TOKEN.sub(replace, template)


def compile_rule(rule: RuleSource) -> CompiledRule:
    """Check a rule and compile its pattern. Raises RuleError, which names the field and says what to do."""
    expression, names = compile_pattern(rule.pattern)
    for field in ("asset", "series", "retention_class", "original_key"):
        unknown = template_names(field, getattr(rule, field)) - names
        if unknown:
            raise RuleError(field, f"{{{min(unknown)}}} is not captured by the pattern.")
    derivative = rule.role == "derivative"
    if derivative and not rule.original_key:
        raise RuleError("original_key", "A derivative's rule must say what its original's key is.")
    if not derivative and rule.original_key:
        raise RuleError("original_key", "Only a derivative has an original: leave this empty or change the role.")
    if ("month" in names and "year" not in names) or ("day" in names and "month" not in names):
        raise RuleError("pattern", "A date needs {year}; {month} needs {year}, and {day} needs {month}.")
    return CompiledRule(expression, rule.asset, rule.series, rule.retention_class, rule.original_key)


def compile_pattern(pattern: str) -> tuple[re.Pattern[str], frozenset[str]]:
    """The pattern as a regular expression that runs in linear time, and the names that it captures.

    Each placeholder but the last ends, for good, at the first place where the fixed text behind it follows (an atomic
    group): with backtracking, a hostile key could hold a sync for hours.
    """
    if not pattern:
        raise RuleError("pattern", "Write a pattern; {_*} matches every key.")
    if "\x00" in pattern:
        raise RuleError("pattern", "A key cannot hold NUL, so no pattern may.")
    names: set[str] = set()
    head, stretches, position = "", list[list[str]](), 0
    for token in TOKEN.finditer(pattern):
        literal, position = re.escape(pattern[position : token.start()]), token.end()
        if stretches:
            stretches[-1][1] += literal
        else:
            head += literal
        fixed, open_ended = placeholder(token, names)
        if open_ended and stretches and not stretches[-1][1]:
            raise RuleError("pattern", "Put some text between two placeholders: where one ends would be a guess.")
        if open_ended:
            stretches.append([open_ended, ""])
        elif stretches:
            stretches[-1][1] += fixed
        else:
            head += fixed
    tail = re.escape(pattern[position:])
    if not stretches:
        return re.compile(head + tail), frozenset(names)
    *inner, (last, last_tail) = stretches
    atomic = "".join(f"(?>{body.replace('+', '+?', 1)}{fixed})" for body, fixed in inner)
    return re.compile(f"{head}{atomic}{last}{last_tail}{tail}"), frozenset(names)


def placeholder(token: re.Match[str], names: set[str]) -> tuple[str, str]:
    """One token as (expression of fixed width, "") or ("", open-ended expression); adds its name to `names`."""
    text, name, deep = token.group(), token.group(1), token.group(2)
    if text in {"{{", "}}"}:
        return re.escape(text[0]), ""
    if name is None:
        raise RuleError("pattern", f"The brace at position {token.start() + 1} has no partner; write {{{{ or }}}}.")
    if name in names:
        raise RuleError("pattern", f"{{{name}}} is named twice.")
    if name in DIGITS and deep:
        raise RuleError("pattern", f"{{{name}*}}: a part of a date cannot span folders.")
    body = DIGITS.get(name) or ("(?s:.+)" if deep else "[^/]+")
    if name != "_":
        names.add(name)
        body = f"(?P<{name}>{body})"
    return (body, "") if name in DIGITS else ("", body)


def template_names(field: str, template: str) -> frozenset[str]:
    """The names that a template uses. Raises RuleError on a brace without partner."""
    names = set()
    for token in TOKEN.finditer(template):
        if token.group() in {"{{", "}}"}:
            continue
        if token.group(1) is None or token.group(1) == "_":
            raise RuleError(field, f"{token.group()} at position {token.start() + 1} names nothing that was captured.")
        names.add(token.group(1))
    return frozenset(names)
