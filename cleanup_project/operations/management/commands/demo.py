"""`manage.py demo`: everything on one machine, from nothing."""

import json
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from cleanup_project.operations import servers
from cleanup_project.operations.demo import check, s3, scene, stage


class Command(BaseCommand):
    help = (
        "Start an embedded PostgreSQL, an S3 server with a few hundred media objects, a receiver of webhooks, the worker "
        "and the web server, and let them do the main job once. Ctrl-C stops everything."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=8000, help="Port of the web server on localhost, default 8000.")
        parser.add_argument(
            "--data", type=Path, help="Folder of the demo's database, default .data/demo; cleared first."
        )
        parser.add_argument("--check", action="store_true", help="Do it once and count again; exit 1 on a difference.")

    def handle(self, *args: Any, **options: Any) -> None:
        folder = (options["data"] or settings.BASE_DIR / ".data" / "demo").resolve()
        stage.use(folder)
        for name in ("", "werkzeug"):
            logging.getLogger(name).setLevel(logging.WARNING)
        out = self.stderr if options["check"] else self.stdout

        def say(text: str) -> None:
            out.write(text)
            out.flush()  # somebody may be reading through a pipe

        stage.refuse_taken(options["port"])
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        stage.empty_database()
        with s3.server() as endpoint_url:
            played = stage.play(endpoint_url, folder, lambda text: say(f"  {text}"))
            with stage.receiver_of_notices(played), stage.web_server(options["port"]) as url, stage.worker():
                if not options["check"]:
                    say(self.welcome(url, played))
                quiet = stage.wait_until_quiet(played, stop)
                if options["check"]:
                    said = check.summary(played, url, quiet=quiet)
                    self.stdout.write(json.dumps(said, indent=2))
                    sys.exit(1 if said["deviations"] else 0)
                for line in stage.told(played):
                    say(f"  {line}")
                stop.wait()
        self.stdout.write("Stopped.")

    def welcome(self, url: str, played: stage.Played) -> str:
        people = "\n".join(f"    {name:14} {role}" for name, role in scene.PEOPLE.items())
        example = next(each.key for each in played.objects if each.held)
        return f"""
Ready: {url}/

  Sign in as any of these, with the password  {played.scene.password}
{people}
  No second factor is asked for here (MFA_REQUIRED=0); elsewhere, whoever decides needs one.

  In another terminal:
    export DATA_DIR={settings.DATA_DIR}
    export AWS_ACCESS_KEY_ID={servers.ACCESS_KEY} AWS_SECRET_ACCESS_KEY={servers.SECRET_KEY}
    uv run manage.py why {example}
    uv run manage.py catalogue sync demo-media
    uv run manage.py scan exports-90-days --dry-run

The worker is at work now. Ctrl-C stops everything.
"""
