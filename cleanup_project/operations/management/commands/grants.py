"""`manage.py grants`: what the roles of the database may do, said by the owner of the tables."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from cleanup_project.operations import grants


class Command(BaseCommand):
    help = (
        "Let the database roles of the web process, the workers and compaction do what each needs, and nothing else. Run it "
        "as the owner of the tables, after every manage.py migrate; run again, it changes nothing. docs/deployment.md says "
        "how the roles are made."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        for part, name in grants.ROLES.items():
            parser.add_argument(f"--{part}-role", default=name, metavar="NAME", help=f"Default {name}.")

    def handle(self, *args: Any, **options: Any) -> None:
        names = {part: options[f"{part}_role"] for part in grants.ROLES}
        try:
            tables = grants.grant(**names)
        except grants.GrantsRefused as refusal:
            raise CommandError(str(refusal)) from refusal
        self.stdout.write(f"What {', '.join(dict.fromkeys(names.values()))} may do is granted on {tables} tables.")
