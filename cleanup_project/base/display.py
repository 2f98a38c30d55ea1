"""How values are shown to people: exact, unambiguous, in UTC.

Object keys may hold anything but NUL: control characters, line breaks, marks that reverse the direction of writing,
nothing but blanks. What is shown must tell any two of them apart, and must not be able to disguise itself.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sized
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

NOTHING: Final = "-"
SIZES: Final = frozenset({"bytes", "size", "cap_bytes"})
DIGEST_SHOWN: Final = 12
UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
# Printable by their category, and yet nothing to see: joiners, fillers, variation selectors, the empty Braille cell.
INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
# What nobody can miss or mistake: printable ASCII but the backslash, blanks one by one and inside.
PLAIN: Final = re.compile(r"[!-\[\]-~]+(?: [!-\[\]-~]+)*")
SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def visible(text: str) -> str:
    """The text with everything escaped that a reader could miss or mistake; different texts stay different.

    Escaped are control and format characters, invisible letters and marks, blanks at either end or in a row, blanks
    other than U+0020, the backslash, and what looks like another, composed character.
    """
    if PLAIN.fullmatch(text):
        return text
    composed = unicodedata.normalize("NFC", text)
    shown = []
    for index, character in enumerate(text):
        mark = unicodedata.category(character).startswith("M")
        hidden = (
            not character.isprintable()
            or character == "\\"
            or INVISIBLE.match(character)
            or (character == " " and (index in {0, len(text) - 1} or text[index - 1] == " "))
            or (mark and index == 0)
            or (text != composed and (mark or not (character.isascii() or character in composed)))
        )
        shown.append(escaped(character) if hidden else character)
    return "".join(shown)


def escaped(character: str) -> str:
    point = ord(character)
    if character in SHORT:
        return SHORT[character]
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def exact(text: str) -> SafeString:
    """A key or another text that came from outside, character by character in the order in which it is stored."""
    return format_html('<code class="exact"><bdo dir="ltr">{}</bdo></code>', visible(text))


def moment(value: datetime) -> SafeString:
    utc = value.astimezone(UTC)
    stamp = utc.isoformat().removesuffix("+00:00") + "Z"
    return format_html('<time datetime="{}">{}</time>', stamp, f"{utc:%Y-%m-%d %H:%M:%S} UTC")


def duration(value: timedelta) -> str:
    """How long something took or has waited, in the two largest units that matter."""
    seconds = value.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), value.days
    if hours == 0:
        return f"{minutes} min"
    return f"{hours} h {minutes % 60} min" if days == 0 else f"{days} d {hours % 24} h"


def age(since: datetime, now: datetime) -> str:
    """How long ago, as of `now`; by the hosts' own clocks it may seem to lie ahead."""
    return duration(max(now - since, timedelta()))


def size(number: int) -> SafeString:
    return format_html('<data value="{}" title="{} bytes">{}</data>', number, f"{number:,}", human_size(number))


def human_size(number: int) -> str:
    value, unit = float(number), "bytes"
    for larger in UNITS:
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{number:,} bytes" if unit == "bytes" else f"{value:,.1f} {unit}"


def link(row: models.Model) -> SafeString:
    """To the row's own page in the admin."""
    return format_html('<a href="{}">{}</a>', change_url(row), named(row))


def named(row: models.Model) -> str:
    return visible(str(row))


def change_url(row: models.Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])


def number(value: int) -> str:
    return f"{value:,}"


def counted(value: int, one: str, many: str = "") -> str:
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def count(items: Sized, one: str, many: str = "") -> str:
    return counted(len(items), one, many)


def bullets(items: Iterable[Any]) -> SafeString:
    return format_html('<ul class="plain">{}</ul>', format_html_join("", "<li>{}</li>", ((item,) for item in items)))


