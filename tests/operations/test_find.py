"""The command box: exact names lead to pages, within what a person may see."""

from collections.abc import Callable

import pytest
from django.db import connection
from django.db.models import Model
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from cleanup_project.base import roles
from cleanup_project.base.models import User
from ledger.models import CleanupCommand, CleanupRun, ManifestItem, Receipt
from retention import why
from retention.models import Bucket, ObjectVersion, Tenant
from tests import world as small
from tests.ledger import parking
from tests.ledger.acting import Acting, build
from tests.web import quick_pages, url  # noqa: F401
from webhooks.models import Delivery, OutboxEvent

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(client: Client) -> Acting:
    made = build()
    client.force_login(made.people["operator"])
    return made


def leads_to(client: Client, text: str, row: Model) -> None:
    response = client.get(reverse("find"), {"q": text})
    assert response.status_code == 302, text
    assert response["Location"] == url(type(row), "change", row.pk), text


def shown(client: Client, text: str) -> str:
    response = client.get(reverse("find"), {"q": text})
    assert response.status_code == 200
    return response.content.decode()


def test_each_exact_name_leads_straight_to_its_page(world: Acting, client: Client) -> None:
    world.subscribe(event_types=["media.deleted"])
    command = parking.deleted(world)
    event, receipt, delivery = (
        OutboxEvent.objects.get(type="media.deleted"),
        Receipt.objects.get(),
        Delivery.objects.get(),
    )
    digest = bytes(receipt.digest).hex()
    leads_to(client, command.key, command)
    leads_to(client, event.event_id, event)
    leads_to(client, str(delivery.pk), delivery)
    leads_to(client, command.run.key, command.run)
    leads_to(client, digest, receipt)
    leads_to(client, digest.upper(), receipt)
    row = ObjectVersion.objects.get(key="clips/deleted")
    leads_to(client, "clips/deleted", row)
    leads_to(client, "s3://media/clips/deleted", row)
    leads_to(client, f"s3://media/clips/deleted?versionId={row.version_id}", row)


def test_several_versions_are_listed_each_with_why_and_its_command(world: Acting, client: Client) -> None:
    command = parking.deleted(world)
    later = small.version(world.bucket, world.tenant, "clips/deleted", asset="b")
    page = shown(client, "clips/deleted")
    for text in (
        "Object versions under this key", "It is no longer in the bucket.", later.version_id, "destroyed by us",
        "Its retention has ended and nothing keeps it.", url(ObjectVersion, "why", later.pk),
        url(CleanupCommand, "change", command.pk),
    ):  # fmt: skip
        assert text in page, text
    assert shown(client, "s3://other/clips/deleted").count("Nothing that you may see") == 1


