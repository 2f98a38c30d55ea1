"""Endpoints, events, deliveries and attempts in the admin: read, and decided about through the verbs alone."""

from webhooks.admin import deliveries, endpoints, waiting

__all__ = ["deliveries", "endpoints", "waiting"]
