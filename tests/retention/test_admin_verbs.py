"""Policies and holds through the admin: the verb decides, its words come back, and the form keeps what was typed."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from retention import policies, preview
from retention.models import Bucket, ImpactPreview, LegalHold, PolicyRevision, RetentionPolicy, Tenant
from tests import world
from tests.web import quick_pages, url  # noqa: F401


@pytest.fixture
def policy(tenant: Tenant, manager: User) -> RetentionPolicy:
    return policies.create(tenant=tenant, code="clips", by=manager)


def draft_fields(policy: RetentionPolicy, bucket: Bucket, **changed: Any) -> dict[str, Any]:
    fields = {
        "policy": policy.pk, "title": "Clips", "authority": "Retention Act", "bucket_ids": [bucket.pk],
        "prefixes": "clips/\r\n", "retention_classes": "*", "trigger": "stored_at", "period_number": "3",
        "period_unit": "years", "cutoff": "none", "keep_newest": "0", "retroactive": "no",
        "effective_from_0": "2026-01-01", "effective_from_1": "00:00:00", "authorisation": "approval",
        "cooling_off_minutes": "0", "window_days": "", "window_start": "", "window_end": "", "window_zone": "UTC",
        "already_absent": "review", "evidence_max_age_hours": "24", "priority": "1", "cap_objects": "100000",
        "cap_bytes": "1099511627776", "cap_share_percent": "10", "breaker_percent": "20", "breaker_minimum": "50",
    }  # fmt: skip
    return fields | changed


def hold_fields(tenant: Tenant, bucket: Bucket, **changed: Any) -> dict[str, Any]:
    fields = {
        "tenant": tenant.pk, "matter": "Doe v. Acme", "title": "Footage", "authority": "Court order",
        "reason": "Preservation letter", "custodian": "", "bucket_ids": [bucket.pk], "prefixes": '""',
        "retention_classes": "*", "stored_from_0": "", "stored_from_1": "", "stored_to_0": "", "stored_to_1": "",
    }  # fmt: skip
    return fields | changed


def test_a_manager_adds_a_policy(tenant: Tenant, manager: User, client: Client) -> None:
    client.force_login(manager)
    fields = {"tenant": tenant.pk, "code": "clips", "schedule": "0 1 * * *"}
    assert client.post(url(RetentionPolicy, "add"), fields).status_code == 302
    event = AuditEvent.objects.get(action="policy.created")
    assert (event.actor, event.subject_label) == (manager, "clips")


def test_a_bad_policy_comes_back_with_its_words(tenant: Tenant, manager: User, client: Client) -> None:
    client.force_login(manager)
    response = client.post(url(RetentionPolicy, "add"), {"tenant": tenant.pk, "code": "clips", "schedule": "at noon"})
    shown = response.content.decode()
    assert "Use five cron fields" in shown
    assert "at noon" in shown
    assert not RetentionPolicy.objects.exists()


def test_a_draft_keeps_its_scope_exactly(
    policy: RetentionPolicy, bucket: Bucket, manager: User, client: Client
) -> None:
    client.force_login(manager)
    prefixes = '""\r\n leading and trailing \r\n\r\n"line\\nbreak"\r\na*b\r\n a\\b\r\n a\\b\r\n'
    fields = draft_fields(policy, bucket, prefixes=prefixes, retention_classes='video\r\n""')
    assert client.post(url(PolicyRevision, "add"), fields).status_code == 302
    revision = PolicyRevision.objects.get()
    assert revision.prefixes == ["", " leading and trailing ", "line\nbreak", "a*b", " a\\b"]
    assert revision.retention_classes == ["video", ""]
    assert (revision.author, revision.tenant, revision.retroactive) == (manager, policy.tenant, False)
    assert revision.published_at is None
    assert AuditEvent.objects.get(action="policy.drafted").actor == manager


def test_a_draft_from_an_earlier_revision_has_the_same_scope(
    policy: RetentionPolicy, bucket: Bucket, manager: User, client: Client
) -> None:
    client.force_login(manager)
    prefixes = ["", ' "quoted"', '"', "line\nbreak", "carriage\rreturn", "\u202e", "plain/", "  "]
    client.post(url(PolicyRevision, "add"), draft_fields(policy, bucket))
    earlier = PolicyRevision.objects.get()
    PolicyRevision.objects.update(prefixes=prefixes, retention_classes=["", "*x"])
    form = client.get(url(PolicyRevision, "add"), {"from": earlier.pk}).context["adminform"].form
    shown = {name: form[name].value() for name in ("prefixes", "retention_classes", "title", "period_number")}
    assert form["retroactive"].value() is None
    assert form["effective_from"].value() is None
    again = draft_fields(policy, bucket, **{name: str(value).replace("\n", "\r\n") for name, value in shown.items()})
    assert client.post(url(PolicyRevision, "add"), again).status_code == 302
    newer = PolicyRevision.objects.get(number=2)
    assert (newer.prefixes, newer.retention_classes, newer.title) == (prefixes, ["", "*x"], "Clips")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"retroactive": ""}, "Choose one: there is no default."),
        ({"prefixes": ""}, "Write at least one line"),
        ({"prefixes": '"unfinished'}, "Line 1 begins with a quotation mark"),
        ({"prefixes": '"\\ud800"'}, "Line 1 begins with a quotation mark"),
        ({"prefixes": '"\\u0000"'}, "A key cannot hold NUL"),
        ({"prefixes": "1\r\n[1]\r\n{}", "bucket_ids": []}, "Tick at least one bucket."),
        ({"retention_classes": "*\r\nvideo"}, "* already names every class"),
        ({"trigger": "event"}, "Name the event that starts the clock"),
        ({"event_type": "contract-ended"}, "Only a retention event has a type"),
        ({"window_start": "01:00:00"}, "State both ends of the window"),
        ({"window_start": "01:00:00", "window_end": "01:00:00"}, "A window ends at another time than it starts"),
        ({"window_days": "Mon"}, "Write days as mon,tue,wed"),
        ({"window_zone": "Berlin"}, "Write a time zone as IANA names it"),
        ({"breaker_percent": "100"}, "less than or equal to 99"),
        ({"period_number": "4001"}, "less than or equal to 4000"),
        ({"bucket_ids": [999_999]}, "Select a valid choice"),
    ],
)
def test_a_refused_draft_comes_back_with_words_and_with_what_was_typed(
    changed: dict[str, Any], words: str, policy: RetentionPolicy, bucket: Bucket, manager: User, client: Client
) -> None:
    client.force_login(manager)
    response = client.post(url(PolicyRevision, "add"), draft_fields(policy, bucket, title="As typed") | changed)
    assert response.status_code == 200
    errors = [error for found in response.context["adminform"].form.errors.values() for error in found]
    assert [words in error for error in errors] == [True]
    assert "As typed" in response.content.decode()
    assert not PolicyRevision.objects.exists()


def drafted(policy: RetentionPolicy, bucket: Bucket, client: Client, **changed: Any) -> PolicyRevision:
    assert client.post(url(PolicyRevision, "add"), draft_fields(policy, bucket, **changed)).status_code == 302
    return PolicyRevision.objects.latest("pk")


def asked(client: Client, revision: PolicyRevision, verb: str, **fields: Any) -> str:
    """Send a decision; what comes back in words: the page with its refusal, or the message on the page that follows."""
    if verb == "publish":
        fields = {"digest": shown_digest(client, revision), **fields}
    return client.post(url(PolicyRevision, verb, revision.pk), {"go": "on", **fields}, follow=True).content.decode()


def shown_digest(client: Client, revision: PolicyRevision) -> str:
    """Which draft the page of its publication shows."""
    response = client.get(url(PolicyRevision, "publish", revision.pk))
    found = re.search(r'name="digest" value="(\w{64})"', response.content.decode())
    return found[1] if found else ""


def verbs(client: Client, revision: PolicyRevision) -> list[str]:
    """The decisions that a revision's page offers."""
    shown = client.get(url(PolicyRevision, "change", revision.pk)).content.decode()
    names = ("edit", "preview", "submit", "publish", "send_back", "discard")
    return [name for name in names if f'"{url(PolicyRevision, name, revision.pk)}"' in shown]


