"""Every registered model, every role: who sees the list and the item, and that nobody changes what the machine owns."""

from collections.abc import Callable
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from cleanup_project.base import alarms, clock, navigation, roles
from cleanup_project.base.modeladmin import ReadOnlyAdmin, SettingsAdmin
from cleanup_project.base.models import Alarm, BulkItem, BulkJob, Heartbeat, User
from ledger import erasure, inflight, quarantine, stops
from ledger.models import (
    Attempt,
    CommandSummary,
    CommandTarget,
    DeadLetter,
    Decision,
    ErasureTarget,
    Incident,
    InFlight,
    ItemDisposition,
    OutcomeTally,
    Pace,
    ReceiptLocator,
    Request,
    RunTally,
    ScheduleSlot,
    SkippedItem,
    StopReport,
    TenantSalt,
    Turn,
)
from retention import control, dispositions, lifecycle, releases
from retention.models import CatalogueSync, Control, KeyRule
from retention.storage import LifecycleRule
from tests import world
from tests.ledger.acting import build
from tests.ledger.parking import dead
from tests.web import quick_pages, url  # noqa: F401
from webhooks import endpoints, redelivery
from webhooks.models import Delivery, DeliveryAttempt, DetailedBody, EndpointSecret, Lane, Ping
from webhooks.redelivery import Chosen

REGISTERED = sorted(admin.site._registry, key=lambda model: model._meta.label)
PEOPLE = (User, Group)


# What other pages show of these is enough: rows of a command's or a receipt's page, and what workers keep for themselves.
WITHOUT_PAGES = {
    Attempt, CommandSummary, CommandTarget, Control, Decision, DetailedBody, EndpointSecret, ErasureTarget, Incident,
    InFlight, Lane, OutcomeTally, Pace, Ping, ReceiptLocator, Request, RunTally, StopReport, TenantSalt, Turn,
}  # fmt: skip


