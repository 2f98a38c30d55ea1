"""What a store's refusal means: one table from error code, HTTP status or exception to a class.

A pure module: nothing here talks to a store. "Ambiguous" means that the effect may have happened, or may still be
happening, although no success was reported: such an item is inspected again, never counted as a plain failure.

Sources: AWS, "Amazon S3 API Reference: Error responses"; botocore's exception tree; answers recorded from AWS.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError


class FailureClass(StrEnum):
    """Why the store did not do what was asked."""

    VERSION_MISMATCH = "version_mismatch"  # a precondition says: not the bytes that were meant
    MALFORMED_VERSION = "malformed_version"  # no such version id, or none at all; an inspection decides which
    LOCKED = "locked"  # retention until a time
    LEGAL_HOLD = "legal_hold"  # a hold without an end; retention may apply as well
    PERMISSION = "permission"  # denied, and no lock was found to explain it
    CREDENTIALS = "credentials"  # keys, clock, region or signature of this worker
    BUCKET_MISSING = "bucket_missing"
    THROTTLED = "throttled"
    TRANSIENT = "transient"  # server trouble, a broken connection, or an answer that accounts for nothing
    CONFLICT = "conflict"
    MALFORMED_REQUEST = "malformed_request"  # the store refused the request as a whole: nothing was executed


class Scope(StrEnum):
    """How far a failure reaches beyond the one item."""

    OBJECT = "object"
    PREFIX = "prefix"
    BUCKET = "bucket"
    WORKER = "worker"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Failure:
    """A classified refusal. `retry_after` is in seconds; `http_status` is None where no answer came."""

    kind: FailureClass
    ambiguous: bool
    scope: Scope
    code: str = ""
    message: str = ""
    http_status: int | None = None
    retry_after: float | None = None

    @classmethod
    def of(cls, kind: FailureClass, code: str = "", message: str = "", *, ambiguous: bool = False) -> Self:
        """A failure that no answer of a store put into words."""
        return cls(kind, ambiguous, SCOPES[kind], code, message)


class StorageError(Exception):
    """A listing or a bucket query failed; `failure` says why. Deletions and inspections report instead of raising."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.kind}: {failure.code} {failure.message}".strip())
        self.failure = failure


SCOPES: Final[Mapping[FailureClass, Scope]] = {
    FailureClass.VERSION_MISMATCH: Scope.OBJECT,
    FailureClass.MALFORMED_VERSION: Scope.OBJECT,
    FailureClass.LOCKED: Scope.OBJECT,
    FailureClass.LEGAL_HOLD: Scope.OBJECT,
    FailureClass.PERMISSION: Scope.OBJECT,
    FailureClass.CREDENTIALS: Scope.WORKER,
    FailureClass.BUCKET_MISSING: Scope.BUCKET,
    FailureClass.THROTTLED: Scope.PREFIX,
    FailureClass.TRANSIENT: Scope.OBJECT,
    FailureClass.CONFLICT: Scope.OBJECT,
    FailureClass.MALFORMED_REQUEST: Scope.REQUEST,
}

_CODES_BY_CLASS: Final[Mapping[FailureClass, str]] = {
    FailureClass.VERSION_MISMATCH: "PreconditionFailed",
    FailureClass.MALFORMED_VERSION: "NoSuchVersion NoSuchKey",
    FailureClass.PERMISSION: "AccessDenied AllAccessDisabled AccountProblem InvalidPayer NotSignedUp",
    FailureClass.CREDENTIALS: (
        "ExpiredToken ExpiredTokenException TokenRefreshRequired InvalidToken InvalidAccessKeyId InvalidSecurity "
        "SignatureDoesNotMatch RequestTimeTooSkewed RequestExpired AuthorizationHeaderMalformed PermanentRedirect "
        "TemporaryRedirect Redirect IllegalLocationConstraintException"
    ),
    FailureClass.BUCKET_MISSING: "NoSuchBucket",
    FailureClass.THROTTLED: (
        "SlowDown TooManyRequests TooManyRequestsException RequestLimitExceeded BandwidthLimitExceeded Throttling "
        "ThrottlingException ThrottledException RequestThrottled RequestThrottledException"
    ),
    FailureClass.TRANSIENT: (
        "InternalError InternalServerError ServiceUnavailable RequestTimeout RequestTimeoutException IncompleteBody"
    ),
    FailureClass.CONFLICT: "OperationAborted ConditionalRequestConflict",
    FailureClass.MALFORMED_REQUEST: (
        "MalformedXML MissingContentMD5 InvalidRequest BadDigest InvalidDigest KeyTooLongError KeyTooLong "
        "InvalidArgument InvalidBucketOwnerAWSAccountID InvalidBucketName InvalidObjectName InvalidURI "
        "MethodNotAllowed NotImplemented XAmzContentSHA256Mismatch"
    ),
}
CODES: Final[Mapping[str, FailureClass]] = {
    code: kind for kind, codes in _CODES_BY_CLASS.items() for code in codes.split()
}

