"""System checks of webhooks."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register

from webhooks import limits


@register(Tags.security, deploy=True)
def public_internet_only(**_: Any) -> list[CheckMessage]:
    """webhooks.E001: plain http, and networks of one's own, are for the demo and for tests."""
    return [
        Error(
            f"{name} is set: events could go out in the clear, or into this network.",
            hint=f"Unset {name}; give endpoints https URLs on the public Internet, or an egress proxy.",
            id="webhooks.E001",
        )
        for name in ("WEBHOOK_ALLOW_HTTP", "WEBHOOK_ALLOW_CIDRS")
        if getattr(settings, name)
    ]


@register()
def chain(**_: Any) -> list[CheckMessage]:
    """webhooks.E002: a dispatch ends before the queue cuts it off, its leases after that, and a second try last."""
    links = (limits.SEND, limits.BUDGET, limits.TASK_TIMEOUT, limits.LEASE, limits.TASK_RETRY)
    if list(links) == sorted(set(links)):
        return []
    return [
        Error(
            f"send, budget, timeout, lease and retry must rise; they are {links} seconds.",
            hint="Change webhooks/limits.py or cleanup_project/base/limits.py.",
            id="webhooks.E002",
        )
    ]
