"""The files of a deployment name what there is, and the web process of production serves and ends in order."""

import base64
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from contextlib import closing, contextmanager, suppress
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import yaml
from django.core.management import get_commands

from cleanup_project import gunicorn
from cleanup_project.base import limits
from cleanup_project.operations import grants, servers
from cleanup_project.operations.doctor import configuration
from tests.operations.clusters import database_url

UNITS: Final = sorted(Path("docs/deploy").glob("*.service"))
TIMERS: Final = sorted(Path("docs/deploy").glob("*.timer"))
COMPOSE: Final = yaml.safe_load(Path("compose.yaml").read_text())
APPLICATION: Final = {name: each for name, each in COMPOSE["services"].items() if name != "database"}
# Of PostgreSQL's image and of the shell: not the product's.
FOREIGN: Final = {"POSTGRES_PASSWORD", "PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
PASSWORDS: Final = {"OWNER_PASSWORD", "WEB_PASSWORD", "WORKER_PASSWORD", "COMPACTION_PASSWORD"}
# What other programs read: boto3, gunicorn, the C library.
READ_ELSEWHERE: Final = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE",
    "GUNICORN_CMD_ARGS", "WEB_CONCURRENCY", "RES_OPTIONS",
}  # fmt: skip


class Unit(ConfigParser):
    """A systemd unit: names are case-sensitive, and the last of several lines counts."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False, interpolation=None)
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.read(path)


def documented() -> set[str]:
    return set(re.findall(r"\b[A-Z][A-Z0-9_]{2,}(?==)|\bAWS_[A-Z_]+", Path(".env.example").read_text()))


def read_by_settings() -> set[str]:
    return set(re.findall(r'env_\w+\(\s*"([A-Z_]+)"', Path("cleanup_project/settings.py").read_text()))


def test_every_variable_that_the_settings_read_is_documented_and_no_other() -> None:
    asked = read_by_settings() - {"WEB_PROCESS"}  # cleanup_project.wsgi sets it
    assert "DATABASE_URL" in asked
    assert documented() == asked | READ_ELSEWHERE


def test_the_files_set_variables_that_there_are() -> None:
    known = documented() | FOREIGN | PASSWORDS
    for name, service in COMPOSE["services"].items():
        assert set(service.get("environment", {})) <= known, name
    docker = Path("Dockerfile").read_text()
    assert set(re.findall(r"\b([A-Z][A-Z_]+)=", docker.split("FROM")[2])) <= known
    assert set(re.findall(r"environ.get\('([A-Z_]+)'", docker)) <= known


def test_the_files_run_commands_that_there_are() -> None:
    texts = [path.read_text() for path in (Path("Dockerfile"), Path("compose.yaml"), *UNITS)]
    called = set(re.findall(r"manage\.py[\", ]+([a-z-]+)", "\n".join(texts)))
    assert {"migrate", "grants", "worker", "sweep", "compact", "collectstatic"} <= called
    assert called <= set(get_commands())
    for text in texts:
        for line in re.findall(r".*gunicorn[\" ,].*", text):
            assert "python:cleanup_project.gunicorn" in line
    assert gunicorn.control_socket_disable
    assert gunicorn.wsgi_app == "cleanup_project.wsgi"


def test_the_worker_is_asked_alone_to_end_and_gets_the_time_that_it_takes() -> None:
    service = Unit(Path("docs/deploy/cleanup-worker.service"))["Service"]
    assert (service["KillMode"], service["Restart"], service["OOMPolicy"]) == ("mixed", "always", "kill")
    assert int(service["TimeoutStopSec"]) > limits.STOP
    worker = COMPOSE["services"]["worker"]
    assert worker["command"] == ["python", "manage.py", "worker"]
    assert int(worker["stop_grace_period"].removesuffix("s")) > limits.STOP
    for name, seconds in (("web", "stop_grace_period"), ("worker", "stop_grace_period")):
        assert COMPOSE["services"][name][seconds]
        assert COMPOSE["services"][name]["init"] is True
    assert int(COMPOSE["services"]["web"]["stop_grace_period"].removesuffix("s")) > gunicorn.graceful_timeout
    assert int(Unit(Path("docs/deploy/cleanup-web.service"))["Service"]["TimeoutStopSec"]) > gunicorn.graceful_timeout


def test_every_service_runs_as_its_own_role_and_cannot_write_elsewhere() -> None:
    roles = {f"cleanup_{part}" for part in ("owner", "web", "worker", "compaction")}
    assert set(grants.ROLES.values()) < roles
    assert set(re.findall(r"CREATE ROLE|cleanup_\w+", Path("docs/deploy/roles.sql").read_text())) >= roles
    used = {name: re.search(r"//(\w+):", each["environment"]["DATABASE_URL"]) for name, each in APPLICATION.items()}
    assert {name: found and found[1] for name, found in used.items()} == {
        "migrate": "cleanup_owner", "web": "cleanup_web", "worker": "cleanup_worker", "sweep": "cleanup_worker",
        "watch": "cleanup_worker", "compaction": "cleanup_compaction",
    }  # fmt: skip
    for each in APPLICATION.values():
        assert (each["read_only"], each["cap_drop"]) == (True, ["ALL"])
    shared = [each["volumes"] for name, each in APPLICATION.items() if name in {"web", "worker"}]
    assert shared[0] == shared[1]
    for path in UNITS:
        service = Unit(path)["Service"]
        assert (service["User"], service["ProtectSystem"], service["NoNewPrivileges"]) == (
            "cleanup",
            "strict",
            "true",
        ), path
        assert (service["PrivateTmp"], service["CapabilityBoundingSet"]) == ("true", ""), path


def test_what_comes_by_itself_is_installed_and_enabled() -> None:
    guide = Path("docs/deployment.md").read_text()
    (enabled,) = re.findall(r"systemctl enable --now ([^`]+)`", guide)
    assert set(enabled.split()) == {"cleanup-web", "cleanup-worker", *(path.name for path in TIMERS)}
    for path in TIMERS:
        assert path.with_suffix(".service") in UNITS


@pytest.mark.parametrize("name", ["sweep", "watch"])
def test_a_sweep_and_a_watch_come_every_five_minutes_as_a_worker_without_the_workers(name: str) -> None:
    unit = Unit(Path(f"docs/deploy/cleanup-{name}.service"))["Service"]
    assert (unit["Type"], unit["EnvironmentFile"]) == ("oneshot", "/etc/cleanup/worker.env")
    assert unit["ExecStart"].endswith(f"manage.py {name}")
    assert Unit(Path(f"docs/deploy/cleanup-{name}.timer"))["Timer"]["OnUnitInactiveSec"] == "5min"
    service = COMPOSE["services"][name]
    assert service["command"] == ["sh", "-c", f"while sleep 300; do python manage.py {name}; done"]
    assert (service["env_file"], service["restart"]) == (["cleanup.env", "worker.env"], "unless-stopped")
    assert "profiles" not in service, "it would not come up by itself"


def test_the_image_gets_what_runs_and_nothing_else() -> None:
    let_in = {line[1:] for line in Path(".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_in == {
        "pyproject.toml", "uv.lock", "manage.py", "cleanup_project", "ledger", "retention", "webhooks", "templates",
        configuration.EXAMPLE,
    }  # fmt: skip
    stages = Path("Dockerfile").read_text().split("FROM ")
    assert "--locked --no-default-groups" in stages[1]
    assert "USER cleanup" in stages[2]
    for line in re.findall(r"^(?:CMD|.*--start-period.*CMD) (.*)$", stages[2], re.MULTILINE):
        assert line.startswith("["), "the shell would stand between the container and its process"


def test_what_is_installed_for_good_has_the_client_of_every_broker() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    assert {"redis", "boto3"} <= {re.split(r"[^\w-]", each)[0] for each in project["dependencies"]}
    installs = {
        str(path): set(re.findall(r"uv sync[^`\n]*", path.read_text()))
        for path in (Path("Dockerfile"), Path("docs/deployment.md"), Path("docs/upgrading.md"))
    }
    for path, commands in installs.items():
        assert {each for each in commands if "--" in each} == {"uv sync --locked --no-default-groups"}, path


HOST: Final = "cleanup.example.org"
ASKED: Final = {"Host": HOST, "X-Forwarded-Proto": "https", "Accept-Encoding": "gzip"}


@pytest.mark.django_db  # it reads, and writes nothing
def test_the_web_process_of_production_serves_and_ends_in_order(tmp_path: Path) -> None:
    environment = production(tmp_path)
    collect = ["manage.py", "collectstatic", "--no-input", "--verbosity", "0"]
    subprocess.run([sys.executable, *collect], env=environment, check=True)
    with web(environment, tmp_path) as (process, port):
        page = asked(port, "/signin/")
        (sheet,) = set(re.findall(r'href="(/static/base/shell\.[0-9a-f]{12}\.css)"', page.body.decode()))
        file = asked(port, sheet)
        assert file.headers["Cache-Control"] == "max-age=315360000, public, immutable"
        assert file.headers["Content-Encoding"] == "gzip"
        plain = asked(port, "/signin/?name=ada", {"Host": HOST, "X-Forwarded-For": "192.0.2.7"})
        assert (plain.status, plain.headers["Location"]) == (301, f"https://{HOST}/signin/?name=ada")
        assert asked(port, "/signin/", ASKED | {"Host": "other.example"}).status == 400
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    (redirected,) = [line for line in lines if line.get("code") == "301" and line["logger"] == "gunicorn.access"]
    assert (redirected["path"], redirected["forwarded_for"]) == ("/signin/", "192.0.2.7")
    assert not list(tmp_path.rglob("*.ctl"))


def production(folder: Path) -> dict[str, str]:
    """As docs/deployment.md has it set, on the test's database."""
    told = {
        "DATABASE_URL": database_url(), "SECRET_KEY": secrets.token_urlsafe(50), "ALLOWED_HOSTS": HOST,
        "ENCRYPTION_KEYS": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(), "BEHIND_TLS_PROXY": "1",
        "STATIC_ROOT": str(folder / "static"), "EXPORT_DIR": str(folder / "exports"), "LOG_JSON": "1",
        "WEB_CONCURRENCY": "1", "HOME": str(folder),
    }  # fmt: skip
    return {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"} | told


@contextmanager
def web(environment: Mapping[str, str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    (port,) = servers.free_ports(1)
    command = ["-m", "gunicorn", "-c", "python:cleanup_project.gunicorn", "--bind", f"127.0.0.1:{port}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, *command], env=dict(environment), stdout=log, stderr=log)
        try:
            until = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < until:
                with suppress(ConnectionError):
                    asked(port, "/static/")
                    break
                time.sleep(0.1)
            yield process, port
        finally:
            process.kill()
            process.wait()
            print((folder / "log").read_text()[-4000:])  # noqa: T201 - pytest shows it where a test failed


class Answer(NamedTuple):
    status: int
    headers: Message
    body: bytes


def asked(port: int, path: str, headers: Mapping[str, str] = ASKED) -> Answer:
    """One request as a proxy passes it on; no redirect is followed."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