STATUSES: Final[Mapping[int, FailureClass]] = {
    301: FailureClass.CREDENTIALS,
    302: FailureClass.CREDENTIALS,
    307: FailureClass.CREDENTIALS,
    308: FailureClass.CREDENTIALS,
    401: FailureClass.PERMISSION,
    403: FailureClass.PERMISSION,
    404: FailureClass.TRANSIENT,  # a bare 404 names neither version nor bucket: look again
    408: FailureClass.TRANSIENT,
    409: FailureClass.CONFLICT,
    412: FailureClass.VERSION_MISMATCH,
    429: FailureClass.THROTTLED,
    501: FailureClass.MALFORMED_REQUEST,
}

EXCEPTIONS: Final[tuple[tuple[tuple[type[Exception], ...], FailureClass], ...]] = (
    ((boto.ParamValidationError, ValueError), FailureClass.MALFORMED_REQUEST),  # ValueError: not an endpoint URL
    (
        (
            boto.NoCredentialsError,
            boto.PartialCredentialsError,
            boto.CredentialRetrievalError,
            boto.ProfileNotFound,
            boto.ConfigNotFound,
            boto.ConfigParseError,
            boto.InvalidConfigError,
            boto.TokenRetrievalError,
            boto.SSOError,
            boto.UnauthorizedSSOTokenError,
            boto.NoRegionError,
            boto.InvalidRegionError,
        ),
        FailureClass.CREDENTIALS,
    ),
    ((boto.BotoCoreError, ResponseParserError), FailureClass.TRANSIENT),
)

_WHOLE_BUCKET: Final = frozenset({"AllAccessDisabled", "AccountProblem", "InvalidPayer", "NotSignedUp"})


def classify(
    code: str,
    message: str = "",
    *,
    http_status: int | None = None,
    argument: str = "",
    sent: bool = True,
    per_key: bool = False,
    retry_after: float | None = None,
) -> Failure:
    """Classify an error that the store put into words.

    `argument` is the ArgumentName of an InvalidArgument; `per_key` says that the error stands for one key inside a
    successful DeleteObjects answer (a throttled key was not executed; a throttled request may have been in part).
    Unknown codes fall back to the HTTP status, and without one to TRANSIENT: what is not understood is looked at again.
    """
    kind = _kind_of(code, message, http_status, argument)
    in_doubt = kind is FailureClass.TRANSIENT or (kind is FailureClass.THROTTLED and not per_key)
    scope = Scope.BUCKET if code in _WHOLE_BUCKET else SCOPES[kind]
    return Failure(kind, in_doubt and sent, scope, code, message, http_status, retry_after)


def classify_exception(error: Exception, *, sent: bool) -> Failure:
    """Classify what botocore raised. `sent` says whether any byte of the request left this process."""
    if isinstance(error, boto.ClientError):
        said: Mapping[str, Any] = error.response.get("Error", {})
        metadata = error.response.get("ResponseMetadata")
        headers = metadata.get("HTTPHeaders", {}) if metadata else {}
        return classify(
            said.get("Code", ""),
            said.get("Message", ""),
            http_status=metadata.get("HTTPStatusCode") if metadata else None,
            argument=said.get("ArgumentName", ""),
            sent=sent,
            retry_after=retry_after(headers),
        )
    kind = next((kind for types, kind in EXCEPTIONS if isinstance(error, types)), FailureClass.TRANSIENT)
    in_doubt = sent and kind is FailureClass.TRANSIENT
    return Failure.of(kind, type(error).__name__, str(error), ambiguous=in_doubt)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the answer asks us to wait: `x-amz-retry-after` is in milliseconds, `retry-after` in seconds."""
    for name, unit in (("x-amz-retry-after", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):  # absent, or an HTTP date
            continue
    return None


def _kind_of(code: str, message: str, http_status: int | None, argument: str) -> FailureClass:
    if code == "InvalidArgument" and (argument.lower() == "versionid" or "version id" in message.lower()):
        return FailureClass.MALFORMED_VERSION
    if code in CODES:
        return CODES[code]
    if http_status is None:
        return FailureClass.TRANSIENT
    unlisted = FailureClass.MALFORMED_REQUEST if 400 <= http_status < 500 else FailureClass.TRANSIENT
    return STATUSES.get(http_status, unlisted)
