"""Plain http on loopback for these tests, and nobody to ring when events are settled."""

from collections.abc import Callable
from typing import Any

import pytest

from cleanup_project.base import roles
from cleanup_project.base.models import User


@pytest.fixture(autouse=True)
def loopback(settings: Any) -> None:
    settings.WEBHOOK_ALLOW_HTTP = True
    settings.WEBHOOKS_SETTLED_TASK = ""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the real one takes a second


@pytest.fixture
def operator(person: Callable[..., User]) -> User:
    return person("olaf", roles.OPERATOR)
