"""Command keys: `tenant:asset:version:policy-revision`, the same for one object version and revision for ever."""

from hashlib import sha256
from typing import Final
from urllib.parse import quote

SAFE: Final = "-._~/+=@!$&'()*,;"
ASSET_LIMIT: Final = 400
VERSION_LIMIT: Final = 64


def digest(*parts: str) -> str:
    """A short digest for a field that would be too long: `~` and 40 hexadecimal digits."""
    return "~" + sha256("\x00".join(parts).encode()).hexdigest()[:40]


def field(value: str, limit: int) -> str:
    """One field of a command key: percent-escaped, so that no colon can stand in it; a digest beyond the limit."""
    escaped = quote(value, safe=SAFE)
    return escaped if len(escaped) <= limit else digest(value)


def command_key(
    *, tenant: str, asset: str, bucket: str, key: str, version_id: str, incarnation: str, policy: str, revision: int
) -> str:
    """The key of the command that destroys one original under one policy revision; at most 700 bytes.

    A `null` version is mutable, so its field is a digest of its incarnation.
    """
    version = field(version_id, VERSION_LIMIT)
    if incarnation or version_id == "null" or version.startswith("~"):
        version = digest(bucket, key, version_id, incarnation)
    return f"{field(tenant, 63)}:{field(asset, ASSET_LIMIT)}:{version}:{policy}-{revision}"
