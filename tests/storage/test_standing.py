"""How a bucket stands, from what stores answer: open or not, with MFA Delete or not, whose clock is ahead."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from retention.storage import BucketRef, Standing, StorageError
from retention.storage.s3 import S3Store
from tests.storage.fake_s3 import HANG, RESET, Answer, FakeS3, Request, error

ASKED = ["get_versioning", "get_policyStatus", "get_publicAccessBlock", "get_acl"]
VERSIONING = "<VersioningConfiguration><Status>Enabled</Status>{}</VersioningConfiguration>"
GROUPS = "http://acs.amazonaws.com/groups/global/"


def grant(uri: str, permission: str) -> str:
    kind = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group"'
    return f"<Grant><Grantee {kind}><URI>{uri}</URI></Grantee><Permission>{permission}</Permission></Grant>"


def acl(*grants: str) -> Answer:
    inside = "<Owner><ID>me</ID></Owner><AccessControlList>" + "".join(grants) + "</AccessControlList>"
    return Answer(200, f"<AccessControlPolicy>{inside}</AccessControlPolicy>")


def answering(fake: FakeS3, **said: Answer) -> None:
    usual = {
        "versioning": Answer(200, VERSIONING.format("")),
        "policyStatus": error("NoSuchBucketPolicy", 404),
        "publicAccessBlock": error("NoSuchPublicAccessBlockConfiguration", 404),
        "acl": acl(),
    }

    def respond(request: Request) -> Answer:
        return (usual | said)[request.operation.removeprefix("get_")]

    fake.respond = respond


def test_a_closed_bucket(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    answering(fake)
    assert store.standing(fake_bucket) == Standing(False, (), frozenset(), mfa_delete=False)
    assert (fake.operations(), {each.method for each in fake.requests}) == (ASKED, {"GET"})


def test_an_open_bucket(fake: FakeS3, fake_bucket: BucketRef, store: S3Store) -> None:
    block = "<IgnorePublicAcls>true</IgnorePublicAcls><BlockPublicAcls>false</BlockPublicAcls>"
    answering(
        fake,
        versioning=Answer(200, VERSIONING.format("<MfaDelete>Enabled</MfaDelete>")),
        policyStatus=Answer(200, "<PolicyStatus><IsPublic>true</IsPublic></PolicyStatus>"),
        publicAccessBlock=Answer(200, f"<PublicAccessBlockConfiguration>{block}</PublicAccessBlockConfiguration>"),
        acl=acl(grant(f"{GROUPS}AllUsers", "READ"), grant(f"{GROUPS}AuthenticatedUsers", "WRITE"), grant("x", "READ")),
    )
    found = store.standing(fake_bucket)
    assert (found.public_policy, found.mfa_delete, found.blocks) == (True, True, frozenset({"IgnorePublicAcls"}))
    assert found.public_grants == ("READ to everybody", "WRITE to everybody with an account")


def test_what_is_refused_is_named_and_what_is_not_known_is_left_open(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store
) -> None:
    denied = error("AccessDenied", 403)
    answering(fake, policyStatus=denied, publicAccessBlock=denied, acl=denied)
    found = store.standing(fake_bucket)
    assert (found.public_policy, found.public_grants, found.blocks, found.mfa_delete) == (None, None, None, False)
    assert found.refused == ("s3:GetBucketPolicyStatus", "s3:GetBucketPublicAccessBlock", "s3:GetBucketAcl")
    elsewhere = Answer(200, "<ListBucketResult></ListBucketResult>")  # a store that knows no such question
    answering(
        fake, policyStatus=elsewhere, publicAccessBlock=error("NotImplemented", 501), acl=error("InternalError", 500)
    )
    assert store.standing(fake_bucket) == Standing(mfa_delete=False)


@pytest.mark.parametrize("seconds", [-700, 0, 700])
def test_the_clock_is_read_from_the_answer(fake: FakeS3, fake_bucket: BucketRef, store: S3Store, seconds: int) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
    answering(fake, versioning=Answer(200, VERSIONING.format(""), {"Date": date}))
    found = store.standing(fake_bucket)
    assert found.ahead is not None
    assert abs(found.ahead - seconds) <= found.doubt + 0.5
    assert 0.5 <= found.doubt < 5


@pytest.mark.parametrize("silence", [RESET, HANG, error("NoSuchBucket", 404), error("InvalidAccessKeyId", 403)])
def test_a_store_that_does_not_answer_is_asked_once(
    fake: FakeS3, fake_bucket: BucketRef, store: S3Store, silence: Answer
) -> None:
    answering(fake, versioning=silence)
    with pytest.raises(StorageError):
        store.standing(fake_bucket)
    assert fake.operations() == ["get_versioning"]
