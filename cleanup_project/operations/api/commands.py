"""Commands: the six answers about one."""

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from pydantic import Field

from cleanup_project.base import tenancy
from cleanup_project.base.verbpages import person
from cleanup_project.operations.api.gate import Needs
from cleanup_project.operations.api.problems import not_found
from ledger import explain
from ledger.models import CleanupCommand, ManifestItem

router = Router(tags=["Commands"])


class CommandAsked(Schema):
    key: Annotated[
        str,
        Field(
            min_length=1,
            max_length=700,
            description="A command key (tenant:asset:version:policy-revision), or an event id (evt_…), exactly. A parameter "
            "and no part of the path: keys hold slashes, question and percent signs, which a path would not survive.",
        ),
    ]


@router.get(
    "",
    auth=Needs("commands:read"),
    response=explain.Explanation,
    operation_id="explainCommand",
    summary="The six answers about a command",
)
def get_command(request: HttpRequest, asked: Query[CommandAsked]) -> Any:
    """From durable state alone, for ever.

    Which versions were selected, why they were eligible, whether their deletion was confirmed, which event represents it,
    how often that was delivered, and whose the next action is.
    """
    by, key = person(request), explain.command_key(asked.key)
    command = tenancy.scoped(CleanupCommand.objects.filter(key=key), by, "tenant__code")
    item = tenancy.scoped(ManifestItem.objects.filter(command_key=key), by, "run__tenant__code")
    if not command.exists() and not item.exists():
        raise not_found(f"command {asked.key}")
    return explain.explain(key)
