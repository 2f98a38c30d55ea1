"""The role matrix: groups hold exactly their rights, and nobody approves by being a superuser."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group

from cleanup_project.base import roles
from cleanup_project.base.models import User

pytestmark = pytest.mark.django_db

# The table of decisions, written out a second time so that a change of either is noticed.
EXPECTED = {
    "draft_policy": {roles.RETENTION_MANAGER},
    "publish_policy": {roles.RETENTION_MANAGER, roles.COMPLIANCE},
    "approve_run": {roles.RETENTION_MANAGER, roles.COMPLIANCE},
    "place_hold": {roles.COMPLIANCE},
    "approve_release": {roles.COMPLIANCE},
    "review_quarantine": {roles.COMPLIANCE},
    "operate": {roles.COMPLIANCE, roles.OPERATOR},
    "post_event": {roles.RETENTION_MANAGER, roles.COMPLIANCE},
    "stop": {roles.RETENTION_MANAGER, roles.COMPLIANCE, roles.OPERATOR, roles.ADMINISTRATOR},
    "rearm": {roles.COMPLIANCE},
    "read_everything": {roles.COMPLIANCE, roles.AUDITOR},
    "export_receipts": {roles.COMPLIANCE, roles.AUDITOR},
    "manage_settings": {roles.ADMINISTRATOR},
}


@pytest.mark.parametrize("role", roles.MATRIX)
def test_a_role_may_decide_exactly_what_the_table_says(role: str, person: Callable[..., User]) -> None:
    user = person("someone", role)
    assert {right for right in roles.RIGHTS if user.has_perm(f"base.{right}")} == {
        right for right, holders in EXPECTED.items() if role in holders
    }


def test_every_right_is_in_the_table() -> None:
    assert set(EXPECTED) == set(roles.RIGHTS)


def test_a_superuser_takes_no_decision_without_a_role(person: Callable[..., User]) -> None:
    root = person("root", is_superuser=True)
    assert {right for right in roles.RIGHTS if root.has_perm(f"base.{right}")} == roles.SUPERUSER_RIGHTS
    root = person("root2", roles.COMPLIANCE, is_superuser=True)
    assert root.has_perm("base.approve_release")


def test_an_inactive_person_decides_nothing(person: Callable[..., User]) -> None:
    gone = person("gone", roles.COMPLIANCE, is_active=False)
    assert not any(gone.has_perm(f"base.{right}") for right in roles.RIGHTS)


def test_a_right_given_by_hand_is_taken_back_by_the_next_migration() -> None:
    from django.apps import apps
    from django.contrib.auth.models import Permission

    auditors = Group.objects.get(name=roles.AUDITOR)
    auditors.permissions.add(Permission.objects.get(codename="approve_release"))
    roles.bring_groups_in_line(apps.get_app_config("base"))
    assert not auditors.permissions.filter(codename="approve_release").exists()
