"""Settings: typed readers with errors that say what to do."""

from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured

from cleanup_project import environment, settings


@pytest.mark.parametrize(("raw", "value"), [("", None), ("1", True), ("Yes", True), (" off ", False), ("0", False)])
def test_a_flag_is_read(raw: str, value: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAG", raw)
    for default in (True, False):
        assert environment.env_bool("FLAG", default=default) is (default if value is None else value)


def test_a_wrong_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAG", "perhaps")
    with pytest.raises(ImproperlyConfigured, match=r"FLAG must be one of .* 'perhaps'"):
        environment.env_bool("FLAG")
    monkeypatch.setenv("NUMBER", "ten")
    with pytest.raises(ImproperlyConfigured, match="NUMBER must be a whole number"):
        environment.env_int("NUMBER", 1)


def test_a_database_url_is_read_whole() -> None:
    assert environment.parse_database_url("postgresql://a%40b:p%2Fw@db.example:6432/na%20me?sslmode=require") == {
        "NAME": "na me",
        "USER": "a@b",
        "PASSWORD": "p/w",
        "HOST": "db.example",
        "PORT": "6432",
        "OPTIONS": {"sslmode": "require"},
    }
    socket = environment.parse_database_url("postgres:///cleanup?host=/run/postgresql")
    assert (socket["HOST"], socket["PORT"], socket["OPTIONS"]) == ("/run/postgresql", "", {})


@pytest.mark.parametrize("url", ["mysql://localhost/x", "postgresql://localhost", "localhost"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL must look like"):
        environment.parse_database_url(url)


def test_the_pool_is_for_the_web_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u@h/n")
    monkeypatch.setattr(settings, "EMBEDDED_DATABASE", False)
    monkeypatch.setattr(settings, "WEB_PROCESS", True)
    web = settings.database()
    assert web["OPTIONS"]["pool"]["max_size"] == 8
    assert "CONN_MAX_AGE" not in web
    monkeypatch.setattr(settings, "WEB_PROCESS", False)
    worker = settings.database()
    assert (worker["CONN_MAX_AGE"], worker["CONN_HEALTH_CHECKS"]) == (60, True)
    assert "pool" not in worker["OPTIONS"]
    assert "lock_timeout" in worker["OPTIONS"]["options"]


def test_minutes_become_seconds_and_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINUTES", "5")
    assert environment.env_minutes("MINUTES", 10) == 300
    monkeypatch.delenv("MINUTES")
    assert environment.env_minutes("MINUTES", 10) == 600
    monkeypatch.setenv("MINUTES", "0")
    with pytest.raises(ImproperlyConfigured, match="MINUTES must be a number of minutes, 1 or more; it is 0"):
        environment.env_minutes("MINUTES", 10)


def test_times_are_read_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMES", " queue-age=30m, oldest-eligible = 3d,workers=2h ")
    assert environment.env_times("TIMES") == {
        "queue-age": timedelta(minutes=30), "oldest-eligible": timedelta(days=3), "workers": timedelta(hours=2),
    }  # fmt: skip
    monkeypatch.setenv("TIMES", "")
    assert environment.env_times("TIMES") == {}


@pytest.mark.parametrize("raw", ["3d", "a=", "a=3", "a=d", "a=0d", "a=-3d", "a=3w", "a=99999d", "a=1d,a=2d", "a=1.5h"])
def test_times_that_are_none_are_refused(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMES", raw)
    with pytest.raises(ImproperlyConfigured, match="TIMES must be a comma list such as oldest-eligible=3d"):
        environment.env_times("TIMES")


@pytest.mark.parametrize("raw", ["short", "with a blank in the middle of it", "é" * 30])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", raw)
    with pytest.raises(ImproperlyConfigured, match="TOKEN must be at least 20 printable ASCII characters"):
        environment.env_token("TOKEN")
    monkeypatch.setenv("TOKEN", "x" * 20)
    assert environment.env_token("TOKEN") == "x" * 20
    monkeypatch.delenv("TOKEN")
    assert environment.env_token("TOKEN") == ""


def test_addresses_are_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEOPLE", "ops@example.org, night@example.org")
    assert environment.env_addresses("PEOPLE") == ["ops@example.org", "night@example.org"]
    monkeypatch.setenv("PEOPLE", "ops@example.org,nobody")
    with pytest.raises(ImproperlyConfigured, match="comma list of e-mail addresses; 'nobody' is none"):
        environment.env_addresses("PEOPLE")


def test_hours_are_at_least_one_and_what_must_match_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOURS", "0")
    with pytest.raises(ImproperlyConfigured, match="HOURS must be a number of hours, 1 or more; it is 0"):
        environment.env_hours("HOURS", 24)
    monkeypatch.setenv("SITE", "https://cleanup.example.org/admin")
    with pytest.raises(ImproperlyConfigured, match=r"SITE must be a host; it is 'https://cleanup\.example\.org/admin'"):
        environment.env_matching("SITE", "https?://[^/ ]+", "a host")
    monkeypatch.setenv("SITE", "https://cleanup.example.org")
    assert environment.env_matching("SITE", "https?://[^/ ]+", "a host") == "https://cleanup.example.org"
