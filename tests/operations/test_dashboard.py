"""The dashboard: right numbers, each leading to what it counts, for whoever may see them, at a price that does not grow."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth.models import Permission
from django.core.cache import caches
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from cleanup_project.base import clock, roles, rollups
from cleanup_project.base.models import Heartbeat, Rollup, User
from cleanup_project.operations.pages import dashboard
from cleanup_project.operations.pages.tiles import TILES, Looking, Tile, tiles
from cleanup_project.operations.watch.deadlines import DEADLINES, Deadline
from ledger import causes, manifest, runs
from ledger import rollups as of_ledger
from ledger.models import CleanupRun, DeadLetter
from retention.models import PolicyRevision
from tests.ledger import parking
from tests.ledger.acting import build
from tests.operations.trouble import count, troubled_world
from tests.web import quick_pages  # noqa: F401
from tests.webhooks.world import sql

pytestmark = pytest.mark.django_db

APPS = frozenset({"base", "retention", "ledger", "webhooks"})
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    caches["process"].clear()
    yield
    caches["process"].clear()


def shown(client: Client, **query: str) -> str:
    response = client.get(reverse("dashboard"), query)
    assert response.status_code == 200
    return response.content.decode()


def fragment(client: Client, **query: str) -> str:
    response = client.get(reverse("dashboard"), query, headers={"HX-Request": "true"})
    assert response.status_code == 200
    return response.content.decode()


def tile(name: str, *codes: str) -> Tile:
    return next(each for each in tiles(Looking(APPS, codes, clock.now())) if each.name == name)


def names(html: str) -> set[str]:
    return {name for name in DEADLINES if f'<span class="name">{name}' in html}


@pytest.fixture
def auditor(person: Callable[..., User], client: Client) -> User:
    user = person("auditor", roles.AUDITOR)
    client.force_login(user)
    return user


def test_each_role_sees_the_figures_of_what_it_may_view(person: Callable[..., User], client: Client) -> None:
    of_app = {"": {"Last tick", "Workers", "Oldest snapshot"}}
    for app, make in TILES:
        if app:
            of_app.setdefault(app, set()).add(make(Looking(APPS, (), clock.now())).name)
    for role, apps in roles.READS.items():
        client.force_login(person(role.lower(), role))
        wanted = of_app[""].union(*(of_app.get(app, set()) for app in apps or APPS))
        assert names(shown(client)) == wanted, role
    client.force_login(person("nobody"))
    assert names(shown(client)) == of_app[""]
    client.logout()
    assert client.get(reverse("dashboard")).status_code == 302


def test_every_tile_has_its_deadline_with_a_reason() -> None:
    found = list(tiles(Looking(APPS, (), clock.now())))
    assert [each.name for each in found if each.name not in DEADLINES] == []
    assert {each.name for each in found} == set(DEADLINES)
    assert all(each.because.endswith(".") for each in DEADLINES.values())
    for each in DEADLINES.values():
        assert each.overdue is None or each.overdue > each.watch


@pytest.mark.parametrize(("minutes", "tone"), [(0, ""), (4.9, ""), (5, "waiting"), (14.9, "waiting"), (15, "overdue")])
def test_a_tile_is_marked_from_its_deadline_on(minutes: float, tone: str) -> None:
    assert Deadline(timedelta(minutes=5), timedelta(minutes=15), "").tone(timedelta(minutes=minutes)) == tone
    assert Deadline(timedelta(minutes=5), None, "").tone(timedelta(days=minutes)) != "overdue"


def test_what_is_marked_says_so_in_words(auditor: User, client: Client) -> None:
    build()
    Heartbeat.objects.create(host="h", queue="q", last_tick_at=Now() - timedelta(minutes=3), seen_at=Now() - DAY)
    html = fragment(client)
    assert re.search(r'class="tile waiting"><span class="name">Last tick <span class="pill waiting">watch<', html)
    assert re.search(r'class="tile overdue"><span class="name">Workers <span class="pill overdue">overdue<', html)


def test_every_number_agrees_with_the_list_that_it_leads_to(auditor: User, client: Client) -> None:
    troubled_world()
    for name in ("Stopped", "In quarantine", "Missed slots", "Endpoints in trouble"):
        each = tile(name)
        response = client.get(each.url)
        assert response.status_code == 200, each.url
        listed = response.context["number"] if name == "In quarantine" else response.context["cl"].result_count
        assert each.value == f"{listed:,}" == "1", name


def test_runs_to_approve_agree_with_their_list(auditor: User, client: Client) -> None:
    world = build(authorisation=PolicyRevision.Authorisation.APPROVAL)
    world.put("clips/a", asset="a")
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    manifest.freeze(run)
    each = tile("Runs to approve")
    assert (each.value, each.tone) == ("1", "waiting")
    assert client.get(each.url).context["cl"].result_count == 1
    assert reverse("admin:ledger_cleanuprun_change", args=[run.pk]) == tile("Oldest eligible").url


def test_the_oldest_leads_to_itself(auditor: User, client: Client) -> None:
    world = troubled_world()
    command = world.command("clips/due")
    address = reverse("admin:ledger_cleanupcommand_change", args=[command.pk])
    assert tile("Oldest eligible").url == tile("Queue age").url == address
    assert client.get(address).status_code == 200
    html = fragment(client)
    for link in set(re.findall(r'href="([^"]+)"', html)):
        assert client.get(unescape(link)).status_code == 200, link


def test_a_person_sees_their_tenants_alone(person: Callable[..., User], client: Client) -> None:
    troubled_world()
    ours = person("ours", roles.COMPLIANCE, tenants=["acme"])
    others = person("others", roles.COMPLIANCE, tenants=["elsewhere"])
    client.force_login(ours)
    assert "clips-due" not in fragment(client)  # keys stand on the pages behind
    mine = fragment(client)
    client.force_login(others)
    theirs = fragment(client)
    for name in ("Oldest eligible", "Queue age", "In quarantine", "Missed slots", "Endpoints in trouble"):
        assert tile(name, "elsewhere").value in {"0", "none"}, name
        assert tile(name, "acme").value not in {"0", "none"}, name
    assert "originals" in mine
    assert "originals" not in theirs
    assert "permission" not in theirs


def test_a_fragment_is_kept_for_those_who_see_the_same(person: Callable[..., User], client: Client) -> None:
    one, two = person("one", roles.AUDITOR), person("two", roles.AUDITOR)
    scoped = person("scoped", roles.AUDITOR, tenants=["acme"])

    def queries(user: User) -> int:
        client.force_login(user)
        with CaptureQueriesContext(connection) as captured:
            fragment(client)
        return len([each for each in captured if "base_rollup" in each["sql"] or "vital" in each["sql"]])

    assert queries(one) > 0
    assert queries(two) == 0
    assert queries(scoped) > 0


def test_what_is_asked_for_by_script_is_the_fragment_alone(auditor: User, client: Client) -> None:
    whole, part = shown(client), fragment(client)
    assert "<html" in whole
    assert "<html" not in part
    assert part in whole
    assert 'hx-trigger="every 10s"' in whole
    assert "hx-trigger" not in shown(client, live="no")
    assert 'aria-current="true">24 hours' in shown(client, span="no such span")
    assert 'aria-current="true">7 days' in shown(client, span="7d")


def test_nothing_stands_inline_that_the_policy_forbids(auditor: User, client: Client) -> None:
    troubled_world()
    html = shown(client)
    assert not re.search(r"\sstyle=|\son[a-z]+=|<style|<script(?![^>]* src=)", html)


def test_lags_are_shown_as_figures_and_as_a_table(auditor: User, client: Client) -> None:
    world = build()
    parking.deleted(world)
    count(of_ledger.SOURCES[0])
    for span, each in rollups.SPANS.items():
        html = fragment(client, span=span)
        whole, point = rollups.percentiles(of_ledger.DELETION, each)
        assert f'<data value="{whole.greatest:.4g}">' in html
        assert f"{point.begins_at:%Y-%m-%dT%H:%M:%SZ}" in html
        assert html.count('<th scope="row"><time') == 1
    assert "Nothing in this time." in html  # nothing was acknowledged


def test_quarantine_is_counted_once_by_class_with_what_is_late(
    monkeypatch: pytest.MonkeyPatch, auditor: User, client: Client
) -> None:
    asked, groups = [], causes.groups
    monkeypatch.setattr(causes, "groups", lambda codes: asked.append(codes) or groups(codes))
    troubled_world()
    DeadLetter.objects.update(entered_at=Now() - 2 * DAY)
    html = fragment(client)
    assert asked == [[]]
    assert ", 1 over a day" in html


def test_what_was_destroyed_leads_to_its_receipts(auditor: User, client: Client) -> None:
    parking.deleted(build())
    count(of_ledger.SOURCES[0])
    links = {unescape(each) for each in re.findall(r'href="([^"]*outcome=deleted[^"]*)"', fragment(client))}
    (link,) = {each for each in links if "issued_from" in each}
    assert client.get(link).context["cl"].result_count == 1


def test_the_number_of_queries_does_not_depend_on_how_much_there_is(auditor: User, client: Client) -> None:
    def queries() -> int:
        caches["process"].clear()
        with CaptureQueriesContext(connection) as captured:
            fragment(client)
        return len(captured)

    world = troubled_world()
    few = queries()
    for n in range(4):
        world.subscribe(f"receiver-{n}")
        world.put(f"clips/more-{n}", asset=f"more-{n}")
    sql("UPDATE webhooks_endpoint SET failing_since = now()")
    sql(
        "INSERT INTO ledger_deadletter (command_id, cycle, tenant_id, bucket_id, run_id, policy_id, key, version_id, "
        "failure_class, storage_code, attempts, first_failed_at, first_error, last_error, next_action, entered_at) "
        "SELECT command_id, 1 + n, tenant_id, bucket_id, run_id, policy_id, key, version_id, 'conflict', '', 1, now(), '', "
        "'', '', now() "
        "FROM ledger_deadletter, generate_series(1, 20) n"
    )
    count(of_ledger.SOURCES[1])
    assert Rollup.objects.exists()
    assert DeadLetter.objects.count() > 20
    assert queries() == few


def test_more_than_is_counted_is_said_so(monkeypatch: pytest.MonkeyPatch, auditor: User, client: Client) -> None:
    troubled_world()
    monkeypatch.setattr("ledger.causes.COUNTED_AT_MOST", 0)
    assert tile("In quarantine").value == "more than 0"
    assert "more than 0" in fragment(client)


def test_the_views_that_open_an_applications_figures_exist() -> None:
    for right in dashboard.VIEWS.values():
        app, _, codename = right.partition(".")
        assert Permission.objects.filter(content_type__app_label=app, codename=codename).exists(), right
