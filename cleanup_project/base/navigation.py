"""Navigation by task: what people do here, in the order in which they look for it, whichever application it belongs to."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest
from django.urls import reverse


class Entry(NamedTuple):
    """A page in the navigation. `shows` is the model that it lists: whoever may view that may open it; none: everybody."""

    label: str
    url_name: str
    shows: str = ""


def listed(label: str, model: str) -> Entry:
    """The list of a model's rows."""
    return Entry(label, f"admin:{model.lower().replace('.', '_')}_changelist", model)


TASKS: Final[dict[str, tuple[Entry, ...]]] = {
    "Today": (
        Entry("My work", "my-work"),
        Entry("Dashboard", "dashboard"),
        Entry("Find a command", "find", "ledger.CleanupCommand"),
        listed("Alarms", "base.Alarm"),
    ),
    "Destroy": (
        listed("Runs", "ledger.CleanupRun"),
        listed("Quarantine", "ledger.DeadLetter"),
        listed("Commands", "ledger.CleanupCommand"),
        listed("Erasure requests", "ledger.ErasureRequest"),
        listed("Bulk jobs", "base.BulkJob"),
        listed("Schedule", "ledger.ScheduleSlot"),
        listed("Stop switch", "retention.StopSwitch"),
    ),
    "Keep": (
        listed("Policies", "retention.RetentionPolicy"),
        listed("Revisions", "retention.PolicyRevision"),
        listed("Impact previews", "retention.ImpactPreview"),
        listed("Enforcement", "retention.EnforcementRequest"),
        listed("Legal holds", "retention.LegalHold"),
        listed("Release approvals", "retention.HoldRelease"),
        listed("Retention events", "retention.RetentionEvent"),
        listed("Exemptions", "retention.Disposition"),
    ),
    "Prove": (
        listed("Receipts", "ledger.Receipt"),
        listed("Hold reports", "ledger.HoldReport"),
        listed("Audit record", "base.AuditEvent"),
    ),
    "Catalogue": (
        listed("Object versions", "retention.ObjectVersion"),
        Entry("Unscheduled", "admin:retention_unscheduled", "retention.ObjectVersion"),
        Entry("Past maximum", "admin:retention_past_maximum", "retention.ObjectVersion"),
        listed("Buckets", "retention.Bucket"),
        listed("Key rules", "retention.KeyRule"),
        listed("Syncs", "retention.CatalogueSync"),
        listed("Lifecycle rules", "retention.LifecycleRule"),
        listed("Tenants", "retention.Tenant"),
    ),
    "Notify": (
        listed("Endpoints", "webhooks.Endpoint"),
        listed("Deliveries", "webhooks.Delivery"),
        listed("Events", "webhooks.OutboxEvent"),
    ),
    "Administer": (
        listed("People", "base.User"),
        listed("Roles", "auth.Group"),
        listed("Workers", "base.Heartbeat"),
        Entry("All records", "admin:index"),
    ),
}
# Records that other pages lead to.
BESIDE: Final = (
    "base.BulkItem", "ledger.ManifestItem", "ledger.ManifestPart", "ledger.ItemDisposition", "ledger.SkippedItem",
    "retention.Enforcement", "retention.HoldPrefix", "webhooks.DeliveryAttempt",
)  # fmt: skip
LISTED: Final = (entry.shows for entries in TASKS.values() for entry in entries if entry.shows)
ORDER: Final = tuple(dict.fromkeys((*LISTED, *BESIDE)))
PLACE: Final = {label: place for place, label in enumerate(ORDER)}


class Admin(AdminConfig):
    default_site = "cleanup_project.base.navigation.Site"


class Site(AdminSite):
    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """In our order; Django's own groups of people stand with the people."""
        listed = {each["app_label"]: each for each in super().get_app_list(request, app_label)}
        if "base" in listed and "auth" in listed:
            listed["base"]["models"] += listed.pop("auth")["models"]
        for each in listed.values():
            each["models"].sort(key=place)
        return sorted(listed.values(), key=lambda each: place(each["models"][0]))

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        return super().each_context(request) | {"tasks": tasks(self, request)}


def place(listed: dict[str, Any]) -> int:
    return PLACE.get(listed["model"]._meta.label, len(PLACE))


def tasks(site: AdminSite, request: HttpRequest) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """(task, [(label, address, whether it is the page that is open)]) of what this person may open."""
    if not site.has_permission(request):
        return []
    may_view = {model._meta.label for model, pages in site._registry.items() if pages.has_view_permission(request)}
    shown = {task: list(open_to(may_view, entries)) for task, entries in TASKS.items()}
    addresses = [address for entries in shown.values() for _, address in entries if request.path.startswith(address)]
    here = max(addresses, key=len, default="")
    return [
        (task, [(label, address, address == here) for label, address in entries])
        for task, entries in shown.items()
        if entries
    ]


def open_to(may_view: set[str], entries: tuple[Entry, ...]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        if not entry.shows or entry.shows in may_view:
            yield entry.label, reverse(entry.url_name)
