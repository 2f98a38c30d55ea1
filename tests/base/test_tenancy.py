"""People who are limited to some tenants: whatever belongs to others is not there for them, on any page and by any verb."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group
from django.core.exceptions import FieldDoesNotExist
from django.db import transaction
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from cleanup_project.base import alarms, audit, clock, jobs, jobwork, notices, roles, tenancy
from cleanup_project.base.jobs import JobRefused, Order
from cleanup_project.base.modeladmin import RecordAdmin
from cleanup_project.base.models import Alarm, AuditEvent, BulkItem, BulkJob, Heartbeat, User
from ledger import certificate, compare, erasure, exports, inflight, quarantine, runs
from ledger import dispositions as reviews
from ledger.dispositions import Chosen as Items
from ledger.exceptions import NotPermitted as LedgerRefused
from ledger.models import (
    CleanupCommand,
    CleanupRun,
    DeadLetter,
    ErasureRequest,
    HoldReport,
    ManifestItem,
    Receipt,
    ReceiptExport,
)
from retention import (
    control,
    dispositions,
    enforcement,
    events,
    freshness,
    holds,
    losses,
    policies,
    preview,
    register,
    releases,
)
from retention.exceptions import NotPermitted as RetentionRefused
from retention.models import (
    Bucket,
    CatalogueSync,
    Disposition,
    Enforcement,
    EnforcementRequest,
    HoldRelease,
    KeyRule,
    LegalHold,
    ObjectVersion,
    PolicyRevision,
    RetentionEvent,
    RetentionPolicy,
    StopSwitch,
    Tenant,
)
from tests import world
from tests.everything import REGISTERED, first, make
from tests.operations.test_permission_matrix import VERBS
from tests.web import quick_pages, url  # noqa: F401
from webhooks import endpoints, pings, redelivery, secrets
from webhooks.exceptions import WebhooksError
from webhooks.models import Delivery, Endpoint
from webhooks.redelivery import Chosen

DECIDING = tuple(sorted(roles.MATRIX))  # somebody of every role
# What a person of `acme` alone does not see although `acme` has some: it was done by who sees everything, or is shared.
NOT_OF_ONE = {BulkJob, BulkItem, ReceiptExport}
# Rows that show nothing of any tenant, and the people who see every tenant.
OF_EVERYBODY = {Group, Heartbeat, User, StopSwitch}


@pytest.fixture
def foreign(person: Callable[..., User]) -> User:
    """May decide everything, for a tenant that has nothing yet."""
    make()
    Tenant.objects.create(code="zenith", name="Zenith")
    return person("foreign", *DECIDING, tenants=["zenith"])


def pages(model: type[Model]) -> RecordAdmin[Any]:
    found = admin.site._registry[model]
    assert isinstance(found, RecordAdmin), model
    return found


def leads_to_tenant(model: type[Model], seen: frozenset[type[Model]] = frozenset()) -> bool:
    """Whether a row names its tenant, or a row by which that can be found."""
    for field in model._meta.get_fields():
        if not field.concrete or field.name in {"created_by", "by"}:
            continue
        if field.name == "tenant" or field.related_model is Tenant:
            return True
        target: Any = field.related_model
        own = isinstance(target, type) and target._meta.app_label in {"base", "retention", "ledger", "webhooks"}
        if own and target not in {*seen, User, model} and leads_to_tenant(target, seen | {model}):
            return True
    return False


@pytest.mark.parametrize("model", REGISTERED, ids=lambda model: model._meta.label)
def test_every_model_says_whose_its_rows_are(model: type[Model], db: None) -> None:
    shown = pages(model)
    decides = type(shown).own is not RecordAdmin.own
    if shown.tenant_path:
        assert not decides
        list(model._default_manager.filter(tenancy.owned(model, shown.tenant_path, ["acme"]))[:1])
    else:
        assert decides != bool(shown.shared), "either it says who sees what, or why everybody sees everything"
        assert decides or not leads_to_tenant(model), "a row leads to its tenant: let `tenant_path` say how"


def texts(client: Client, addresses: Iterator[str]) -> Iterator[tuple[str, str]]:
    for address in addresses:
        answer = client.get(address)
        assert answer.status_code in {200, 403}, address
        yield address, answer.content.decode()


def listed(client: Client, model: type[Model]) -> list[Any]:
    """The rows on the first page of a model's list; that of quarantine is its own."""
    if model is DeadLetter:
        page = client.get(url(model, "changelist"), {"entries": "all"}).context["page"]
        return list(page.entries) if page else []
    return list(client.get(url(model, "changelist")).context["cl"].result_list)


