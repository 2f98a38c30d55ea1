"""`manage.py screenshots`: the pictures of the README and the documents, taken of the demo."""

import logging
import signal
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from cleanup_project.operations import servers
from cleanup_project.operations.demo import s3, shots, stage


class Command(BaseCommand):
    help = "Start the demo, wait until its work is done, and take the pictures of the documents with headless Chromium."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        names = [shot.name for shot in shots.SHOTS]
        parser.add_argument(
            "names", nargs="*", metavar="NAME", help=f"Which; all, if none is named: {', '.join(names)}."
        )
        parser.add_argument("--folder", type=Path, default=settings.BASE_DIR / "docs" / "images")

    def handle(self, *args: Any, **options: Any) -> None:
        wanted = tuple(shot for shot in shots.SHOTS if not options["names"] or shot.name in options["names"])
        if len(wanted) < len(set(options["names"])):
            raise CommandError(f"There is no such picture. There are: {', '.join(shot.name for shot in shots.SHOTS)}.")
        executable = shots.chromium()
        if executable is None or find_spec("playwright") is None:
            raise CommandError(
                "Pictures need Chromium (apt-get install chromium, or CHROMIUM=/path/to/it) and Playwright, which is in the "
                "dependency group dev (uv sync)."
            )
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started ends, too
        stage.use((settings.BASE_DIR / ".data" / "screenshots").resolve())
        for name in ("", "werkzeug"):
            logging.getLogger(name).setLevel(logging.WARNING)
        options["folder"].mkdir(parents=True, exist_ok=True)
        stage.empty_database()
        (port,) = servers.free_ports(1)
        with s3.server() as endpoint_url:
            played = stage.play(endpoint_url, settings.DATA_DIR, self.stdout.write)
            with stage.receiver_of_notices(played), stage.web_server(port) as url, stage.worker():
                if not (stage.wait_until_quiet(played, threading.Event()) and shots.wait_until_counted()):
                    raise CommandError("The demo did not come to its end; the pictures are as they were.")
                for path in shots.take(url, wanted, options["folder"], executable):
                    self.stdout.write(f"{path} ({path.stat().st_size // 1024} KiB)")
