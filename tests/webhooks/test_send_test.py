"""`send-test`: what a receiver gets, and what an operator reads."""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from cleanup_project.base.models import User
from tests.webhooks import world
from tests.webhooks.http import Request, receiver
from webhooks import forgery
from webhooks.models import Delivery, DeliveryAttempt, EndpointSecret, OutboxEvent, Ping

pytestmark = pytest.mark.django_db(transaction=True)
SECRET = forgery.other_secret()


def send(*arguments: str) -> str:
    out = StringIO()
    call_command("send-test", *arguments, stdout=out)
    return out.getvalue()


def said_of_failure(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    with pytest.raises(CommandError, match="not acknowledged"):
        call_command("send-test", *arguments, "--json", stdout=out)
    said: dict[str, Any] = json.loads(out.getvalue())
    return said


def test_an_endpoint_gets_a_signed_sample_and_nothing_is_recorded(operator: User) -> None:
    with receiver() as inbox:
        endpoint, secret = world.endpoint(operator, inbox.url + "?token=hidden")
        said = send("Archive", "--type", "run.closed")
        by_number = json.loads(send(str(endpoint.pk), "--json"))
    first, second = inbox.requests
    assert first.is_signed_by(secret)
    told = json.loads(first.body)
    assert (told["type"], told["id"], told["sequence"]) == ("run.closed", first.id, 0)
    assert first.id.startswith("evt_test")
    assert first.id != second.id
    assert "class      delivered" in said
    assert "hidden" not in said
    assert by_number["acknowledged"]
    assert (by_number["status"], by_number["type"]) == (204, "media.deleted")
    for model in (OutboxEvent, Delivery, DeliveryAttempt, Ping):
        assert not model._default_manager.exists()


def test_every_secret_that_signs_signs_the_sample(operator: User) -> None:
    with receiver() as inbox:
        endpoint, _secret = world.endpoint(operator, inbox.url)
        EndpointSecret.objects.create(endpoint=endpoint, key_encrypted=endpoint.secrets.get().key_encrypted)
        send("Archive")
    assert len(inbox.requests[0].headers["webhook-signature"].split(" ")) == 2


def test_a_url_needs_no_endpoint() -> None:
    with receiver() as inbox:
        assert json.loads(send("--url", inbox.url, "--secret", SECRET, "--json"))["acknowledged"]
    assert inbox.requests[0].is_signed_by(SECRET)


def test_a_refusal_is_told_with_its_class_and_what_to_do() -> None:
    def answer(request: Request) -> bytes:
        return b"HTTP/1.1 401 No\r\ncontent-length: 9\r\n\r\n\x1b[2Jno\x00\xff\xe4"

    with receiver(answer) as inbox:
        said = said_of_failure("--url", inbox.url, "--secret", SECRET)
    assert (said["status"], said["class"], said["acknowledged"]) == (401, "auth", False)
    assert said["meaning"]
    assert said["next_action"]
    assert said["answer"].isprintable()
    assert said["answer"].startswith("\\x1b[2Jno")


def test_a_long_answer_is_cut() -> None:
    def answer(request: Request) -> bytes:
        return b"HTTP/1.1 500 No\r\ncontent-length: 2000\r\n\r\n" + b"x" * 2000

    with receiver(answer) as inbox:
        said = said_of_failure("--url", inbox.url, "--secret", SECRET)
    assert (said["answer"], said["truncated"]) == ("x" * 500, True)


def test_nobody_there_is_told_without_a_status() -> None:
    with receiver() as inbox:
        pass
    said = said_of_failure("--url", inbox.url, "--secret", SECRET)
    assert (said["status"], said["class"]) == (None, "network")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Give an endpoint"),
        (["Archive", "--url", "https://receiver.example/"], "Give an endpoint"),
        (["Nobody"], "No endpoint"),
        (["Two"], "give its number"),
        (["Silent"], "no secret that signs"),
        (["One", "--type", "*"], "one event type"),
        (["One", "--type", "Grüße"], "one event type"),
        (["--url", "ftp://receiver.example/", "--secret", SECRET], "--url"),
        (["--url", "https://receiver.example/", "--secret", "whsec_short"], "--secret"),
        (["--url", "https://receiver.example/"], "--secret"),
    ],
)
def test_what_cannot_be_sent_is_said_with_what_to_do(
    arguments: list[str], words: str, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEBHOOK_SECRET", raising=False)
    world.endpoint(operator, name="One")
    for tenant in ("acme", "other"):
        world.endpoint(operator, name="Two", tenant=tenant)
    silent, _secret = world.endpoint(operator, name="Silent")
    silent.secrets.update(revoked_at=silent.created_at)
    with pytest.raises(CommandError, match=words):
        send(*arguments)
