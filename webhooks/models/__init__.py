"""Events, the endpoints that subscribe to them, and every attempt to deliver one to the other."""

from webhooks.models.deliveries import (
    ERROR_LIMIT,
    RESPONSE_LIMIT,
    Delivery,
    DeliveryAttempt,
    DueField,
    Exchange,
    Ping,
)
from webhooks.models.endpoints import (
    EVENT_TYPE,
    EVERY_TYPE,
    URL,
    Endpoint,
    EndpointSecret,
)
from webhooks.models.events import (
    BODY_LIMIT,
    DetailedBody,
    Lane,
    OutboxEvent,
)

__all__ = [
    "BODY_LIMIT",
    "ERROR_LIMIT",
    "EVENT_TYPE",
    "EVERY_TYPE",
    "RESPONSE_LIMIT",
    "URL",
    "Delivery",
    "DeliveryAttempt",
    "DetailedBody",
    "DueField",
    "Endpoint",
    "EndpointSecret",
    "Exchange",
    "Lane",
    "OutboxEvent",
    "Ping",
]
