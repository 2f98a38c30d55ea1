"""Secrets at rest: sealed under the first key, opened by each, and told apart from damaged ones."""

import base64
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from cleanup_project import settings as settings_module
from cleanup_project.base import checks, vault

OLD, NEW = (base64.urlsafe_b64encode(bytes([number]) * 32).decode() for number in (1, 2))


def test_what_is_sealed_opens_again_and_shows_nothing() -> None:
    sealed = vault.seal(b"secret")
    assert vault.unseal(sealed) == b"secret"
    assert b"secret" not in sealed
    assert vault.seal(b"secret") != sealed


def test_keys_are_changed_by_putting_a_new_one_in_front(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = [OLD]
    sealed = vault.seal(b"secret")
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    assert vault.unseal(sealed) == b"secret"
    sealed_again = vault.seal(b"secret")
    settings.ENCRYPTION_KEYS = [NEW]
    assert vault.unseal(sealed_again) == b"secret"
    with pytest.raises(vault.VaultError, match="ENCRYPTION_KEYS"):
        vault.unseal(sealed)


def test_keys_are_set_at_last_and_what_the_secret_key_had_sealed_opens(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = []
    sealed, before = vault.seal(b"secret"), vault.fingerprint()
    settings.ENCRYPTION_KEYS = [NEW]
    assert (vault.unseal(sealed), vault.is_aged(sealed)) == (b"secret", True)
    assert vault.fingerprint() != before
    assert not vault.is_aged(vault.seal(b"secret"))


def test_a_fingerprint_shows_which_key_and_nothing_of_it(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    shown = vault.fingerprint()
    settings.ENCRYPTION_KEYS = [NEW]
    assert shown == vault.fingerprint()
    settings.ENCRYPTION_KEYS = [OLD, NEW]
    assert shown != vault.fingerprint()
    assert shown not in NEW


def test_without_keys_the_secret_key_decides(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = []
    sealed = vault.seal(b"secret")
    settings.SECRET_KEY = "another"
    with pytest.raises(vault.VaultError, match="SECRET_KEY"):
        vault.unseal(sealed)


def test_damaged_bytes_are_refused() -> None:
    sealed = bytearray(vault.seal(b"secret"))
    sealed[20] ^= 1
    with pytest.raises(vault.VaultError):
        vault.unseal(bytes(sealed))


def test_deployment_needs_keys_of_its_own(settings: Any) -> None:
    settings.ENCRYPTION_KEYS = []
    assert [error.id for error in checks.own_encryption_keys()] == ["base.E004"]
    settings.ENCRYPTION_KEYS = [NEW]
    assert checks.own_encryption_keys() == []


@pytest.mark.parametrize("raw", ["short", NEW[:-4], f"{NEW},short", "+" * 44])
def test_a_key_of_another_form_is_named(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENCRYPTION_KEYS", f"{NEW}, {OLD}")
    assert settings_module.env_keys("ENCRYPTION_KEYS") == [NEW, OLD]
    monkeypatch.setenv("ENCRYPTION_KEYS", raw)
    with pytest.raises(ImproperlyConfigured, match="32-byte keys"):
        settings_module.env_keys("ENCRYPTION_KEYS")
