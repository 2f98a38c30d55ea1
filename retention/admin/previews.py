"""What a draft would change, as tables: its figures, some of the objects, and the fields that differ."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString

from cleanup_project.base import display
from cleanup_project.base.modeladmin import ReadOnlyAdmin
from retention.models import Bucket, ImpactPreview, ObjectVersion, PolicyRevision
from retention.preview import HORIZONS, SAID

STATES = {"counting": "waiting", "exact": "plain", "overtaken": "ended"}
SIDES = {"today": "Eligible under today's rules", "draft": "Eligible with this draft"}
WORDS = {
    "sooner": "Retention ends sooner than today",
    "later": "Retention ends later than today, or never",
    "newly_held": "Eligible within 90 days by this draft, but held",
    "newly_unscheduled": "Covered today, and by nothing with this draft",
}
SHOWN = 5


@admin.register(ImpactPreview)
class ImpactPreviewAdmin(ReadOnlyAdmin[ImpactPreview]):
    tenant_path = "revision__tenant__code"
    none_yet = "No draft was previewed: that begins on the page of the draft."
    list_display = ("__str__", "status", "as_of", "requested_by", "finished_at")
    list_select_related = ("revision__policy", "requested_by")
    ordering = ("-id",)
    empty_words = {"finished_at": "not finished"}
    fieldsets = (
        (None, {"fields": ("revision", "status", "as_of", "requested_by", "finished_at", "progress", "counted")}),
        ("Some of the objects", {"fields": ("sooner", "later", "newly_held", "newly_unscheduled")}),
        ("What it was counted for", {"fields": ("digest",)}),
    )

    def live(self, obj: ImpactPreview) -> bool:
        return obj.state == ImpactPreview.State.COUNTING

    @admin.display(description="state")
    def status(self, obj: ImpactPreview) -> SafeString:
        return display.pill(obj.get_state_display(), STATES[obj.state])

    @admin.display(description="rows read")
    def progress(self, obj: ImpactPreview) -> str:
        return f"{obj.read:,} of about {max(obj.expected, obj.read):,}"

    @admin.display(description="figures")
    def counted(self, obj: ImpactPreview) -> SafeString:
        return figures_of(obj)

    @admin.display(description="sooner")
    def sooner(self, obj: ImpactPreview) -> SafeString | str:
        return sample_table(obj, "sooner")

    @admin.display(description="later")
    def later(self, obj: ImpactPreview) -> SafeString | str:
        return sample_table(obj, "later")

    @admin.display(description="newly held")
    def newly_held(self, obj: ImpactPreview) -> SafeString | str:
        return sample_table(obj, "newly_held")

    @admin.display(description="newly unscheduled")
    def newly_unscheduled(self, obj: ImpactPreview) -> SafeString | str:
        return sample_table(obj, "newly_unscheduled")


def impact_of(revision: PolicyRevision) -> SafeString:
    """The newest previews of a draft, the first with its figures."""
    newest = list(revision.previews.order_by("-id")[:SHOWN])
    if not newest:
        return format_html("<p>{}</p>", "None yet. Publishing needs an exact one of exactly this draft.")
    rows = [(display.link(each), display.pill(each.get_state_display(), STATES[each.state])) for each in newest]
    return format_html("{}{}", figures_of(newest[0]), display.table(("Preview", "State"), rows))


def figures_of(preview: ImpactPreview) -> SafeString:
    """Exact figures once there are any; until then the estimate, and what it stands on."""
    exact = preview.state == ImpactPreview.State.EXACT
    figures = preview.figures if exact or not preview.estimate else preview.estimate
    about = "" if exact else "about "
    headings = ("", *("now" if not ahead else f"in {ahead.days} days" for ahead in HORIZONS))
    eligible = display.table(
        headings, ((words, *(told(about, each) for each in figures[side])) for side, words in SIDES.items())
    )
    differences = display.table((), ((words, told(about, figures[name])) for name, words in WORDS.items()))
    return format_html('{}{}<p class="quiet">{}</p>', eligible, differences, standing_of(preview))


def standing_of(preview: ImpactPreview) -> str:
    """How far the figures can be trusted."""
    if preview.state == ImpactPreview.State.EXACT:
        return "Counted exactly. Bytes include the derivatives that would go along."
    if preview.state == ImpactPreview.State.OVERTAKEN:
        return (
            "Overtaken: the draft, or what is published beside it, changed before this was counted. Preview it again."
        )
    if preview.sampled is None:
        return f"Counted so far: {preview.read:,} of about {preview.expected:,} rows."
    return (
        f"An estimate from a sample that met {preview.sampled:,} objects of the scope; the exact figures are being counted: "
        f"{preview.read:,} of about {max(preview.expected, preview.read):,} rows read."
    )


def told(about: str, pair: Sequence[int]) -> SafeString:
    items, size = pair
    return format_html("{}{}, {}", about, display.counted(items, "object"), display.size(size))


def sample_table(preview: ImpactPreview, difference: str) -> SafeString | str:
    found = preview.samples.get(difference, [])
    if not found:
        return display.NOTHING
    shown = display.table(("Key", "Version", "Bucket", "Ends today", "Ends with this draft"), sample_rows(found))
    return display.cut(shown, preview.figures[difference][0] - len(found), "objects")


def sample_rows(found: Iterable[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    found = list(found)
    buckets = dict(Bucket.objects.filter(pk__in={each["bucket"] for each in found}).values_list("pk", "name"))
    present = ObjectVersion.objects.in_bulk([each["id"] for each in found])
    for each in found:
        row = present.get(each["id"])
        key = (
            format_html('<a href="{}">{}</a>', display.change_url(row), display.exact(each["key"]))
            if row
            else each["key"]
        )
        yield (
            key,
            display.exact(each["version_id"]),
            buckets[each["bucket"]],
            ending(each["today"]),
            ending(each["draft"]),
        )


def ending(stated: str | None) -> SafeString | str:
    return display.moment(datetime.fromisoformat(stated)) if stated else "no end known"


def changes_of(revision: PolicyRevision) -> SafeString | str:
    """Field by field, where a draft differs from the newest published revision of its policy."""
    published = revision.policy.revisions.filter(published_at__isnull=False).order_by("-number").first()
    if published is None:
        return "The first revision of its policy: all that it covers comes under retention by it."
    fields = [field for field in PolicyRevision._meta.concrete_fields if field.name in SAID]
    differing = [field for field in fields if getattr(published, field.attname) != getattr(revision, field.attname)]
    if not differing:
        return f"Nothing: it says what {published} says."
    return display.table(
        ("Field", str(published), str(revision)),
        ((field.verbose_name, shown(field, published), shown(field, revision)) for field in differing),
    )


def shown(field: Any, revision: PolicyRevision) -> Any:
    value = getattr(revision, field.attname)
    if field.choices:
        return getattr(revision, f"get_{field.name}_display")()
    present = display.presentation(field)
    return display.NOTHING if value is None or value == "" else present(value) if present else value
