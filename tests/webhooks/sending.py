"""One POST, without a delivery."""

from typing import Any

from webhooks import sender
from webhooks.sender import Answer, Connections, Sending

KEY = b"k" * 32


def post(url: str, body: bytes = b"{}", *, through: Connections | None = None, **limits: Any) -> Answer:
    """What came of posting `body` once, over connections of its own unless told."""
    sending = Sending(None, None, None, url, "evt_1", body)
    if through is not None:
        return sender.send(through, sending, [KEY], 1_790_000_000, **limits)
    with sender.session(1) as made:
        return sender.send(made, sending, [KEY], 1_790_000_000, **limits)
