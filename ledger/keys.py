"""Command keys: `tenant:asset:version:policy-revision`, the same for one object version and revision for ever.

No field needs escaping: the columns of tenant, asset and policy hold an alphabet without colon and percent sign, and a
version id that does not is replaced by a digest.
"""

import re
from hashlib import sha256
from typing import Final

PLAIN_VERSION: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def command_key(
    *, tenant: str, asset: str, bucket: str, key: str, version_id: str, incarnation: str, policy: str, revision: int
) -> str:
    """The key of the command that destroys one original under one policy revision; at most 400 bytes.

    A version id that is long, or is `null` and so mutable, is replaced by `~` and a digest of what it names.
    """
    if incarnation or version_id == "null" or not PLAIN_VERSION.fullmatch(version_id):
        names = "\x00".join((bucket, key, version_id, incarnation))
        version_id = "~" + sha256(names.encode()).hexdigest()[:40]
    return f"{tenant}:{asset}:{version_id}:{policy}-{revision}"
