"""At least one row of every registered model, all of one tenant, for tests that look at every page."""

from uuid import uuid4

from django.contrib import admin
from django.contrib.auth.models import Group
from django.db.models import Model

from cleanup_project.base import alarms, apitokens, clock, roles
from cleanup_project.base.models import Heartbeat, User
from ledger import erasure, inflight, quarantine, stops
from ledger.models import ItemDisposition, ReceiptExport, ScheduleSlot, SkippedItem
from retention import control, dispositions, lifecycle, releases
from retention.models import CatalogueSync, KeyRule
from retention.storage import LifecycleRule
from tests import world
from tests.ledger.acting import Acting, build
from tests.ledger.parking import dead
from webhooks import endpoints, redelivery
from webhooks.models import Delivery, DeliveryAttempt
from webhooks.redelivery import Chosen

REGISTERED = sorted(admin.site._registry, key=lambda model: model._meta.label)


def make() -> Acting:
    """At least one row of every registered model: a command that went through quarantine and left a receipt, among others."""
    acting = build()
    endpoint, _secret = endpoints.create(
        tenant="acme", name="archive", url="https://archive.example/", event_types=["media.deleted"],
        by=acting.people["operator"],
    )  # fmt: skip
    keeper = User.objects.create_user("keeper", is_staff=True)
    keeper.groups.add(Group.objects.get(name=roles.ADMINISTRATOR))
    apitokens.create(
        name="nightly", scopes=["runs:read"], tenants=["acme"], days=30, by=keeper, reason="Reports.",
    )  # fmt: skip
    KeyRule.objects.create(bucket=acting.bucket, position=1, pattern="{_*}")
    acting.store.set_lifecycle(acting.place, LifecycleRule("old", True, noncurrent_days=30))
    lifecycle.observe(acting.bucket, acting.place, acting.store)
    CatalogueSync.objects.create(bucket=acting.bucket)
    Heartbeat.objects.create(host="worker-1", queue="work")
    acting.put("clips/waiting", stored_at=clock.now())
    command = dead(acting)
    run = command.run
    erasure.file(
        tenant=acting.tenant, reference="Letter 17", authority="GDPR, article 17", reason="Asked for.", form="csv",
        data=b"bucket,key\nmedia,clips/waiting\n", by=acting.people["manager"],
    )  # fmt: skip
    alarms.notice("run.counts", run, "They do not add up.")
    ScheduleSlot.objects.create(policy=run.policy, scheduled_for=run.as_of, outcome="opened", run=run)
    SkippedItem.objects.create(run=run, item_id=command.item_id, command_key="other", reason="Taken.")
    ItemDisposition.objects.create(
        run=run, ordinal=99, item_id=command.item_id, kind="exempt", reason="Kept.", by=acting.people["compliance"]
    )
    quarantine.replay(command=command, by=acting.people["operator"], reason="Repaired.")
    acting.drain()
    delivery = Delivery.objects.get()
    DeliveryAttempt.objects.create(delivery=delivery, endpoint=endpoint, number=1, token=1, url=endpoint.url)
    redelivery.redeliver_all(
        chosen=Chosen(state="pending"), expected=1, token=uuid4(), by=acting.people["operator"], reason="Repaired."
    )
    dead(acting, "clips/still-dead")
    ReceiptExport.objects.create(
        token=uuid4(), form="people", way="sent", selection={}, upto=1, expected=1, tenants=["acme"]
    )
    world.event(acting.tenant, acting.bucket, "ended/", by=acting.people["manager"])
    dispositions.exempt(
        [world.version(acting.bucket, acting.tenant, "kept").pk], by=acting.people["manager"], reason="R"
    )
    held = world.hold(acting.tenant, acting.bucket, "held/", by=acting.people["compliance"])
    inflight.placed(held.pk)
    releases.request(hold=held, by=acting.people["compliance"], reason="Settled.")
    stops.pressed(control.press(scope="everything", by=acting.people["operator"], reason="Look first.").pk)
    return acting


def first(model: type[Model]) -> Model:
    row = model._default_manager.first()
    assert row is not None, f"`everything.make` makes no {model._meta.label}"
    return row
