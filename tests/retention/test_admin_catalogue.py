"""The catalogue in the admin: exact search, odd keys, why an object is kept, a key rule tried before it is saved."""

from collections.abc import Callable

import pytest
from django.test import Client

from cleanup_project.base import roles
from cleanup_project.base.models import User
from retention.models import Bucket, KeyRule, ObjectVersion, Tenant
from tests import world
from tests.web import quick_pages, url  # noqa: F401

ODD = ["a/b", " a/b", "a/b ", "A/B", "a/b/c", "a/\nb", "   ", "\u202ea/b", "a%2Fb", "a'b\"<script>", "é", "e\u0301"]


@pytest.fixture
def catalogue(bucket: Bucket, tenant: Tenant) -> None:
    for number, key in enumerate(ODD):
        world.version(bucket, tenant, key, asset=str(number))


@pytest.fixture
def auditor(person: Callable[..., User], client: Client) -> User:
    user = person("auditor", roles.AUDITOR)
    client.force_login(user)
    return user


@pytest.fixture
def administrator(person: Callable[..., User], client: Client) -> User:
    user = person("adam", roles.ADMINISTRATOR)
    client.force_login(user)
    return user


@pytest.mark.parametrize("key", ODD)
def test_search_finds_exactly_this_key(key: str, catalogue: None, auditor: User, client: Client) -> None:
    found = client.get(url(ObjectVersion, "changelist"), {"q": key}).context["cl"].result_list
    assert [row.key for row in found] == [key]


def test_search_finds_every_version_in_any_bucket(
    catalogue: None, bucket: Bucket, tenant: Tenant, auditor: User, client: Client
) -> None:
    other = Bucket.objects.create(name="archive")
    world.version(bucket, tenant, "a/b")
    world.version(other, tenant, "a/b")
    page = url(ObjectVersion, "changelist")
    assert len(client.get(page, {"q": "a/b"}).context["cl"].result_list) == 3
    assert len(client.get(page, {"q": "a/b", "bucket": other.pk}).context["cl"].result_list) == 1


@pytest.mark.parametrize("term", ["a/b\x00", "missing", "a/"])
def test_a_term_that_matches_nothing_shows_nothing(term: str, catalogue: None, auditor: User, client: Client) -> None:
    assert not client.get(url(ObjectVersion, "changelist"), {"q": term}).context["cl"].result_list


def test_odd_keys_are_shown_escaped(catalogue: None, auditor: User, client: Client) -> None:
    shown = client.get(url(ObjectVersion, "changelist")).content.decode()
    for text in (
        "a/\\nb",
        "\\x20\\x20\\x20",
        "\\u202ea/b",
        "a&#x27;b&quot;&lt;script&gt;",
        "e\\u0301",
        "\\x20a/b",
        "a/b\\x20",
    ):
        assert f">{text}</bdo>" in shown
    assert "\u202e" not in shown
    row = ObjectVersion.objects.get(key="\u202ea/b")
    page = client.get(url(ObjectVersion, "change", row.pk)).content.decode()
    assert "\u202e" not in page
    assert "\\u202ea/b" in page


def test_a_version_says_why_it_is_kept(
    bucket: Bucket, tenant: Tenant, manager: User, second_manager: User, compliance: User, client: Client
) -> None:
    row = world.version(bucket, tenant, "held/1", asset="1")
    world.published(tenant, bucket, author=manager, publisher=second_manager, code="clips")
    client.force_login(compliance)
    page = url(ObjectVersion, "change", row.pk)
    assert "Its retention has ended and nothing keeps it." in client.get(page).content.decode()
    hold = world.hold(tenant, bucket, "held/", by=compliance)
    shown = client.get(page).content.decode()
    assert "A legal hold covers it" in shown
    assert f"Held by matter Doe v. Acme (hold {hold.pk})." in shown
    assert '<time datetime="2020-01-01T00:00:00Z">2020-01-01 00:00:00 UTC</time>' in shown


@pytest.mark.parametrize(
    "query", ["key__icontains=a", "etag=x", "bucket__name=media", "bucket__id__exact=1", "key__regex=."]
)
def test_the_address_cannot_ask_for_what_has_no_index(
    query: str, catalogue: None, auditor: User, client: Client
) -> None:
    assert client.get(f"{url(ObjectVersion, 'changelist')}?{query}").status_code == 400


def test_the_address_cannot_ask_for_another_order(catalogue: None, auditor: User, client: Client) -> None:
    page = url(ObjectVersion, "changelist")
    plain, asked = (client.get(page, query).context["cl"].queryset for query in ({}, {"o": "-4"}))
    assert str(plain.query) == str(asked.query)


def rule_fields(bucket: Bucket, **changed: object) -> dict[str, object]:
    fields = {"bucket": bucket.pk, "position": 1, "pattern": "clips/{year}/{asset}.mp4", "role": "original"}
    return fields | changed


def test_a_rule_is_tried_on_real_keys_and_not_saved(
    bucket: Bucket, tenant: Tenant, administrator: User, client: Client
) -> None:
    world.version(bucket, tenant, "clips/2023/one.mp4", asset="x1")
    world.version(bucket, tenant, "odd/\nkey", asset="x2")
    fields = rule_fields(bucket, tenant=tenant.pk, retention_class="video", _try="1")
    response = client.post(url(KeyRule, "add"), fields)
    shown = response.content.decode()
    assert response.status_code == 200
    assert "1 of 2 keys match" in shown
    trial = shown.partition('id="trial"')[2]
    for text in ("clips/2023/one.mp4", ">one<", "acme", "video", "2023-01-01", "odd/\\nkey", "does not match"):
        assert text in trial
    assert 'name="_try"' in shown
    assert 'value="clips/{year}/{asset}.mp4"' in shown
    assert not KeyRule.objects.exists()


def test_a_saved_rule_stays_as_it_is_while_another_is_tried(
    bucket: Bucket, administrator: User, client: Client
) -> None:
    rule = KeyRule.objects.create(bucket=bucket, position=1, pattern="{_*}")
    page = url(KeyRule, "change", rule.pk)
    assert "Try on real keys" in client.get(page).content.decode()
    shown = client.post(page, rule_fields(bucket, _try="1")).content.decode()
    assert "The catalogue holds no key of this bucket yet." in shown
    rule.refresh_from_db()
    assert rule.pattern == "{_*}"
    assert client.post(page, rule_fields(bucket)).status_code == 302


def test_a_rule_that_cannot_work_is_not_tried(bucket: Bucket, administrator: User, client: Client) -> None:
    shown = client.post(url(KeyRule, "add"), rule_fields(bucket, pattern="{a}{b}", _try="1")).content.decode()
    assert "Put some text between two placeholders" in shown
    assert 'id="trial"' not in shown


def test_trying_a_rule_needs_the_right_to_change_it(bucket: Bucket, auditor: User, client: Client) -> None:
    rule = KeyRule.objects.create(bucket=bucket, position=1, pattern="{_*}")
    for page in (url(KeyRule, "add"), url(KeyRule, "change", rule.pk)):
        assert client.post(page, rule_fields(bucket, _try="1")).status_code == 403


def test_buckets_are_found_by_name(bucket: Bucket, auditor: User, client: Client) -> None:
    Bucket.objects.create(name="archive")
    found = client.get(url(Bucket, "changelist"), {"q": "media"}).context["cl"].result_list
    assert [row.name for row in found] == ["media"]
