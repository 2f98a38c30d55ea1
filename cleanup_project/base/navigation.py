"""Navigation by task: what people do here, in the order in which they look for it, whichever application it belongs to."""

from typing import Any, Final, NamedTuple

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from cleanup_project.base.lists import ABOUT


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
        Entry("Find", "find", "ledger.CleanupCommand"),
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
        listed("Where enforced", "retention.Enforcement"),
        listed("Enforcement requests", "retention.EnforcementRequest"),
        listed("Legal holds", "retention.LegalHold"),
        listed("Release approvals", "retention.HoldRelease"),
        listed("Retention events", "retention.RetentionEvent"),
        listed("Exemptions", "retention.Disposition"),
    ),
    "Prove": (
        listed("Receipts", "ledger.Receipt"),
        listed("Exports", "ledger.ReceiptExport"),
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
        listed("API tokens", "base.ApiToken"),
        listed("Workers", "base.Heartbeat"),
        Entry("All records", "admin:index"),
    ),
}
# Records that other pages lead to, by the list from which they do.
BESIDE: Final[dict[str, tuple[Entry, ...]]] = {
    "base.BulkJob": (listed("Items", "base.BulkItem"),),
    "ledger.CleanupRun": (
        listed("Manifest items", "ledger.ManifestItem"),
        listed("Manifest parts", "ledger.ManifestPart"),
        listed("Item decisions", "ledger.ItemDisposition"),
        listed("Skipped items", "ledger.SkippedItem"),
    ),
    "retention.LegalHold": (listed("Hold prefixes", "retention.HoldPrefix"),),
    "webhooks.Delivery": (listed("Attempts", "webhooks.DeliveryAttempt"),),
}


class Place(NamedTuple):
    """Where a page stands: its task, the list in the navigation that leads to it, and the page itself, often the same."""

    task: str
    entry: Entry
    page: Entry


PLACES: Final = tuple(
    Place(task, entry, page)
    for task, entries in TASKS.items()
    for entry in entries
    for page in (entry, *BESIDE.get(entry.shows, ()))
)
# By the label of the model that they list.
LISTS: Final = {each.page.shows: each for each in PLACES if each.page == listed(each.page.label, each.page.shows)}


class Admin(AdminConfig):
    default_site = "cleanup_project.base.navigation.Site"


class Site(AdminSite):
    """Whoever decides shows a second factor first. What lets people in needs models, and is imported late."""

    enable_nav_sidebar = False  # ours is by task

    def has_permission(self, request: HttpRequest) -> bool:
        from cleanup_project.base.signin import factors

        return super().has_permission(request) and not factors.missing(request)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Where the admin sends whoever may not come in: on to what they lack."""
        from cleanup_project.base.signin import entrance

        return entrance.lead(request, self.has_permission(request))

    def logout(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:  # type: ignore[override]
        from allauth.account.views import logout

        answer: HttpResponse = logout(request)
        return answer

    def password_change(  # type: ignore[override]
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return redirect("account_change_password")

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        return super().each_context(request) | {"tasks": tasks(self, request)}

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        return super().index(request, {"records": records(self, request)} | (extra_context or {}))

    def app_index(  # type: ignore[override]
        self, request: HttpRequest, app_label: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """People look for a task; which application it belongs to is of no interest to them."""
        return HttpResponseRedirect(reverse("admin:index"))


def viewable(site: AdminSite, request: HttpRequest) -> set[str]:
    """The labels of the models that this person may view."""
    return {model._meta.label for model, pages in site._registry.items() if pages.has_view_permission(request)}


def tasks(site: AdminSite, request: HttpRequest) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """(task, [(label, address, whether it leads to the page that is open)]) of what this person may open."""
    if not site.has_permission(request):
        return []
    may_view, here = viewable(site, request), place_of(request)
    shown = {
        task: [
            (entry.label, reverse(entry.url_name), here is not None and here.entry == entry)
            for entry in entries
            if not entry.shows or entry.shows in may_view
        ]
        for task, entries in TASKS.items()
    }
    return [(task, entries) for task, entries in shown.items() if entries]


def records(site: AdminSite, request: HttpRequest) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """(task, [(label, address, what a row is)]) of every list that this person may open."""
    may_view = viewable(site, request)
    found: dict[str, list[tuple[str, str, str]]] = {}
    for label, place in LISTS.items():
        if label in may_view:
            found.setdefault(place.task, []).append((place.page.label, reverse(place.page.url_name), ABOUT[label]))
    return list(found.items())


def place_of(request: HttpRequest) -> Place | None:
    """Where the page that was asked for stands: a page of its own, or a list, or what was opened from one."""
    name = request.resolver_match.view_name if request.resolver_match else ""
    own = (place for place in PLACES if place.page.url_name == name)
    of_list = (place for place in LISTS.values() if name.startswith(place.page.url_name.removesuffix("changelist")))
    return next(own, None) or next(of_list, None)
