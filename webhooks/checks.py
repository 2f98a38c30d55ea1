"""System checks of webhooks."""

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register

from webhooks import limits


@register(Tags.security, deploy=True)
def public_internet_only(**_: Any) -> list[CheckMessage]:
    """webhooks.E001: plain http is for the demo and for tests. webhooks.E004: networks of one's own were not judged yet."""
    found: list[CheckMessage] = []
    if settings.WEBHOOK_ALLOW_HTTP:
        hint = "Unset WEBHOOK_ALLOW_HTTP, and give endpoints https URLs."
        found.append(
            Error("WEBHOOK_ALLOW_HTTP is set: events could go out in the clear.", hint=hint, id="webhooks.E001")
        )
    if settings.WEBHOOK_ALLOW_CIDRS:
        hint = (
            "Unset WEBHOOK_ALLOW_CIDRS, or use an egress proxy. Where receivers must be in these networks, silence "
            "this check by name: SILENCED_SYSTEM_CHECKS=webhooks.E004."
        )
        words = "WEBHOOK_ALLOW_CIDRS is set: events could go into your own networks."
        found.append(Error(words, hint=hint, id="webhooks.E004"))
    return found


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