def test_a_draft_goes_by_preview_and_submission_to_a_second_person_who_publishes_it(
    policy: RetentionPolicy, bucket: Bucket, manager: User, second_manager: User, client: Client
) -> None:
    world.version(bucket, policy.tenant, "clips/1")
    client.force_login(manager)
    revision = drafted(policy, bucket, client)
    assert verbs(client, revision) == ["edit", "preview", "submit", "discard"]
    assert "a second person must publish it" in asked(client, revision, "publish", reason="I like it.")
    assert "is submitted. A second person publishes it" in asked(client, revision, "submit")
    assert verbs(client, revision) == ["edit", "preview", "publish", "send_back", "discard"]

    client.force_login(second_manager)
    refused = asked(client, revision, "publish", reason="I like it.")
    assert "has no exact preview" in refused
    assert "I like it." in refused
    assert "Counted exactly." in asked(client, revision, "preview")
    page = client.get(url(PolicyRevision, "publish", revision.pk)).content.decode()
    assert "comes into force 24 hours later" in page
    assert "Eligible with this draft" in page
    assert "The first revision of its policy" in page
    assert "This field is required." in asked(client, revision, "publish", reason="  ")
    revision.refresh_from_db()
    assert revision.published_at is None

    shown = asked(client, revision, "publish", reason="Reviewed with counsel.")
    assert "lips/1 published. In force from" in shown
    revision.refresh_from_db()
    assert revision.published_by == second_manager
    event = AuditEvent.objects.get(action="policy.published")
    assert (event.actor, event.reason) == (second_manager, "Reviewed with counsel.")
    assert "is published already" in asked(client, revision, "publish", reason="Again.")
    assert verbs(client, revision) == []


