"""The order in which the admin lists its pages: first what somebody looks for at night, then along the path of the data."""

from typing import Any, Final

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest

ORDER: Final = (
    "base.Alarm", "base.BulkJob", "base.BulkItem", "base.Heartbeat", "base.AuditEvent", "base.User", "auth.Group",
    "ledger.CleanupRun", "ledger.DeadLetter", "ledger.CleanupCommand", "ledger.Receipt", "ledger.ErasureRequest",
    "ledger.HoldReport", "ledger.ManifestItem", "ledger.ManifestPart", "ledger.ItemDisposition", "ledger.SkippedItem",
    "ledger.ScheduleSlot",
    "retention.StopSwitch", "retention.RetentionPolicy", "retention.PolicyRevision", "retention.ImpactPreview",
    "retention.EnforcementRequest", "retention.Enforcement", "retention.LegalHold", "retention.HoldRelease",
    "retention.HoldPrefix", "retention.RetentionEvent", "retention.Disposition", "retention.ObjectVersion",
    "retention.Tenant", "retention.Bucket", "retention.KeyRule", "retention.CatalogueSync", "retention.LifecycleRule",
    "webhooks.Endpoint", "webhooks.Delivery", "webhooks.DeliveryAttempt", "webhooks.OutboxEvent",
)  # fmt: skip
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


def place(listed: dict[str, Any]) -> int:
    return PLACE.get(listed["model"]._meta.label, len(PLACE))
