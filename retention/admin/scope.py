"""A scope in forms and on pages: buckets by name, prefixes and classes one a line, exactly as written."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.verbpages import Fieldsets
from retention.models import ANY_CLASS, Bucket, ObjectVersion, Scoped
from retention.prefixes import successor

SIBLINGS_SHOWN = 6
PREFIXES_HELP = (
    "One a line, exactly as written: blanks count, there are no wildcards. Write <code>&quot;&quot;</code> for the whole "
    "bucket. End a folder with <code>/</code>: <code>photos</code> also covers <code>photos-old/</code>. A line that "
    "begins with a quotation mark is read as a JSON string, so that any character can be written."
)
CLASSES_HELP = "One a line, exactly as written. <code>*</code> is any class, <code>&quot;&quot;</code> is unclassified."


class LinesField(forms.Field):
    """A list of texts, one a line. An empty line says nothing; `""` is the empty text."""

    widget = forms.Textarea(attrs={"rows": 5, "cols": 80, "spellcheck": "false", "class": "exact"})

    def to_python(self, value: Any) -> list[str]:
        lines = str(value or "").replace("\r\n", "\n").split("\n")
        return list(dict.fromkeys(read_line(number, line) for number, line in enumerate(lines, 1) if line))

    def prepare_value(self, value: Any) -> Any:
        return value if value is None or isinstance(value, str) else "\n".join(map(write_line, value))


def read_line(number: int, line: str) -> str:
    if not line.startswith('"'):
        return line
    try:
        text = json.loads(line)
        text.encode()
    except (ValueError, AttributeError) as error:
        raise ValidationError(
            f'Line {number} begins with a quotation mark and is not a JSON string such as "" or "a\\u0020".'
        ) from error
    return str(text)


def write_line(text: str) -> str:
    plain = text and not text.startswith('"') and display.visible(text) == text
    return text if plain else json.dumps(text)


class BucketsField(forms.ModelMultipleChoiceField[Bucket]):
    widget = forms.CheckboxSelectMultiple

    def __init__(self, **options: Any) -> None:
        super().__init__(Bucket.objects.order_by("name", "endpoint_url"), **options)

    def label_from_instance(self, obj: Any) -> str:
        return f"{obj.name} at {obj.endpoint_url}" if obj.endpoint_url else str(obj.name)


class ScopeForm(forms.ModelForm[Any]):
    """The three dimensions of a scope that a person writes; the tenant is the fourth."""

    fieldsets: ClassVar[Fieldsets] = ()

    bucket_ids = BucketsField(label="Buckets", error_messages={"required": "Tick at least one bucket."})
    prefixes = LinesField(
        help_text=PREFIXES_HELP, error_messages={"required": 'Write at least one line; "" is the whole bucket.'}
    )
    retention_classes = LinesField(
        label="Retention classes",
        help_text=CLASSES_HELP,
        error_messages={"required": "Write at least one line; * is any class."},
    )

    def clean_bucket_ids(self) -> list[int]:
        return sorted(bucket.pk for bucket in self.cleaned_data["bucket_ids"])

    def _update_errors(self, errors: ValidationError) -> None:
        """What the form refused already, the model need not refuse again."""
        new = {field: found for field, found in errors.error_dict.items() if field not in self.errors}
        if new:
            super()._update_errors(ValidationError(new))  # type: ignore[misc]


class ScopeColumns:
    """The scope of a policy revision or a hold as admin columns."""

    @admin.display(description="buckets")
    def buckets(self, obj: Scoped) -> SafeString:
        names = dict(Bucket.objects.filter(pk__in=obj.bucket_ids).values_list("pk", "name"))
        return display.bullets(names.get(pk, f"bucket {pk}") for pk in obj.bucket_ids)

    @admin.display(description="prefixes")
    def covered_prefixes(self, obj: Scoped) -> SafeString:
        return display.bullets(described_prefix(prefix, obj.bucket_ids, obj.tenant_id) for prefix in obj.prefixes)

    @admin.display(description="retention classes")
    def classes(self, obj: Scoped) -> SafeString:
        return display.bullets(map(described_class, obj.retention_classes))


def described_class(name: str) -> SafeString | str:
    return {ANY_CLASS: "any class", "": "unclassified"}.get(name) or display.exact(name)


def described_prefix(prefix: str, bucket_ids: Sequence[int], tenant_id: int) -> SafeString | str:
    """A prefix; where it does not end a folder, also what it matches of the tenant's, since it may be meant as one."""
    if not prefix:
        return "the whole bucket"
    if prefix.endswith("/"):
        return display.exact(prefix)
    names = sorted({name for name, owner in names_under(prefix, bucket_ids) if owner == tenant_id})
    if not names:
        # Whether other tenants' keys begin with it is not for everybody who reads this.
        words = "nothing of this tenant was found that begins with it"
        return format_html("{} – no / at its end; {}", display.exact(prefix), words)
    shown = format_html_join(", ", "{}", ((display.exact(name),) for name in names[:SIBLINGS_SHOWN]))
    more = " and more" if len(names) > SIBLINGS_SHOWN else ""
    return format_html(
        '{} – <span class="waiting">no / at its end</span>, so it covers {}{}', display.exact(prefix), shown, more
    )


def names_under(prefix: str, bucket_ids: Iterable[int]) -> Iterator[tuple[str, int | None]]:
    """(name, tenant of the first in it): the first folders and objects that begin with the prefix, by skipping along the
    identity index."""
    end = successor(prefix)
    for bucket_id in bucket_ids:
        start: str | None = prefix
        for _ in range(SIBLINGS_SHOWN + 1):
            rows = ObjectVersion.objects.filter(bucket=bucket_id, key__gte=start)
            within = rows.filter(key__lt=end) if end is not None else rows
            first = within.order_by("key").values_list("key", "tenant_id").first()
            if first is None:
                break
            key, owner = first
            folder = key[: key.find("/", len(prefix)) + 1]
            yield folder or key, owner
            start = successor(folder) if folder else key + "\x01"  # no key holds NUL, so nothing is skipped
            if start is None:
                break


def scope_fields(form_fields: Mapping[str, Any]) -> dict[str, Any]:
    """What holds.place wants of a cleaned scope form: buckets as rows."""
    fields = dict(form_fields)
    fields["buckets"] = list(Bucket.objects.filter(pk__in=fields.pop("bucket_ids")))
    return fields
