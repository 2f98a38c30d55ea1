"""What of webhooks waits for people: endpoints that are disabled, and deliveries that were given up."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from django.db.models import Count, Min, QuerySet
from django.urls import reverse

from cleanup_project.base import display, waiting
from cleanup_project.base.modeladmin import list_url
from cleanup_project.base.models import User
from cleanup_project.base.tenancy import scoped
from cleanup_project.base.waiting import Item, Kind, Requests, Waiting
from webhooks.models import Delivery, Endpoint
from webhooks.redelivery import Chosen

LOOKED_AT: Final = 1000  # of the newest deliveries that were given up: those that were sent again stay among them


def endpoint_item(endpoint: Endpoint) -> Item:
    assert endpoint.disabled_at is not None
    by = str(endpoint.disabled_by or "the rules")
    words = f"{endpoint.name}: {endpoint.disabled_reason}"
    return Item(words, display.change_url(endpoint), endpoint.disabled_at, endpoint.tenant, by)


DISABLED: Final = Requests(
    code="endpoints", label="Disabled endpoints", right="operate", within=timedelta(hours=24),
    because="Nothing is delivered to it while its deliveries pile up; they wait, and none is lost.",
    address=lambda: list_url(Endpoint, "?disabled_at__isnull=False&retired_at__isnull=True"),
    rows=lambda: Endpoint.objects.filter(disabled_at__isnull=False, retired_at=None).select_related("disabled_by"),
    since="disabled_at", tenant="tenant", item=endpoint_item,
)  # fmt: skip

DEAD: Final = Kind(
    code="deliveries", label="Deliveries that were given up", right="operate", within=timedelta(hours=24),
    because="Every attempt of three days has failed: the receiver does not know of it, and nobody tells it by itself.",
    # The list has those that were sent again since as well; the page that sends again counts what has not been.
    address=lambda: f"{reverse('admin:webhooks_delivery_bulk')}?state={Delivery.State.DEAD}", grouped=True,
)  # fmt: skip


def newest(user: User) -> QuerySet[Delivery]:
    """Of this person's tenants, whether or not it was sent again since."""
    return scoped(Delivery.objects.filter(state=Delivery.State.DEAD), user, "tenant").order_by("-id")


def given_up(user: User, listed: int) -> Iterator[Waiting]:
    """One item for each endpoint. What was sent again since waits no more."""
    if not user.has_perm("base.operate"):
        return
    looked_at = list(newest(user).values_list("pk", flat=True)[: LOOKED_AT + 1])
    dead = Chosen(state=Delivery.State.DEAD).rows().filter(pk__in=looked_at, endpoint__retired_at=None)
    grouped = dead.order_by().values("endpoint", "endpoint__name", "tenant")
    found = list(grouped.annotate(number=Count("pk"), since=Min("finished_at")).order_by("since"))
    items = [
        Item(
            each["endpoint__name"],
            list_url(Delivery, f"?state__exact=dead&endpoint={each['endpoint']}"),
            each["since"],
            each["tenant"],
            number=each["number"],
        )
        for each in found
    ]
    if items:
        number = sum(each.number for each in items)
        yield Waiting(DEAD, min(number, LOOKED_AT), items[0].since, items[:listed], len(looked_at) > LOOKED_AT)


waiting.register_requests(DISABLED)
waiting.register(given_up)
