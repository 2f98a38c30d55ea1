"""`manage.py scan POLICY`: freeze the manifest of one run, in the foreground."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db.models import Sum
from tqdm import tqdm

from cleanup_project.base.canonical import instant
from ledger import manifest, runs
from ledger.exceptions import LedgerError, RunOverlap
from ledger.models import CleanupRun
from retention.models import RetentionPolicy


class Command(BaseCommand):
    help = (
        "Find what a policy would destroy now and freeze it into a manifest. Nothing is deleted. A scan that was "
        "interrupted goes on where it stopped."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("policy", metavar="POLICY", help="The policy's code.")
        parser.add_argument("--dry-run", action="store_true", help="A dry run even where enforcement is switched on.")
        parser.add_argument("--idempotency-key", help="The same key returns the same run.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        policy = find_policy(options["policy"])
        mode = CleanupRun.Mode.DRY_RUN if options["dry_run"] else None
        try:
            run = self.open(policy, mode, options["idempotency_key"])
        except LedgerError as error:
            raise CommandError(str(error)) from error
        with tqdm(unit=" items", disable=None, desc=run.key) as bar:
            run = manifest.freeze(run, progress=bar.update)
        said = summary(run)
        self.stdout.write(json.dumps(said) if options["json"] else as_text(said))

    def open(self, policy: RetentionPolicy, mode: CleanupRun.Mode | None, idempotency_key: str | None) -> CleanupRun:
        """A new run, or the one of the same mode whose scan was interrupted."""
        try:
            return runs.open_run(policy=policy, by=None, mode=mode, idempotency_key=idempotency_key)[0]
        except RunOverlap:
            mode = mode or runs.default_mode(policy)
            interrupted = CleanupRun.objects.filter(policy=policy, mode=mode, state="scanning").first()
            if interrupted is None:
                raise
            self.stderr.write(f"Going on with {interrupted}, which was still scanning.")
            return interrupted


def find_policy(code: str) -> RetentionPolicy:
    policy = RetentionPolicy.objects.filter(code=code).first()
    if policy is None:
        known = ", ".join(RetentionPolicy.objects.values_list("code", flat=True)) or "none yet"
        raise CommandError(f"No policy has the code {code!r}. Known: {known}.")
    return policy


def summary(run: CleanupRun) -> dict[str, Any]:
    """The run in numbers: what it read, what it would destroy, what it left out and why."""
    sums = run.parts.aggregate(read=Sum("read"), held=Sum("held"), not_enforced=Sum("not_enforced"))
    return {
        "run": run.key,
        "policy": run.policy.code,
        "mode": run.mode,
        "state": run.state,
        "as_of": instant(run.as_of),
        "parts": run.parts.count(),
        "read": sums["read"] or 0,
        "items": run.item_count,
        "targets": run.target_count,
        "bytes": run.bytes,
        "held": sums["held"] or 0,
        "not_enforced": sums["not_enforced"] or 0,
        "manifest_root": run.manifest_root,
    }


def as_text(said: dict[str, Any]) -> str:
    return "\n".join(f"{name.replace('_', ' '):14} {value}" for name, value in said.items())
