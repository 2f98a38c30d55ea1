"""What runs a dispatch: the command, the queue, the sweep; and what the database reads for it."""

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django_q.models import OrmQ

from cleanup_project.base import sqlfiles
from cleanup_project.base.models import User
from tests.webhooks.http import receiver
from tests.webhooks.world import assets, endpoint, notice, sql, states, tell
from webhooks import checks, dispatch, endpoints, sweep, tasks
from webhooks.exceptions import WebhooksError

pytestmark = pytest.mark.django_db


def rung() -> list[str]:
    return [message.func() for message in OrmQ.objects.order_by("id")]


def test_the_command_sends_and_says_so(operator: User) -> None:
    out = io.StringIO()
    with receiver() as inbox:
        endpoint(operator, inbox.url)
        tell(*assets(3))
        call_command("dispatch", "--json", stdout=out)
    said = {"sent": 3, "delivered": 3, "retried": 0, "dead": 0, "lost": 0, "more": False}
    assert json.loads(out.getvalue()) == said
    call_command("dispatch", stdout=out)
    assert "delivered  0" in out.getvalue()


def test_a_budget_for_less_than_one_attempt_is_refused() -> None:
    with pytest.raises(CommandError, match="at least as many"):
        call_command("dispatch", "--budget", "5")


def test_whoever_waits_for_settled_events_is_rung_once_for_many(operator: User, settings: Any) -> None:
    settings.WEBHOOKS_SETTLED_TASK = "ledger.tasks.notify"
    with receiver() as inbox:
        endpoint(operator, inbox.url)
        tell(*assets(12))
        tasks.dispatch()
    assert states() == {"delivered": 12}
    assert rung() == ["ledger.tasks.notify"]


def test_nobody_is_rung_when_nothing_was_delivered(operator: User, settings: Any) -> None:
    settings.WEBHOOKS_SETTLED_TASK = "ledger.tasks.notify"
    with receiver(lambda request: 500) as inbox:
        endpoint(operator, inbox.url)
        tell(*assets(2))
        tasks.dispatch()
    assert rung() == []


def test_a_task_that_left_work_rings_for_the_next(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as inbox:
        endpoint(operator, inbox.url)
        tell(*assets(2))
        monkeypatch.setattr(dispatch, "SEND", 1_000_000)  # nothing fits into the budget
        tasks.dispatch()
        assert (rung(), inbox.requests) == (["webhooks.tasks.dispatch"], [])


def test_the_sweep_rings_for_what_is_due_and_for_nothing_else(operator: User) -> None:
    made, _ = endpoint(operator)
    sweep.sweep()
    assert rung() == []
    tell(notice("a", "1"))
    sweep.sweep()
    assert rung() == ["webhooks.tasks.dispatch"]
    endpoints.disable(endpoint=made, by=operator, reason="Moving house.")
    dispatch_calls = len(rung())
    sweep.sweep()
    assert len(rung()) == dispatch_calls


def test_only_operators_and_compliance_manage_endpoints(operator: User, manager: User) -> None:
    made, _ = endpoint(operator)
    with pytest.raises(WebhooksError, match="may not manage endpoints"):
        endpoint(manager, name="other")
    with pytest.raises(WebhooksError, match="may not manage endpoints"):
        endpoints.disable(endpoint=made, by=manager, reason="No.")
    with pytest.raises(WebhooksError, match="State a reason"):
        endpoints.disable(endpoint=made, by=operator, reason=" ")


def test_deployment_refuses_plain_http_and_own_networks(settings: Any) -> None:
    settings.WEBHOOK_ALLOW_CIDRS = ["10.0.0.0/8"]
    assert [error.id for error in checks.public_internet_only()] == ["webhooks.E001", "webhooks.E004"]
    settings.WEBHOOK_ALLOW_HTTP, settings.WEBHOOK_ALLOW_CIDRS = False, []
    assert checks.public_internet_only() == []


def plan_of(statement: str, parameters: dict[str, Any]) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}", parameters)
        return "\n".join(line for (line,) in cursor)


@pytest.mark.bulk
def test_claims_and_sweeps_read_their_index_and_not_the_table(operator: User) -> None:
    """20,000 heads of one endpoint, and a lane of 5,000."""
    made, _ = endpoint(operator)
    other, _ = endpoint(operator, name="other")
    for start in range(0, 20_000, 5000):
        tell(*[notice(f"a{number}", f"{number}") for number in range(start, start + 5000)])
    tell(*[notice("deep", f"deep:{number}") for number in range(5000)])
    sql("ANALYZE")
    claim = {
        "endpoint": made.pk, "keys": [1], "limit": 32, "lease": 150, "url": "https://example.org/", "probe": False,
        "types": ["media.deleted"], "details": True, "resumed": None,
    }  # fmt: skip
    for name, parameters in (
        ("claim.sql", claim),
        ("due_endpoints.sql", {}),
        ("due_soon.sql", {"soon": 8, "gap": 0.2}),
        ("metrics_oldest_due.sql", {}),
        ("held.sql", {"deliveries": list(range(1, 33)), "tokens": [1] * 32}),
        ("promote.sql", {"endpoints": [made.pk, other.pk], "lanes": [1, 2]}),
        ("waiting.sql", {"endpoint": made.pk, "after": 0, "limit": 1000}),
    ):
        plan = plan_of(sqlfiles.read(dispatch.__file__, name), parameters)
        assert "Seq Scan on webhooks_delivery" not in plan, (name, plan)
    assert "delivery_due" in plan_of(sqlfiles.read(dispatch.__file__, "claim.sql"), claim)


def updates() -> tuple[int, int]:
    """Rows of deliveries that this session updated, and how many of them stayed on their page."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_stat_get_xact_tuples_updated(c.oid), pg_stat_get_xact_tuples_hot_updated(c.oid) "
            "FROM pg_class c WHERE relname = 'webhooks_delivery'"
        )
        found: tuple[int, int] = cursor.fetchone()
        return found


def test_a_claim_stays_on_its_page(operator: User) -> None:
    """HOT: the lease columns are in no index, so that a claim writes to none."""
    made, _ = endpoint(operator)
    tell(*assets(20))
    before = updates()
    assert len(dispatch.claim_from(made.pk, 20)) == 20
    assert [after - earlier for earlier, after in zip(before, updates(), strict=True)] == [20, 20]
