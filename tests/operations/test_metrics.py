"""/metrics: everything that is promised, right, for who may read it, at a price that does not grow; and rules that fit."""

import math
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.cache import caches
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from cleanup_project.base import alarms, clock, rollups
from cleanup_project.base.models import Heartbeat, RollupMark, User
from cleanup_project.operations.watch import counters, exposition
from cleanup_project.operations.watch.deadlines import OVERDUE
from cleanup_project.operations.watch.families import FAMILIES
from cleanup_project.operations.watch.samples import Sample
from ledger.models import CleanupCommand, CleanupRun, Receipt
from tests.ledger import parking
from tests.ledger.acting import build
from tests.operations.trouble import DAY, troubled_world
from tests.test_docs import raised
from tests.webhooks.past import attempt
from tests.webhooks.world import sql
from webhooks.models import Delivery

pytestmark = pytest.mark.django_db

TOKEN = "a-token-that-nobody-guesses"
Told = dict[tuple[str, ...], float]


@pytest.fixture(autouse=True)
def nothing_kept(settings: Any) -> Iterator[None]:
    settings.METRICS_TOKEN = TOKEN
    caches["process"].clear()
    yield
    caches["process"].clear()


def scraped() -> Told:
    """The value of each sample by its name and the values of its labels."""
    caches["process"].clear()
    answer = Client(headers={"Authorization": f"Bearer {TOKEN}"}).get("/metrics")
    assert (answer.status_code, answer["Content-Type"]) == (200, exposition.CONTENT_TYPE)
    families = list(text_string_to_metric_families(answer.content.decode()))
    assert all(family.documentation and family.type != "unknown" for family in families)
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def count_everything() -> None:
    """As if the present minute had closed."""
    now = clock.now()
    for source in counters.SOURCES:
        changed = rollups.count_between(source, now - timedelta(hours=1), now + timedelta(minutes=1))
        if changed:
            rollups.fold(source.metrics, changed[0], changed[-1])
        RollupMark.objects.update_or_create(pk=source.name, defaults={"counted_until": now})


# Who may read them.


def test_without_its_setting_it_is_not_there_and_with_it_the_token_decides(settings: Any, client: Client) -> None:
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics").headers["WWW-Authenticate"] == "Bearer"
    for wrong in ("Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer é"):
        assert client.get("/metrics", headers={"Authorization": wrong}).status_code == 401, wrong
    right = client.get("/metrics", headers={"Authorization": f"bearer {TOKEN}"})
    assert (right.status_code, right["Cache-Control"]) == (200, "no-store")
    settings.METRICS_TOKEN = ""
    for shown in ("Bearer", "Bearer ", f"Bearer {TOKEN}"):
        assert client.get("/metrics", headers={"Authorization": shown}).status_code == 404


def test_somebody_who_is_logged_in_sees_none_of_it(client: Client, manager: User) -> None:
    client.force_login(manager)
    assert client.get("/metrics").status_code == 401


# What they say.


def test_every_metric_is_described_and_every_described_one_is_told() -> None:
    world = build()
    world.subscribe()
    parking.deleted(world)
    parking.dead(world)
    sql("UPDATE webhooks_endpoint SET failing_since = now()")
    Heartbeat.objects.create(host="h", queue="work", last_tick_at=Now(), restarts=1)
    attempt(Delivery.objects.order_by("pk")[0].pk, "transient", 60)
    attempt(Delivery.objects.order_by("pk")[0].pk, "", 30)
    alarms.notice("run.tripped", None, "Too much failed.")
    sql("UPDATE webhooks_delivery SET state = 'dead', last_class = 'auth', finished_at = now() WHERE state = 'pending'")
    sql("UPDATE retention_bucket SET catalogue_max_age_hours = 24")
    count_everything()
    told = {re.sub("_(bucket|sum|count)$", "", name) for name, *_ in scraped()}
    assert told == set(FAMILIES)