def test_a_second_person_publishes_what_they_have_read_and_nothing_that_was_written_meanwhile(
    policy: RetentionPolicy, bucket: Bucket, manager: User, second_manager: User, client: Client
) -> None:
    client.force_login(manager)
    revision = drafted(policy, bucket, client)
    assert "is submitted" in asked(client, revision, "submit")
    assert "Counted exactly." in asked(client, revision, "preview")
    client.force_login(second_manager)
    read = shown_digest(client, revision)
    policies.edit(revision=revision, by=manager, prefixes=[""], period_number=0)
    policies.submit(revision=revision, by=manager)
    preview.request(revision=revision, by=manager)
    refused = asked(client, revision, "publish", reason="Reviewed.", digest=read)
    assert "was changed after this page was shown" in refused
    asked(client, revision, "publish", reason="Reviewed.", digest="")
    revision.refresh_from_db()
    assert revision.published_at is None
    assert "published. In force from" in asked(client, revision, "publish", reason="Reviewed.")


def test_a_draft_is_edited_in_the_form_that_made_it(
    policy: RetentionPolicy, bucket: Bucket, manager: User, client: Client
) -> None:
    client.force_login(manager)
    revision = drafted(policy, bucket, client)
    form = client.get(url(PolicyRevision, "edit", revision.pk)).context["adminform"].form
    assert (form["title"].value(), form["retroactive"].value(), form["period_number"].value()) == ("Clips", "no", 3)
    fields = draft_fields(policy, bucket, title="Clips and cuts", retroactive="yes", destroy_within_days="90")
    del fields["policy"]
    assert "changes nothing until it is previewed" in asked(client, revision, "edit", **fields)
    revision.refresh_from_db()
    assert (revision.title, revision.retroactive, revision.destroy_within_days) == ("Clips and cuts", True, 90)
    refused = asked(client, revision, "edit", **fields | {"prefixes": "", "title": "As typed"})
    assert "Write at least one line" in refused
    assert "As typed" in refused
    revision.refresh_from_db()
    assert revision.title == "Clips and cuts"


def test_a_reviewer_sends_back_and_a_drafter_discards(
    policy: RetentionPolicy, bucket: Bucket, manager: User, second_manager: User, client: Client
) -> None:
    client.force_login(manager)
    revision = drafted(policy, bucket, client)
    asked(client, revision, "submit")
    client.force_login(second_manager)
    assert "is a draft again" in asked(client, revision, "send_back", reason="Too short")
    history = client.get(url(PolicyRevision, "history", revision.pk)).content.decode()
    assert "policy.sent_back" in history
    assert "Too short" in history
    assert "stays in the history of its policy" in asked(client, revision, "discard", reason="No longer needed")
    assert not PolicyRevision.objects.exists()
    assert "No longer needed" in client.get(url(RetentionPolicy, "history", policy.pk)).content.decode()


