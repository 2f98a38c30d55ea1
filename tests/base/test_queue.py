"""The queue port: a message lives and dies with the caller's transaction, and the schedule has one row."""

import pytest
from django.conf import LazySettings
from django.db import OperationalError, transaction
from django.test import Client
from django_q.models import OrmQ, Schedule, Success

from cleanup_project.base import heartbeats, queue
from cleanup_project.base.models import Heartbeat, User

pytestmark = pytest.mark.django_db


@queue.task(queue=queue.CONTROL, timeout=90)
def nap() -> None:
    """Answers a message at once."""


@queue.task()
def work(number: int) -> str:
    if number == 1:
        raise OperationalError("canceling statement due to lock timeout")
    if number == 2:
        raise ValueError("unexpected")
    return "dropped"


NAP, WORK = f"{__name__}.nap", f"{__name__}.work"


@pytest.fixture
def heartbeat(monkeypatch: pytest.MonkeyPatch) -> Heartbeat:
    """As in a process of a cluster."""
    row = Heartbeat.objects.create(host="here", queue="work")
    monkeypatch.setenv(heartbeats.VARIABLE, str(row.pk))
    return row


def test_a_message_is_a_name_and_at_most_an_integer_on_the_queue_of_its_task() -> None:
    queue.wake(NAP)
    queue.wake(WORK, 7)
    first, second = OrmQ.objects.order_by("pk")
    assert (first.key, first.task["func"], first.task["args"], first.task["timeout"]) == ("cleanup", NAP, (), 90)
    assert (second.key, second.task["func"], second.task["args"]) == ("work", WORK, (7,))
    assert second.task["ack_failure"] is True


def test_one_cluster_takes_every_message(settings: LazySettings) -> None:
    settings.ONE_CLUSTER = True
    queue.wake(WORK, 7)
    assert OrmQ.objects.get().key == "cleanup"


def test_a_rollback_takes_the_message_back() -> None:
    with transaction.atomic():
        queue.wake(NAP)
        transaction.set_rollback(True)
    assert not OrmQ.objects.exists()


@pytest.mark.parametrize("name", ["ledger.tasks.no_such_task", "ledger.manifest.freeze_part", f"{__name__}.NAP"])
def test_what_is_no_task_cannot_be_rung_for(name: str) -> None:
    with pytest.raises(LookupError, match="no task"):
        queue.wake(name)


def test_a_task_leaves_its_pulse_and_drops_its_result(heartbeat: Heartbeat) -> None:
    assert work(0) is None
    heartbeat.refresh_from_db()
    assert heartbeat.last_start_at
    assert heartbeat.last_end_at == heartbeat.unacked_since
    assert heartbeat.last_tick_at is None
    queue.message_is_gone()
    heartbeat.refresh_from_db()
    assert heartbeat.last_ack_at
    assert heartbeat.unacked_since is None


def test_a_lock_that_was_not_granted_fails_nothing_and_a_surprise_is_raised(heartbeat: Heartbeat) -> None:
    assert work(1) is None
    with pytest.raises(ValueError, match="unexpected"):
        work(2)
    heartbeat.refresh_from_db()
    assert heartbeat.last_end_at


def test_a_process_outside_of_a_cluster_has_no_pulse() -> None:
    work(0)
    assert not Heartbeat.objects.exists()


def schedule_row() -> dict[str, object]:
    return Schedule.objects.values(*queue.SCHEDULE).get()


@pytest.mark.parametrize(
    "damage",
    [
        lambda: None,
        lambda: Schedule.objects.all().delete(),
        lambda: Schedule.objects.update(minutes=600),
        lambda: Schedule.objects.update(args="1, 2", repeats=0),
        lambda: Schedule.objects.update(next_run=None),
        lambda: Schedule.objects.update(next_run="2999-01-01T00:00Z"),
        lambda: Schedule.objects.create(**queue.SCHEDULE | {"name": "copy"}),
        lambda: Schedule.objects.create(**queue.SCHEDULE | {"func": "os.system"}),
    ],
    ids=["untouched", "deleted", "slower", "arguments", "never", "far away", "copied", "another function"],
)
def test_whatever_was_done_to_the_schedule_of_the_tick_one_right_row_is_left(damage: object) -> None:
    assert schedule_row() == queue.SCHEDULE  # made by migrate
    damage()  # type: ignore[operator]
    queue.keep_schedule()
    assert schedule_row() == queue.SCHEDULE


def test_a_foreign_schedule_is_left_alone() -> None:
    Schedule.objects.create(name="theirs", func="their.function", schedule_type=Schedule.DAILY)
    queue.keep_schedule()
    assert queue.foreign_schedules() == ["their.function"]


def test_pages_that_run_any_function_are_not_in_the_admin(client: Client, person: object) -> None:
    user: User = person("auditor", "Auditor")  # type: ignore[operator]
    client.force_login(user)
    for model in (Schedule, Success, OrmQ):
        assert client.get(f"/admin/django_q/{model.__name__.lower()}/", secure=True).status_code == 404
    Heartbeat.objects.create(host="here", queue="work")
    page = client.get("/admin/base/heartbeat/", secure=True)
    assert "here" in page.content.decode()