def test_what_waits_is_told_with_its_age() -> None:
    troubled_world()
    sql("UPDATE ledger_deadletter SET entered_at = now() - interval '100 s'")
    found = scraped()
    assert found["cleanup_quarantine_entries", "permission"] == 1
    assert 100 <= found["cleanup_quarantine_oldest_age_seconds", "permission"] < 200
    assert 86_400 <= found["cleanup_queue_age_seconds",] < 87_000
    assert found["cleanup_oldest_eligible_age_seconds",] > 86_400 * 365
    assert found["cleanup_objects_past_deadline",] == found["cleanup_run_items_remaining",] == 1
    assert (found["cleanup_stop_switches",], found["cleanup_schedule_missed_slots",]) == (1, 1)
    assert found["cleanup_runs_open", "draining"] == CleanupRun.objects.open().count()
    assert found["cleanup_deadline_seconds", "in-quarantine"] == 86_400
    assert abs(found["cleanup_clock_skew_seconds",]) < 5
    endpoint = str(Delivery.objects.values_list("endpoint_id", flat=True)[0])
    assert ("cleanup_webhook_endpoint_trouble_age_seconds", endpoint) in found
    CleanupCommand.objects.filter(state="ready").update(eligible_since=Now() - DAY)
    assert scraped()["cleanup_objects_past_deadline",] == 0


def test_nothing_waits_in_an_empty_system() -> None:
    found = scraped()
    assert found.pop(("cleanup_worker_restart_age_seconds",)) == math.inf
    assert {value for name, value in found.items() if name[0].endswith("age_seconds")} == {0}
    assert {name: value for name, value in found.items() if "worker" in name[0]} == {
        ("cleanup_worker_clusters", "cleanup"): 0, ("cleanup_worker_clusters", "work"): 0,
    }  # fmt: skip
    assert {value for name, value in found.items() if name[0] == "cleanup_scrape_errors"} == {0}
    assert ("cleanup_last_tick_age_seconds",) not in found
    assert found["cleanup_commands_completed_total", "deleted"] == 0


def test_each_class_of_worker_says_when_it_was_seen() -> None:
    now = clock.now()
    for queue, ago, restarts in (("work", 10, 2), ("work", 100, 1), ("cleanup", 70, 0), ("of-long-ago", 5, 0)):
        Heartbeat.objects.create(
            host=f"h{ago}", queue=queue, seen_at=now - timedelta(seconds=ago), restarts=restarts, last_tick_at=now
        )
    found = scraped()
    assert (found["cleanup_worker_clusters", "work"], found["cleanup_worker_clusters", "cleanup"]) == (1, 0)
    assert found["cleanup_worker_seen_age_seconds", "work"] == pytest.approx(10, abs=5)
    assert found["cleanup_worker_restart_age_seconds",] == pytest.approx(0, abs=5)
    assert ("cleanup_worker_clusters", "of-long-ago") not in found, "nobody has to serve it"


def test_counters_agree_with_the_record() -> None:
    world = build()
    world.subscribe()
    for n in range(3):
        parking.deleted(world, f"clips/{n}")
    dead = parking.dead(world)
    count_everything()
    found = scraped()
    assert found["cleanup_candidates_total", "enforce"] == 4
    assert found["cleanup_commands_published_total",] == CleanupCommand.objects.count() == 4
    assert found["cleanup_commands_completed_total", "deleted"] == 3
    assert found["cleanup_delete_attempts_total", "deleted"] == 3
    assert found["cleanup_delete_attempts_total", dead.failure_class] == 1
    assert found["cleanup_quarantined_total", dead.failure_class] == 1
    assert found["cleanup_run_drain_seconds_count",] == CleanupRun.objects.filter(state="closed").count()