def test_a_superseded_revision_shows_its_successor_and_a_draft_what_it_changes(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, client: Client
) -> None:
    people = {"author": manager, "publisher": second_manager, "code": "clips"}
    first = world.published(tenant, bucket, **people)
    second = world.published(tenant, bucket, **people, period_number=60)
    client.force_login(manager)
    shown = client.get(url(PolicyRevision, "change", first.pk)).content.decode()
    assert ">superseded<" in shown
    assert f'"{url(PolicyRevision, "change", second.pk)}"' in shown
    assert ">superseded<" not in client.get(url(PolicyRevision, "change", second.pk)).content.decode()
    assert client.get(url(PolicyRevision, "changelist")).content.decode().count(">superseded<") == 1
    page = client.get(url(RetentionPolicy, "change", first.policy_id)).content.decode()
    assert page.count(">superseded<") == 1

    third = drafted(first.policy, bucket, client, prefixes='""', title="Originals", period_number="70")
    changes = client.get(url(PolicyRevision, "change", third.pk)).content.decode()
    assert "<td>period number</td><td>60</td><td>70</td>" in changes
    assert "<td>title</td>" not in changes


def test_a_policy_is_suspended_resumed_and_rescheduled_on_its_page(
    policy: RetentionPolicy, manager: User, second_manager: User, client: Client
) -> None:
    def decide(verb: str, **fields: Any) -> str:
        return client.post(url(RetentionPolicy, verb, policy.pk), fields, follow=True).content.decode()

    client.force_login(manager)
    page = url(RetentionPolicy, "change", policy.pk)
    assert f'"{url(RetentionPolicy, "resume", policy.pk)}"' not in client.get(page).content.decode()
    assert "is suspended: it destroys nothing" in decide("suspend", reason="Under review")
    assert f'"{url(RetentionPolicy, "resume", policy.pk)}"' not in client.get(page).content.decode()
    assert "a second person must resume it" in decide("resume", reason="Go on")
    client.force_login(second_manager)
    assert f'"{url(RetentionPolicy, "resume", policy.pk)}"' in client.get(page).content.decode()
    assert "is resumed" in decide("resume", reason="Go on")
    refused = decide("reschedule", schedule="0 0 30 2 *", missed_slots="skip", reason="Quieter")
    assert "names a day that never comes" in refused
    assert "by 0 2 * * * (UTC) from now on" in decide(
        "reschedule", schedule="0 2 * * *", missed_slots="skip", reason="Quieter"
    )
    policy.refresh_from_db()
    assert (policy.schedule, policy.missed_slots, policy.suspended_at) == ("0 2 * * *", "skip", None)


def test_decisions_about_policies_are_not_for_everybody(
    policy: RetentionPolicy,
    bucket: Bucket,
    manager: User,
    compliance: User,
    person: Callable[..., User],
    client: Client,
) -> None:
    client.force_login(manager)
    revision = drafted(policy, bucket, client)
    client.force_login(compliance)
    assert verbs(client, revision) == ["preview"]
    for verb in ("edit", "submit", "discard"):
        assert client.post(url(PolicyRevision, verb, revision.pk), {"reason": "R"}).status_code == 403
    client.force_login(person("auditor", roles.AUDITOR))
    assert verbs(client, revision) == []
    for verb in ("edit", "submit", "discard", "publish", "send_back"):
        assert client.post(url(PolicyRevision, verb, revision.pk), {"reason": "R"}).status_code == 403
    assert client.post(url(PolicyRevision, "preview", revision.pk)).status_code == 403
    for verb in ("suspend", "resume", "reschedule"):
        assert client.post(url(RetentionPolicy, verb, policy.pk), {"reason": "R"}).status_code == 403


def test_a_preview_that_is_being_counted_reloads_itself(
    policy: RetentionPolicy, bucket: Bucket, manager: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview, "SMALL", 0)
    world.version(bucket, policy.tenant, "clips/1")
    client.force_login(manager)
    revision = drafted(policy, bucket, client, retroactive="yes")
    shown = asked(client, revision, "preview")
    row = ImpactPreview.objects.get()
    assert 'hx-trigger="every 5s"' in shown
    assert "An estimate from a sample" in shown
    assert preview.count_slice(row.pk, budget_seconds=60)
    shown = client.get(url(ImpactPreview, "change", row.pk)).content.decode()
    assert "hx-trigger" not in shown
    assert "Counted exactly." in shown
    assert "clips/1" in shown


