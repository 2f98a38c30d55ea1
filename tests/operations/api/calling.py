"""Programs that call the API in tests: each with a token, in process, over Django's whole stack of middleware."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import Group
from django.db.models.functions import Now
from django.http import HttpResponse
from django.test import Client

from cleanup_project.base import apitokens, roles
from cleanup_project.base.models import ApiToken, User
from cleanup_project.base.scopes import SCOPES

PLACE = "/api/v1"
_serial = count(1)


def administrator() -> User:
    user, new = User.objects.get_or_create(username="token-administrator", is_staff=True)
    if new:
        user.groups.add(Group.objects.get(name=roles.ADMINISTRATOR))
    return user


@dataclass
class Program:
    """A program with its token."""

    token: ApiToken
    secret: str
    client: Client = field(default_factory=lambda: Client(enforce_csrf_checks=True))

    @property
    def account(self) -> User:
        return self.token.account

    def get(self, path: str, **query: Any) -> HttpResponse:
        return self.client.get(PLACE + path, query, headers=self.headers())

    def post(self, path: str, body: Any = None, *, key: str | None = "", **options: Any) -> HttpResponse:
        """`key`: the Idempotency-Key; a new one each time by default, None: without one."""
        headers = self.headers() | ({} if key is None else {"Idempotency-Key": key or str(uuid4())})
        sent = {"data": body, "content_type": "application/json"} | options
        return self.client.post(PLACE + path, headers=headers, **sent)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}


def program(*scopes: str, tenants: Sequence[str] = (), days: int = 30) -> Program:
    """Without scopes: with all of them."""
    token, secret = apitokens.create(
        name=f"program-{next(_serial)}", scopes=scopes or sorted(SCOPES), tenants=tenants, days=days, by=administrator(),
        reason="For a test.",
    )  # fmt: skip
    ApiToken.objects.filter(pk=token.pk).update(last_used_at=Now())  # else its first request would cost one write more
    return Program(token, secret)


def problem(response: Any, status: int, kind: str) -> dict[str, Any]:
    """The problem that an answer is, checked as far as all of them are alike."""
    assert response.status_code == status, (response.status_code, response.content[:500])
    assert response["Content-Type"] == "application/problem+json"
    told: dict[str, Any] = response.json()
    assert (told["status"], told["type"]) == (status, f"/api/v1/docs#{kind}"), told
    assert told["request_id"] == response["X-Request-ID"]
    assert told["title"]
    assert told["detail"]
    return told


def given(response: Any, status: int = 200) -> Any:
    assert response.status_code == status, (response.status_code, response.content[:1000])
    assert response["X-Request-ID"]
    return response.json()