def test_a_histogram_is_exact_at_its_bounds() -> None:
    world = build()
    for n, stored in enumerate(("2019-01-01T00:00:00Z", "2024-06-01T00:00:00Z")):
        world.put(f"clips/{n}", asset=str(n), stored_at=stored)
    world.run()
    world.drain()
    sql("UPDATE ledger_cleanupcommand SET eligible_since = now() - interval '100 s' WHERE asset = '1'")
    count_everything()
    found = scraped()
    bounds = [
        (float(name[1]), value) for name, value in found.items() if name[0] == "cleanup_deletion_lag_seconds_bucket"
    ]
    assert [value for _bound, value in bounds] == sorted(value for _bound, value in bounds)
    assert found["cleanup_deletion_lag_seconds_count",] == bounds[-1][1] == Receipt.objects.count() == 2
    below = [value for bound, value in bounds if bound < 99]
    assert (set(below), dict(bounds)[min(bound for bound, _ in bounds if bound > 110)]) == ({0}, 1)
    eligible = CleanupCommand.objects.order_by("asset").values_list("eligible_since", flat=True)
    issued = Receipt.objects.values_list("issued_at", flat=True)[0]
    exact = sum((issued - each).total_seconds() for each in eligible)
    assert found["cleanup_deletion_lag_seconds_sum",] == pytest.approx(exact, rel=rollups.ERROR * 1.01)


# What it costs, and what fails.


def failing(now: datetime) -> list[Sample]:
    sql("SELECT 1 / 0")
    return []


def sleeping(now: datetime) -> list[Sample]:
    sql("SELECT pg_sleep(5)")
    return []


def test_a_part_that_fails_or_takes_too_long_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "BUDGET_MS", 200)
    monkeypatch.setattr(exposition, "PARTS", {"broken": failing, "slow": sleeping} | exposition.PARTS)
    found = scraped()
    errors = {name[1] for name, value in found.items() if name[0] == "cleanup_scrape_errors" and value}
    assert errors == {"broken", "slow"}
    assert found["cleanup_stop_switches",] == 0


def test_where_nothing_can_be_counted_every_age_is_told(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    (rule,) = [each for each in rules(settings) if each["alert"] == "ScrapeIncomplete"]
    counting = rule["expr"].split('"')[1].split("|")
    before = {name for name in scraped() if "age" in name[0]}
    assert {"cleanup_queue_age_seconds", "cleanup_webhook_oldest_due_age_seconds"} < {name for name, *_ in before}
    monkeypatch.setattr(exposition, "PARTS", exposition.PARTS | dict.fromkeys(counting, failing))
    found = scraped()
    assert {name[1] for name, value in found.items() if name[0] == "cleanup_scrape_errors" and value} == set(counting)
    assert before <= found.keys()


def test_a_scrape_ends_in_time_and_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def lasting(now: datetime) -> Iterator[Sample]:
        for each in range(100):
            sql("SELECT pg_sleep(0.05)")
            yield Sample("cleanup_stop_switches", each)

    monkeypatch.setattr(exposition, "WITHIN", 0.2)
    monkeypatch.setattr(exposition, "PARTS", {"lasting": lasting} | exposition.PARTS)
    found = scraped()
    assert found["cleanup_scrape_errors", "lasting"] == found["cleanup_scrape_errors", "attempts"] == 1
    assert ("cleanup_stop_switches",) not in found


def test_while_somebody_reads_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "WITHIN", 0.05)
    with exposition._reading, CaptureQueriesContext(connection) as captured:
        assert set(scraped().values()) == {1}
    assert len(captured) == 0


def test_without_a_database_only_the_errors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> datetime:
        raise OperationalError("connection refused")

    monkeypatch.setattr(exposition.clock, "now", away)
    found = scraped()
    assert {name[0] for name in found} == {"cleanup_scrape_errors"}
    assert {name[1] for name in found} == set(exposition.PARTS)
    assert set(found.values()) == {1}


def test_the_number_of_queries_does_not_depend_on_how_much_there_is() -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            scraped()
        return len(captured)

    world = troubled_world()
    few = queries()
    for n in range(4):
        world.subscribe(f"receiver-{n}")
        alarms.notice(f"kind.{n}", None, "Wrong.")
        Heartbeat.objects.create(host="h", queue=f"queue-{n}")
    sql("UPDATE webhooks_endpoint SET failing_since = now()")
    count_everything()
    assert queries() == few