@pytest.fixture
def everything(db: None) -> None:
    """At least one row of every registered model: a command that went through quarantine and left a receipt, among others."""
    acting = build()
    endpoint, _secret = endpoints.create(
        tenant="acme", name="archive", url="https://archive.example/", event_types=["media.deleted"],
        by=acting.people["operator"],
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
    world.event(acting.tenant, acting.bucket, "ended/", by=acting.people["manager"])
    dispositions.exempt(
        [world.version(acting.bucket, acting.tenant, "kept").pk], by=acting.people["manager"], reason="R"
    )
    held = world.hold(acting.tenant, acting.bucket, "held/", by=acting.people["compliance"])
    inflight.placed(held.pk)
    releases.request(hold=held, by=acting.people["compliance"], reason="Settled.")
    stops.pressed(control.press(scope="everything", by=acting.people["operator"], reason="Look first.").pk)


def may_view(model: type[Model], role: str) -> bool:
    if model is Alarm:
        return True
    if model in (BulkJob, BulkItem) and "operate" in roles.MATRIX[role]:
        return True
    if model in PEOPLE:
        return bool(roles.MATRIX[role] & {"manage_settings", "read_everything"})
    reads = roles.READS[role]
    return reads is None or model._meta.app_label in reads


def first(model: type[Model]) -> Model:
    row = model._default_manager.first()
    assert row is not None, f"the fixture `everything` makes no {model._meta.label}"
    return row


@pytest.mark.parametrize("role", sorted(roles.MATRIX))
def test_each_role_sees_the_lists_and_items_that_it_may_see(
    role: str, everything: None, person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("someone", role))
    for model in REGISTERED:
        expected = 200 if may_view(model, role) else 403
        row = first(model)
        for address in (url(model, "changelist"), url(model, "change", row.pk), url(model, "history", row.pk)):
            assert client.get(address).status_code == expected, (role, address)
    shown = client.get(reverse("admin:index")).content.decode()
    for model in REGISTERED:
        assert (url(model, "changelist") in shown) == may_view(model, role), (role, model)


def test_no_page_links_to_people_whom_its_reader_may_not_look_up(
    everything: None, person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("someone", roles.RETENTION_MANAGER))
    for model in REGISTERED:
        if may_view(model, roles.RETENTION_MANAGER):
            for address in (url(model, "changelist"), url(model, "change", first(model).pk)):
                assert "/admin/base/user/" not in client.get(address).content.decode(), address


def test_a_superuser_reads_everything(everything: None, person: Callable[..., User], client: Client) -> None:
    client.force_login(person("root", is_superuser=True))
    for model in REGISTERED:
        assert client.get(url(model, "changelist")).status_code == 200
        assert client.get(url(model, "change", first(model).pk)).status_code == 200


def test_the_right_to_read_everything_is_enough(everything: None, person: Callable[..., User], client: Client) -> None:
    reader = person("reader", roles.AUDITOR)
    Group.objects.get(name=roles.AUDITOR).permissions.filter(codename__startswith="view_").delete()
    client.force_login(reader)
    for model in REGISTERED:
        assert client.get(url(model, "changelist")).status_code == 200


def test_without_a_role_or_a_login_there_is_nothing_to_see(
    everything: None, person: Callable[..., User], client: Client
) -> None:
    for model in REGISTERED:
        assert client.get(url(model, "changelist")).status_code == 302
    client.force_login(person("nobody"))
    for model in REGISTERED:
        assert client.get(url(model, "changelist")).status_code == 403


@pytest.mark.parametrize("role", sorted(roles.MATRIX))
def test_nobody_deletes_and_machine_rows_refuse_every_post(
    role: str, everything: None, person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("someone", role))
    for model, model_admin in admin.site._registry.items():
        row = first(model)
        assert client.post(url(model, "delete", row.pk), {"post": "yes"}).status_code == 403, model
        selected = {"action": "delete_selected", "_selected_action": [row.pk]}
        client.post(url(model, "changelist"), selected)
        assert model._default_manager.filter(pk=row.pk).exists(), model
        if not isinstance(model_admin, SettingsAdmin):
            assert client.post(url(model, "change", row.pk), {"state": "closed"}).status_code == 403, model


def test_machine_rows_cannot_be_added(everything: None, person: Callable[..., User], client: Client) -> None:
    """Where an add page exists at all, it is the form of a verb, which asks for its own right."""
    client.force_login(person("root", is_superuser=True))
    for model, model_admin in admin.site._registry.items():
        if isinstance(model_admin, ReadOnlyAdmin):
            assert client.get(url(model, "add")).status_code == 403, model
            assert client.post(url(model, "add"), {}).status_code == 403, model


def test_every_page_has_its_place_in_the_navigation() -> None:
    assert set(navigation.ORDER) == {model._meta.label for model in REGISTERED}


def test_all_records_stand_in_the_order_of_the_tasks_with_roles_beside_people(
    person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("auditor", roles.AUDITOR))
    listed = client.get(reverse("admin:index")).context["app_list"]
    assert {app["app_label"] for app in listed} == {"base", "ledger", "retention", "webhooks"}
    for app in listed:
        places = [navigation.ORDER.index(each["model"]._meta.label) for each in app["models"]]
        assert places == sorted(places)


def test_the_navigation_holds_what_the_person_may_open_and_marks_where_they_are(
    person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("someone", roles.OPERATOR))
    tasks = dict(client.get(url(DeadLetter, "changelist")).context["tasks"])
    assert [label for label, _address, here in tasks["Destroy"] if here] == ["Quarantine"]
    assert "Endpoints" in {label for label, _address, _here in tasks["Notify"]}
    assert "People" not in {label for entries in tasks.values() for label, _address, _here in entries}


def test_an_empty_list_says_what_that_means(person: Callable[..., User], client: Client) -> None:
    client.force_login(person("auditor", roles.AUDITOR))
    assert "Nothing is wrong that the system knows of." in client.get(url(Alarm, "changelist")).content.decode()
    searched = client.get(url(Alarm, "changelist"), {"q": "none.such"}).content.decode()
    assert "Nothing matches" in searched
    assert "Nothing is wrong" not in searched


def test_every_model_of_our_applications_is_registered() -> None:
    unseen = {
        model
        for label in ("base", "retention", "ledger", "webhooks")
        for model in apps.get_app_config(label).get_models()
        if model._meta.managed and model not in admin.site._registry
    }
    assert unseen == WITHOUT_PAGES
