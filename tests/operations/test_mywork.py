"""My work: each person sees what they may decide, and nothing else; and what they asked others for."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.cache import caches
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from cleanup_project.base import alarms, clock, roles, waiting
from cleanup_project.base.models import User
from ledger import erasure
from ledger.models import CleanupRun, DeadLetter
from ledger.runs import TRIPPED
from retention import control, enforcement, losses, policies, releases
from retention.models import PolicyRevision, RetentionPolicy, StopSwitch
from retention.storage import VersionRef
from retention.storage.memory import Fault
from tests import world as small
from tests.ledger import parking
from tests.ledger.acting import Acting, build
from tests.web import quick_pages  # noqa: F401
from webhooks.admin.waiting import newest
from webhooks.models import Delivery, Endpoint

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Acting:
    caches["process"].clear()
    return build()


def decided(user: User) -> dict[str, int]:
    return {each.kind.code: each.number for each in waiting.waiting(user)}


def asked(user: User) -> dict[str, int]:
    return {each.kind.code: each.number for each in waiting.asked_for(user)}


def submitted(policy: RetentionPolicy, author: User) -> PolicyRevision:
    fields = {
        "title": "Longer", "authority": "The same", "bucket_ids": policy.revisions.get().bucket_ids, "prefixes": [""],
        "retention_classes": ["*"], "trigger": "stored_at", "period_number": 60, "period_unit": "days",
        "retroactive": True, "effective_from": clock.now(),
    }  # fmt: skip
    return policies.submit(revision=policies.draft(policy=policy, by=author, **fields), by=author)


def everything(world: Acting) -> None:
    """One of each kind, asked for by manager or compliance."""
    people = world.people
    parking.dead(world)
    enforcement.request(tenant=world.tenant, bucket=world.bucket, prefix="new/", by=people["manager"], reason="Next.")
    placed = small.hold(world.tenant, world.bucket, "held/", by=people["compliance"])
    releases.request(hold=placed, by=people["compliance"], reason="Settled.")
    submitted(world.revision.policy, people["manager"])
    world.put("letters/1")
    erasure.file(
        tenant=world.tenant, reference="Letter 17", authority="GDPR", reason="Asked for.", form="csv",
        data=b"bucket,key\nmedia,letters/1\n", by=people["manager"],
    )  # fmt: skip
    control.press(scope=StopSwitch.Scope.TENANT, tenant=world.tenant, by=people["operator"], reason="Look first.")
    alarms.notice(losses.VANISHED, world.bucket, "3 versions vanished.")
    endpoint = world.subscribe()
    Endpoint.objects.filter(pk=endpoint.pk).update(disabled_at=Now(), disabled_reason="It answers 500.")


def test_each_role_is_shown_what_it_may_decide(world: Acting) -> None:
    everything(world)
    people = world.people
    assert decided(people["operator"]) == {"quarantine": 1, "endpoints": 1}
    assert decided(people["manager"]) == {}
    assert decided(people["manager2"]) == {"enforcement": 1, "revisions": 1, "erasures": 1}
    assert decided(people["compliance"]) == {
        "stops": 1, "quarantine": 1, "losses": 1, "endpoints": 1, "enforcement": 1, "revisions": 1, "erasures": 1,
    }  # fmt: skip
    assert decided(people["compliance2"]) == decided(people["compliance"]) | {"releases": 1}


def test_who_asked_is_shown_whom_it_waits_for_and_decides_nothing_of_it(world: Acting, client: Client) -> None:
    everything(world)
    assert asked(world.people["manager"]) == {"enforcement": 1, "revisions": 1, "erasures": 1}
    assert asked(world.people["compliance"]) == {"releases": 1}
    assert asked(world.people["compliance2"]) == {}
    client.force_login(world.people["compliance"])
    page = client.get(reverse("my-work")).content.decode()
    assert "What you asked for, and others decide" in page
    assert "Waits for somebody else who has the role Compliance, by" in page
    assert "is decided by others: it stands below." in page
    client.force_login(world.people["compliance2"])
    page = client.get(reverse("my-work")).content.decode()
    assert "is decided by others." in page
    assert "stands below" not in page


def test_whoever_edited_a_draft_does_not_publish_it(world: Acting) -> None:
    revision = submitted(world.revision.policy, world.people["manager"])
    PolicyRevision.objects.filter(pk=revision.pk).update(editor_ids=[world.people["manager2"].pk])
    assert "revisions" not in decided(world.people["manager2"])
    assert asked(world.people["manager2"]) == {"revisions": 1}
    assert decided(world.people["compliance"])["revisions"] == 1


def test_a_run_waits_for_another_than_who_opened_it(world: Acting) -> None:
    world = world_with_approval(world)
    small.sealed_run(world.revision, by=world.people["compliance"], mode=CleanupRun.Mode.ENFORCE)
    assert "runs" not in decided(world.people["compliance"])
    assert asked(world.people["compliance"]) == {"runs": 1}
    assert decided(world.people["manager"]) == {"runs": 1}
    (found,) = waiting.waiting(world.people["manager"])
    assert (found.items[0].by, found.items[0].tenant) == ("compliance", "acme")
    assert found.due == found.since + timedelta(hours=24)


def world_with_approval(world: Acting) -> Acting:
    """Its policy asks for an approval of each run, and there is something to destroy."""
    world.revision = small.published(
        world.tenant, world.bucket, author=world.people["manager"], publisher=world.people["manager2"], code="asked",
        prefixes=["asked/"], period_number=40, authorisation=PolicyRevision.Authorisation.APPROVAL,
    )  # fmt: skip
    world.put("asked/1")
    return world


def test_a_tripped_run_waits_for_who_may_re_arm_it_and_says_why(world: Acting) -> None:
    world.put("clips/a")
    run = world.run()
    CleanupRun.objects.filter(pk=run.pk).update(state="draining")
    CleanupRun.objects.filter(pk=run.pk).update(state="tripped")
    alarms.notice(TRIPPED, run, "9 of 10 outcomes failed.")
    assert decided(world.people["operator"]) == {}
    (found,) = waiting.waiting(world.people["compliance"])
    assert found.kind.code == "breakers"
    assert "9 of 10 outcomes failed." in found.items[0].what


def test_a_person_of_some_tenants_is_shown_those_alone(world: Acting, person: Callable[..., User]) -> None:
    everything(world)
    own = person("own", roles.COMPLIANCE, tenants=["acme"])
    other = person("other", roles.COMPLIANCE, tenants=["globex"])
    shared = {"losses"}  # a bucket is everybody's
    assert decided(own).keys() == decided(world.people["compliance2"]).keys() - shared
    assert decided(other) == {}


def test_a_switch_over_everything_is_not_lifted_by_who_sees_some_tenants(
    world: Acting, person: Callable[..., User]
) -> None:
    control.press(scope=StopSwitch.Scope.EVERYTHING, by=world.people["operator"], reason="Look first.")
    assert decided(world.people["compliance"]) == {"stops": 1}
    assert decided(person("own", roles.COMPLIANCE, tenants=["acme"])) == {}


def test_what_was_given_up_waits_until_it_is_sent_again(world: Acting) -> None:
    endpoint = world.subscribe(event_types=["media.deleted"])
    parking.deleted(world)
    delivery = Delivery.objects.get()
    Delivery.objects.filter(pk=delivery.pk).update(state="dead", finished_at=Now(), due_at=F("due_at"))
    (found,) = waiting.waiting(world.people["operator"])
    assert (found.kind.code, found.number) == ("deliveries", 1)
    assert (found.items[0].what, found.items[0].tenant) == (endpoint.name, "acme")
    Delivery.objects.create(
        event=delivery.event, endpoint=endpoint, tenant="acme", round=1, requested_by=world.people["operator"],
        sequence=delivery.sequence, due_at=clock.now(),
    )  # fmt: skip
    assert decided(world.people["operator"]) == {}


def test_what_was_cancelled_or_is_anothers_does_not_hide_what_was_given_up(
    world: Acting, person: Callable[..., User], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhooks.admin.waiting.LOOKED_AT", 1)
    endpoint = world.subscribe(event_types=["media.deleted"])
    parking.deleted(world)
    delivery = Delivery.objects.get()
    Delivery.objects.filter(pk=delivery.pk).update(state="dead", finished_at=Now(), due_at=F("due_at"))
    said = {"endpoint": endpoint, "sequence": 1, "due_at": clock.now(), "finished_at": Now()}
    own = person("own", roles.OPERATOR, tenants=["acme"])
    for number, state in enumerate(("cancelled", "cancelled", "dead", "dead"), start=2):
        Delivery.objects.create(
            **said,
            event_id=delivery.event_id + number,
            tenant="globex" if state == "dead" else "acme",
            round=number,
            requested_by=own,
            state=state,
            cancel_reason="Not any more." if state == "cancelled" else "",
        )
    (found,) = waiting.waiting(own)
    assert (found.kind.code, found.number, found.more) == ("deliveries", 1, False)


@pytest.mark.parametrize("tenants", [[], ["acme"]])
def test_what_was_given_up_is_read_from_its_index_in_order(person: Callable[..., User], tenants: list[str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
    plan = newest(person("own", roles.OPERATOR, tenants=tenants)).values_list("pk")[:1001].explain()
    assert "delivery_given_up" in plan
    assert "Sort" not in plan
    condition = plan.partition("Index Cond: ")[2].partition("\n")[0]
    assert ("state" in condition, "tenant" in condition) == (True, bool(tenants))


def test_all_of_a_kind_leads_to_those_alone(world: Acting, client: Client) -> None:
    everything(world)
    world.subscribe(name="well")
    alarms.notice("catalogue.stale", world.bucket, "It is old.")
    for code, name in (("endpoints", "operator"), ("losses", "compliance")):
        client.force_login(world.people[name])
        (kind,) = [each.kind for each in waiting.waiting(world.people[name]) if each.kind.code == code]
        assert len(client.get(kind.address()).context["cl"].result_list) == 1, code


def test_a_number_that_takes_too_long_is_left_out(
    world: Acting, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything(world)

    def slow(user: User, listed: int) -> list[waiting.Waiting]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(5)")
        return []

    monkeypatch.setattr(waiting, "_decided", [*waiting._decided, slow])
    monkeypatch.setattr(waiting, "BUDGET_MS", 50)
    client.force_login(world.people["operator"])
    page = client.get(reverse("admin:webhooks_endpoint_changelist"))
    assert (page.status_code, "for you" in page.content.decode()) == (200, False)


def test_whoever_drafted_what_only_lengthens_may_publish_it_and_so_it_waits_for_them_too(
    world: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(world.revision.policy, world.people["manager"])
    for only in (True, False):
        monkeypatch.setattr(policies, "lengthens", lambda revision, only=only: only)
        assert ("revisions" in decided(world.people["manager"])) is only
        assert ("revisions" in asked(world.people["manager"])) is not only
        assert decided(world.people["manager2"])["revisions"] == 1


def test_quarantine_is_one_item_for_each_class_whatever_its_causes(world: Acting) -> None:
    names = [VersionRef(row.key, row.version_id) for row in (world.put(f"clips/{name}") for name in "abc")]
    world.run()
    world.store.inject(Fault("delete_versions", parking.DENIED, frozenset(names)), times=3)
    world.drain()
    DeadLetter.objects.filter(pk=DeadLetter.objects.order_by("pk")[0].pk).update(storage_code="AllAccessDisabled")
    (shown,) = [
        each for each in waiting.waiting(world.people["compliance"]) if each.kind.label == "Quarantine, by cause"
    ]
    (item,) = shown.items
    assert (shown.number, item.number, item.more) == (3, 3, False)
    assert item.what.startswith("Permission. ")


def test_what_is_late_is_marked_with_its_deadline(world: Acting, client: Client) -> None:
    endpoint = world.subscribe()
    disabled = Endpoint.objects.filter(pk=endpoint.pk)
    disabled.update(disabled_at=clock.now() - timedelta(hours=23), disabled_reason="It answers 500.")
    client.force_login(world.people["operator"])
    page = client.get(reverse("my-work")).content.decode()
    assert "To be decided within 24 hours." in page
    assert "overdue" not in page
    disabled.update(disabled_at=clock.now() - timedelta(hours=25))
    caches["process"].clear()
    late = client.get(reverse("my-work")).content.decode()
    assert late.count('<span class="pill overdue">overdue</span>') == 1
    assert "1 for you, some overdue" in late


def test_the_oldest_are_listed_and_the_rest_is_counted(world: Acting, client: Client) -> None:
    for number in range(12):
        enforcement.request(
            tenant=world.tenant,
            bucket=world.bucket,
            prefix=f"p{number:02}/",
            by=world.people["manager"],
            reason="Next.",
        )
    (found,) = waiting.waiting(world.people["manager2"])
    assert [each.what for each in found.items] == [f"media/p{number:02}/: Next." for number in range(10)]
    client.force_login(world.people["manager2"])
    assert "These are the oldest 10 of 12." in client.get(reverse("my-work")).content.decode()


def test_above_the_cap_it_is_more_than(world: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "COUNTED", 1)
    for prefix in ("a/", "b/"):
        enforcement.request(
            tenant=world.tenant, bucket=world.bucket, prefix=prefix, by=world.people["manager"], reason="Next."
        )
    assert waiting.total(world.people["manager2"]) == (1, True, False)


def test_the_total_is_remembered_for_a_moment_and_for_one_person_alone(
    world: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "REMEMBERED", 60)
    user = world.people["manager2"]
    assert waiting.total(user).number == 0
    enforcement.request(tenant=world.tenant, bucket=world.bucket, prefix="a/", by=world.people["manager"], reason="N.")
    with CaptureQueriesContext(connection) as captured:
        assert waiting.total(user).number == 0
    assert len(captured) == 0
    assert waiting.total(world.people["compliance"]).number == 1
    caches["process"].clear()
    assert waiting.total(user).number == 1


def test_the_number_of_queries_does_not_depend_on_how_much_waits(world: Acting, client: Client) -> None:
    client.force_login(world.people["compliance2"])

    def queries() -> int:
        caches["process"].clear()
        with CaptureQueriesContext(connection) as captured:
            assert client.get(reverse("my-work")).status_code == 200
        return len(captured)

    everything(world)
    few = queries()
    for number in range(5):
        enforcement.request(
            tenant=world.tenant, bucket=world.bucket, prefix=f"p{number}/", by=world.people["manager"], reason="Next."
        )
        placed = small.hold(world.tenant, world.bucket, f"h{number}/", by=world.people["compliance"])
        releases.request(hold=placed, by=world.people["compliance"], reason="Settled.")
    assert queries() == few


def test_every_kind_says_who_decides_how_soon_and_why(world: Acting) -> None:
    everything(world)
    for each in waiting.waiting(world.people["compliance2"]):
        assert each.kind.deciders
        assert each.kind.within > timedelta()
        assert each.kind.because.endswith(".")
