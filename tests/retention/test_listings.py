"""What no policy covers and what stays for too long is found, told in turns, and explained for each object."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from cleanup_project.base import clock, roles
from cleanup_project.base.models import User
from retention import holds, listings, policies
from retention.models import Bucket, ObjectVersion, Tenant
from retention.why import as_json, explain, why
from tests.web import quick_pages, url  # noqa: F401
from tests.world import days_ago, hold, published, version

pytestmark = pytest.mark.django_db


def keys(turn: listings.Turn) -> list[str]:
    return [line.version.key for line in turn.lines]


@pytest.fixture
def people(manager: User, second_manager: User) -> dict[str, Any]:
    return {"author": manager, "publisher": second_manager}


def test_unscheduled_is_what_is_present_and_covered_by_nothing(
    tenant: Tenant, bucket: Bucket, people: dict[str, Any]
) -> None:
    other = Tenant.objects.create(code="other", name="Other")
    published(tenant, bucket, **people, prefixes=["o/"])
    paused = published(tenant, bucket, **people, prefixes=["paused/"])
    policies.suspend(policy=paused.policy, by=people["author"], reason="R")
    published(tenant, bucket, **people, prefixes=["later/"], effective_from=clock.now() + timedelta(days=1))
    for key in ("free/1", "later/1", "o/1", "paused/1"):
        version(bucket, tenant, key)
    version(bucket, other, "o/2")
    version(bucket, None, "stray")
    version(Bucket.objects.create(name="elsewhere"), tenant, "elsewhere")
    version(bucket, tenant, "free/gone", gone_at=clock.now(), gone_reason="vanished")
    version(bucket, tenant, "free/marker", is_delete_marker=True)
    version(bucket, tenant, "thumbs/1", original_key="free/1")
    turn = listings.unscheduled(bucket)
    assert (keys(turn), turn.read, turn.resume) == (["free/1", "later/1", "o/2", "stray"], 9, None)
    assert keys(listings.unscheduled(bucket, tenant)) == ["free/1", "later/1"]


def test_past_maximum_is_what_stays_beyond_its_retention_held_or_not(
    tenant: Tenant, bucket: Bucket, people: dict[str, Any], compliance: User
) -> None:
    now = clock.now()
    published(tenant, bucket, **people, prefixes=["o/"], destroy_within_days=10)
    published(tenant, bucket, **people, prefixes=["free/"])
    published(tenant, bucket, **people, prefixes=["o/longer/"], period_number=60)
    published(tenant, bucket, **people, prefixes=["o/ever/"], retain_permanently=True)
    held = hold(tenant, bucket, "o/held/", by=compliance)
    for key, age in (
        ("free/1", 400), ("o/1", 41), ("o/2", 39), ("o/ever/1", 400), ("o/held/1", 41), ("o/held/2", 41),
        ("o/longer/1", 400), ("o/longer/2", 41),
    ):  # fmt: skip
        version(bucket, tenant, key, stored_at=days_ago(age, now))
    ObjectVersion.objects.filter(key="o/held/2").update(parked_by=held)
    turn = listings.past_maximum(bucket, tenant)
    assert (keys(turn), turn.read, turn.resume) == (["o/1", "o/held/1", "o/held/2"], 7, None)
    assert [str(line.verdict.reason) for line in turn.lines] == ["eligible", "held", "held"]
    assert [line.due for line in turn.lines] == [days_ago(1, now)] * 3


def test_a_turn_ends_and_the_next_goes_on_from_there(
    tenant: Tenant, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        version(bucket, tenant, f"o/{number}")
    monkeypatch.setattr(listings, "PAGE", 3)
    monkeypatch.setattr(listings, "FOUND", 4)
    first = listings.unscheduled(bucket)
    second = listings.unscheduled(bucket, resume=first.resume)
    third = listings.unscheduled(bucket, resume=second.resume)
    assert [keys(turn) for turn in (first, second, third)] == [
        ["o/0", "o/1", "o/2", "o/3"],
        ["o/4", "o/5", "o/6", "o/7"],
        ["o/8"],
    ]
    assert third.resume is None
    monkeypatch.setattr(listings, "SECONDS", -1)
    brief = listings.unscheduled(bucket)
    assert (keys(brief), brief.read) == (["o/0", "o/1", "o/2"], 3)
    assert keys(listings.unscheduled(bucket, resume=brief.resume)) == ["o/3", "o/4", "o/5"]


def test_the_pages_say_what_was_found_and_how_much_that_says(
    tenant: Tenant, bucket: Bucket, people: dict[str, Any], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    published(tenant, bucket, **people, prefixes=["o/"], destroy_within_days=10)
    version(bucket, tenant, "o/1", stored_at=days_ago(41, now))
    for number in range(3):
        version(bucket, tenant, f"free/{number}")
    client.force_login(people["author"])
    listed = client.get(url(ObjectVersion, "changelist")).content.decode()
    unscheduled, past = (f"/admin/retention/objectversion/{name}/" for name in ("unscheduled", "past-maximum"))
    assert f'"{unscheduled}"' in listed
    assert f'"{past}"' in listed
    assert "found among" not in client.get(unscheduled).content.decode()
    shown = client.get(unscheduled, {"bucket": bucket.pk}).content.decode()
    assert "3 found among 4 versions read. That was the last of the bucket." in shown
    assert "free/2" in shown
    monkeypatch.setattr(listings, "FOUND", 2)
    response = client.get(unscheduled, {"bucket": bucket.pk})
    assert "The first 2 found among 4 versions read. More may follow." in response.content.decode()
    onward = client.get(unscheduled + response.context["onward"]).content.decode()
    assert "free/2" in onward
    assert "free/1" not in onward
    shown = client.get(past, {"bucket": bucket.pk, "tenant": tenant.pk}).content.decode()
    assert "1 found among 1 version read." in shown
    assert "Its retention has ended and nothing keeps it." in shown
    for resume in ('[0, ["free/1", "v", "i"]]', response.context["onward"][-40:], "nonsense", "é"):
        refused = client.get(unscheduled, {"bucket": bucket.pk, "resume": resume})
        assert "not one that this page gave out" in refused.content.decode()
        assert refused.context["turn"] is None
    assert "Select a valid choice" in client.get(unscheduled, {"bucket": "x"}).content.decode()


def test_going_on_tells_nobody_whose_object_was_read_last(
    tenant: Tenant, bucket: Bucket, person: Callable[..., User], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    version(bucket, tenant, "a/own")
    for number in range(5):
        version(bucket, Tenant.objects.get_or_create(code="other", name="Other")[0], f"b/secret/{number}")
    client.force_login(person("scoped", roles.OPERATOR, tenants=[tenant.code]))
    monkeypatch.setattr(listings, "PAGE", 3)
    monkeypatch.setattr(listings, "SECONDS", -1)
    page = client.get(url(ObjectVersion, "changelist") + "unscheduled/", {"bucket": bucket.pk, "tenant": tenant.pk})
    shown = page.content.decode()
    assert page.context["onward"]
    assert "a/own" in shown
    assert "secret" not in shown
    assert "1 found. The bucket is larger" in shown
    assert (
        client.get(url(ObjectVersion, "changelist") + "unscheduled/" + page.context["onward"]).context["turn"].read == 3
    )


def test_why_says_when_an_object_is_looked_at_next_and_whether_it_stays_too_long(
    tenant: Tenant, bucket: Bucket, people: dict[str, Any], compliance: User
) -> None:
    now = clock.now()
    policy = published(tenant, bucket, **people, code="clips", prefixes=["o/"], destroy_within_days=10).policy
    late = version(bucket, tenant, "o/1", stored_at=days_ago(41, now))
    young = version(bucket, tenant, "o/2", stored_at=days_ago(1, now))
    free = version(bucket, tenant, "free/1")

    def said(row: ObjectVersion) -> tuple[list[str], dict[str, Any]]:
        verdict = why(row)
        return list(explain(row, verdict)), as_json(row, verdict, now)

    sentences, answer = said(late)
    assert answer["next_evaluation"] == f"{policy.next_slot(now):%Y-%m-%dT%H:%M:%S.%fZ}"
    assert f"The next run of clips looks at it at {answer['next_evaluation']}." in sentences
    assert f"Past maximum: it should have been gone by {answer['past_maximum_since']}." in sentences
    assert answer["past_maximum_since"][:10] == f"{days_ago(1, now):%Y-%m-%d}"
    _sentences, answer = said(young)
    assert (
        answer["next_evaluation"] == f"{policy.next_slot(young.stored_at + timedelta(days=30)):%Y-%m-%dT%H:%M:%S.%fZ}"
    )
    assert answer["past_maximum_since"] is None
    sentences, answer = said(free)
    assert answer["next_evaluation"] is None
    assert "No scheduled run looks at it while that is so." in sentences
    hold(tenant, bucket, "o/", by=compliance)
    assert holds.in_force(tenant.pk)
    sentences, answer = said(late)
    assert answer["next_evaluation"] is None
    assert any(sentence.startswith("Past maximum") for sentence in sentences)
