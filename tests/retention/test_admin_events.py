"""Retention events on their pages: nothing is posted that was not looked at first."""

from collections.abc import Callable
from typing import Any

from django.test import Client

from cleanup_project.base import roles
from cleanup_project.base.models import User
from retention.models import Bucket, RetentionEvent, Tenant
from tests import world
from tests.web import quick_pages, url  # noqa: F401


def fields(tenant: Tenant, bucket: Bucket, **changed: Any) -> dict[str, Any]:
    said = {
        "tenant": tenant.pk, "event_type": "contract-ended", "occurred_at_0": "2024-01-31", "occurred_at_1": "00:00",
        "reason": "It was not renewed", "reference": "K-17", "bucket_ids": [bucket.pk], "prefixes": "c/1/",
        "retention_classes": "*",
    }  # fmt: skip
    return said | changed


def looked_at(page: str) -> str:
    return page.partition('name="looked_at" value="')[2].partition('"')[0]


def test_an_event_is_posted_after_a_look_at_what_it_starts(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, client: Client
) -> None:
    waiting = {"trigger": "event", "event_type": "contract-ended", "code": "contracts"}
    world.published(tenant, bucket, author=manager, publisher=second_manager, **waiting)
    for key in ("c/1/a", "c/1/b", "c/2/a"):
        world.version(bucket, tenant, key)
    client.force_login(manager)
    address = url(RetentionEvent, "add")
    assert "See what it would start" in client.get(address).content.decode()
    shown = client.post(address, fields(tenant, bucket)).content.decode()
    assert "It starts the clock of 2 present object versions, under contracts/1" in shown
    assert "c/1/b" in shown
    assert not RetentionEvent.objects.exists()

    seen = looked_at(shown)
    shown = client.post(address, fields(tenant, bucket, prefixes="c/", looked_at=seen)).content.decode()
    assert "It starts the clock of 3 present object versions" in shown
    assert not RetentionEvent.objects.exists()

    assert client.post(address, fields(tenant, bucket, looked_at=seen)).status_code == 302
    posted = RetentionEvent.objects.get()
    assert (posted.posted_by, posted.started_versions, posted.reference) == (manager, 2, "K-17")
    assert "2 versions" in client.get(url(RetentionEvent, "change", posted.pk)).content.decode()


def test_an_event_without_scope_or_ahead_of_time_comes_back_with_words(
    tenant: Tenant, bucket: Bucket, manager: User, client: Client
) -> None:
    client.force_login(manager)
    for changed, words in (
        ({"prefixes": ""}, "Write at least one line"),
        ({"bucket_ids": []}, "Tick at least one bucket."),
        ({"occurred_at_0": "2999-01-01"}, "It lies more than a day ahead."),
        ({"event_type": "Contract ended"}, "lower-case letters"),
    ):
        shown = client.post(url(RetentionEvent, "add"), fields(tenant, bucket, **changed)).content.decode()
        assert words in shown
        assert 'name="looked_at"' not in shown
    shown = client.post(url(RetentionEvent, "add"), fields(tenant, bucket)).content.decode()
    assert "It starts no clock" in shown


def test_an_event_is_withdrawn_on_its_page(
    tenant: Tenant, bucket: Bucket, manager: User, client: Client, person: Callable[..., User]
) -> None:
    posted = world.event(tenant, bucket, "c/", by=manager)
    client.force_login(manager)
    page = url(RetentionEvent, "withdraw", posted.pk)
    assert page in client.get(url(RetentionEvent, "change", posted.pk)).content.decode()
    assert "As if it had not happened" in client.get(page).content.decode()
    shown = client.post(page, {"reason": "Wrong contract"}, follow=True).content.decode()
    assert "a request that was sent by now may still be executed" in shown
    assert "withdrawn already" in client.post(page, {"reason": "Again"}).content.decode()
    for state, expected in (("standing", []), ("withdrawn", [posted])):
        found = client.get(url(RetentionEvent, "changelist"), {"state": state})
        assert list(found.context["cl"].queryset) == expected

    client.force_login(person("operator", roles.OPERATOR))
    assert client.post(page, {"reason": "R"}).status_code == 403
    assert client.get(url(RetentionEvent, "add")).status_code == 403
