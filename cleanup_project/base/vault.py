"""Secrets at rest: sealed with Fernet (AES-128-CBC and HMAC-SHA256) under `ENCRYPTION_KEYS`.

The first key seals, every key opens: to change keys, put a new one in front, keep the others, and seal anew what they sealed
(`manage.py reseal`).
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
        box(tuple(settings.ENCRYPTION_KEYS[:1]), settings.SECRET_KEY).decrypt(sealed)
    except InvalidToken:
        return True
    return False


def keys() -> MultiFernet:
    return box(tuple(settings.ENCRYPTION_KEYS), settings.SECRET_KEY)


@cache
def box(keys: tuple[str, ...], secret_key: str) -> MultiFernet:
    """Without keys, one is derived from SECRET_KEY: for one machine only (`base.E004`)."""
    derived = base64.urlsafe_b64encode(sha256(b"cleanup vault\0" + secret_key.encode()).digest()).decode()
    return MultiFernet([Fernet(key) for key in keys or (derived,)])
