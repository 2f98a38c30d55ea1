"""Secrets at rest: sealed with Fernet (AES-128-CBC and HMAC-SHA256) under `ENCRYPTION_KEYS`.

The first key seals, every key opens: `manage.py reseal` seals anew with the first what others sealed, and docs/runbook.md
says in which order keys are changed. The one that stood in for them, derived from SECRET_KEY, opens as well.
"""

import base64
from functools import cache
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings


class VaultError(Exception):
    """A sealed secret cannot be opened with the keys of this process."""


def seal(secret: bytes) -> bytes:
    return keys().encrypt(secret)


def unseal(sealed: bytes) -> bytes:
    """The secret. Raises VaultError where no key fits, or where the bytes were changed."""
    try:
        return keys().decrypt(sealed)
    except InvalidToken:
        raise VaultError(
            "A stored secret cannot be opened: ENCRYPTION_KEYS (or SECRET_KEY, where that is unset) must still hold the key "
            "that sealed it."
        ) from None


def is_aged(sealed: bytes) -> bool:
    """Whether another key than the first sealed it."""
    try:
        Fernet(first_key()).decrypt(sealed)
    except InvalidToken:
        return True
    return False


def fingerprint() -> str:
    """The first key as it may be shown: processes with the same one seal alike."""
    return sha256(b"cleanup vault key\0" + first_key().encode()).hexdigest()[:8]


def first_key() -> str:
    return settings.ENCRYPTION_KEYS[0] if settings.ENCRYPTION_KEYS else derived(settings.SECRET_KEY)


def keys() -> MultiFernet:
    return box(tuple(settings.ENCRYPTION_KEYS), settings.SECRET_KEY)


@cache
def box(keys: tuple[str, ...], secret_key: str) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in (*keys, derived(secret_key))])


def derived(secret_key: str) -> str:
    """What seals where there are no keys: for one machine only (`base.E004`)."""
    return base64.urlsafe_b64encode(sha256(b"cleanup vault\0" + secret_key.encode()).digest()).decode()
