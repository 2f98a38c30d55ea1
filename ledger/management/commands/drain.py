"""`manage.py drain [BUCKET]`: publish and execute what is due, in the foreground."""

import json
import sys
import time
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from ledger import closing, publish
from ledger.drain import Drained, drain, due_buckets
from ledger.sweep import unpublished_runs
from retention.models import Bucket


class Command(BaseCommand):
    help = "Publish what is authorised and work through what is due, here, until nothing is due or --budget ends."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("bucket", nargs="?", help="Only this bucket.")
        parser.add_argument("--budget", type=float, default=3600.0, help="Seconds, default an hour.")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        only = None
        if options["bucket"]:
            only = Bucket.objects.filter(name=options["bucket"]).first()
            if only is None:
                raise CommandError(f"No bucket is called {options['bucket']!r}: see Buckets in the admin.")
        until = time.monotonic() + options["budget"]
        total = Drained()
        with tqdm(unit=" commands", disable=not sys.stderr.isatty() or options["json"]) as bar:
            while self.round(only, until, total, bar):
                pass
        closed = closing.close_drained()
        if options["json"]:
            self.stdout.write(json.dumps(asdict(total) | {"closed": closed}))
        else:
            self.stdout.write(
                f"{total.commands} commands settled, {total.gone} of them gone; {closed} runs closed."
                + (f" Left alone: {total.paused}" if total.paused else "")
            )

    def round(self, only: Bucket | None, until: float, total: Drained, bar: Any) -> bool:
        """Publish, and drain each bucket that has something due; False where nothing was."""
        for run in unpublished_runs():
            publish.publish(run)
        buckets = [pk for pk in due_buckets() if only is None or pk == only.pk]
        claimed = 0
        for pk in buckets:
            left = until - time.monotonic()
            if left <= 0:
                return False
            done = drain(pk, budget_seconds=left, progress=lambda done: bar.update(done.commands - bar.n))
            claimed += done.claimed
            for name in ("claimed", "commands", "gone", "late"):
                setattr(total, name, getattr(total, name) + getattr(done, name))
            total.paused = done.paused or total.paused
        return claimed > 0 and not total.paused
