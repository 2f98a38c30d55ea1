"""Catalogue, policies and holds in the admin: shown, and changed through the verbs alone."""

from retention.admin import (
    catalogue,
    dispositions,
    enforcement,
    events,
    holds,
    people,
    policies,
    previews,
    releases,
    waiting,
)

__all__ = [
    "catalogue",
    "dispositions",
    "enforcement",
    "events",
    "holds",
    "people",
    "policies",
    "previews",
    "releases",
    "waiting",
]
