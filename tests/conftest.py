"""Fixtures for every test: guards lifted while a transactional test flushes, people of each role, a small world."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import TransactionTestCase

from cleanup_project.base import roles
from cleanup_project.base.models import User
from retention.models import Bucket, Tenant

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


# Files of few tests and many seconds: begun first, so that two processes end together.
LONG = (
    "test_every_page.py",
    "test_faults_bulk.py",
    "test_machine.py",
    "test_scan_plans.py",
    "test_worker.py",
    "test_faults_servers.py",
    "test_faults_processes.py",
    "test_eligibility_agreement.py",
    "test_claims.py",
    "test_hold_processes.py",
    "test_demo.py",
    "test_bench.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@contextmanager
def guards_lifted() -> Iterator[None]:
    """Disable the triggers that refuse TRUNCATE, which is how transactional tests flush, and bring them back."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgrelid::regclass::text, tgname FROM pg_trigger WHERE tgenabled = 'A' AND NOT tgisinternal"
        )
        guards = cursor.fetchall()
        for table, trigger in guards:
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}")
    yield
    with connection.cursor() as cursor:
        for table, trigger in guards:
            cursor.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}")


_flush = TransactionTestCase._fixture_teardown


def _flush_with_guards_lifted(self: TransactionTestCase) -> None:
    with guards_lifted():
        _flush(self)


TransactionTestCase._fixture_teardown = _flush_with_guards_lifted  # type: ignore[method-assign]


@pytest.fixture
def person(db: None) -> Callable[..., User]:
    """Makes a user: `person("ada", roles.COMPLIANCE)`."""

    def make(name: str, *groups: str, **fields: Any) -> User:
        user = User.objects.create_user(name, password="correct horse", is_staff=True, **fields)
        user.groups.set(Group.objects.filter(name__in=groups))
        return user

    return make


@pytest.fixture
def manager(person: Callable[..., User]) -> User:
    return person("manager", roles.RETENTION_MANAGER)


@pytest.fixture
def second_manager(person: Callable[..., User]) -> User:
    return person("second-manager", roles.RETENTION_MANAGER)


@pytest.fixture
def compliance(person: Callable[..., User]) -> User:
    return person("compliance", roles.COMPLIANCE)


@pytest.fixture
def tenant(db: None) -> Tenant:
    return Tenant.objects.create(code="acme", name="Acme Media")


@pytest.fixture
def bucket(db: None) -> Bucket:
    return Bucket.objects.create(name="media")
