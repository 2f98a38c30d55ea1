"""What of policies, holds and buckets waits for people."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce
from django.urls import reverse

from cleanup_project.base import display, waiting
from cleanup_project.base.modeladmin import list_url
from cleanup_project.base.models import Alarm, User
from cleanup_project.base.waiting import COUNTED, Item, Kind, Requests, Waiting
from retention import losses, policies
from retention.models import EnforcementRequest, HoldRelease, PolicyRevision, StopSwitch

EVERY: Final = "every tenant"


def release_item(release: HoldRelease) -> Item:
    words = f"{release.hold}. {release.reason}"
    return Item(
        words, display.change_url(release), release.requested_at, release.hold.tenant.code, str(release.requested_by)
    )


RELEASES: Final = Requests(
    code="releases", label="Hold releases to decide", right="approve_release", within=timedelta(hours=72),
    because="Until it is decided, everything that the hold covers is kept, past its retention too: three days at most.",
    address=lambda: list_url(HoldRelease, "?decision__exact="),
    rows=lambda: HoldRelease.objects.open().select_related("hold__tenant", "requested_by"),
    since="requested_at", tenant="hold__tenant__code", item=release_item, asked=lambda user: Q(requested_by=user),
)  # fmt: skip


def submitted() -> QuerySet[PolicyRevision]:
    rows = PolicyRevision.objects.filter(submitted_at__isnull=False, published_at=None)
    return rows.select_related("policy", "tenant", "submitted_by")


def revision_item(revision: PolicyRevision) -> Item:
    assert revision.submitted_at is not None
    words = f"{revision}: {revision.title}"
    by = str(revision.submitted_by)
    return Item(words, display.change_url(revision), revision.submitted_at, revision.tenant.code, by)


def take_another(user: User) -> Q:
    """Those that this person drafted and may not publish: all but what they publish themselves, as it only lengthens."""
    own = Q(author=user) | Q(editor_ids__contains=[user.pk])
    if not user.has_perm("base.publish_policy"):
        return own
    return own & ~Q(pk__in=[each.pk for each in submitted().filter(own) if policies.would_lengthen(each)])


REVISIONS: Final = Requests(
    code="revisions", label="Policy revisions to review and publish", right="publish_policy", within=timedelta(hours=72),
    because="What it says counts from its publication on, and its impact preview grows old: three days at most.",
    address=lambda: list_url(PolicyRevision, "?submitted_at__isnull=False&published_at__isnull=True"),
    rows=submitted, since="submitted_at", tenant="tenant__code", item=revision_item,
    asked=take_another,
)  # fmt: skip


def enforcement_item(request: EnforcementRequest) -> Item:
    words = f"{request.bucket}/{display.visible(request.prefix)}: {request.reason}"
    return Item(
        words, display.change_url(request), request.requested_at, request.tenant.code, str(request.requested_by)
    )


ENFORCEMENT: Final = Requests(
    code="enforcement", label="Enforcement to decide", right="publish_policy", within=timedelta(hours=72),
    because="Until it is decided, runs under this prefix are dry runs and destroy nothing: three days at most.",
    address=lambda: list_url(EnforcementRequest, "?decision__exact="),
    rows=lambda: EnforcementRequest.objects.filter(decision="").select_related("tenant", "bucket", "requested_by"),
    since="requested_at", tenant="tenant__code", item=enforcement_item, asked=lambda user: Q(requested_by=user),
)  # fmt: skip


def pressed() -> QuerySet[StopSwitch]:
    """Those of everything and of a bucket concern every tenant: whoever sees only some may not lift them."""
    rows = StopSwitch.objects.active().select_related("tenant", "bucket", "policy__tenant", "pressed_by")
    return rows.annotate(code=Coalesce("tenant__code", "policy__tenant__code"))


def switch_item(switch: StopSwitch) -> Item:
    tenant = switch.tenant or (switch.policy.tenant if switch.policy else None)
    by = str(switch.pressed_by or "the system")
    code = tenant.code if tenant else EVERY
    return Item(f"{switch}: {switch.reason}", display.change_url(switch), switch.pressed_at, code, by)


STOPS: Final = Requests(
    code="stops", label="Stop switches and tripped buckets to lift", right="rearm", within=timedelta(hours=4),
    because="Nothing that it names is destroyed before, so that what is due grows older.",
    address=lambda: list_url(StopSwitch, "?lifted_at__isnull=True"),
    rows=pressed, since="pressed_at", tenant="code", item=switch_item,
)  # fmt: skip

LOSSES: Final = Kind(
    code="losses", label="Losses to look into", right="review_quarantine", within=timedelta(hours=24),
    because="Somebody else deletes here, or the store keeps what it said was gone: each day may add to it.",
    address=lambda: list_url(Alarm, f"?cleared_at__isnull=True&kind__in={','.join(losses.KINDS)}"),
)  # fmt: skip


def lost(user: User, listed: int) -> Iterator[Waiting]:
    """The alarms that a person ends by saying that they have seen it. Buckets are shared: only who sees all tenants."""
    if not user.has_perm("base.review_quarantine") or user.tenants:
        return
    rows = Alarm.objects.open().filter(kind__in=losses.KINDS).order_by("raised_at", "pk")[: COUNTED + 1]
    found = list(rows)
    if found:
        items = list(map(loss_item, found[:listed]))
        yield Waiting(LOSSES, min(len(found), COUNTED), found[0].raised_at, items, len(found) > COUNTED)


def loss_item(alarm: Alarm) -> Item:
    address = reverse("admin:retention_bucket_seen", args=[alarm.subject_id])
    return Item(f"{alarm.subject_label}: {alarm.message}", address, alarm.raised_at, EVERY, "the system")


for requests in (RELEASES, REVISIONS, ENFORCEMENT, STOPS):
    waiting.register_requests(requests)
waiting.register(lost)
