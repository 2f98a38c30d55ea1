"""The classification table, row by row, without a store."""

import pytest
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from retention.storage.failures import CODES, SCOPES, FailureClass, Scope, classify, classify_exception, retry_after

KIND = FailureClass


def test_every_class_has_a_scope() -> None:
    assert set(SCOPES) == set(FailureClass)


def test_every_class_that_a_store_can_name_has_codes() -> None:
    assert set(CODES.values()) == set(FailureClass) - {KIND.LOCKED, KIND.LEGAL_HOLD}  # these are read, not named


@pytest.mark.parametrize(
    ("code", "status", "kind", "ambiguous", "scope"),
    [
        ("PreconditionFailed", 412, KIND.VERSION_MISMATCH, False, Scope.OBJECT),
        ("NoSuchVersion", 404, KIND.MALFORMED_VERSION, False, Scope.OBJECT),
        ("AccessDenied", 403, KIND.PERMISSION, False, Scope.OBJECT),
        ("AllAccessDisabled", 403, KIND.PERMISSION, False, Scope.BUCKET),
        ("AccountProblem", 403, KIND.PERMISSION, False, Scope.BUCKET),
        ("403", 403, KIND.PERMISSION, False, Scope.OBJECT),
        ("ExpiredToken", 400, KIND.CREDENTIALS, False, Scope.WORKER),
        ("InvalidAccessKeyId", 403, KIND.CREDENTIALS, False, Scope.WORKER),
        ("SignatureDoesNotMatch", 403, KIND.CREDENTIALS, False, Scope.WORKER),
        ("InvalidToken", 400, KIND.CREDENTIALS, False, Scope.WORKER),
        ("RequestTimeTooSkewed", 403, KIND.CREDENTIALS, False, Scope.WORKER),
        ("AuthorizationHeaderMalformed", 400, KIND.CREDENTIALS, False, Scope.WORKER),
        ("PermanentRedirect", 301, KIND.CREDENTIALS, False, Scope.WORKER),
        ("301", 301, KIND.CREDENTIALS, False, Scope.WORKER),
        ("NoSuchBucket", 404, KIND.BUCKET_MISSING, False, Scope.BUCKET),
        ("SlowDown", 503, KIND.THROTTLED, True, Scope.PREFIX),
        ("TooManyRequests", 429, KIND.THROTTLED, True, Scope.PREFIX),
        ("429", 429, KIND.THROTTLED, True, Scope.PREFIX),
        ("RequestLimitExceeded", 503, KIND.THROTTLED, True, Scope.PREFIX),
        ("ThrottlingException", 400, KIND.THROTTLED, True, Scope.PREFIX),
        ("BandwidthLimitExceeded", 503, KIND.THROTTLED, True, Scope.PREFIX),
        ("InternalError", 500, KIND.TRANSIENT, True, Scope.OBJECT),
        ("500", 500, KIND.TRANSIENT, True, Scope.OBJECT),
        ("502", 502, KIND.TRANSIENT, True, Scope.OBJECT),
        ("503", 503, KIND.TRANSIENT, True, Scope.OBJECT),
        ("504", 504, KIND.TRANSIENT, True, Scope.OBJECT),
        ("RequestTimeout", 400, KIND.TRANSIENT, True, Scope.OBJECT),
        ("404", 404, KIND.TRANSIENT, True, Scope.OBJECT),
        ("NeverSeen", None, KIND.TRANSIENT, True, Scope.OBJECT),
        ("OperationAborted", 409, KIND.CONFLICT, False, Scope.OBJECT),
        ("ConditionalRequestConflict", 409, KIND.CONFLICT, False, Scope.OBJECT),
        ("MalformedXML", 400, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
        ("MissingContentMD5", 400, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
        ("InvalidRequest", 400, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
        ("BadDigest", 400, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
        ("InvalidDigest", 400, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
        ("KeyTooLongError", 400, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
        ("InvalidBucketOwnerAWSAccountID", 400, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
        ("NotImplemented", 501, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
        ("501", 501, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
        ("InvalidArgument", 400, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
        ("", 400, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),  # Ceph RGW
        ("NeverSeen", 418, KIND.MALFORMED_REQUEST, False, Scope.REQUEST),
    ],
)
def test_a_code_has_a_class(code: str, status: int | None, kind: FailureClass, ambiguous: bool, scope: Scope) -> None:
    failure = classify(code, "message", http_status=status)
    assert (failure.kind, failure.ambiguous, failure.scope) == (kind, ambiguous, scope)
    assert (failure.code, failure.message, failure.http_status) == (code, "message", status)


@pytest.mark.parametrize(
    ("argument", "message"), [("versionId", ""), ("", "Invalid version id specified")], ids=["argument", "message"]
)
def test_an_invalid_argument_may_be_the_version_id(argument: str, message: str) -> None:
    failure = classify("InvalidArgument", message, http_status=400, argument=argument)
    assert failure.kind is KIND.MALFORMED_VERSION


def test_one_throttled_key_was_not_executed() -> None:
    assert not classify("SlowDown", per_key=True).ambiguous
    assert classify("InternalError", per_key=True).ambiguous


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (boto.ReadTimeoutError(endpoint_url="u"), KIND.TRANSIENT),
        (boto.ConnectionClosedError(endpoint_url="u"), KIND.TRANSIENT),
        (boto.EndpointConnectionError(endpoint_url="u"), KIND.TRANSIENT),
        (boto.ConnectTimeoutError(endpoint_url="u"), KIND.TRANSIENT),
        (boto.ProxyConnectionError(proxy_url="u"), KIND.TRANSIENT),
        (boto.SSLError(endpoint_url="u", error="e"), KIND.TRANSIENT),
        (boto.HTTPClientError(error="e"), KIND.TRANSIENT),
        (ResponseParserError("not XML"), KIND.TRANSIENT),
        (boto.NoCredentialsError(), KIND.CREDENTIALS),
        (boto.PartialCredentialsError(provider="p", cred_var="v"), KIND.CREDENTIALS),
        (boto.ProfileNotFound(profile="p"), KIND.CREDENTIALS),
        (boto.CredentialRetrievalError(provider="p", error_msg="m"), KIND.CREDENTIALS),
        (boto.UnauthorizedSSOTokenError(), KIND.CREDENTIALS),
        (boto.NoRegionError(), KIND.CREDENTIALS),
        (boto.ParamValidationError(report="r"), KIND.MALFORMED_REQUEST),
        (ValueError("Invalid endpoint"), KIND.MALFORMED_REQUEST),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_an_exception_has_a_class(error: Exception, kind: FailureClass) -> None:
    failure = classify_exception(error, sent=True)
    assert (failure.kind, failure.ambiguous) == (kind, kind is KIND.TRANSIENT)
    assert not classify_exception(error, sent=False).ambiguous
    assert failure.code == type(error).__name__


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"x-amz-retry-after": "1500"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, 0.0),
    ],
)
def test_the_wait_asked_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds
