"""System checks fail where the ground is not as the ledger needs it."""

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
