"""The database roles of docs/deploy/roles.sql: each part does all of its work with its own, and nothing beyond it."""

import base64
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.core.cache import caches
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection
from django.db.models import F
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.models import Failure, OrmQ, Schedule
from django_q.monitor import save_task
from django_q.scheduler import scheduler
from django_q.signing import SignedPackage
from psycopg.errors import InsufficientPrivilege

from cleanup_project.base import apitokens, heartbeats, jobwork, queue, roles
from cleanup_project.base.models import AuditEvent, Heartbeat, User
from cleanup_project.operations import doctor, grants, resealing
from cleanup_project.operations.doctor import work
from cleanup_project.operations.doctor.findings import Verdict
from cleanup_project.operations.watch import snapshots
from ledger import bulk, certificate, compact, exportfiles, exports, inflight, receipts, schedule, stops, sweep
from ledger.models import CleanupCommand, CommandSummary, DeadLetter, Receipt
from retention import catalogue, control, policies, preview
from retention.models import KeyRule, ObjectVersion
from retention.sources.listing import sync
from tests import world as made
from tests.ledger.acting import EPOCH, Acting, build
from tests.ledger.exporting import auditor, order
from tests.ledger.parking import dead
from tests.operations import databases
from tests.web import quick_pages  # noqa: F401
from tests.webhooks.http import receiver
from webhooks import dispatch, endpoints
from webhooks.models import Delivery

pytestmark = pytest.mark.django_db