def test_of_more_around_a_key_than_is_read_for_an_answer_versions_are_listed_without_why(
    world: Acting, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Bucket.objects.create(name="other")
    for gone in ({}, {"gone_at": timezone.now(), "gone_reason": "vanished"}):
        small.version(world.bucket, world.tenant, "clips/a", **gone)
    for bucket in (world.bucket, other):
        small.version(
            bucket, world.tenant, "small", role="derivative", original_bucket=world.bucket, original_key="clips/a"
        )
    monkeypatch.setattr(why, "READ", 1)
    for key in ("clips/a", "small"):
        page = shown(client, key)
        assert "Why is not told here." in page
        assert "let `manage.py why` tell it on the server" in page
        assert page.count("Why, with everything behind it") == 2
        assert '<ul class="plain"><li class="folded">' not in page
    monkeypatch.setattr(why, "READ", 2)
    for key in ("clips/a", "small"):
        page = shown(client, key)
        assert "Why is not told here." not in page
        assert '<ul class="plain"><li class="folded">' in page


def test_too_much_around_one_version_keeps_the_why_of_no_other_back(
    world: Acting, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for gone in ({}, {"gone_at": timezone.now(), "gone_reason": "vanished"}):
        small.version(world.bucket, world.tenant, "clips/a", **gone)
    small.version(
        world.bucket, world.tenant, "small", role="derivative", original_bucket=world.bucket, original_key="clips/a"
    )
    small.version(Bucket.objects.create(name="other"), world.tenant, "small")
    monkeypatch.setattr(why, "READ", 1)
    page = shown(client, "small")
    assert page.count("Why is not told here.") == 1
    assert page.count('<ul class="plain"><li class="folded">') == 1


def test_a_key_of_which_no_command_was_made_finds_its_manifest_items(world: Acting, client: Client) -> None:
    world.put("clips/a")
    small.sealed_run(world.revision, mode=CleanupRun.Mode.DRY_RUN)
    item = ManifestItem.objects.get()
    leads_to(client, item.command_key, item)
    small.sealed_run(world.revision, mode=CleanupRun.Mode.DRY_RUN)
    assert shown(client, item.command_key).count(f"{item.command_key} of ") == 2


@pytest.mark.parametrize("text", ["no such thing", "99999999999999999999", "evt_unknown", "0" * 64, "a\x00b", " "])
def test_what_is_nowhere_keeps_the_text_and_says_what_can_be_found(text: str, world: Acting, client: Client) -> None:
    page = shown(client, text)
    assert "Nothing that you may see is called" in page
    assert "a whole command key (tenant:asset:version:policy-revision)" in page


def test_nothing_is_taken_for_a_part_or_with_other_blanks(world: Acting, client: Client) -> None:
    command = parking.dead(world)
    for text in (command.key[:-1], f" {command.key}", f"{command.key} ", command.key.upper(), "clips/%"):
        assert "Nothing that you may see is called" in shown(client, text), text


def test_a_person_of_other_tenants_is_told_the_same_as_of_what_is_nowhere(
    world: Acting, person: Callable[..., User], client: Client
) -> None:
    world.subscribe(event_types=["media.deleted"])
    command = parking.deleted(world)
    Tenant.objects.create(code="globex", name="Globex")
    names = (
        command.key, command.run.key, OutboxEvent.objects.get(type="media.deleted").event_id,
        bytes(Receipt.objects.get().digest).hex(), str(Delivery.objects.get().pk), "clips/deleted",
    )  # fmt: skip
    client.force_login(person("other", roles.COMPLIANCE, tenants=["globex"]))
    for text in names:
        assert "Nothing that you may see is called" in shown(client, text), text
    client.force_login(person("own", roles.COMPLIANCE, tenants=["acme"]))
    for text in names:
        assert client.get(reverse("find"), {"q": text}).status_code == 302, text


def test_a_role_finds_what_it_may_view_alone(world: Acting, person: Callable[..., User], client: Client) -> None:
    world.subscribe(event_types=["media.deleted"])
    command = parking.deleted(world)
    event = OutboxEvent.objects.get(type="media.deleted").event_id
    client.force_login(world.people["manager"])  # sees no webhooks: of an event, the command
    leads_to(client, event, command)
    assert "Nothing that you may see" in shown(client, str(Delivery.objects.get().pk))
    client.force_login(person("administrator", roles.ADMINISTRATOR))  # sees the catalogue, no ledger
    assert "Nothing that you may see" in shown(client, command.key)
    assert "command key" not in shown(client, "")
    leads_to(client, "clips/deleted", ObjectVersion.objects.get(key="clips/deleted"))
    client.force_login(person("nobody"))
    assert client.get(reverse("find"), {"q": command.key}).status_code == 403


def test_names_from_outside_are_escaped(world: Acting, client: Client) -> None:
    page = shown(client, "<script>alert(1)</script>\u202e")
    assert "<script>alert" not in page
    assert "\\u202e" in page


def test_a_digest_is_looked_up_through_its_index(world: Acting) -> None:
    parking.deleted(world)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    assert "receipt_by_digest" in Receipt.objects.filter(digest=b"0" * 32).explain()


def test_many_versions_take_a_bounded_number_of_queries(world: Acting, client: Client) -> None:
    def queries(versions: int) -> int:
        for _ in range(versions):
            small.version(world.bucket, world.tenant, "clips/many", asset="many")
        with CaptureQueriesContext(connection) as captured:
            shown(client, "clips/many")
        return len(captured)

    queries(10)
    assert queries(5) == queries(60)
    assert "These are the newest 50." in shown(client, "clips/many")