def test_what_is_asked_again_at_once_is_not_read_again(client: Client) -> None:
    scraped()
    with CaptureQueriesContext(connection) as captured:
        client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert len(captured) == 0


# The documents.


def test_the_page_about_them_is_what_is_told(tmp_path: Path, settings: Any, capsys: Any) -> None:
    call_command("metrics", "--check")
    call_command("metrics")
    assert "# TYPE cleanup_queue_age_seconds gauge" in capsys.readouterr().out
    settings.BASE_DIR = tmp_path
    (tmp_path / "docs").mkdir()
    with pytest.raises(CommandError, match=r"Out of date: metrics\.md"):
        call_command("metrics", "--check")
    call_command("metrics", "--write")
    call_command("metrics", "--check")


def rules(settings: Any) -> list[dict[str, Any]]:
    told = yaml.safe_load((Path(settings.BASE_DIR) / "docs" / "alerts.rules.yml").read_text(encoding="utf-8"))
    return [rule for group in told["groups"] for rule in group["rules"]]


def samples_of(name: str) -> set[str]:
    return {name} if FAMILIES[name].kind != "histogram" else {f"{name}_{each}" for each in ("bucket", "sum", "count")}


def test_the_rules_use_metrics_and_labels_that_there_are(settings: Any) -> None:
    known = set().union(*map(samples_of, FAMILIES))
    labels = {label for family in FAMILIES.values() for label in family.labels}
    for rule in rules(settings):
        used = set(re.findall(r"cleanup_\w+", rule["expr"]))
        assert used, rule["alert"]
        assert used <= known, rule["alert"]
        assert set(re.findall(r'(\w+)=~?"', rule["expr"])) <= labels, rule["alert"]
        for metric, label in re.findall(r"(cleanup_\w+)\{(\w+)=", rule["expr"]):
            assert label in FAMILIES[metric].labels, rule["alert"]


def selects(expression: str, kind: str) -> bool:
    """Whether a rule looks at open alarms of that kind."""
    found = re.search(r'cleanup_alarms_open\{kind(=~|!~|=)"([^"]+)"\}', expression)
    if found is None:
        return False
    sign, pattern = found.groups()
    return bool(re.fullmatch(re.escape(pattern) if sign == "=" else pattern, kind)) is (sign != "!~")


def test_every_kind_of_alarm_alerts_once_and_what_cannot_wait_is_critical(settings: Any) -> None:
    found = rules(settings)
    kinds = {kind for some in raised().values() for kind in some}
    by_measure = {kind for kind in kinds if kind.startswith("deadline.")} | {"run.tripped", "webhooks.oldest_due"}
    critical = {"bucket.tripped", "run.counts", "catalogue.vanished", "catalogue.survived", "lifecycle.conflict"}
    assert critical | by_measure < kinds
    for kind in kinds:
        severities = [rule["labels"]["severity"] for rule in found if selects(rule["expr"], kind)]
        assert len(severities) == (kind not in by_measure), kind
        assert kind not in critical or severities == ["critical"], kind


def test_every_deadline_has_a_rule_and_every_rule_says_what_to_do(settings: Any) -> None:
    found = rules(settings)
    compared = {
        code for rule in found for code in re.findall(r'cleanup_deadline_seconds\{deadline="([^"]+)"', rule["expr"])
    }
    assert compared == OVERDUE.keys()
    assert len({rule["alert"] for rule in found}) == len(found)
    for rule in found:
        anchor = re.sub(r"(?<!^)(?=[A-Z])", "-", rule["alert"]).lower()
        told = rule["annotations"]
        assert told["runbook"] == f"docs/runbook.md#{anchor}"
        assert told["summary"].endswith(".")
        assert told["what_to_do"].endswith(".")
        assert rule["labels"]["severity"] in {"warning", "critical"}