def table(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> SafeString:
    head = format_html_join("", '<th scope="col">{}</th>', ((heading,) for heading in headings))
    return format_html(
        '<div class="scroll"><table class="facts">{}<tbody>{}</tbody></table></div>',
        format_html("<thead><tr>{}</tr></thead>", head) if head else "",
        format_html_join("", "<tr>{}</tr>", ((cells(row),) for row in rows)),
    )


def cells(row: Iterable[Any]) -> SafeString:
    return format_html_join("", "<td>{}</td>", ((NOTHING if cell is None else cell,) for cell in row))


def structure(value: Any) -> SafeString:
    """JSON, indented; its strings are shown as JSON writes them, with everything beyond ASCII escaped."""
    return format_html('<pre class="json">{}</pre>', json.dumps(value, indent=2, sort_keys=True))


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> SafeString | str:
    """What an act changed, value by value; where only one side is known, that side."""
    sides = [(words, values) for words, values in (("Before", before), ("After", after)) if values]
    if not sides:
        return NOTHING
    names = [name for name in sorted({*before, *after}) if len(sides) == 1 or before.get(name) != after.get(name)]
    rows = ((name.replace("_", " "), *(plainly(values.get(name)) for _words, values in sides)) for name in names)
    return table(("What", *(words for words, _values in sides)), rows)


def plainly(value: Any) -> SafeString | str | None:
    """A value out of JSON."""
    if isinstance(value, dict):
        return table((), ((name.replace("_", " "), exact(json.dumps(each))) for name, each in sorted(value.items())))
    if isinstance(value, list):
        shown = (exact(each if isinstance(each, str) else json.dumps(each)) for each in value)
        return bullets(shown) if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value in (None, ""):
        return None
    return exact(value) if isinstance(value, str) else f"{value:,}"


def presentation(field: models.Field[Any, Any]) -> Callable[[Any], Any] | None:
    """How values of a model field are shown, where Django's own way would not do."""
    if isinstance(field, models.ForeignKey):
        # Most roles may not see the pages of people, where a link would lead them.
        return named if issubclass(field.related_model, AbstractBaseUser) else link
    if isinstance(field, models.ManyToManyField):
        return lambda rows: bullets(named(row) for row in rows.all())
    if isinstance(field, models.DateTimeField):
        return moment
    if isinstance(field, models.BooleanField):
        return lambda value: "yes" if value else "no"  # Django's red cross says that something is wrong
    if isinstance(field, models.BinaryField):
        return lambda value: exact(bytes(value).hex())
    if isinstance(field, models.JSONField):
        return structure
    if isinstance(field, ArrayField):
        return lambda values: bullets(exact(str(value)) for value in values) if values else NOTHING
    if field.name in SIZES:
        return size
    if isinstance(field, models.IntegerField) and not field.primary_key:
        return number
    # Bytes that came from outside are stored under the collation C.
    return exact if getattr(field, "db_collation", None) == "C" else None


@cache  # the admin compares columns by identity
def column(
    field: models.Field[Any, Any], empty: str = NOTHING, linked: bool = True
) -> str | Callable[[models.Model], Any]:
    """The field as an admin column: its name where Django shows it well, else a callable.

    Not `linked`: another row is named, and not linked to, since the whole cell is a link already.
    """
    show = named if isinstance(field, models.ForeignKey) and not linked else presentation(field)
    if show is None:
        return field.name

    def shown(row: models.Model) -> Any:
        value = getattr(row, field.name)
        return empty if value is None or value == "" else show(value)

    shown.__name__ = field.name  # by this the admin finds label and help text
    shown.short_description = field.verbose_name  # type: ignore[attr-defined]
    shown.admin_order_field = field.name  # type: ignore[attr-defined]
    return shown


def lines(first: Any, *rest: Any) -> SafeString:
    """A cell of several lines, of which the first is what people look for."""
    below = format_html_join("", '<div class="quiet">{}</div>', ((each,) for each in rest if each))
    return format_html("{}{}", first, below)


def helped(words: str, meaning: str) -> SafeString:
    """A column's heading, with what its values mean."""
    return format_html('<abbr title="{}">{}</abbr>', meaning, words)


def pill(words: str, kind: str = "plain") -> SafeString:
    """A state in one look; `kind` is plain, waiting (for a person), overdue or ended."""
    return format_html('<span class="pill {}">{}</span>', kind, words)


def cut(shown: SafeString, left_out: int, what: str) -> SafeString:
    """What is shown of a long list, and how much is not."""
    return (
        shown if left_out <= 0 else format_html('{}<p class="quiet">and {} more {}</p>', shown, f"{left_out:,}", what)
    )


def abbreviated(hexadecimal: str) -> SafeString:
    """A digest in a list: enough to compare by eye, the whole on pointing at it."""
    return format_html('<code class="exact" title="{}">{}…</code>', hexadecimal, hexadecimal[:DIGEST_SHOWN])
