"""What holds on the pages of every registered model; who may open which: tests/operations/test_permission_matrix.py."""

import re
from collections.abc import Callable

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from cleanup_project.base import lists, navigation, roles
from cleanup_project.base.modeladmin import ReadOnlyAdmin, SettingsAdmin
from cleanup_project.base.models import Alarm, ApiToken, ApiUse, Rollup, RollupMark, RollupTotal, Session, User
from ledger.models import (
    Attempt,
    Certificate,
    CommandSummary,
    CommandTarget,
    DeadLetter,
    Decision,
    ErasureTarget,
    Incident,
    InFlight,
    ManifestComparison,
    ManifestDifference,
    ManifestItem,
    ManifestReview,
    OutcomeTally,
    Pace,
    ReceiptExportPart,
    ReceiptLocator,
    Request,
    RunTally,
    StopReport,
    TenantSalt,
    Turn,
)
from retention.models import Control
from tests.everything import REGISTERED, first, make
from tests.web import quick_pages, url  # noqa: F401
from webhooks.models import DetailedBody, EndpointSecret, Lane, Ping

PEOPLE = (User, Group)


# What other pages show of these is enough: rows of a command's or a receipt's page, and what workers keep for themselves.
WITHOUT_PAGES = {
    ApiUse, Attempt, Certificate, CommandSummary, CommandTarget, Control, Decision, DetailedBody, EndpointSecret,
    ErasureTarget, InFlight, Incident, Lane, ManifestComparison, ManifestDifference, ManifestReview, OutcomeTally,
    Pace, Ping, ReceiptExportPart, ReceiptLocator, Request, Rollup, RollupMark, RollupTotal, RunTally, Session,
    StopReport,
    TenantSalt, Turn,
}  # fmt: skip


@pytest.fixture
def everything(db: None) -> None:
    make()


def test_no_page_links_to_people_whom_its_reader_may_not_look_up(
    everything: None, person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("someone", roles.RETENTION_MANAGER))
    for model in REGISTERED:
        for address in (url(model, "changelist"), url(model, "change", first(model).pk)):
            assert "/admin/base/user/" not in client.get(address).content.decode(), address


def test_the_right_to_read_everything_is_enough(everything: None, person: Callable[..., User], client: Client) -> None:
    reader = person("reader", roles.AUDITOR)
    Group.objects.get(name=roles.AUDITOR).permissions.filter(codename__startswith="view_").delete()
    client.force_login(reader)
    for model in REGISTERED:
        assert client.get(url(model, "changelist")).status_code == 200


def test_nobody_deletes_and_machine_rows_refuse_every_post(
    everything: None, person: Callable[..., User], client: Client
) -> None:
    for role in roles.MATRIX:
        client.force_login(person(f"someone-{role.lower()}".replace(" ", "-"), role))
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
        # The form of a token asks for a right that a superuser has.
        if isinstance(model_admin, ReadOnlyAdmin) and model is not ApiToken:
            assert client.get(url(model, "add")).status_code == 403, model
            assert client.post(url(model, "add"), {}).status_code == 403, model


def test_every_page_has_its_place_in_the_navigation() -> None:
    assert set(navigation.LISTS) == {model._meta.label for model in REGISTERED}
    assert set(lists.ABOUT) == set(navigation.LISTS)


def test_all_records_stand_by_task_each_with_what_a_row_of_it_is(person: Callable[..., User], client: Client) -> None:
    client.force_login(person("auditor", roles.AUDITOR))
    answer = client.get(reverse("admin:index"))
    assert [task for task, _lists in answer.context["records"]] == list(navigation.TASKS)
    assert answer.content.decode().count("<dt>") == len(REGISTERED)
    assert lists.ABOUT["ledger.Receipt"] in answer.content.decode()
    assert client.get("/admin/ledger/").url == reverse("admin:index")  # type: ignore[attr-defined]


def test_what_was_opened_from_a_list_is_marked_there_and_says_where_it_stands(
    person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("auditor", roles.AUDITOR))
    answer = client.get(url(ManifestItem, "changelist"))
    tasks = dict(answer.context["tasks"])
    assert [label for label, _address, here in tasks["Destroy"] if here] == ["Runs"]
    shown = answer.content.decode()
    trail = shown[shown.index('aria-label="Breadcrumbs"') : shown.index("</ol>")]
    assert re.findall(r">([^<>\n]+)</", trail) == ["My work", "Destroy", "Runs", "Manifest items"]


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
