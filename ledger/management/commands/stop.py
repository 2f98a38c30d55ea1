"""`manage.py stop`: press the stop switch where the pages cannot be reached."""

import json
from argparse import ArgumentTypeError
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, connection

from cleanup_project.base import display
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import User
from ledger import stops
from ledger.management.commands.scan import find_policy
from ledger.models import StopReport
from retention import buckets, control
from retention.exceptions import RetentionError
from retention.models import StopSwitch, Tenant

Scope = StopSwitch.Scope
TRIES = 3
NOT_KNOWN = (
    "It is not known that anything was stopped: the database did not take it. "
    "Run this again, or stop the workers on every host."
)


class Command(BaseCommand):
    # Settings that somebody has just broken must not keep anybody from stopping.
    requires_system_checks: tuple[str, ...] = ()
    help = (
        "Stop destroying: from now on no request is sent for what is named, until somebody lifts the switch on its page. "
        "Says what was under way and may still be executed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        named = parser.add_mutually_exclusive_group(required=True)
        named.add_argument("--everything", action="store_true", help="All tenants, buckets and policies.")
        named.add_argument("--tenant", metavar="CODE")
        named.add_argument("--bucket", metavar="NAME", help="Or NAME@ENDPOINT, where two stores have one of that name.")
        named.add_argument("--policy", metavar="CODE")
        parser.add_argument("--by", required=True, metavar="USERNAME", help="Who presses it; needs the right stop.")
        parser.add_argument("--reason", required=True, type=stated, help="Kept for ever, and shown on every page.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            switch = pressed(active(options["by"]), options)
        except OperationalError as error:
            raise CommandError(f"{NOT_KNOWN} {str(error).strip()}") from error
        except RetentionError as error:
            raise CommandError(str(error)) from error
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        self.stderr.write(f"Stopped: {switch}. Waiting for what is under way to be counted.")
        said = summary(switch, report_of(switch))
        self.stdout.write(json.dumps(said) if options["json"] else as_text(said))


def stated(reason: str) -> str:
    if not reason.strip():
        raise ArgumentTypeError("state a reason")
    return reason


def active(username: str) -> User:
    person = User.objects.filter(username=username, is_active=True).first()
    if person is None:
        raise CommandError(f"No active person has the username {username!r}.")
    return person


def pressed(by: User, options: dict[str, Any]) -> StopSwitch:
    """Whoever has rows of it locked, such as somebody who left a transaction open, is waited for TRIES times."""
    for _ in range(TRIES - 1):
        try:
            return control.press(by=by, reason=options["reason"], **scope_of(options))
        except OperationalError:
            connection.close()
    return control.press(by=by, reason=options["reason"], **scope_of(options))


def scope_of(options: dict[str, Any]) -> dict[str, Any]:
    """What of `control.press` the options name."""
    if options["tenant"] is not None:
        return {"scope": Scope.TENANT, "tenant": find_tenant(options["tenant"])}
    if options["bucket"] is not None:
        return {"scope": Scope.BUCKET, "bucket": buckets.named(options["bucket"])}
    if options["policy"] is not None:
        return {"scope": Scope.POLICY, "policy": find_policy(options["policy"])}
    return {"scope": Scope.EVERYTHING}


def find_tenant(code: str) -> Tenant:
    tenant = Tenant.objects.filter(code=code).first()
    if tenant is None:
        known = ", ".join(Tenant.objects.order_by("code").values_list("code", flat=True)) or "none yet"
        raise CommandError(f"No tenant has the code {code!r}. Known: {known}.")
    return tenant


def report_of(switch: StopSwitch) -> StopReport | None:
    try:
        return stops.pressed(switch.pk)
    except OperationalError:  # a claim keeps the barrier; the switch is on all the same, and the sweep asks again
        return None


def summary(switch: StopSwitch, report: StopReport | None) -> dict[str, Any]:
    """`under_way` are commands that might have been sent before the switch was read; null while that is not known."""
    unknown = stops.ends(report, 1)[1] if report is not None else None
    return {
        "switch": switch.pk,
        "stopped": str(switch),
        "pressed_at": instant(switch.pressed_at),
        "by": switch.pressed_by.get_username() if switch.pressed_by else None,
        "under_way": len(report.commands) if report is not None else None,
        "end_unknown": unknown,
    }


def as_text(said: dict[str, Any]) -> str:
    if said["under_way"] is None:
        return "It is on. What was under way could not be counted yet: the sweep does that, and its page tells."
    commands = display.counted(said["under_way"], "command")
    return f"It is on. Under way when it was pressed: {commands}; of {said['end_unknown']:,} the end is not known yet."
