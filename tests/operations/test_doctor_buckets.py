"""The doctor at buckets: each thing that may be wrong there is found and has its advice, and nothing is ever changed."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any

import pytest

from cleanup_project.base.models import User
from cleanup_project.operations.doctor import buckets
from cleanup_project.operations.doctor.findings import Finding, Verdict
from retention.models import Bucket, Tenant
from retention.storage import store_for
from retention.storage.client import Timeouts
from retention.storage.s3 import S3Store
from tests import servers, world
from tests.storage.fake_s3 import HANG, Answer, FakeS3, Request, error, listing

pytestmark = pytest.mark.django_db

CLOSED = "".join(
    f"<{name}>true</{name}>"
    for name in ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
)
ACL = "<AccessControlPolicy><Owner><ID>me</ID></Owner><AccessControlList>{}</AccessControlList></AccessControlPolicy>"
EVERYBODY = (
    '<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group">'
    "<URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee><Permission>READ</Permission></Grant>"
)
RULE = (
    "<LifecycleConfiguration><Rule><ID>old</ID><Filter/><Status>Enabled</Status><NoncurrentVersionExpiration>"
    "<NoncurrentDays>30</NoncurrentDays></NoncurrentVersionExpiration></Rule></LifecycleConfiguration>"
)
DENIED = error("AccessDenied", 403, "Access Denied")
ALL_WELL = [
    "listing", "looking at a version", "what is gone", "versioning", "public access", "clock", "deleting", "lifecycle rules",
]  # fmt: skip


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in servers.aws_environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def server() -> Iterator[FakeS3]:
    with FakeS3().serving() as made:
        yield made


@pytest.fixture
def fake(server: FakeS3) -> Iterator[FakeS3]:
    server.begin()
    answering(server)
    yield server
    server.end()


@pytest.fixture
def media(fake: FakeS3) -> Bucket:
    return Bucket.objects.create(name="media", endpoint_url=fake.endpoint_url, addressing_style="path")


def answering(fake: FakeS3, **said: Answer | Callable[[Request], Answer]) -> None:
    """A bucket in order, but for what is said otherwise of an operation."""

    def versions(request: Request) -> Answer:
        probed = "cleanup-doctor" in request.query.get("prefix", "")
        return listing([] if probed else [{"Key": "k", "VersionId": "v1"}])

    def head(request: Request) -> Answer:
        there = {"x-amz-version-id": "v1", "ETag": '"e"', "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}
        return Answer(200, headers=there) if request.key == "k" else Answer(404)

    now = format_datetime(datetime.now(UTC), usegmt=True)
    usual: dict[str, Any] = {
        "get_versions": versions,
        "head_object": head,
        "head_bucket": Answer(200),
        "get_versioning": versioning(Date=now),
        "get_object-lock": error("ObjectLockConfigurationNotFoundError", 404),
        "get_lifecycle": error("NoSuchLifecycleConfiguration", 404),
        "get_policyStatus": error("NoSuchBucketPolicy", 404),
        "get_publicAccessBlock": Answer(
            200, f"<PublicAccessBlockConfiguration>{CLOSED}</PublicAccessBlockConfiguration>"
        ),
        "get_acl": Answer(200, ACL.format("")),
        "delete_object": Answer(204),
    }
    answers = usual | {name.replace("__", "-"): answer for name, answer in said.items()}

    def respond(request: Request) -> Answer:
        answer = answers[request.operation]
        return answer if isinstance(answer, Answer) else answer(request)

    fake.respond = respond


def versioning(status: str = "Enabled", more: str = "", **headers: str) -> Answer:
    inside = f"<Status>{status}</Status>{more}"
    return Answer(200, f"<VersioningConfiguration>{inside}</VersioningConfiguration>", headers)


def asked(*names: str, **options: Any) -> dict[str, Finding]:
    """What the doctor finds, by what it is about. Whatever is not well has its advice."""
    found = list(buckets.examine(names, **options))
    assert all(each.advice for each in found if each.verdict is not Verdict.OK)
    assert all(each.seen for each in found)
    by_subject = {each.subject.partition(", ")[2] or each.subject: each for each in found}
    assert len(by_subject) == len(found)
    return by_subject


def test_a_bucket_in_order_and_no_request_that_could_change_it(fake: FakeS3, media: Bucket) -> None:
    found = asked()
    assert list(found) == ALL_WELL
    assert {about for about, each in found.items() if each.verdict is not Verdict.OK} == {"deleting"}
    assert found["deleting"].verdict is Verdict.NOT_ASKED
    assert "s3:DeleteObject and s3:DeleteObjectVersion" in found["deleting"].advice
    assert {request.method for request in fake.requests} == {"GET", "HEAD"}
    media.refresh_from_db()
    assert (media.versioning, media.observed_at) == ("unknown", None)  # nothing is written down, either


@pytest.mark.parametrize(
    ("operation", "about", "actions"),
    [
        ("get_versions", "listing", ["s3:ListBucketVersions"]),
        ("head_object", "what is gone", ["s3:ListBucket"]),
        ("get_versioning", "versioning", ["s3:GetBucketVersioning"]),
        ("get_object__lock", "versioning", ["s3:GetBucketObjectLockConfiguration"]),
        ("get_lifecycle", "lifecycle rules", ["s3:GetLifecycleConfiguration"]),
    ],
)
def test_a_missing_permission_is_named_and_the_rest_is_looked_at_all_the_same(
    operation: str, about: str, actions: list[str], fake: FakeS3, media: Bucket
) -> None:
    answering(fake, **{operation: DENIED})
    found = asked()
    assert found[about].verdict is Verdict.FAULT
    assert all(action in found[about].advice for action in actions)
    assert set(ALL_WELL) - set(found) <= {about}


def test_a_version_that_may_not_be_looked_at(fake: FakeS3, media: Bucket) -> None:
    answering(fake, head_object=lambda request: DENIED if request.key == "k" else Answer(404))
    found = asked()["looking at a version"]
    assert (found.verdict, "s3:GetObjectVersion" in found.advice) == (Verdict.FAULT, True)


def test_an_empty_bucket_has_no_version_to_look_at(fake: FakeS3, media: Bucket) -> None:
    answering(fake, get_versions=lambda request: listing([]))
    assert asked()["looking at a version"].verdict is Verdict.NOT_ASKED


def test_permissions_for_the_look_at_public_access_are_optional(fake: FakeS3, media: Bucket) -> None:
    answering(fake, get_policyStatus=DENIED, get_publicAccessBlock=DENIED, get_acl=DENIED)
    found = asked()["public access"]
    assert (found.verdict, "s3:GetBucketPolicyStatus" in found.advice) == (Verdict.NOT_ASKED, True)


@pytest.mark.parametrize(
    ("said", "verdict", "words"),
    [
        ({"get_acl": Answer(200, ACL.format(EVERYBODY))}, Verdict.OK, "Nobody else"),  # ignored: all four blocks are on
        (
            {"get_publicAccessBlock": error("NoSuchPublicAccessBlockConfiguration", 404)},
            Verdict.WARNING,
            "nothing keeps",
        ),
        ({"get_publicAccessBlock": error("NotImplemented", 501)}, Verdict.OK, "Nobody else"),
        (
            {
                "get_publicAccessBlock": error("NotImplemented", 501),
                "get_policyStatus": error("NotImplemented", 501),
                "get_acl": error("NotImplemented", 501),
            },
            Verdict.NOT_ASKED,
            "does not say",
        ),
        (
            {
                "get_publicAccessBlock": error("NoSuchPublicAccessBlockConfiguration", 404),
                "get_acl": Answer(200, ACL.format(EVERYBODY)),
            },
            Verdict.FAULT,
            "READ to everybody",
        ),
        (
            {
                "get_publicAccessBlock": error("NotImplemented", 501),
                "get_policyStatus": Answer(200, "<PolicyStatus><IsPublic>true</IsPublic></PolicyStatus>"),
            },
            Verdict.FAULT,
            "its policy lets everybody in",
        ),
    ],
)
def test_who_else_may_come_in(
    said: dict[str, Answer], verdict: Verdict, words: str, fake: FakeS3, media: Bucket
) -> None:
    answering(fake, **said)
    found = asked()["public access"]
    assert (found.verdict, words in found.seen) == (verdict, True)


@pytest.mark.parametrize("status", ["Suspended", ""])
def test_without_versioning_an_object_may_be_replaced(status: str, fake: FakeS3, media: Bucket) -> None:
    answering(fake, get_versioning=versioning(status) if status else Answer(200, "<VersioningConfiguration/>"))
    assert asked()["versioning"].verdict is Verdict.WARNING


def test_mfa_delete_is_in_the_way_of_everything(fake: FakeS3, media: Bucket) -> None:
    answering(fake, get_versioning=versioning(more="<MfaDelete>Enabled</MfaDelete>"))
    found = asked()
    assert found["MFA Delete"].verdict is Verdict.FAULT
    assert found["clock"].verdict is Verdict.NOT_ASKED  # that answer has no Date


def test_locks_that_cannot_be_read_would_look_like_missing_permissions(fake: FakeS3, media: Bucket) -> None:
    lock = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled></ObjectLockConfiguration>"
    answering(fake, get_object__lock=Answer(200, lock), get_retention=DENIED, **{"get_legal-hold": DENIED})
    found = asked()["locks"]
    assert (found.verdict, "s3:GetObjectRetention" in found.advice) == (Verdict.WARNING, True)
    none = error("NoSuchObjectLockConfiguration", 404)
    answering(fake, get_object__lock=Answer(200, lock), get_retention=none, **{"get_legal-hold": none})
    assert asked()["locks"].verdict is Verdict.OK


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(-30, Verdict.WARNING), (2, Verdict.OK), (60, Verdict.WARNING), (600, Verdict.FAULT)]
)
def test_the_clock_of_the_store(seconds: int, verdict: Verdict, fake: FakeS3, media: Bucket) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    answering(fake, get_versioning=versioning(Date=format_datetime(moment, usegmt=True)))
    assert asked()["clock"].verdict is verdict


def test_a_rule_of_the_store_that_could_delete_what_is_held(
    fake: FakeS3, media: Bucket, tenant: Tenant, compliance: User, manager: User, second_manager: User
) -> None:
    answering(fake, get_lifecycle=Answer(200, RULE))
    assert asked()["lifecycle rules"].verdict is Verdict.OK
    world.published(tenant, media, author=manager, publisher=second_manager, period_number=90)
    assert asked()["lifecycle rules"].verdict is Verdict.WARNING
    placed = world.hold(tenant, media, "case/", by=compliance)
    found = asked()["lifecycle rules"]
    assert (found.verdict, f"old (hold {placed.pk}" in found.seen) == (Verdict.FAULT, True)
    assert not media.lifecycle_rules.exists()


def test_a_store_that_is_stopped_is_one_fault_and_is_asked_nothing_more(media: Bucket) -> None:
    (port,) = servers._free_ports(1)
    Bucket.objects.filter(pk=media.pk).update(endpoint_url=f"http://127.0.0.1:{port}")
    found = asked()
    assert list(found) == ["store"]
    assert (found["store"].verdict, str(port) in found["store"].advice) == (Verdict.FAULT, True)


def test_a_store_that_hangs_is_given_up(fake: FakeS3, media: Bucket) -> None:
    answering(fake, get_versions=HANG)
    found = asked(stores=lambda place: S3Store(Timeouts(read=0.5)))
    assert (list(found), found["store"].verdict) == (["store"], Verdict.FAULT)
    assert fake.operations() == ["get_versions"]


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        (error("InvalidAccessKeyId", 403), Verdict.FAULT, "credentials"),
        (error("RequestTimeTooSkewed", 403), Verdict.FAULT, "clock"),
        (error("NoSuchBucket", 404), Verdict.FAULT, "name, endpoint or region"),
    ],
)
def test_why_a_store_does_not_let_us_in(
    answer: Answer, verdict: Verdict, words: str, fake: FakeS3, media: Bucket
) -> None:
    answering(fake, get_versions=answer)
    found = asked()
    assert (list(found), found["store"].verdict, words in found["store"].advice) == (["store"], verdict, True)


def test_one_bucket_hides_no_other_and_comes_in_its_place(fake: FakeS3, media: Bucket) -> None:
    Bucket.objects.create(name="archive", endpoint_url="http://127.0.0.1:1", addressing_style="path")
    subjects = [each.subject for each in buckets.examine()]
    assert subjects == ["bucket archive, store", *(f"bucket media, {about}" for about in ALL_WELL)]
    assert [each.subject for each in buckets.examine(["archive"])] == ["bucket archive, store"]
    assert set(asked("media")) == set(ALL_WELL)
    Bucket.objects.create(name="media", endpoint_url="http://127.0.0.1:1")
    assert next(iter(buckets.examine(["media@http://127.0.0.1:1"]))).subject == "bucket media, store"
    assert next(iter(buckets.examine(["media"]))).subject == "bucket media@http://127.0.0.1:1, store"


def test_a_bucket_that_nobody_knows_is_a_fault(media: Bucket) -> None:
    (found,) = buckets.examine(["medai"])
    assert (found.verdict, "media@" in found.seen) == (Verdict.FAULT, True)


def test_what_breaks_off_is_told(media: Bucket) -> None:
    class Broken(S3Store):
        def list_versions(self, *_: Any, **options: Any) -> Any:
            raise ZeroDivisionError("no such case")

    found = asked(stores=lambda place: Broken())
    assert (found["store"].verdict, "ZeroDivisionError" in found["store"].seen) == (Verdict.NOT_ASKED, True)


def probes(fake: FakeS3) -> list[Request]:
    return [request for request in fake.requests if request.method not in {"GET", "HEAD"}]


def test_a_probe_sends_one_deletion_of_a_version_that_cannot_be_for_each_enforced_prefix(
    fake: FakeS3, media: Bucket, tenant: Tenant, manager: User, second_manager: User
) -> None:
    for prefix in ("b/", "a"):
        world.enforced(tenant, media, prefix, by=manager, approver=second_manager)
    found = asked(probe=True)
    assert found["deleting"].verdict is Verdict.OK
    first, second = probes(fake)
    assert {(each.operation, each.query["versionId"]) for each in (first, second)} == {("delete_object", "null")}
    assert first.key.startswith("acleanup-doctor-")
    assert second.key.startswith("b/cleanup-doctor-")
    assert len(first.key) == len("acleanup-doctor-") + 32
    assert first.key[-32:] != second.key[-32:]


def test_a_probe_that_is_denied_names_the_permissions(fake: FakeS3, media: Bucket) -> None:
    answering(fake, delete_object=DENIED, get_retention=DENIED, **{"get_legal-hold": DENIED})
    found = asked(probe=True)["deleting"]
    assert (found.verdict, "s3:DeleteObject and s3:DeleteObjectVersion" in found.advice) == (Verdict.FAULT, True)
    (sent,) = probes(fake)
    assert (sent.operation, sent.key.startswith("cleanup-doctor-")) == ("delete_object", True)


def test_a_store_that_writes_a_marker_instead_is_not_fit_for_use(fake: FakeS3, media: Bucket) -> None:
    def marked(request: Request) -> Answer:
        prefix = request.query.get("prefix", "")
        return listing([{"Key": prefix or "k", "VersionId": "v1"}])

    answering(fake, get_versions=marked)
    found = asked(probe=True)["deleting"]
    assert (found.verdict, "does not delete exact versions" in found.advice) == (Verdict.FAULT, True)


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with servers.moto_server() as url:
        yield url


def test_a_real_server_says_the_same_and_keeps_everything(moto: str) -> None:
    client = servers.client(moto)
    place = {"endpoint_url": moto, "addressing_style": "path"}
    for name in ("closed", "opened"):
        client.create_bucket(Bucket=name)
        client.put_object(Bucket=name, Key="k", Body=b"x")
        Bucket.objects.create(name=name, **place)
    client.put_bucket_versioning(Bucket="closed", VersioningConfiguration={"Status": "Enabled"})
    client.put_object(Bucket="closed", Key="k", Body=b"y")
    client.put_bucket_acl(Bucket="opened", ACL="public-read")
    listed = partial(client.list_object_versions, Bucket="closed")
    before = listed()["Versions"]

    closed, opened = asked("closed", probe=True), asked("opened", probe=True)
    assert {about: each for about, each in closed.items() if each.verdict is Verdict.FAULT} == {}
    assert closed["versioning"].verdict is Verdict.OK
    assert opened["versioning"].verdict is Verdict.WARNING
    assert (opened["public access"].verdict, "READ to everybody" in opened["public access"].seen) == (
        Verdict.FAULT,
        True,
    )
    assert (closed["deleting"].verdict, opened["deleting"].verdict) == (Verdict.OK, Verdict.OK)
    assert listed()["Versions"] == before
    assert "DeleteMarkers" not in listed()
    assert store_for is buckets.store_for
