"""Fixtures for every test: a database that is as the migrations left it, people of each role, a small world."""

import gc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import TransactionTestCase, override_settings

from cleanup_project.base import roles, streams
from cleanup_project.base.models import User
from retention.models import Bucket, Tenant
from tests import flushing

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
    "test_permission_matrix.py",
    "test_bench.py",
)
# They ask for every page, fill large tables or try thousands of worlds; what they run is covered by tests of its own. Tracing
# costs them as much again as they take.
UNTRACED = frozenset(
    {
        "test_every_page.py",
        "test_faults_bulk.py",
        "test_permission_matrix.py",
        "test_scan_plans.py",
        "test_machine.py",
        "test_eligibility_agreement.py",
        "test_admin_access.py",
        "test_api_matrix.py",
        "test_api_description.py",
        "test_flows.py",
    }
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in UNTRACED and not config.getoption("no_cov"):  # which cannot bear the mark
            item.add_marker(pytest.mark.no_cover)
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """A streamed answer that a test did not take to its end keeps its place until it is collected: the test client makes it
    refer to itself.
    """
    if streams.places._value < streams.AT_ONCE:
        gc.collect()


@pytest.fixture(scope="session", autouse=True)
def quick_passwords() -> Iterator[None]:
    """The product's own hasher takes a quarter of a second for each person that a test makes."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    with django_db_blocker.unblock():
        flushing.keep()


def _flush(self: TransactionTestCase) -> None:
    flushing.flush()


TransactionTestCase._fixture_teardown = _flush  # type: ignore[method-assign]


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
