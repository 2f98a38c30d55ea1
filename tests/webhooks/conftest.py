"""Plain http on loopback for these tests, nobody to ring when events are told or settled, and no waiting for retries."""

from collections.abc import Callable
from typing import Any

import pytest

from cleanup_project.base import roles
from cleanup_project.base.models import User
from webhooks import dispatch, outbox


@pytest.fixture(autouse=True)
def loopback(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WEBHOOK_ALLOW_HTTP = True
    settings.WEBHOOK_ALLOW_CIDRS = ["127.0.0.0/8"]
    settings.WEBHOOKS_SETTLED_TASK = ""
    monkeypatch.setattr(outbox, "ring", lambda: None)
    monkeypatch.setattr(dispatch, "SOON", 0)


@pytest.fixture
def operator(person: Callable[..., User]) -> User:
    return person("olaf", roles.OPERATOR)
