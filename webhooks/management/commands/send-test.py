"""`manage.py send-test`: one signed sample event, to an endpoint or to any URL, and what came of it."""

import json
import os
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Q

from cleanup_project.base import clock, vault
from webhooks import failures, forgery, sender, signing
from webhooks.models import EVENT_TYPE, EVERY_TYPE, URL, Endpoint
from webhooks.receiver import Refused
from webhooks.sender import Answer, Sending

SHOWN = 500  # bytes of the answer
PHASES = {
    "dns": "dns_ms",
    "connect": "connect_ms",
    "tls": "tls_ms",
    "first byte": "first_byte_ms",
    "in all": "milliseconds",
}


class Command(BaseCommand):
    help = (
        "Send one signed sample event and print what came of it; exit 1 unless it was acknowledged. It is no event of a "
        "lane: nothing is recorded, and its id begins with evt_test."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("endpoint", nargs="?", help="An endpoint's name or number: sent with its URL and secrets.")
        parser.add_argument("--url", help="A URL instead, without an endpoint.")
        parser.add_argument(
            "--secret", default=os.environ.get("WEBHOOK_SECRET", ""), help="With --url: whsec_…, or $WEBHOOK_SECRET."
        )
        parser.add_argument("--type", default="media.deleted", help="Default: media.deleted.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        url, keys = target(options)
        id, type = forgery.new_id(), event_type(options["type"])
        sending = Sending(
            delivery_id=0, attempt_id=0, number=1, url=url, event_id=id, body=forgery.sample(type, id, sequence=0)
        )
        with sender.session(1) as through:
            answer = sender.send(through, sending, keys, int(clock.now().timestamp()))
        said = report(sending, type, answer)
        if options["json"]:
            self.stdout.write(json.dumps(said))
        else:
            self.stdout.write("\n".join(f"{name:10} {value}" for name, value in in_words(said)))
        if answer.failure_class != failures.DELIVERED:
            raise CommandError("The sample was not acknowledged.")


def target(options: dict[str, Any]) -> tuple[str, list[bytes]]:
    """URL and keys. Raises CommandError."""
    if bool(options["endpoint"]) == bool(options["url"]):
        raise CommandError("Give an endpoint's name or number, or --url with --secret.")
    if options["endpoint"]:
        endpoint = find(options["endpoint"])
        try:
            keys = [vault.unseal(bytes(each.key_encrypted)) for each in endpoint.secrets.live()]
        except vault.VaultError as error:
            raise CommandError(str(error)) from None
        if not keys:
            raise CommandError(f"{endpoint} has no secret that signs: rotate its secret first.")
        return endpoint.url, keys
    try:
        URL(options["url"])
        return options["url"], [signing.parse_secret(options["secret"])]
    except ValidationError as error:
        raise CommandError(f"--url: {error.message}") from None
    except Refused as error:
        raise CommandError(f"--secret: {error}") from None


def find(told: str) -> Endpoint:
    named = Q(name=told) | Q(pk=int(told)) if told.isascii() and told.isdigit() else Q(name=told)
    found = list(Endpoint.objects.filter(named)[:2])
    if len(found) > 1:
        raise CommandError(f"More than one endpoint is called {told}: give its number.")
    if not found:
        raise CommandError(f"No endpoint has the name or number {told}.")
    return found[0]


def event_type(told: str) -> str:
    try:
        EVENT_TYPE(told)
    except ValidationError:
        told = EVERY_TYPE
    if told == EVERY_TYPE:
        raise CommandError("--type: give one event type, such as media.deleted.")
    return told


def report(sending: Sending, type: str, answer: Answer) -> dict[str, Any]:
    rule = failures.RULES[answer.failure_class]
    return {
        "url": sending.url.partition("?")[0],
        "id": sending.event_id,
        "type": type,
        "acknowledged": answer.failure_class == failures.DELIVERED,
        "status": answer.status,
        "class": answer.failure_class or "delivered",
        "error": answer.error,
        "meaning": rule.meaning,
        "next_action": rule.next_action,
        "peer": answer.peer,
        "milliseconds": {name: getattr(answer, field) for name, field in PHASES.items()},
        "headers": dict(answer.headers),
        # Whatever a receiver writes, a terminal shows it and does nothing else.
        "answer": ascii(answer.response[:SHOWN].decode("utf-8", "backslashreplace"))[1:-1],
        "bytes_read": answer.bytes_read,
        "truncated": answer.truncated or len(answer.response) > SHOWN,
    }


def in_words(said: dict[str, Any]) -> list[tuple[str, str]]:
    """What there is of it, in lines."""
    times = ", ".join(f"{name} {value} ms" for name, value in said["milliseconds"].items() if value is not None)
    lines = {
        "url": said["url"],
        "event": f"{said['type']} {said['id']}",
        "status": said["status"],
        "class": f"{said['class']}: {said['meaning']}",
        "error": ascii(said["error"])[1:-1],
        "time": times,
        "peer": said["peer"],
        "headers": ", ".join(f"{name}: {ascii(value)[1:-1]}" for name, value in said["headers"].items()),
        "answer": said["answer"] + (" …" if said["truncated"] else ""),
        "do": said["next_action"],
    }
    return [(name, str(value)) for name, value in lines.items() if value not in (None, "")]
