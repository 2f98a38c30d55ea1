"""System checks fail where the ground is not as the ledger needs it."""

from pathlib import Path

import pytest
from django.conf import LazySettings
from django.db import connection

from cleanup_project.base import checks


@pytest.mark.django_db
def test_the_session_is_as_promised_and_a_change_is_found() -> None:
    assert checks.database_promises(databases=["default"]) == []
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = off")
    (found,) = checks.database_promises(databases=["default"])
    assert (found.id, "synchronous_commit" in found.msg) == ("base.E002", True)


def test_deployment_refuses_the_embedded_database(settings: LazySettings) -> None:
    settings.EMBEDDED_DATABASE = True
    assert [each.id for each in checks.real_database()] == ["base.E003"]
    settings.EMBEDDED_DATABASE = False
    assert checks.real_database() == []


def test_deployment_refuses_decisions_on_a_password_alone(settings: LazySettings) -> None:
    settings.MFA_REQUIRED = False
    assert [each.id for each in checks.second_factor()] == ["base.E005"]
    settings.MFA_REQUIRED = True
    assert checks.second_factor() == []


@pytest.mark.parametrize(
    ("issuer", "client", "words"),
    [
        ("", "", ""),
        ("https://id.example.org", "cleanup", ""),
        ("http://localhost:8080/realms/x", "cleanup", ""),
        ("https://id.example.org", "", "OIDC_CLIENT_ID is not set"),
        ("", "cleanup", "OIDC_ISSUER is not set"),
        ("http://id.example.org", "cleanup", "must be an https address"),
    ],
)
def test_an_identity_provider_is_set_up_as_a_whole(
    issuer: str, client: str, words: str, settings: LazySettings
) -> None:
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = issuer, client
    settings.OIDC_CLIENT_SECRET = "secret" if issuer or client else ""
    found = checks.identity_provider()
    assert [each.id for each in found] == (["base.E006"] if words else [])
    assert all(words in each.msg for each in found)


def test_attempts_are_counted_for_all_processes_together(settings: LazySettings) -> None:
    assert checks.shared_attempts() == []
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    assert [each.id for each in checks.shared_attempts()] == ["base.E007"]


def test_where_files_are_to_be_collected_they_are(settings: LazySettings, tmp_path: Path) -> None:
    settings.STATIC_ROOT = tmp_path
    assert [each.id for each in checks.collected_files()] == ["base.E008"]
    (tmp_path / "staticfiles.json").touch()
    assert checks.collected_files() == []
    settings.STATIC_ROOT = None
    assert checks.collected_files() == []
