"""Typed readers of the environment: each says of a wrong value what must stand there. The settings alone use them."""

import base64
import os
import re
from datetime import timedelta
from ipaddress import ip_network
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.validators import validate_email

from webhooks import receiver


def env_str(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def env_bool(name: str, *, default: bool = False) -> bool:
    raw = env_str(name).strip().lower()
    if raw in {"", "1", "true", "yes", "on", "0", "false", "no", "off"}:
        return default if not raw else raw in {"1", "true", "yes", "on"}
    raise ImproperlyConfigured(f"{name} must be one of 1, true, yes, on, 0, false, no, off; it is {raw!r}.")


def env_int(name: str, default: int) -> int:
    raw = env_str(name).strip()
    try:
        return int(raw) if raw else default
    except ValueError:
        raise ImproperlyConfigured(f"{name} must be a whole number; it is {raw!r}.") from None


def env_positive(name: str, default: int) -> int:
    number = env_int(name, default)
    if number < 1:
        raise ImproperlyConfigured(f"{name} must be a whole number, 1 or more; it is {number}.")
    return number


def env_minutes(name: str, default: int) -> int:
    """In seconds. None would be for ever asked, and for ever refused."""
    minutes = env_int(name, default)
    if minutes < 1:
        raise ImproperlyConfigured(f"{name} must be a number of minutes, 1 or more; it is {minutes}.")
    return 60 * minutes


def env_list(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in env_str(name, default).split(",") if part.strip()]


def env_hours(name: str, default: int) -> int:
    hours = env_int(name, default)
    if hours < 1:
        raise ImproperlyConfigured(f"{name} must be a number of hours, 1 or more; it is {hours}.")
    return hours


def env_matching(name: str, pattern: str, words: str) -> str:
    """`words` say what it must be."""
    value = env_str(name).strip()
    if value and not re.fullmatch(pattern, value):
        raise ImproperlyConfigured(f"{name} must be {words}; it is {value!r}.")
    return value


def env_token(name: str) -> str:
    """A secret that a program shows; too long to be guessed, or unset."""
    token = env_str(name).strip()
    if token and (len(token) < 20 or not token.isascii() or not token.isprintable() or " " in token):
        raise ImproperlyConfigured(
            f"{name} must be at least 20 printable ASCII characters without blanks. Make one: "
            "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    return token


def env_addresses(name: str) -> list[str]:
    addresses = env_list(name)
    for address in addresses:
        try:
            validate_email(address)
        except ValidationError:
            raise ImproperlyConfigured(
                f"{name} must be a comma list of e-mail addresses; {address!r} is none."
            ) from None
    return addresses


def env_times(name: str) -> dict[str, timedelta]:
    """`oldest-eligible=3d,queue-age=30m`: what of it is named, by its name. Minutes, hours and days."""
    units = {"m": "minutes", "h": "hours", "d": "days"}
    found: dict[str, timedelta] = {}
    for part in env_list(name):
        key, _, value = (each.strip() for each in part.partition("="))
        number, unit = value[:-1], units.get(value[-1:])
        if (
            not key
            or key in found
            or not unit
            or not (number.isascii() and number.isdigit())
            or len(number) > 4
            or not int(number)
        ):
            raise ImproperlyConfigured(
                f"{name} must be a comma list such as oldest-eligible=3d,queue-age=30m (m, h, d; each once); it has {part!r}."
            )
        found[key] = timedelta(**{unit: int(number)})
    return found


def env_ports(name: str, default: str) -> list[int]:
    ports = env_list(name, default)
    if not ports or not all(port.isascii() and port.isdigit() and 0 < int(port) < 65_536 for port in ports):
        raise ImproperlyConfigured(f"{name} must be a comma list of ports from 1 to 65535; it is {','.join(ports)!r}.")
    return [int(port) for port in ports]


def env_networks(name: str) -> list[str]:
    networks = env_list(name)
    for network in networks:
        try:
            ip_network(network)
        except ValueError as error:
            raise ImproperlyConfigured(
                f"{name} must be a comma list of networks such as 10.1.0.0/16: {error}."
            ) from None
    return networks


def env_keys(name: str) -> list[str]:
    """Fernet keys: 32 bytes each, as URL-safe base64."""
    keys = env_list(name)
    for key in keys:
        try:
            right = len(base64.b64decode(key, altchars=b"-_", validate=True)) == 32
        except ValueError:
            right = False
        if not right:
            raise ImproperlyConfigured(
                f"{name} must be a comma list of 32-byte keys in URL-safe base64. Make one: python -c "
                "'import base64, secrets; print(base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())'"
            )
    return keys


def env_trigger_secrets(name: str) -> list[str]:
    """Secrets as Standard Webhooks writes them: whsec_ and the base64 of 24 to 64 bytes."""
    given = env_list(name)
    for number, secret in enumerate(given, 1):
        try:
            receiver.parse_secret(secret)
        except receiver.Refused as refused:
            raise ImproperlyConfigured(
                f"{name} must be a comma list of secrets; number {number} is none: {refused}. Make one: python -c "
                "'import base64, secrets; print(\"whsec_\" + base64.b64encode(secrets.token_bytes(32)).decode())'"
            ) from None
    return given


def parse_database_url(url: str) -> dict[str, Any]:
    """Connection settings for `postgresql://user:password@host:port/name?sslmode=require`.

    Query parameters become libpq options; `host=/run/postgresql` there names a Unix socket folder.
    """
    parts = urlsplit(url)
    name = unquote(parts.path.lstrip("/"))
    if parts.scheme not in {"postgres", "postgresql"} or not name:
        raise ImproperlyConfigured("DATABASE_URL must look like postgresql://user:password@host:5432/name.")
    options = dict(parse_qsl(parts.query))
    return {
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", parts.hostname or ""),
        "PORT": str(parts.port or options.pop("port", "")),
        "OPTIONS": options,
    }