def test_nothing_tells_of_another_tenant(foreign: User, client: Client) -> None:
    client.force_login(foreign)
    for model in set(REGISTERED) - OF_EVERYBODY:
        row = first(model)
        assert listed(client, model) == [each for each in [Tenant.objects.get(code="zenith")] if model is Tenant], model
        for page in ("change", "history"):
            assert client.get(url(model, page, row.pk)).status_code == 404, (model, page)
    for name in VERBS:
        model = apps.get_model(*name.split("_", 2)[:2])
        if model not in OF_EVERYBODY:
            address = reverse(f"admin:{name}", args=[first(model).pk])
            assert client.get(address).status_code == 404, name
            assert client.post(address, {"reason": "Because."}).status_code == 404, name
    lists = (url(model, page) for model in REGISTERED for page in ("changelist", "add"))
    more = [reverse(f"admin:retention_{name}") for name in ("unscheduled", "past_maximum", "legalhold_register")]
    others = [reverse("admin:webhooks_delivery_bulk") + "?state=pending", reverse("admin:index"), reverse("my-work")]
    for address, text in texts(client, iter([*lists, *more, *others])):
        assert "acme" not in text.lower(), address


def test_a_number_in_an_address_opens_nothing_of_another_tenant(foreign: User, client: Client) -> None:
    client.force_login(foreign)
    run, command, revision = (
        model._default_manager.order_by("pk")[0] for model in (CleanupRun, CleanupCommand, PolicyRevision)
    )
    assert client.get(reverse("admin:ledger_cleanuprun_manifest", args=[run.pk, "csv"])).status_code == 404
    assert client.get(reverse("find"), {"q": command.key}).status_code == 200
    assert str(run) not in client.get(url(ManifestItem, "changelist"), {"run": run.pk}).content.decode()
    drafted = client.get(url(PolicyRevision, "add"), {"from": revision.pk}).content.decode()
    assert revision.authority not in drafted
    job = BulkJob.objects.get()
    assert "sent again" not in client.get(url(BulkItem, "changelist"), {"job": job.pk}).content.decode()
    asked = {"ids": str(Delivery.objects.values_list("pk", flat=True)[0])}
    assert "Nothing matches." in client.get(reverse("admin:webhooks_delivery_bulk"), asked).content.decode()
    stored = ObjectVersion.objects.filter(gone_at=None)[0]
    asked = {"bucket": str(stored.bucket_id), "tenant": str(stored.tenant_id)}
    for name in ("unscheduled", "past_maximum"):
        refused = client.get(reverse(f"admin:retention_{name}"), asked).content.decode()
        assert "Select a valid choice" in refused
        assert stored.key not in refused
    assert client.get(reverse("admin:retention_unscheduled"), {"bucket": asked["bucket"]}).context["turn"] is None


def test_of_ones_own_tenant_all_is_there(foreign: User, person: Callable[..., User], client: Client) -> None:
    client.force_login(person("native", *DECIDING, tenants=["acme", "zenith"]))
    for model in set(REGISTERED) - NOT_OF_ONE:
        if model is KeyRule:
            KeyRule.objects.update(tenant=Tenant.objects.get(code="acme"))
        assert listed(client, model), model
    for model in (CleanupRun, LegalHold, Receipt, Bucket, DeadLetter, Delivery):
        assert client.get(url(model, "change", first(model).pk)).status_code == 200, model
    assert {event.tenant for event in AuditEvent.objects.exclude(subject_type__startswith="base.")} >= {"acme"}


def test_a_shared_bucket_shows_nothing_of_who_else_is_in_it(foreign: User, client: Client) -> None:
    zenith = Tenant.objects.get(code="zenith")
    shared = Bucket.objects.get()
    Bucket.objects.create(name="not-theirs")
    world.version(shared, zenith, "clips/zenith", asset="zenith")
    client.force_login(foreign)
    assert [each.pk for each in client.get(url(Bucket, "changelist")).context["cl"].result_list] == [shared.pk]
    page = client.get(url(Bucket, "change", shared.pk)).content.decode()
    assert "Doe v. Acme" not in page
    assert "Change limits" not in page
    assert [row.key for row in client.get(url(ObjectVersion, "changelist")).context["cl"].result_list] == [
        "clips/zenith"
    ]
    hold = world.hold(zenith, shared, "c", by=foreign)
    shown = client.get(url(LegalHold, "change", hold.pk)).content.decode()
    none = world.hold(zenith, shared, "nobody's", by=foreign)
    sentence = "nothing of this tenant was found that begins with it"
    assert sentence in shown
    assert sentence in client.get(url(LegalHold, "change", none.pk)).content.decode()
    assert "clips/" not in shown.replace("clips/zenith", "")