OWNER: Final = "cleanup_owner"
As = Callable[[str], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def granted(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: Any) -> Iterator[str]:
    """A database like the test's, of an owner who is no superuser, with the roles of the file for administrators.

    What can be done again is done twice.
    """
    passwords = {f"{name}_PASSWORD": "unused" for name in ("OWNER", "WEB", "WORKER", "COMPACTION")}
    with django_db_blocker.unblock():
        for _ in range(2):
            databases.tool("psql", "--dbname=postgres", f"--file={databases.ROLES}", **passwords)
        saved = databases.dump(tmp_path_factory.mktemp("saved"))
        with databases.restored(saved, f"{connection.settings_dict['NAME']}_granted", owner=OWNER) as name:
            with databases.connected(name, OWNER):
                for _ in range(2):
                    call_command("grants")
            yield name
        for role in (*grants.ROLES.values(), OWNER):
            databases.tool("psql", "--dbname=postgres", "--command", f'DROP OWNED BY "{role}"; DROP ROLE "{role}"')


@pytest.fixture
def as_role(granted: str) -> Iterator[As]:
    """`with as_role("web"):` connects to a copy of it as that part's role; "owner" as the owner's."""
    with databases.copied(granted, f"{granted}_copy", owner=OWNER) as name:
        yield lambda part: databases.connected(name, grants.ROLES.get(part, OWNER))


@pytest.fixture(autouse=True)
def here(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.EXPORT_DIR = tmp_path / "exports"
    settings.WEBHOOK_ALLOW_HTTP = True
    settings.WEBHOOK_ALLOW_CIDRS = ["127.0.0.0/8"]
    monkeypatch.setattr(dispatch, "SOON", 0)


def test_the_web_process_decides_and_the_worker_destroys_tells_and_counts(as_role: As) -> None:
    with receiver() as inbox:
        with as_role(grants.WEB):
            world = build()
            KeyRule.objects.create(bucket=world.bucket, position=1, pattern="{_*}", tenant=world.tenant)
            endpoint, _secret = endpoints.create(
                tenant="acme", name="archive", url=inbox.url, event_types=["*"], by=world.people["operator"]
            )
            endpoints.enable(endpoint=endpoint, by=world.people["operator"])
            made.program(person=world.people["operator"], scopes=["runs:read"])  # for a day: it ends soon
        with as_role(grants.WORKER):
            for number in range(3):
                world.store.put(world.place, f"clips/{number}", b"x", modified=EPOCH)
            sync(world.bucket, store=world.store)
            assert ObjectVersion.objects.filter(tenant=world.tenant).count() == 3
            schedule.tick()
            run = world.run()
            assert run.item_count == 3
            assert world.drain().commands == 3
            world.settled()
            dispatch.dispatch(threads=1)
            sweep.sweep()
            call_command("watch", verbosity=0)
            assert Receipt.objects.count() == 3
            assert apitokens.watch() == 1
            assert CleanupCommand.objects.filter(state="notified").count() == 3
            assert not Delivery.objects.exclude(state="delivered").exists()
    assert {request.path for request in inbox.requests} == {"/hook"}


def test_what_people_decide_in_the_web_process_is_carried_out_by_workers(as_role: As) -> None:
    with as_role(grants.WEB):
        world = build()
        cast = world.people
    with as_role(grants.WORKER):
        dead(world, "clips/one"), dead(world, "clips/two")
    with as_role(grants.WEB):
        placed = made.hold(world.tenant, world.bucket, "held/", by=cast["compliance"])
        made.release(placed)
        switch = control.press(scope="tenant", tenant=world.tenant, by=cast["operator"], reason="Look first.")
        job = ordered(world, by="compliance")
        said = {name: getattr(world.revision, name) for name in preview.SAID}
        draft = policies.draft(policy=world.revision.policy, by=cast["manager"], **said)
        preview.request(revision=draft, by=cast["manager"])
    with as_role(grants.WORKER):
        inflight.placed(placed.pk)
        stops.pressed(switch.pk)
        for number in preview.unfinished():
            while not preview.count_slice(number, budget_seconds=5):
                pass
    with as_role(grants.WEB):
        control.lift(switch=switch, by=cast["compliance"], reason="Looked at.")
        policies.discard(revision=draft, by=cast["manager"], reason="Not needed.")
    with as_role(grants.WORKER):
        while not jobwork.work_slice(job.pk, budget_seconds=5):
            pass
        world.drain()
        sweep.sweep()
        assert Receipt.objects.count() == 2


def test_receipts_leave_by_both_and_details_by_compaction_alone(as_role: As) -> None:
    with as_role(grants.WEB):
        world, reader = build(), auditor()
    with as_role(grants.WORKER):
        world.put("clips/one"), world.put("clips/two")
        run = world.run()
        world.drain()
        world.settled()
        run.refresh_from_db()
    with as_role(grants.WEB):
        _export, content = exports.send(order(), by=reader)
        assert content is not None
        assert b"".join(content).count(b"\n") > 2
        wanted = exports.request_files(order(), by=reader)
        assert certificate.issue(run=run, by=reader).run_id == run.pk
    with as_role(grants.WORKER):
        assert exports.work_slice(wanted.pk, budget_seconds=5)
    with as_role(grants.WEB):
        exportfiles.download(wanted.parts.get(), by=reader).close()
        with refused():
            compact.forget_locators(older_than=timedelta(days=1))
    with as_role("owner"):
        CleanupCommand.objects.update(changed_at=F("changed_at") - timedelta(days=400))
    with as_role(grants.WORKER), refused():
        compact.compact()
    with as_role(grants.COMPACTION):
        call_command("compact", "--forget-locators", "30", verbosity=0)
    with as_role(grants.WEB):
        assert CommandSummary.objects.count() == 2
        assert not run.commands.exclude(targets=None).exists()


def test_a_cluster_lives_on_the_role_of_workers_and_rings_on_that_of_the_web(as_role: As) -> None:
    with as_role(grants.WEB):
        queue.wake(queue.TICK)
        with refused():
            Schedule.objects.update(func="os.system")
        with refused():
            OrmQ.objects.all().delete()
    with as_role(grants.WORKER):
        row = heartbeats.begin("cleanup")
        heartbeats.seen(row, 1)
        queue.keep_schedule()
        Schedule.objects.update(next_run=Now())
        broker = get_broker("cleanup")
        scheduler(broker)
        messages = [SignedPackage.loads(text) | {"ack_id": number} for number, text in taken(broker)]
        assert {message["func"] for message in messages} == {queue.TICK}
        for message in messages:
            save_task(message | {"stopped": timezone.now(), "success": False, "result": "x"}, broker)
            broker.acknowledge(message["ack_id"])
        assert Failure.objects.count() == 2
        caches["default"].set("seen", "by a cluster", 3)
        Failure.objects.update(stopped=Now() - timedelta(days=40))
        queue.forget_failures()
        heartbeats.end(row)
        heartbeats.forget(but=[])
        heartbeats.begin("cleanup").delete()
        assert [model.objects.count() for model in (OrmQ, Failure, Heartbeat)] == [0, 0, 0]


def test_secrets_are_sealed_anew_by_the_owner_of_the_tables_alone(as_role: As, settings: Any) -> None:
    settings.ENCRYPTION_KEYS = [base64.urlsafe_b64encode(b"1" * 32).decode()]
    with as_role(grants.WEB):
        receipts.salt(build().tenant.pk)
    settings.ENCRYPTION_KEYS = [base64.urlsafe_b64encode(b"2" * 32).decode(), *settings.ENCRYPTION_KEYS]
    with as_role(grants.WORKER):
        (said,) = work.second_factors()
        assert (said.verdict, "owner" in said.advice) == (Verdict.NOT_ASKED, True)
    for part in (grants.WEB, grants.WORKER):
        with as_role(part), pytest.raises(resealing.ResealRefused, match="as the owner of the tables"):
            resealing.reseal()
    with as_role(OWNER):
        assert resealing.reseal()["salts of tenants"] == 1


def test_only_a_role_that_may_see_other_sessions_tells_of_old_snapshots(as_role: As) -> None:
    for part, seen in ((grants.WEB, True), (grants.WORKER, True), (grants.COMPACTION, False)):
        with as_role(part):
            assert snapshots.oldest().seen is seen, part


def test_a_worker_gives_the_planner_fresh_figures_of_the_catalogue(as_role: As) -> None:
    """PostgreSQL only warns whoever may not, and goes on."""
    warned = {}
    for part in (grants.WORKER, grants.WEB):
        with as_role(part):
            connection.ensure_connection()
            connection.connection.add_notice_handler(
                lambda said, part=part: warned.update({part: said.message_primary})
            )
            catalogue.analyse()
    if connection.pg_version >= grants.MAINTAIN_SINCE:
        assert warned.keys() == {grants.WEB}


def taken(broker: Any) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    while OrmQ.objects.filter(lock__lte=Now()).exists():
        found += broker.dequeue()
    return found


def ordered(world: Acting, *, by: str) -> Any:
    """A replay of everything that is in quarantine."""
    rows = DeadLetter.objects.filter(resolved_at=None)
    return bulk.replay_all(
        rows=rows, selection="all", expected=rows.count(), token=uuid4(), by=world.people[by], reason="Repaired."
    )


def test_people_come_decide_and_go_on_the_role_of_the_web(as_role: As) -> None:
    with as_role(grants.WEB):
        person = User.objects.create_user("ada", password="correct horse", is_staff=True, is_superuser=True)
        person.groups.set(Group.objects.filter(name__in=[roles.COMPLIANCE, roles.RETENTION_MANAGER]))
        person.groups.set(Group.objects.filter(name=roles.COMPLIANCE))
        client = Client()
        answer = client.post(reverse("account_login"), {"login": "ada", "password": "correct horse"}, follow=True)
        assert answer.wsgi_request.user == person
        for name in ("my-work", "dashboard", "find", "admin:base_auditevent_changelist"):
            assert client.get(reverse(name)).status_code == 200, name
        assert client.post(reverse("account_logout")).status_code == 302
        assert AuditEvent.objects.filter(actor=person, action__startswith="session.").count() == 2


def test_the_doctor_looks_at_all_that_its_role_may_see(as_role: As) -> None:
    for part, factors in ((grants.WEB, Verdict.OK), (grants.WORKER, Verdict.NOT_ASKED)):
        with as_role(part):
            said = list(doctor.examine(offline=True))
        assert [each.seen for each in said if "broke off" in each.seen] == []
        assert {each.verdict for each in said if each.subject == "database role"} == {Verdict.OK}
        assert [each.verdict for each in said if "second factors" in each.seen] == [factors]


def test_the_web_process_reads_every_table() -> None:
    """So no page can fail for want of a right to read; what it writes is tried above."""
    assert all("SELECT" in grants.may(grants.WEB, table) for table in tables_there())


FORBIDDEN: Final = {
    grants.WEB: (
        "INSERT INTO ledger_receipt DEFAULT VALUES",
        "INSERT INTO ledger_manifestpart DEFAULT VALUES",
        "INSERT INTO ledger_manifestitem DEFAULT VALUES",
        "INSERT INTO ledger_skippeditem DEFAULT VALUES",
        "INSERT INTO ledger_scheduleslot DEFAULT VALUES",
        "UPDATE base_rolluptotal SET n = 0",
        "INSERT INTO django_q_schedule DEFAULT VALUES",
        "UPDATE base_rolluptotal SET n = 0",
        "UPDATE django_q_ormq SET payload = ''",
        "DELETE FROM ledger_attempt",
    ),
    grants.WORKER: (
        "UPDATE base_user SET is_superuser = true",
        "INSERT INTO base_apitoken DEFAULT VALUES",
        "UPDATE base_apitoken SET created_by_id = 1",
        "INSERT INTO retention_policyrevision DEFAULT VALUES",
        "INSERT INTO retention_retentionevent DEFAULT VALUES",
        "UPDATE retention_legalhold SET released_at = now()",
        "UPDATE retention_stopswitch SET lifted_at = now()",
        "UPDATE ledger_erasurerequest SET approved = true",
        "INSERT INTO base_user_groups DEFAULT VALUES",
        "INSERT INTO retention_enforcement DEFAULT VALUES",
        "UPDATE retention_holdrelease SET reason = ''",
        "SELECT FROM mfa_authenticator",
        "SELECT FROM base_session",
        "DELETE FROM ledger_receiptlocator",
        "DELETE FROM ledger_commandtarget",
    ),
    grants.COMPACTION: (
        "SELECT FROM base_user",
        "UPDATE ledger_cleanupcommand SET state = 'ready'",
        "UPDATE ledger_deadletter SET resolved_at = now()",
        "INSERT INTO ledger_receipt DEFAULT VALUES",
        "DELETE FROM ledger_receipt",
    ),
}
FORBIDDEN_TO_ALL: Final = (
    "UPDATE ledger_receipt SET body = ''",
    "DELETE FROM ledger_receipt",
    "UPDATE base_auditevent SET reason = ''",
    "DELETE FROM base_auditevent",
    "TRUNCATE ledger_receipt",
    "TRUNCATE base_rollup",
    "DROP TABLE ledger_receipt",
    "ALTER TABLE ledger_receipt DISABLE TRIGGER append_only",
    "DROP TRIGGER append_only ON ledger_receipt",
    "CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
    "CREATE TABLE mine (id int)",
    "SET session_replication_role = replica",
    "SET ROLE cleanup_owner",
    "UPDATE auth_group_permissions SET group_id = 1",
    "DELETE FROM django_migrations",
    "SELECT setval(pg_get_serial_sequence('ledger_receipt', 'id'), 1)",
)


def test_the_server_refuses_what_is_no_part_of_a_role(as_role: As) -> None:
    for part, statements in FORBIDDEN.items():
        with as_role(part):
            for statement in (*statements, *FORBIDDEN_TO_ALL):
                with refused(statement), connection.cursor() as cursor:
                    cursor.execute(statement)
            with connection.cursor() as cursor:
                cursor.execute("SHOW statement_timeout")
                assert cursor.fetchone() == (("30s",) if part == grants.WEB else ("0",))


def test_what_was_granted_beyond_is_taken_back_and_what_everybody_may_is_not_relied_on(as_role: As) -> None:
    with as_role("owner"):
        with connection.cursor() as cursor:
            cursor.execute("GRANT DELETE, UPDATE (outcome) ON ledger_receipt TO cleanup_web, cleanup_worker")
            cursor.execute(f'REVOKE ALL ON DATABASE "{connection.settings_dict["NAME"]}" FROM PUBLIC')
        call_command("grants")
    for part in (grants.WEB, grants.WORKER):
        with as_role(part), connection.cursor() as cursor:
            for beyond in ("DELETE FROM ledger_receipt", "UPDATE ledger_receipt SET outcome = ''"):
                with refused(beyond):
                    cursor.execute(beyond)
            cursor.execute("CREATE TEMPORARY TABLE mine (id int)")


@contextmanager
def refused(what: str = "") -> Iterator[None]:
    """The server says that the role may not, and not that something else is wrong."""
    with pytest.raises(ProgrammingError) as raised:
        yield
    assert isinstance(raised.value.__cause__, InsufficientPrivilege), (what, raised.value)


def test_roles_that_limit_nothing_and_roles_that_are_missing_are_refused(as_role: As) -> None:
    with as_role("owner"):
        for options, words in (
            ({"web_role": "nobody_here"}, "There is no role nobody_here: make it"),
            ({"worker_role": "cleanup_owner"}, "limits nothing. Name another role by --worker-role"),
            (
                {"web_role": "cleanup_worker", "worker_role": "cleanup_web"},
                "ALTER ROLE cleanup_worker SET statement_timeout",
            ),
        ):
            with pytest.raises(CommandError, match=words):
                call_command("grants", **options)
    with as_role(grants.WORKER), pytest.raises(CommandError, match="owns no tables here"):
        call_command("grants")
    with as_role("owner"):  # one role for all, where somebody wants no more
        call_command("grants", web_role="cleanup_worker", compaction_role="cleanup_worker", verbosity=0)
    with as_role(grants.WORKER):
        assert not Receipt.objects.exists()
        assert not User.objects.exists()
    with as_role(grants.WEB):  # granted before, and by that command to nobody else
        assert not User.objects.exists()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ("GRANT cleanup_owner TO unfit", "may become who does: whatever it is granted limits nothing"),
        ("ALTER ROLE unfit NOINHERIT; GRANT cleanup_owner TO unfit", "may become who does"),
        ("GRANT pg_write_all_data TO unfit", "may write everything"),
        ("ALTER ROLE unfit CREATEROLE", "CREATEROLE"),
        ("ALTER ROLE unfit SUPERUSER", "is a superuser"),
        ("ALTER ROLE unfit SET statement_timeout = '0s'", "ALTER ROLE unfit SET statement_timeout"),
    ],
)
def test_a_role_that_no_grant_would_limit_is_refused(as_role: As, made: str, words: str) -> None:
    databases.tool("psql", "--dbname=postgres", "--single-transaction", f"--command=CREATE ROLE unfit; {made}")
    try:
        with as_role("owner"), pytest.raises(CommandError, match=words):
            call_command("grants", web_role="unfit")
    finally:
        databases.tool("psql", "--dbname=postgres", "--command=DROP ROLE unfit")


