"""Why an object is eligible, or why not, on a page: the verdict, what each policy says, and as of when."""

from collections.abc import Callable

import pytest
from django.test import Client

from cleanup_project.base import roles
from cleanup_project.base.models import User
from retention import dispositions, why
from retention.models import Bucket, LegalHold, ObjectVersion, PolicyRevision, Tenant
from tests import world
from tests.web import quick_pages, url  # noqa: F401

pytestmark = pytest.mark.django_db


@pytest.fixture
def row(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, client: Client) -> ObjectVersion:
    """Stored on 1 January 2020; one policy keeps it for 30 days, another for 20 years."""
    client.force_login(manager)
    for code, period in (("short", {}), ("long", {"period_number": 20, "period_unit": "years"})):
        world.published(tenant, bucket, author=manager, publisher=second_manager, code=code, **period)
    return world.version(bucket, tenant, "clips/a", asset="a")


def shown(client: Client, row: ObjectVersion, **query: str) -> str:
    response = client.get(url(ObjectVersion, "why", row.pk), query)
    assert response.status_code == 200
    return response.content.decode()


def test_the_page_says_no_which_policy_governs_and_when_it_ends(row: ObjectVersion, client: Client) -> None:
    page = shown(client, row)
    for text in (
        "Not eligible for destruction.", "Its retention has not ended yet.", "Governed by <strong>long/1</strong>",
        "2040-01-01 00:00:00 UTC", "2020-01-31 00:00:00 UTC", "20 years, no cut-off", "The longest retention wins.",
        "The next run of long looks at it",
        url(PolicyRevision, "change", PolicyRevision.objects.get(policy__code="short").pk),
    ):  # fmt: skip
        assert text in page, text
    assert page.count('<span class="pill">governs</span>') == 1


def test_as_of_another_time_it_is_judged_for_then(row: ObjectVersion, client: Client) -> None:
    page = shown(client, row, as_of="2040-01-02T00:00:00Z")
    for text in (
        "Eligible for destruction.",
        "Judged as of <time",
        "2040-01-02 00:00:00 UTC",
        'value="2040-01-02T00:00:00Z"',
    ):
        assert text in page, text


@pytest.mark.parametrize(
    "text", ["tomorrow", "2040-01-02", "2040-01-02T00:00:00", "2040-13-02T00:00:00Z", "9999-12-31T23:59:59-14:00"]
)
def test_a_time_that_is_none_is_told_kept_and_judged_as_of_now(text: str, row: ObjectVersion, client: Client) -> None:
    page = shown(client, row, as_of=text)
    assert "Write a time with its zone, for example 2027-01-31T00:00:00Z." in page
    assert f'value="{text}"' in page
    assert "Not eligible for destruction." in page


def test_holds_and_decisions_stand_there_with_who_and_why(
    row: ObjectVersion, tenant: Tenant, bucket: Bucket, manager: User, compliance: User, client: Client
) -> None:
    placed = world.hold(tenant, bucket, "clips/", by=compliance)
    dispositions.exempt([row.pk], by=manager, reason="Court copy.")
    page = shown(client, row, as_of="2040-01-02T00:00:00Z")
    for text in (
        url(LegalHold, "change", placed.pk),
        "Exempt from destruction until that is ended, by manager: Court copy.",
    ):
        assert text in page, text
    assert "Eligible for destruction." not in page.replace("Not eligible for destruction.", "")


def test_what_no_policy_covers_and_what_is_gone_are_told_so(row: ObjectVersion, bucket: Bucket, client: Client) -> None:
    loose = world.version(bucket, None, "other", asset="o")
    page = shown(client, loose)
    assert "No retention policy in force covers it." in page
    assert "No scheduled run looks at it while that is so" in page
    ObjectVersion.objects.filter(pk=row.pk).update(gone_at=row.observed_at, gone_reason="vanished")
    gone = shown(client, row)
    assert "It is no longer in the bucket." in gone
    assert "vanished outside of us" in gone


def test_of_more_around_it_than_is_read_for_an_answer_the_page_says_so_and_names_the_command(
    row: ObjectVersion, tenant: Tenant, bucket: Bucket, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.version(bucket, tenant, "clips/a", gone_at=row.observed_at, gone_reason="vanished")
    small = world.version(bucket, tenant, "small", role="derivative", original_bucket=bucket, original_key="clips/a")
    monkeypatch.setattr(why, "READ", 1)
    for each in (row, small):
        page = shown(client, each, as_of="soon")
        for text in (
            "Not judged here.", "More than 1 versions or events bear upon this", "manage.py why", "<h2>Facts</h2>",
            "Write a time with its zone",
        ):  # fmt: skip
            assert text in page, text
        for text in ("ligible for destruction", "None covers it", "Nothing is in force", "In words", "It was judged"):
            assert text not in page, text
    monkeypatch.setattr(why, "READ", 2)
    for each in (row, small):
        assert "Not eligible for destruction." in shown(client, each)


def test_it_is_linked_from_the_object_and_for_who_may_see_that(
    row: ObjectVersion, person: Callable[..., User], client: Client
) -> None:
    address = url(ObjectVersion, "why", row.pk)
    assert address in client.get(url(ObjectVersion, "change", row.pk)).content.decode()
    client.force_login(person("nobody"))
    assert client.get(address).status_code == 403
    client.force_login(person("auditor", roles.AUDITOR))
    assert client.get(address).status_code == 200
    assert client.get(url(ObjectVersion, "why", row.pk + 1)).status_code == 404