def test_what_was_done_about_a_shared_bucket_and_how_far_it_is_listed_is_for_who_sees_all(
    foreign: User, person: Callable[..., User], client: Client
) -> None:
    bucket = Bucket.objects.get()
    world.version(bucket, Tenant.objects.get(code="zenith"), "clips/zenith", asset="zenith")
    sync = CatalogueSync.objects.create(bucket=bucket, after_key="clips/acme/last")
    alarms.notice("catalogue.loss", bucket, "Acme lost much.")
    with transaction.atomic():
        audit.record(action="losses.seen", subject=bucket, by=None, reason="Acme's losses.")
    history, page = url(Bucket, "history", bucket.pk), url(CatalogueSync, "change", sync.pk)
    for user, told in ((foreign, False), (person("whole", *DECIDING), True)):
        client.force_login(user)
        assert ("losses" in client.get(history).content.decode()) == told
        assert ("clips/acme/last" in client.get(page).content.decode()) == told
        for name in ("seen", "limits"):
            address = url(Bucket, name, bucket.pk)
            assert client.get(address).status_code == (200 if told else 403)
            assert client.post(address, {}).status_code == (200 if told else 403)


def test_what_is_stopped_concerns_whom_it_stops(foreign: User, client: Client) -> None:
    acme, zenith = Tenant.objects.order_by("code")
    operator = User.objects.get(username="operator")
    everything = StopSwitch.objects.get()
    theirs = control.press(scope=StopSwitch.Scope.TENANT, tenant=acme, by=operator, reason="Acme's own.")
    client.force_login(foreign)
    shown = list(client.get(url(StopSwitch, "changelist")).context["cl"].result_list)
    assert shown == [everything]
    page = client.get(url(StopSwitch, "change", everything.pk)).content.decode()
    assert "Might still be executed" not in page
    assert ">Lift<" not in page
    assert not any("Acme's own." in each.text for each in notices.notices(foreign))
    assert client.get(url(StopSwitch, "change", theirs.pk)).status_code == 404
    form = client.get(url(StopSwitch, "add")).content.decode()
    assert "one bucket" not in form
    assert 'value="everything"' not in form
    client.post(url(StopSwitch, "add"), {"scope": "tenant", "tenant": zenith.pk, "reason": "Ours."})
    ours = StopSwitch.objects.get(tenant=zenith)
    assert control.lift(switch=ours, by=foreign, reason="Done.").lifted_at is not None


def test_alarms_are_counted_for_whom_they_concern(foreign: User) -> None:
    alarms.notice("catalogue.stale", Bucket.objects.get(), "Old.")
    assert [each.text for each in notices.notices(foreign) if each.level == "alarm"] == []
    assert {(each.kind, each.tenant) for each in Alarm.objects.open()} >= {
        ("catalogue.stale", ""), ("run.counts", "acme"),
    }  # fmt: skip


