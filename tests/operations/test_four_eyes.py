"""What takes two people takes two: whoever asked cannot decide, on no page and by no statement past the verbs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.db.models import Model
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from cleanup_project.base import clock
from cleanup_project.base.models import AuditEvent, User
from ledger import erasure, manifest, runs
from ledger.models import CleanupRun, ErasureRequest
from retention import enforcement, policies, preview, releases
from retention.models import EnforcementRequest, HoldRelease, PolicyRevision, RetentionPolicy
from tests import world
from tests.ledger.acting import Acting, build
from tests.web import quick_pages, url  # noqa: F401


@dataclass
class Asked:
    """What one person asked for: on which page it is decided, with which answers, and how a statement would do it alone."""

    row: Model
    by: User
    verb: str
    answers: dict[str, Any]
    alone: dict[str, Any]
    constraint: str
    offered: bool = False  # the author of a draft may publish what provably only lengthens


def run(acting: Acting) -> Asked:
    by = acting.people["manager"]
    acting.put("clips/a", asset="a")
    opened, _new = runs.open_run(policy=acting.revision.policy, by=by, mode=CleanupRun.Mode.ENFORCE)
    row = manifest.freeze(opened)
    assert row.state == "needs_approval"
    root = row.remaining_root
    answers = {"shown_root": root, "typed": root[:8], "confirmation": row.key, "reason": "R"}
    return Asked(row, by, "approve", answers, {"authorised_by": by}, "run_second_person")


def release(acting: Acting) -> Asked:
    by = acting.people["compliance"]
    hold = world.hold(acting.tenant, acting.bucket, "a/", by=by)
    row = releases.request(hold=hold, by=by, reason="Settled.")
    decided = {"decision": "approved", "decided_by": by, "decided_at": Now(), "decision_reason": "R"}
    return Asked(row, by, "approve", {"matter": hold.matter, "why": "R"}, decided, "release_second_person")


def revision(acting: Acting) -> Asked:
    by = acting.people["manager"]
    said = {
        "title": "T",
        "authority": "A",
        "bucket_ids": [acting.bucket.pk],
        "prefixes": [""],
        "retention_classes": ["*"],
    }
    shorter = said | {
        "period_number": 1,
        "period_unit": "days",
        "trigger": "stored_at",
        "retroactive": True,
        "effective_from": world.EPOCH,
    }
    row = policies.draft(policy=acting.revision.policy, by=by, **shorter)
    row = policies.submit(revision=row, by=by)
    preview.request(revision=row, by=by)
    published = {"published_by": by, "published_at": clock.now(), "in_force_from": clock.now()}
    answers = {"reason": "R", "digest": preview.digest_of(row)}
    return Asked(row, by, "publish", answers, published, "revision_second_person", offered=True)


def enforced(acting: Acting) -> Asked:
    by = acting.people["manager"]
    row = enforcement.request(tenant=acting.tenant, bucket=acting.bucket, prefix="a/", by=by, reason="Pilot")
    decided = {"decision": "approved", "decided_by": by, "decided_at": Now(), "decision_reason": "R"}
    return Asked(row, by, "approve", {"reason": "R"}, decided, "enforcement_request_second_person")


def erased(acting: Acting) -> Asked:
    by = acting.people["manager"]
    acting.put("clips/a", asset="a")
    row = erasure.file(
        tenant=acting.tenant, reference="R", authority="A", reason="R", data=b"asset\na\n", form="csv", by=by
    )
    decided = {"approved": False, "decided_by": by, "decided_at": Now(), "decision_reason": "R"}
    return Asked(row, by, "approve", {"versions": 1, "reason": "R"}, decided, "erasure_second_person")


def resumed(acting: Acting) -> Asked:
    by = acting.people["manager"]
    row = policies.suspend(policy=acting.revision.policy, by=by, reason="Stop.")
    alone = {"suspended_at": None, "suspended_reason": "", "resumed_by": by}
    return Asked(row, by, "resume", {"reason": "R"}, alone, "policy_resumed_by_another")


CASES = {
    CleanupRun: run,
    HoldRelease: release,
    PolicyRevision: revision,
    EnforcementRequest: enforced,
    ErasureRequest: erased,
    RetentionPolicy: resumed,
}


@pytest.fixture(params=CASES, ids=lambda model: model._meta.model_name)
def asked(request: pytest.FixtureRequest, db: None) -> Asked:
    approval = {"authorisation": PolicyRevision.Authorisation.APPROVAL} if request.param is CleanupRun else {}
    make: Callable[[Acting], Asked] = CASES[request.param]
    return make(build(**approval))


def columns(row: Model) -> dict[str, Any]:
    found: dict[str, Any] = type(row)._default_manager.filter(pk=row.pk).values().get()
    return found


def test_who_asked_cannot_decide_on_the_page(asked: Asked, client: Client) -> None:
    before, acts = columns(asked.row), AuditEvent.objects.count()
    client.force_login(asked.by)
    meta = asked.row._meta
    address = reverse(f"admin:{meta.app_label}_{meta.model_name}_{asked.verb}", args=[asked.row.pk])
    shown = client.get(address)
    assert shown.status_code in {200, 403}
    seen = shown.context["adminform"].form.initial.get("seen", "") if shown.status_code == 200 else ""
    answer = client.post(address, asked.answers | {"seen": seen})
    assert answer.status_code in {200, 403}
    if answer.status_code == 200:
        assert "second person must" in answer.content.decode()
    assert (columns(asked.row), AuditEvent.objects.count()) == (before, acts)
    page = client.get(url(type(asked.row), "change", asked.row.pk)).content.decode()
    assert (f'href="{address}"' in page) == asked.offered


def test_no_statement_lets_one_person_decide_alone(asked: Asked) -> None:
    rows = type(asked.row)._default_manager.filter(pk=asked.row.pk)
    with pytest.raises(DatabaseError, match=asked.constraint), transaction.atomic():
        rows.update(**asked.alone)


def test_who_opened_a_run_stays_who_opened_it(db: None) -> None:
    """Otherwise its approval by the same person would only take another name first."""
    opened = run(build(authorisation=PolicyRevision.Authorisation.APPROVAL))
    for name in (None, User.objects.get(username="manager2")):
        with pytest.raises(DatabaseError, match="opened or sealed with cannot change"), transaction.atomic():
            CleanupRun.objects.filter(pk=opened.row.pk).update(opened_by=name)