def test_whoever_deletes_rows_may() -> None:
    """Where code deletes, `grants.DELETED` says from which table; a new place fails here until it does."""
    deleting = {str(path) for path in sources("*.py") if re.search(r"\.delete\(\)", path.read_text())}
    assert deleting == set(DELETING), "say in DELETING, and in operations/grants.py, which tables"
    tables = {table for found in DELETING.values() for table in found}
    named = {
        name for path in sources("*.sql", "*.py") for name in re.findall(r"DELETE FROM ([a-z_]+)", path.read_text())
    }
    named -= {"catalogue_page", "webhook_seen"}  # temporary; a receiver's own
    assert tables | named <= set(grants.DELETED) | set(grants.COMPACTS)
    assert (
        set(grants.DELETED) | grants.MIGRATED | grants.PEOPLES | grants.WORKS | set(grants.COMPACTS) <= tables_there()
    )


DELETING: Final = {
    "cleanup_project/base/heartbeats.py": ("base_heartbeat",),
    "cleanup_project/base/queue.py": ("django_q_schedule", "django_q_task"),
    "cleanup_project/base/rollups.py": ("base_rollup",),
    "cleanup_project/base/signin/factors.py": ("mfa_authenticator",),
    "cleanup_project/base/signin/provider.py": ("socialaccount_socialaccount", "socialaccount_socialtoken"),
    "cleanup_project/base/signin/sessions.py": ("base_session",),
    "retention/policies.py": ("retention_impactpreview", "retention_policyrevision"),
}


def sources(*patterns: str) -> Iterator[Path]:
    for top in ("cleanup_project", "ledger", "retention", "webhooks"):
        for pattern in patterns:
            yield from (path for path in Path(top).rglob(pattern) if "migrations" not in path.parts)


def tables_there() -> set[str]:
    """Of every model, and the cache's, which has none."""
    models = apps.get_models(include_auto_created=True)
    return {model._meta.db_table for model in models} | {"base_cache", "django_migrations"}
