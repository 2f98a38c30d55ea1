"""An authenticator app: RFC 6238 with SHA-1, six digits, thirty seconds."""

import base64
import hmac
import struct
import time


def code(secret: str, *, steps: int = 0) -> str:
    """What the app shows now, or so many half minutes from now."""
    digest = hmac.digest(base64.b32decode(secret), struct.pack(">Q", int(time.time()) // 30 + steps), "sha1")
    number = struct.unpack(">I", digest[digest[-1] & 15 :][:4])[0] & 0x7FFFFFFF
    return f"{number % 10**6:06d}"
