"""The certificate of destruction: what it says of a closed run, when there is none, and who may issue it."""

import json
from hashlib import sha256

import pytest
from django.contrib.auth.models import Group
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from ledger import certificate, dispositions, publish, quarantine, runs
from ledger.dispositions import Chosen
from ledger.exceptions import LedgerError, NotPermitted
from ledger.models import Certificate, CleanupRun, Receipt
from retention.models import Tenant
from tests.ledger import parking
from tests.ledger.acting import Acting, build
from tests.web import quick_pages, url  # noqa: F401
from tests.world import hold, sealed_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def acting() -> Acting:
    return build(authorisation="approval")


def auditor() -> User:
    user = User.objects.create_user("auditor", is_staff=True)
    user.groups.add(Group.objects.get(name=roles.AUDITOR))
    return user


def closed(acting: Acting) -> CleanupRun:
    """Three destroyed, one held since, one exempted."""
    for key in ("go/1", "go/2", "go/3", "held/4", "keep/5"):
        acting.put(key, asset=key.replace("/", "-"))
    run = sealed_run(acting.revision, by=acting.people["manager"], mode=CleanupRun.Mode.ENFORCE)
    by = acting.people["compliance"]
    dispositions.exempt(run=run, chosen=Chosen(prefix="keep/"), by=by, reason="Still needed.")
    run.refresh_from_db()
    runs.approve(run=run, by=by, root=run.remaining_root, confirmation="4", reason="Read.")
    publish.publish(run.pk)
    hold(acting.tenant, acting.bucket, "held/", by=by)
    acting.drain()
    acting.settled()
    run.refresh_from_db()
    assert run.counts == {"deleted": 3, "held": 1, "exempt": 1}
    return run


def test_it_says_what_was_destroyed_and_what_was_not(acting: Acting) -> None:
    run = closed(acting)
    made = certificate.issue(run=run, by=auditor())
    told = json.loads(bytes(made.body))
    assert made.digest == sha256(bytes(made.body)).hexdigest()
    assert told["organisation"] == {"tenant": "acme", "name": "Acme Media"}
    assert told["run"]["key"] == run.key
    assert told["run"]["opened_by"] == "manager"
    assert told["approval"] == {
        "by": "compliance", "at": told["approval"]["at"], "words": "Read.", "root": run.remaining_root, "items": 4,
    }  # fmt: skip
    assert (told["manifest"]["root"], told["manifest"]["items"]) == (run.manifest_root, 5)
    assert told["destroyed"]["outcomes"] == {"deleted": 3, "by_absence": 0, "already_absent": 0}
    assert (told["destroyed"]["items"], told["destroyed"]["object_versions"], told["destroyed"]["bytes"]) == (3, 3, 3)
    assert told["destroyed"]["records_from"] == "2020-01-01T00:00:00.000000Z"
    (series,) = told["series"]
    assert (series["title"], series["authority"]) == ("Originals", "Retention Act, section 1")
    assert (series["policy"], series["revision"], series["items"]) == ("originals", 1, 3)
    assert series["retention"] == "30 days from stored at"
    left = told["not_destroyed"]
    assert (left["held"], left["exempt"], left["quarantined"], left["withdrawn"]) == (1, 1, 0, 0)
    event = AuditEvent.objects.get(action="certificate.issued")
    assert (event.subject_id, event.after["sha256"]) == (str(run.pk), made.digest)


def test_its_root_of_receipts_is_made_as_it_says(acting: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate, "CHUNK", 2)
    told = certificate.statement(closed(acting))
    bodies = Receipt.objects.order_by("pk").values_list("body", flat=True)
    root = sha256(b"".join(sha256(bytes(body)).digest() for body in bodies)).hexdigest()
    assert told["receipts"] == {"number": 3, "root": root}


def test_the_same_bytes_come_whenever_it_is_asked_for(acting: Acting) -> None:
    run, by = closed(acting), auditor()
    first = certificate.statement(run)
    made = certificate.issue(run=run, by=by)
    # A receipt of later than the run's end, and another name: neither changes what was issued.
    Receipt.objects.create(
        command_id=10**9, command_key="late", tenant=acting.tenant, run=run, outcome="deleted", event_id="e",
        bucket=acting.bucket, policy=acting.revision.policy,
        target_count=1, bytes=1, body=b"{}", digest=sha256(b"{}").digest(),
    )  # fmt: skip
    assert certificate.statement(run) == first
    Tenant.objects.update(name="Another name")
    assert bytes(certificate.issue(run=run, by=by).body) == bytes(made.body)
    assert AuditEvent.objects.filter(action="certificate.issued").count() == 1
    with pytest.raises(DatabaseError), transaction.atomic():
        Certificate.objects.update(digest="0" * 64)


