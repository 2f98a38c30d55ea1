"""Runs and manifests in the admin: read, and a run cancelled by whoever may, with a reason."""

from collections.abc import Callable

import pytest
from django.test import Client

from cleanup_project.base import display, roles
from cleanup_project.base.models import AuditEvent, User
from ledger.models import CleanupRun, ManifestItem, ManifestPart
from retention.models import Bucket, ObjectVersion, PolicyRevision, Tenant
from tests import world
from tests.web import quick_pages, url  # noqa: F401


@pytest.fixture
def revision(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> PolicyRevision:
    for name in ("one", "two"):
        world.version(bucket, tenant, f"clips/{name}", asset=name, size=1 << 30)
    world.version(bucket, tenant, "clips/one.webm", asset="one", original_key="clips/one")
    return world.published(tenant, bucket, author=manager, publisher=second_manager, code="clips")


@pytest.fixture
def run(
    revision: PolicyRevision, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, compliance: User
) -> CleanupRun:
    """An enforcing run that waits for approval."""
    world.version(bucket, tenant, "held/three", asset="three")
    world.hold(tenant, bucket, "held/", by=compliance)
    world.enforced(tenant, bucket, "", by=manager, approver=second_manager)
    return world.sealed_run(revision, by=manager, mode=CleanupRun.Mode.ENFORCE)


@pytest.fixture
def operator(person: Callable[..., User], client: Client) -> User:
    user = person("olaf", roles.OPERATOR)
    client.force_login(user)
    return user


def test_a_run_shows_its_tallies_its_streams_and_where_to_go(run: CleanupRun, operator: User, client: Client) -> None:
    shown = client.get(url(CleanupRun, "change", run.pk)).content.decode()
    assert run.manifest_root in shown
    for words in (
        "<dt>Candidates</dt><dd>2</dd>",
        "<dd>1 eligible, left out because a hold covers them",
        "<dd>3 object versions, in 1 part</dd>",
        f"<dd>3 object versions, {display.size(run.bytes or 0)}</dd>",
        "<strong>2</strong> items",
    ):
        assert words in shown
    assert "the whole bucket" in shown
    assert "unclassified" in shown
    assert f"{url(ManifestPart, 'changelist')}?run={run.pk}" in shown
    assert f"{url(ManifestItem, 'changelist')}?run={run.pk}" in shown
    for name in ("manifest.csv", "manifest.jsonl", "cancel/"):
        assert f"/{run.pk}/{name}" in shown


def test_lists_of_parts_and_items_are_those_of_the_run(
    run: CleanupRun, revision: PolicyRevision, operator: User, client: Client
) -> None:
    other = world.sealed_run(revision)
    part = run.parts.get()
    items = client.get(url(ManifestItem, "changelist"), {"run": run.pk})
    assert [row.ordinal for row in items.context["cl"].result_list] == [1, 2]
    assert f"Run {run}" in items.content.decode()
    assert "clips/1: stored at 2020-01-01 + 30 days" in items.content.decode()
    parts = client.get(url(ManifestPart, "changelist"), {"run": other.pk})
    assert [row.run_id for row in parts.context["cl"].result_list] == [other.pk]
    link = f"?run={run.pk}&amp;ordinal__gte=1&amp;ordinal__lte=2"
    assert link in client.get(url(ManifestPart, "change", part.pk)).content.decode()
    narrow = {"run": run.pk, "ordinal__gte": 2, "ordinal__lte": 2}
    assert [row.ordinal for row in client.get(url(ManifestItem, "changelist"), narrow).context["cl"].result_list] == [2]


def test_an_item_shows_its_targets_and_checks_its_digest(run: CleanupRun, operator: User, client: Client) -> None:
    item = ManifestItem.objects.get(run=run, command_key__contains=":one:")
    shown = client.get(url(ManifestItem, "change", item.pk)).content.decode()
    for text in ("clips/one<", "clips/one.webm<", "1.0 GiB", "is the SHA-256 of the line", bytes(item.digest).hex()):
        assert text in shown
    assert url(ObjectVersion, "change", item.object_version_id) in shown


@pytest.mark.parametrize(
    "query",
    [{"run": "x"}, {"run": "9" * 30}, {"run": "²"}, {"ordinal__gte": "x"}, {"p": "x"}, {"p": "-3"}, {"p": "999"}],
)
def test_a_nonsense_address_is_no_crash(query: dict[str, str], run: CleanupRun, operator: User, client: Client) -> None:
    assert client.get(url(ManifestItem, "changelist"), query, follow=True).status_code == 200


def test_search_is_exact(run: CleanupRun, operator: User, client: Client) -> None:
    item = ManifestItem.objects.filter(run=run).first()
    assert item is not None
    for model, term, found in (
        (ManifestItem, item.command_key, 1),
        (ManifestItem, item.command_key[:-1], 0),
        (ManifestItem, f" {item.command_key}", 0),
        (CleanupRun, run.key, 1),
        (CleanupRun, "clips", 1),
        (CleanupRun, "clip", 0),
        (ManifestPart, f"{run.key}:part-0001", 1),
        (ManifestPart, run.key, 0),
    ):
        rows = client.get(url(model, "changelist"), {"q": term}).context["cl"].result_list
        assert len(rows) == found, (model, term)


def test_runs_are_filtered_by_state_and_mode(
    run: CleanupRun, revision: PolicyRevision, operator: User, client: Client
) -> None:
    dry = world.sealed_run(revision)
    page = url(CleanupRun, "changelist")
    assert list(client.get(page, {"state__exact": "needs_approval"}).context["cl"].result_list) == [run]
    assert list(client.get(page, {"mode__exact": "dry_run"}).context["cl"].result_list) == [dry]
    assert client.get(page, {"policy__code": "clips"}).status_code == 400


def test_an_operator_cancels_a_run_with_a_reason(run: CleanupRun, operator: User, client: Client) -> None:
    page = url(CleanupRun, "cancel", run.pk)
    assert client.get(page).status_code == 200
    run.refresh_from_db()
    assert run.state == "needs_approval"
    assert "This field is required." in client.post(page, {"reason": " "}).content.decode()
    response = client.post(page, {"reason": "Wrong month."}, follow=True)
    assert f"Run {run} cancelled." in response.content.decode()
    run.refresh_from_db()
    assert (run.state, run.end_reason) == ("cancelled", "Wrong month.")
    event = AuditEvent.objects.get(action="run.cancelled")
    assert (event.actor, event.reason) == (operator, "Wrong month.")

    refused = client.post(page, {"reason": "Once more."}).content.decode()
    assert "has ended already" in refused
    assert "Once more." in refused
    assert page not in client.get(url(CleanupRun, "change", run.pk)).content.decode()


@pytest.mark.parametrize(
    ("role", "status"),
    [
        (roles.RETENTION_MANAGER, 302),
        (roles.COMPLIANCE, 302),
        (roles.OPERATOR, 302),
        (roles.AUDITOR, 403),
        (roles.ADMINISTRATOR, 403),
    ],
)
def test_who_may_cancel(role: str, status: int, run: CleanupRun, person: Callable[..., User], client: Client) -> None:
    client.force_login(person("someone", role))
    assert client.post(url(CleanupRun, "cancel", run.pk), {"reason": "Asked."}).status_code == status
    run.refresh_from_db()
    assert (run.state == "cancelled") == (status == 302)


def test_a_run_that_is_not_there_cannot_be_cancelled(operator: User, client: Client) -> None:
    assert client.post(url(CleanupRun, "cancel", 1), {"reason": "Asked."}).status_code == 404
