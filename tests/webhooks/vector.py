"""The test vector of Standard Webhooks, and any other request signed as it is."""

from webhooks import signing
from webhooks.receiver import parse_secret

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, STAMP = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
BODY = b'{"test": 2432232314}'
OTHER = signing.secret_text(b"o" * 32)


def signed(
    body: bytes = BODY, *, id: str = ID, at: int = STAMP, secrets: tuple[str, ...] = (SECRET,)
) -> dict[str, str]:
    return signing.headers([parse_secret(secret) for secret in secrets], id, at, body)