def test_there_is_none_before_the_run_has_closed_nor_of_a_dry_run_nor_of_a_cancelled_one(acting: Acting) -> None:
    acting.put("clips/one", asset="one")
    by = auditor()
    waiting = sealed_run(acting.revision, mode=CleanupRun.Mode.ENFORCE)
    with pytest.raises(LedgerError, match="is issued after the run has closed"):
        certificate.issue(run=waiting, by=by)
    runs.cancel(run=waiting, by=acting.people["operator"], reason="Wrong month.")
    waiting.refresh_from_db()
    with pytest.raises(LedgerError, match="It was cancelled"):
        certificate.issue(run=waiting, by=by)
    with pytest.raises(LedgerError, match="dry run"):
        certificate.issue(run=sealed_run(acting.revision), by=by)
    assert not Certificate.objects.exists()


def test_where_the_numbers_do_not_agree_there_is_none(acting: Acting) -> None:
    run, by = closed(acting), auditor()
    run.counts = {"deleted": 4, "held": 1}
    with pytest.raises(LedgerError, match=r"closed with 4 deleted, and 3 receipts say so"):
        certificate.issue(run=run, by=by)
    run.counts = {"deleted": 3, "held": 1}
    with pytest.raises(LedgerError, match=r"has 5 items, and it closed with 4"):
        certificate.issue(run=run, by=by)
    assert not Certificate.objects.exists()


@pytest.mark.django_db(transaction=True)  # of several moments
def test_what_was_closed_without_retry_before_the_end_is_counted() -> None:
    acting = build()
    command = parking.dead(acting)
    run = CleanupRun.objects.get()
    assert certificate.statement(run)["not_destroyed"]["closed_without_retry"] == 0
    entry = command.dead_letters.get()
    quarantine.close(command=command, by=acting.people["compliance"], reason="Never was one.")
    # As if somebody had closed it before the run ended: another command may take longer.
    entry.refresh_from_db()
    run.ended_at = entry.resolved_at
    left = certificate.statement(run)["not_destroyed"]
    assert (left["quarantined"], left["closed_without_retry"]) == (1, 1)
    # Another run takes the command on: what this one had left undone at its end stays so.
    acting.run()
    command.refresh_from_db()
    assert command.run_id != run.pk
    assert certificate.statement(run)["not_destroyed"]["closed_without_retry"] == 1
    # As if that had been before this run ended: then it is not of what was closed.
    run.ended_at = command.decisions.get().at
    assert certificate.statement(run)["not_destroyed"]["closed_without_retry"] == 0


def test_who_may_issue_it_and_who_may_read_it(acting: Acting, client: Client) -> None:
    run = closed(acting)
    page = url(CleanupRun, "certificate", run.pk)
    with pytest.raises(NotPermitted):
        certificate.issue(run=run, by=acting.people["manager"])
    client.force_login(acting.people["manager"])
    assert "Issue the certificate" not in client.get(page).content.decode()
    assert client.post(page).status_code == 403
    client.force_login(auditor())
    with CaptureQueriesContext(connection) as captured:
        assert "Issue the certificate" in client.get(page).content.decode()
    assert not any(each["sql"].startswith("INSERT") for each in captured if "session" not in each["sql"])
    shown = client.post(page, follow=True).content.decode()
    made = Certificate.objects.get()
    assert made.digest in shown
    assert "<strong>3 items</strong>" in shown
    file = client.get(f"{page[:-1]}.json")
    assert file.content == bytes(made.body)
    assert file.headers["X-SHA-256"] == made.digest
    assert AuditEvent.objects.get(action="certificate.downloaded").after == {"sha256": made.digest}
    client.force_login(acting.people["operator"])
    assert client.get(page).status_code == 200
    assert client.get(f"{page[:-1]}.json").status_code == 403
