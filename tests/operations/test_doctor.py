"""The doctor: what is not as it has to be is found, with what to do about it; nothing is changed by being looked at."""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from allauth.mfa.models import Authenticator
from django.conf import settings as configured
from django.core.management import call_command
from django.db import connection
from django.db.models.functions import Now
from django_q.models import OrmQ, Schedule

from cleanup_project import gunicorn
from cleanup_project.base import queue, vault
from cleanup_project.base.models import Heartbeat, User
from cleanup_project.operations import doctor
from cleanup_project.operations.doctor import clocks, configuration, database, outside, work
from cleanup_project.operations.doctor.findings import Finding, Verdict, ok
from ledger.models import ReceiptExport, ScheduleSlot
from retention.models import Bucket, Tenant
from tests import brokers, world
from tests.base.oidc import CLIENT_ID, CLIENT_SECRET, serving
from tests.webhooks.certificates import Authority
from tests.webhooks.http import Wire, receiver, wire
from tests.webhooks.world import endpoint
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db

Verdicts = list[Verdict]


def found(check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What a check finds; whatever is not well has its advice."""
    findings = list(check())
    assert all(each.advice for each in findings if each.verdict is not Verdict.OK)
    return findings


def verdicts(check: Callable[[], Iterable[Finding]]) -> Verdicts:
    return [each.verdict for each in found(check)]


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


# The command


def test_the_command_prints_one_json_object_and_fails_with_any_fault(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("doctor", "--json", "--offline")
    said = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1
    assert set(said) == {"findings", "counts"}
    assert set(said["counts"]) == {"ok", "warning", "fault", "not_asked"}
    assert sum(said["counts"].values()) == len(said["findings"]) > 15
    for each in said["findings"]:
        assert set(each) == {"subject", "verdict", "seen", "advice"}
        assert each["subject"]
        assert each["seen"]
        assert bool(each["advice"]) == (each["verdict"] != "ok"), each
    assert not [each for each in said["findings"] if "broke off" in each["seen"]]
    assert any("base.E003" in each["seen"] for each in said["findings"])  # the tests' own server is the embedded one


def test_the_command_prints_a_line_for_each_finding(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [ok("a", "Well."), Finding("b", Verdict.WARNING, "Line\nbreak.", "Do this.")]
    monkeypatch.setattr(doctor, "examine", lambda *_, **__: iter(said))
    call_command("doctor")
    assert capsys.readouterr().out.splitlines() == [
        "ok        a: Well.",
        "warning   b: Line\\nbreak. → Do this.",
        "1 ok, 1 warning, 0 faults, 0 not asked",
    ]


def test_a_database_that_does_not_answer_is_a_fault_and_not_a_traceback() -> None:
    environment = os.environ | {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "LOG_LEVEL": "ERROR"}
    ended = subprocess.run(
        [sys.executable, "manage.py", "doctor", "--json", "--offline"],
        cwd=configured.BASE_DIR, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    said = {each["subject"]: each for each in json.loads(ended.stdout)["findings"]}
    assert (ended.returncode, said["database"]["verdict"]) == (1, "fault")
    assert "Traceback" not in ended.stderr
    assert "migrations" not in said


def test_a_check_that_breaks_off_is_a_finding_and_changes_nothing() -> None:
    def writes() -> Iterable[Finding]:
        Tenant.objects.create(code="left-behind")
        yield ok("one", "Well.")

    def breaks() -> Iterable[Finding]:
        yield from writes()
        raise ZeroDivisionError("no such case")

    assert found(lambda: doctor.kept(doctor.undone(writes), "one")) == [ok("one", "Well.")]
    assert not Tenant.objects.exists()
    (told,) = found(lambda: doctor.kept(doctor.undone(breaks), "one"))
    assert (told.verdict, "ZeroDivisionError: no such case" in told.seen) == (Verdict.NOT_ASKED, True)
    assert not Tenant.objects.exists()
    sql("SELECT 1 / 1")  # and the transaction goes on


# Settings, environment, disk


def test_system_checks_are_lines(settings: Any) -> None:
    settings.DEBUG = True
    settings.MFA_REQUIRED, settings.SILENCED_SYSTEM_CHECKS = False, ["base.E003"]
    said = found(lambda: configuration.system_checks(databases=["default"]))
    assert [each.verdict for each in said if "(base.E005)" in each.seen] == [Verdict.FAULT]
    assert [each.advice for each in said if "(security.W018)" in each.seen] == ["Leave DEBUG unset."]
    assert not [each for each in said if "(base.E003)" in each.seen]
    assert [each.verdict for each in said if "base.E003" in each.seen] == [Verdict.WARNING]


def test_names_that_nothing_reads_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts(configuration.environment) == [Verdict.OK]
    for name in ("WEBHOOK_ALOW_HTTP", "WORKER", "OIDC_SECRET_OF_MINE", "SOMETHING_ELSE"):
        monkeypatch.setenv(name, "1")
    said = {each.seen.split()[0]: each.advice for each in found(configuration.environment)}
    assert said == {
        "OIDC_SECRET_OF_MINE": "Unset OIDC_SECRET_OF_MINE.",
        "WEBHOOK_ALOW_HTTP": "Write WEBHOOK_ALLOW_HTTP if that was meant; otherwise unset WEBHOOK_ALOW_HTTP.",
        "WORKER": "Write WORKERS if that was meant; otherwise unset WORKER.",
    }


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "HOST", "PORT", "HTTPS_PROXY", "WEB_CONCURRENCY", "AWS_PROFILE", "PGHOST"]
)
def test_names_of_others_are_left_alone(name: str) -> None:
    known = configuration.documented((configured.BASE_DIR / ".env.example").read_text())
    assert "DATABASE_URL" in known
    assert configuration.unknown([name], known) == {}


def test_every_variable_that_the_settings_read_is_on_the_list() -> None:
    source = (configured.BASE_DIR / "cleanup_project" / "settings.py").read_text()
    read = set(re.findall(r"env_\w+\(\s*\"([A-Z_]+)\"", source)) - {"WEB_PROCESS"}  # set by cleanup_project.wsgi
    known = configuration.documented((configured.BASE_DIR / ".env.example").read_text())
    assert len(read) > 25
    assert read - known == set()


def test_without_the_list_of_names_nothing_is_said_about_them(settings: Any, tmp_path: Path) -> None:
    settings.BASE_DIR = tmp_path
    assert verdicts(configuration.environment) == [Verdict.NOT_ASKED]


def test_static_files_that_lack_or_are_old_are_found(settings: Any, tmp_path: Path) -> None:
    assert verdicts(configuration.static_files) == [Verdict.OK]
    settings.STATIC_ROOT = str(tmp_path)
    (said,) = found(configuration.static_files)
    assert (said.verdict, "collectstatic" in said.advice) == (Verdict.FAULT, True)
    call_command("collectstatic", verbosity=0, interactive=False)
    assert verdicts(configuration.static_files) == [Verdict.OK]
    (tmp_path / "base" / "admin.css").write_text("/* of last year */")
    (said,) = found(configuration.static_files)
    assert (said.verdict, "1 differ there, for example base/admin.css" in said.seen) == (Verdict.FAULT, True)


def test_the_folder_of_exports(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.EXPORT_DIR = tmp_path / "not" / "yet"
    assert verdicts(configuration.export_folder) == [Verdict.OK]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(configuration, "ROOM", 1 << 60)
    assert verdicts(configuration.export_folder) == [Verdict.WARNING]
    (tmp_path / "file").touch()
    settings.EXPORT_DIR = tmp_path / "file" / "exports"
    assert verdicts(configuration.export_folder) == [Verdict.FAULT]


# The database


def test_a_superuser_passes_every_guard() -> None:
    (said,) = found(database.role)
    assert (said.verdict, "superuser" in said.seen) == (Verdict.FAULT, True)


@pytest.mark.parametrize(
    ("granted", "verdict"),
    [
        ("", Verdict.OK),
        ("GRANT TRUNCATE ON ledger_receipt TO doctors_patient", Verdict.WARNING),
        ("ALTER TABLE ledger_receipt OWNER TO doctors_patient", Verdict.WARNING),
        ("ALTER ROLE doctors_patient CREATEROLE", Verdict.WARNING),
        ("GRANT pg_write_all_data TO doctors_patient", Verdict.WARNING),
        (
            "CREATE ROLE an_owner; ALTER TABLE ledger_receipt OWNER TO an_owner; GRANT an_owner TO doctors_patient;"
            "ALTER ROLE doctors_patient NOINHERIT",
            Verdict.WARNING,
        ),
    ],
)
def test_a_role_that_could_get_past_the_guards(granted: str, verdict: Verdict) -> None:
    sql("CREATE ROLE doctors_patient")
    if granted:
        sql(granted)
    sql("SET LOCAL ROLE doctors_patient")
    try:
        assert verdicts(database.role) == [verdict]
    finally:
        sql("RESET ROLE")


def test_a_guard_that_was_switched_off_is_named() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgname FROM pg_trigger WHERE tgrelid = 'ledger_receipt'::regclass AND NOT tgisinternal LIMIT 1"
        )
        (name,) = cursor.fetchone()
    sql(f"ALTER TABLE ledger_receipt DISABLE TRIGGER {name}")
    said = found(database.role)[0]
    assert (said.verdict, f"{name} of ledger_receipt" in said.seen) == (Verdict.FAULT, True)


def test_waits_that_never_end() -> None:
    assert verdicts(database.waits) == [Verdict.WARNING]  # no role has a limit for statements
    sql("CREATE ROLE doctors_patient")
    sql("ALTER ROLE doctors_patient SET statement_timeout = '0s'")
    assert verdicts(database.waits) == [Verdict.WARNING]
    sql("ALTER ROLE doctors_patient SET statement_timeout = '30s'")
    (said,) = found(database.waits)
    assert (said.verdict, "doctors_patient" in said.seen) == (Verdict.OK, True)
    sql("SET LOCAL lock_timeout = 0")
    (said,) = found(database.waits)
    assert (said.verdict, said.seen) == (Verdict.FAULT, "lock_timeout would never end a wait.")


def test_a_server_that_keeps_its_promises() -> None:
    assert verdicts(database.durability) == [Verdict.OK]
    assert verdicts(database.encryption) == [Verdict.OK]
    assert verdicts(database.connections) == [Verdict.OK]
    assert verdicts(database.pooler) == [Verdict.OK]
    assert verdicts(database.migrations) == [Verdict.OK]
    assert database.answers().verdict is Verdict.OK


def test_what_the_server_must_not_switch_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "setting", lambda name: "off")  # needs a restart, or a power cut
    assert verdicts(database.durability) == [Verdict.FAULT] * 3


@pytest.mark.parametrize(("second", "verdict"), [(0, Verdict.FAULT), (7, Verdict.WARNING)])
def test_a_pooler_in_between(second: int, verdict: Verdict, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none here to ask: it greets with a number of its own, and may serve two of us by one process."""
    ((pid,),) = database.rows("SELECT pg_backend_pid()")
    monkeypatch.setattr(database, "greeting", lambda: pid + 1)
    monkeypatch.setattr(database, "second_pid", lambda: pid + second)
    (said,) = found(database.pooler)
    assert (said.verdict, "pool_mode = session" in said.advice) == (verdict, True)


def test_each_connection_is_served_by_a_process_of_its_own() -> None:
    ((pid,),) = database.rows("SELECT pg_backend_pid()")
    assert database.greeting() == pid != database.second_pid()


def test_a_migration_that_was_not_applied() -> None:
    sql("DELETE FROM django_migrations WHERE app = 'ledger'")
    (said,) = found(database.migrations)
    assert (said.verdict, "ledger.0001" in said.seen) == (Verdict.FAULT, True)


def test_more_connections_than_the_server_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEB_CONCURRENCY", raising=False)
    assert f"{gunicorn.workers} web processes" in found(database.connections)[0].seen
    monkeypatch.setenv("WEB_CONCURRENCY", "50")
    (said,) = found(database.connections)
    assert (said.verdict, "50 web processes" in said.seen) == (Verdict.FAULT, True)


@pytest.mark.parametrize(
    ("ahead", "doubt", "verdict"),
    [
        (0.2, 0.1, Verdict.OK),
        (-4.0, 0, Verdict.OK),
        (6.0, 2.0, Verdict.OK),
        (-7.5, 2, Verdict.WARNING),
        (31, 0.5, Verdict.FAULT),
    ],
)
def test_clocks_may_differ_by_so_much(ahead: float, doubt: float, verdict: Verdict) -> None:
    said = clocks.judged("clock", ahead, doubt, clocks.OF_HOST)
    assert (said.verdict, bool(said.advice)) == (verdict, verdict is not Verdict.OK)
    assert ("ahead of" in said.seen) == (ahead >= 0)


def test_the_clock_of_the_database_is_this_machines() -> None:
    assert verdicts(clocks.database) == [Verdict.OK]


# Work


def test_a_message_is_queued_and_taken_back() -> None:
    assert verdicts(work.broker) == [Verdict.OK]
    assert not OrmQ.objects.exists()


def test_a_message_that_nobody_takes() -> None:
    OrmQ.objects.create(key=queue.key_of(queue.WORK), payload="x", lock=datetime.now(UTC) - timedelta(hours=1))
    said = found(work.broker)[-1]
    assert (said.verdict, "work has waited for 1 h 0 min" in said.seen) == (Verdict.FAULT, True)


@pytest.mark.redis
def test_each_queue_of_a_broker_of_its_own_is_rung_once(settings: Any) -> None:
    with brokers.redis_server() as url, brokers.used(settings, url):
        assert verdicts(work.broker) == [Verdict.OK]
        assert [queue.broker_of(key).queue_size() for key in ("cleanup", "work")] == [1, 1]
    with brokers.used(settings, url):  # which is away now
        assert verdicts(work.broker) == [Verdict.FAULT]


def test_the_row_of_the_tick() -> None:
    queue.keep_schedule()
    assert verdicts(work.tick) == [Verdict.OK]
    Schedule.objects.update(minutes=7)
    assert verdicts(work.tick) == [Verdict.WARNING]
    Schedule.objects.all().delete()
    assert verdicts(work.tick) == [Verdict.WARNING]


def test_clusters_that_live_and_tick() -> None:
    assert verdicts(work.workers) == [Verdict.WARNING]
    control = Heartbeat.objects.create(host="one", queue="cleanup")
    (said,) = found(work.workers)
    assert (said.verdict, said.seen) == (Verdict.FAULT, "No cluster serves work.")
    Heartbeat.objects.create(host="two", queue="work")
    assert verdicts(work.workers) == [Verdict.OK, Verdict.WARNING]  # it has not ticked yet
    Heartbeat.objects.filter(pk=control.pk).update(last_tick_at=Now() - timedelta(minutes=10))
    assert verdicts(work.workers) == [Verdict.OK, Verdict.FAULT]
    Heartbeat.objects.filter(pk=control.pk).update(last_tick_at=Now())
    assert verdicts(work.workers) == [Verdict.OK, Verdict.OK]
    Heartbeat.objects.filter(pk=control.pk).update(seen_at=Now() - timedelta(hours=2))
    said = found(work.workers)
    assert [each.verdict for each in said] == [Verdict.WARNING, Verdict.FAULT]
    assert "cleanup on one was last seen 2 h 0 min ago" in said[0].seen


def test_slots_that_nobody_answered(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> None:
    assert verdicts(work.slots) == [Verdict.OK]
    policy = world.published(tenant, bucket, author=manager, publisher=second_manager, code="raw").policy
    long_ago = datetime.now(UTC) - timedelta(days=3)
    ScheduleSlot.objects.create(policy=policy, scheduled_for=long_ago, outcome="missed", reason="By the test.")
    (said,) = found(work.slots)
    assert (said.verdict, said.seen) == (Verdict.FAULT, "1 policy with a slot that nobody has answered: raw.")
    recent = datetime.now(UTC) - timedelta(minutes=1)
    ScheduleSlot.objects.create(policy=policy, scheduled_for=recent, outcome="missed", reason="By the test.")
    (said,) = found(work.slots)
    assert (said.verdict, "1 slot missed" in said.seen) == (Verdict.WARNING, True)


def test_what_was_sealed_with_a_key_that_is_gone(settings: Any, compliance: User) -> None:
    endpoint(compliance)
    Authenticator.objects.create(user=compliance, type="totp", data={"secret": vault.seal(b"x").decode()})
    kinds = (work.webhook_secrets, work.salts, work.second_factors)
    assert [verdicts(kind) for kind in kinds] == [[Verdict.OK]] * 3
    settings.SECRET_KEY = "another"
    said = [found(kind)[0] for kind in kinds]
    assert [each.verdict for each in said] == [Verdict.FAULT, Verdict.OK, Verdict.FAULT]
    assert said[1].seen.startswith("All 0 salts")
    assert said[2].seen.startswith("1 of 1 second factors cannot be opened")


def test_what_was_sealed_with_an_older_key_is_sealed_anew_before_that_goes(settings: Any, compliance: User) -> None:
    old, new = (base64.urlsafe_b64encode(bytes([number]) * 32).decode() for number in (1, 2))
    settings.ENCRYPTION_KEYS = [old]
    endpoint(compliance)
    settings.ENCRYPTION_KEYS = [new, old]
    (said,) = found(work.webhook_secrets)
    assert (said.verdict, said.seen) == (
        Verdict.WARNING, f"All 1 webhook secrets can be opened, 1 of them not by the first key ({vault.fingerprint()})."
    )  # fmt: skip
    call_command("reseal")
    (said,) = found(work.webhook_secrets)
    assert (said.verdict, said.seen) == (
        Verdict.OK, f"All 1 webhook secrets can be opened by the first key ({vault.fingerprint()})."
    )  # fmt: skip


def test_files_that_another_machine_made_must_be_here(settings: Any, tmp_path: Path) -> None:
    settings.EXPORT_DIR = tmp_path
    made = ReceiptExport.objects.create(
        token=uuid4(), form="people", way="files", selection={}, upto=1, expected=0, state="done", digest="0" * 64,
        finished_at=datetime.now(UTC), expires_at=datetime.now(UTC) + timedelta(days=1),
    )  # fmt: skip
    assert verdicts(work.exports) == [Verdict.FAULT]
    (tmp_path / f"export-{made.pk}").mkdir()
    assert verdicts(work.exports) == []


# Outside


@pytest.fixture
def loopback(settings: Any) -> None:
    settings.WEBHOOK_ALLOW_HTTP, settings.WEBHOOK_ALLOW_CIDRS = True, ["127.0.0.0/8"]


@pytest.mark.usefixtures("loopback")
def test_endpoints_are_connected_to_and_sent_nothing(compliance: User, tmp_path: Path) -> None:
    assert [each.seen for each in found(outside.endpoints)] == ["There are none."]
    with receiver() as inbox, wire(lambda *_: None, Authority.made(tmp_path).context()) as strange:
        endpoint(compliance, inbox.url, name="answers")
        endpoint(compliance, strange.url("https"), name="strange")
        endpoint(compliance, "http://127.0.0.1:1/", name="closed")
        endpoint(compliance, "http://127.0.0.1:1/", name="disabled", enabled=False)
        endpoint(compliance, "http://10.0.0.1/", name="inside")
        said = {each.subject.rpartition(" ")[2]: each for each in found(outside.endpoints)}
        assert inbox.requests == []
        assert strange.heads == []
    assert {name: each.verdict for name, each in said.items()} == {
        "answers": Verdict.OK,
        "closed": Verdict.FAULT,
        "disabled": Verdict.WARNING,
        "inside": Verdict.FAULT,
        "strange": Verdict.FAULT,
    }
    assert "(tls_cert)" in said["strange"].seen
    assert "(blocked)" in said["inside"].seen
    assert "(network)" in said["closed"].seen
    assert Endpoint.objects.filter(failing_since__isnull=False).count() == 0


def test_an_identity_provider_is_asked_as_a_sign_in_asks_it(settings: Any) -> None:
    assert verdicts(outside.identity_provider) == [Verdict.OK]
    with serving() as provider:
        settings.OIDC_ISSUER = provider.issuer
        known = deepcopy(settings.SOCIALACCOUNT_PROVIDERS)
        (app,) = known["openid_connect"]["APPS"]
        app |= {"client_id": CLIENT_ID, "secret": CLIENT_SECRET}
        app["settings"]["server_url"] = provider.issuer
        settings.SOCIALACCOUNT_PROVIDERS = known
        (said,) = found(outside.identity_provider)
        assert (said.verdict, provider.issuer in said.seen) == (Verdict.OK, True)
        settings.OIDC_ISSUER = "https://id.example.org"
        assert verdicts(outside.identity_provider) == [Verdict.WARNING]
    assert verdicts(outside.identity_provider) == [Verdict.FAULT]


def test_a_mail_server_is_greeted_and_sent_nothing(settings: Any) -> None:
    assert verdicts(outside.mail_server) == [Verdict.OK]

    def greet(server: Wire, connection: Any, number: int) -> None:
        connection.sendall(b"220 ready\r\n")
        while line := connection.recv(1000):
            server.heads.append(line)
            connection.sendall(b"221 bye\r\n")

    settings.EMAIL_BACKEND, settings.EMAIL_HOST = outside.SMTP, "127.0.0.1"
    assert verdicts(outside.mail_server) == [Verdict.OK]  # who would be written to?
    settings.ALERT_EMAILS = ["ops@example.org"]
    with wire(greet) as server:
        settings.EMAIL_PORT = server.port
        assert verdicts(outside.mail_server) == [Verdict.OK]
    assert server.heads == [b"quit\r\n"]
    assert verdicts(outside.mail_server) == [Verdict.FAULT]