def decisions(acme: Tenant, by: User) -> dict[str, Callable[[], object]]:
    """Every verb that decides, about something of acme's."""
    bucket, other = Bucket.objects.order_by("pk")[0], {"by": by, "reason": "R"}
    run, command = CleanupRun.objects.order_by("pk")[0], CleanupCommand.objects.order_by("pk")[0]
    policy, revision = RetentionPolicy.objects.order_by("pk")[0], PolicyRevision.objects.order_by("pk")[0]
    stored, endpoint = ObjectVersion.objects.filter(gone_at=None)[0].pk, Endpoint.objects.get()
    hold, place = LegalHold.objects.get(), {"tenant": acme, "buckets": [bucket], "prefixes": ["a/"]}
    said = {"matter": "M", "title": "T", "authority": "A", "retention_classes": ["*"]}
    until = clock.now().replace(year=2099)
    make_endpoint = {"tenant": "acme", "name": "n", "url": "https://n.example/", "event_types": ["media.deleted"]}
    asked = EnforcementRequest(tenant=acme, bucket=bucket, requested_by=User.objects.get(username="manager"))
    return {
        "place": lambda: holds.place(**place, **said, **other),
        "request release": lambda: releases.request(hold=hold, **other),
        "approve release": lambda: releases.approve(release=HoldRelease.objects.get(), matter=hold.matter, **other),
        "deny release": lambda: releases.deny(release=HoldRelease.objects.get(), **other),
        "create policy": lambda: policies.create(tenant=acme, code="new", by=by),
        "draft": lambda: policies.draft(policy=policy, by=by),
        "edit": lambda: policies.edit(revision=revision, by=by),
        "submit": lambda: policies.submit(revision=revision, by=by),
        "preview": lambda: preview.request(revision=revision, by=by),
        "publish": lambda: policies.publish(revision=revision, **other),
        "send back": lambda: policies.send_back(revision=revision, **other),
        "discard": lambda: policies.discard(revision=revision, **other),
        "suspend": lambda: policies.suspend(policy=policy, **other),
        "resume policy": lambda: policies.resume(policy=policy, **other),
        "reschedule": lambda: policies.reschedule(policy=policy, schedule="0 2 * * *", missed_slots="skip", **other),
        "request enforcement": lambda: enforcement.request(tenant=acme, bucket=bucket, prefix="a/", **other),
        "approve enforcement": lambda: enforcement.approve(request=asked, **other),
        "deny enforcement": lambda: enforcement.deny(request=asked, **other),
        "switch off": lambda: enforcement.switch_off(row=Enforcement.objects.all()[0], **other),
        "post event": lambda: events.post(
            **place, event_type="ended", occurred_at=world.EPOCH, retention_classes=["*"], **other
        ),
        "withdraw event": lambda: events.withdraw(event=RetentionEvent.objects.get(), **other),
        "exempt": lambda: dispositions.exempt([stored], **other),
        "extend": lambda: dispositions.extend([stored], until=until, **other),
        "reclassify": lambda: dispositions.reclassify([stored], retention_class="x", **other),
        "end": lambda: dispositions.end(disposition=Disposition.objects.all()[0], **other),
        "press for a tenant": lambda: control.press(scope=StopSwitch.Scope.TENANT, tenant=acme, **other),
        "press for a policy": lambda: control.press(scope=StopSwitch.Scope.POLICY, policy=policy, **other),
        "press for a bucket": lambda: control.press(scope=StopSwitch.Scope.BUCKET, bucket=bucket, **other),
        "lift": lambda: control.lift(switch=StopSwitch.objects.get(), **other),
        "limits": lambda: freshness.change_limits(
            bucket=bucket, catalogue_max_age_hours=None, shrink_percent=None, **other
        ),
        "losses seen": lambda: losses.seen(bucket=bucket, **other),
        "open run": lambda: runs.open_run(policy=policy, by=by),
        "approve run": lambda: runs.approve(run=run, root="", confirmation="", **other),
        "pause": lambda: runs.pause(run=run, **other),
        "resume": lambda: runs.resume(run=run, **other),
        "re-arm": lambda: runs.rearm(run=run, **other),
        "cancel": lambda: runs.cancel(run=run, **other),
        "exempt items": lambda: reviews.exempt(run=run, chosen=Items(prefix="a"), **other),
        "compare manifests": lambda: compare.ask(run=run, other=run, by=by),
        "issue certificate": lambda: certificate.issue(run=run, by=by),
        "fetch receipt": lambda: exports.hand_out(Receipt.objects.all()[0], by=by),
        "replay": lambda: quarantine.replay(command=command, **other),
        "close": lambda: quarantine.close(command=command, **other),
        "file erasure": lambda: erasure.file(
            tenant=acme, reference="R", authority="A", data=b"asset\na\n", form="csv", **other
        ),
        "approve erasure": lambda: erasure.approve(request=ErasureRequest.objects.get(), versions=1, **other),
        "deny erasure": lambda: erasure.deny(request=ErasureRequest.objects.get(), **other),
        "add endpoint": lambda: endpoints.create(**make_endpoint, by=by),
        "enable": lambda: endpoints.enable(endpoint=endpoint, by=by),
        "disable": lambda: endpoints.disable(endpoint=endpoint, **other),
        "change": lambda: endpoints.change(endpoint=endpoint, name="n", **other),
        "retire": lambda: endpoints.retire(endpoint=endpoint, **other),
        "ping": lambda: pings.ping(endpoint=endpoint, by=by),
        "rotate": lambda: secrets.rotate(endpoint=endpoint, **other),
        "revoke": lambda: secrets.revoke(secret=endpoint.secrets.all()[0], **other),
        "acknowledge": lambda: inflight.acknowledge(report=HoldReport.objects.all()[0], by=by),
        "redeliver": lambda: redelivery.redeliver(delivery=Delivery.objects.all()[0], **other),
    }