def test_a_published_revision_cannot_be_edited(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, client: Client
) -> None:
    revision = world.published(tenant, bucket, author=manager, publisher=second_manager)
    client.force_login(second_manager)
    page = url(PolicyRevision, "change", revision.pk)
    assert client.post(page, {"title": "Changed"}).status_code == 403
    assert '<input type="submit"' not in client.get(page).content.decode().partition('id="policyrevision_form"')[2]


@pytest.mark.parametrize("role", [roles.COMPLIANCE, roles.OPERATOR, roles.AUDITOR, roles.ADMINISTRATOR])
def test_only_managers_draft(role: str, person: Callable[..., User], client: Client, db: None) -> None:
    client.force_login(person("someone", role))
    for model in (PolicyRevision, RetentionPolicy):
        assert client.get(url(model, "add")).status_code == 403
        assert client.post(url(model, "add"), {}).status_code == 403


def test_decisions_need_a_csrf_token(
    policy: RetentionPolicy, bucket: Bucket, manager: User, second_manager: User
) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(manager)
    assert strict.post(url(PolicyRevision, "add"), draft_fields(policy, bucket)).status_code == 403
    assert not PolicyRevision.objects.exists()


def test_compliance_places_a_hold(tenant: Tenant, bucket: Bucket, compliance: User, client: Client) -> None:
    client.force_login(compliance)
    fields = hold_fields(tenant, bucket, prefixes="a/\r\nb ", stored_from_0="2020-01-01", stored_from_1="00:00")
    assert client.post(url(LegalHold, "add"), fields).status_code == 302
    hold = LegalHold.objects.get()
    assert (hold.placed_by, hold.prefixes, hold.stored_from) == (compliance, ["a/", "b "], world.EPOCH)
    assert {row.prefix for row in hold.lookup.all()} == {"a/", "b "}
    assert AuditEvent.objects.get(action="hold.placed").actor == compliance


def test_a_refused_hold_comes_back_as_it_was(tenant: Tenant, bucket: Bucket, compliance: User, client: Client) -> None:
    client.force_login(compliance)
    times = {
        "stored_from_0": "2021-01-01",
        "stored_from_1": "00:00",
        "stored_to_0": "2020-01-01",
        "stored_to_1": "00:00",
    }
    shown = client.post(url(LegalHold, "add"), hold_fields(tenant, bucket, **times)).content.decode()
    assert "The end of the range must be later than its start." in shown
    assert "Preservation letter" in shown
    assert not LegalHold.objects.exists()


@pytest.mark.parametrize("role", [roles.RETENTION_MANAGER, roles.OPERATOR, roles.AUDITOR, roles.ADMINISTRATOR])
def test_only_compliance_places_holds(role: str, person: Callable[..., User], client: Client, db: None) -> None:
    client.force_login(person("someone", role))
    assert client.post(url(LegalHold, "add"), {}).status_code == 403


def test_prefixes_that_end_no_folder_are_explained(
    tenant: Tenant, bucket: Bucket, compliance: User, client: Client
) -> None:
    for asset, key in enumerate(["photos/1", "photos/2", "photos-old/1", "photos.zip", "photos.zip.sig", "other/1"]):
        world.version(bucket, tenant, key, asset=str(asset))
    holds = [world.hold(tenant, bucket, prefix, by=compliance) for prefix in ("photos", "photos/", "absent", "")]
    client.force_login(compliance)
    shown = [client.get(url(LegalHold, "change", hold.pk)).content.decode() for hold in holds]
    listed = [name for name in ("photos-old/", "photos.zip", "photos.zip.sig", "photos/") if f">{name}<" in shown[0]]
    assert listed == ["photos-old/", "photos.zip", "photos.zip.sig", "photos/"]
    assert "other/" not in shown[0]
    assert "no / at its end" not in shown[1]
    assert "nothing of this tenant was found that begins with it" in shown[2]
    assert "the whole bucket" in shown[3]
