"""Standard Webhooks signatures, scheme v1, over bytes. Pure; receivers verify with `webhooks.receiver`.

A signature is made for each attempt and never stored, so that a new secret signs the next retry already.
"""

import base64
import secrets
from collections.abc import Sequence
from typing import Final

from webhooks import receiver

KEY_BYTES: Final = 32
parse_secret = receiver.parse_secret


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def secret_text(key: bytes) -> str:
    """The key as receivers are given it; `parse_secret` reads it."""
    return receiver.PREFIX + base64.b64encode(key).decode()


def headers(keys: Sequence[bytes], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of one attempt: signed by every key, the newest first."""
    return {
        "webhook-id": id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(receiver.signature(key, id, timestamp, body) for key in keys),
    }