def test_no_verb_decides_about_another_tenant(foreign: User) -> None:
    """Pages give verbs only what one sees; the API and jobs come by other ways."""
    acme = Tenant.objects.get(code="acme")
    before = AuditEvent.objects.count()
    for name, decide in decisions(acme, foreign).items():
        with pytest.raises((RetentionRefused, LedgerRefused, WebhooksError), match="about nothing else") as refused:
            decide()
        assert "acme" not in str(refused.value), name
    assert AuditEvent.objects.count() == before


def test_the_register_and_the_count_of_deliveries_are_of_ones_own(foreign: User) -> None:
    auditor = User.objects.get(username="compliance")
    assert len(register.register(clock.now(), by=auditor)) == 1
    assert register.register(clock.now(), by=foreign) == []
    everything = Chosen(ids=tuple(Delivery.objects.values_list("pk", flat=True)))
    assert redelivery.count(everything, by=foreign).total == 0
    assert redelivery.count(everything, by=User.objects.get(username="operator")).total > 0


def made(by: User) -> BulkJob:
    rows = Delivery.objects.all()
    return jobs.create(redelivery.KIND, Order(rows, "all", rows.count(), "R", uuid4()), by=by)


def test_a_job_is_about_the_tenants_of_who_made_it(foreign: User, person: Callable[..., User], client: Client) -> None:
    with pytest.raises(JobRefused, match="Nothing matches any more"):
        made(foreign)
    native = person("native", roles.OPERATOR, tenants=["acme"])
    job = made(native)
    assert (job.tenants, job.total) == (["acme"], Delivery.objects.count())
    for act in (jobs.pause, jobs.cancel):
        with pytest.raises(JobRefused, match="more than the tenants of foreign"):
            act(job=job, by=foreign, reason="R")
    client.force_login(native)
    assert [each.pk for each in client.get(url(BulkJob, "changelist")).context["cl"].result_list] == [job.pk]
    assert {each.job_id for each in client.get(url(BulkItem, "changelist")).context["cl"].result_list} == {job.pk}
    # Whoever may see less by now goes on with nothing.
    User.objects.filter(pk=native.pk).update(tenants=["zenith"])
    jobwork.work_chunk(job.pk)
    job.refresh_from_db()
    assert (job.state, job.done) == (BulkJob.State.PAUSED, 0)
    assert "decides for now" in job.paused_because
    assert jobs.resume(job=job, by=User.objects.get(username="operator")).state == BulkJob.State.RUNNING


def test_a_hold_is_placed_for_ones_own_tenant_in_ones_own_buckets(foreign: User, client: Client) -> None:
    acme = Tenant.objects.get(code="acme")
    client.force_login(foreign)
    wanted = {
        "tenant": acme.pk, "matter": "M", "title": "T", "authority": "A", "reason": "R",
        "bucket_ids": [Bucket.objects.all()[0].pk], "prefixes": "a/", "retention_classes": "*",
    }  # fmt: skip
    answer = client.post(url(LegalHold, "add"), wanted)
    assert set(answer.context["adminform"].form.errors) >= {"tenant", "bucket_ids"}
    counted = client.post(url(LegalHold, "add"), wanted | {"_count": "1"})
    assert not counted.context["counted"]


def test_without_tenants_in_their_account_people_see_every_tenant(person: Callable[..., User], db: None) -> None:
    one = Tenant.objects.create(code="acme", name="Acme")
    assert list(tenancy.scoped(Tenant.objects.all(), person("all"), "code")) == [one]
    assert list(tenancy.scoped(Tenant.objects.all(), person("none", tenants=["gone"]), "code")) == []
    assert tenancy.within([], person("a")) is True
    assert tenancy.within([], person("b", tenants=["acme"])) is False
    assert tenancy.within(["acme", "zenith"], person("c", tenants=["acme"])) is False


def test_what_an_act_was_about_says_whose_it_is(person: Callable[..., User], bucket: Bucket, tenant: Tenant) -> None:
    switch = StopSwitch(scope="policy", policy=RetentionPolicy(tenant=tenant, code="p"))
    assert [tenancy.code_of(row) for row in (tenant, bucket, switch, KeyRule(tenant=tenant), None)] == [
        "acme", "", "acme", "acme", "",
    ]  # fmt: skip
    with pytest.raises(FieldDoesNotExist):
        tenancy.owned(Bucket, "tenant__code", ["acme"])
