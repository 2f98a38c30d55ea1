"""System checks of webhooks."""

from typing import Any
from urllib.parse import urlsplit

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


@register()
def egress_proxy(**_: Any) -> list[CheckMessage]:
    """webhooks.E003: a proxy that cannot be used stops every webhook, so it is found before the first one."""
    if not settings.WEBHOOK_EGRESS_PROXY or is_proxy(settings.WEBHOOK_EGRESS_PROXY):
        return []
    return [
        Error(
            "WEBHOOK_EGRESS_PROXY is not the URL of a proxy.",  # which may hold a password
            hint="Write http://host:port or https://host:port, before the host user:password@ where it asks for them.",
            id="webhooks.E003",
        )
    ]


def is_proxy(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    is_plain = parts.path in {"", "/"} and not parts.query and not parts.fragment and " " not in url
    return parts.scheme in {"http", "https"} and has_place and is_plain
