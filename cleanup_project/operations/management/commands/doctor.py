"""`manage.py doctor`: is everything as it has to be? One line for each thing that was looked at, and what to do."""

import json
from collections import Counter
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandParser
from tqdm import tqdm

from cleanup_project.base import display
from cleanup_project.operations import doctor
from cleanup_project.operations.doctor.findings import Finding, Verdict

STYLES: Final = {
    Verdict.OK: "SUCCESS",
    Verdict.WARNING: "WARNING",
    Verdict.FAULT: "ERROR",
    Verdict.NOT_ASKED: "NOTICE",
}


class Command(BaseCommand):
    help = (
        "Look at settings, database, queue, workers, buckets, endpoints and clocks, and say what to do about what is not "
        "right. Changes nothing. Exit code 1 with any fault."
    )
    requires_system_checks: list[str] = []  # it tells of them itself

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--bucket", nargs="+", metavar="NAME", default=[], help="Look at these alone: name, or name@endpoint."
        )
        parser.add_argument("--offline", action="store_true", help="Ask nothing over the network but the database.")
        parser.add_argument(
            "--probe-delete",
            action="store_true",
            help="Also ask each store to delete a version that cannot exist, to see whether we may. Changes nothing in the "
            "bucket; the store may write it to its access log, or tell its subscribers of a removal.",
        )
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        found = list[Finding]()
        examined = doctor.examine(options["bucket"], offline=options["offline"], probe=options["probe_delete"])
        for finding in tqdm(examined, unit=" findings", disable=None if options["json"] else True):
            found.append(finding)
            if not options["json"]:
                self.stdout.write(self.line(finding))
        counts = Counter(each.verdict for each in found)
        if options["json"]:
            numbers = {verdict.replace(" ", "_"): counts[verdict] for verdict in Verdict}
            self.stdout.write(json.dumps({"findings": [each.as_json() for each in found], "counts": numbers}))
        else:
            ok, warnings, faults, unknown = (counts[verdict] for verdict in Verdict)
            told = display.counted(warnings, "warning"), display.counted(faults, "fault")
            self.stdout.write(f"{ok} ok, {', '.join(told)}, {unknown} not asked")
        if counts[Verdict.FAULT]:
            raise SystemExit(1)

    def line(self, finding: Finding) -> str:
        word = getattr(self.style, STYLES[finding.verdict])(f"{finding.verdict:<9}")
        text = f"{word} {display.visible(finding.subject)}: {display.visible(finding.seen)}"
        return f"{text} → {display.visible(finding.advice)}" if finding.advice else text
