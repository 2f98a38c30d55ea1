"""What an answer, or none, means: the class of a failure. Pure."""

from typing import Final

DELIVERED: Final = ""

# An answer's class, by status; what is not named here is rejected (4xx) or transient (5xx).
BY_STATUS: Final = {
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "transient",
    409: "conflict",
    410: "gone",
    413: "too_large",
    425: "transient",
    429: "throttled",
    501: "rejected",
}


def of_status(status: int) -> str:
    """The class of an answer; DELIVERED for 2xx."""
    if 200 <= status < 300:
        return DELIVERED
    if 300 <= status < 400:
        return "redirect"
    return BY_STATUS.get(status, "rejected" if 400 <= status < 500 else "transient")
