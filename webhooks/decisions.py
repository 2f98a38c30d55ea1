"""What every decision about an endpoint begins with: who may, why, and the row under its lock."""

from cleanup_project.base import tenancy
from cleanup_project.base.models import User
from webhooks.exceptions import WebhooksError
from webhooks.models import Endpoint


def permitted(by: User, about: Endpoint | str) -> None:
    """Raises WebhooksError without the right `base.operate`, and about another tenant's endpoint, or with its code."""
    if not by.has_perm("base.operate"):
        raise WebhooksError(f"{by} may not manage endpoints: that needs the role Operator or Compliance.")
    tenancy.permit(by, about, WebhooksError)


def stated(reason: str, what: str) -> None:
    """Raises WebhooksError for a blank reason; `what` ends the sentence that asks for one."""
    if not reason.strip():
        raise WebhooksError(f"State a reason for {what}.")


def lock(endpoint: Endpoint) -> Endpoint:
    """The row as it is now, until the transaction ends. Raises WebhooksError for a retired one, which never changes again."""
    locked = Endpoint.objects.select_for_update(no_key=True).get(pk=endpoint.pk)
    if locked.retired_at is not None:
        raise WebhooksError(f"{locked} is retired for ever: add a new endpoint instead.")
    return locked
