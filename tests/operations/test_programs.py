"""What a program can reach by the verbs, whatever the API in front of them forgets: nothing that approves."""

import pytest
from django.test import Client

from cleanup_project.base.models import AuditEvent, User
from cleanup_project.base.scopes import SCOPES
from ledger import manifest, runs
from ledger.exceptions import LedgerError
from ledger.models import CleanupRun
from retention import releases
from retention.exceptions import NotPermitted, RetentionError
from retention.models import HoldRelease, Tenant
from tests import world
from tests.base.test_tenancy import decisions
from tests.everything import make
from tests.ledger.acting import build
from tests.web import quick_pages, url  # noqa: F401
from tests.world import program

pytestmark = pytest.mark.django_db
# Verbs by which somebody decides about what another began, and those that belong to people's own work.
APPROVING = {
    "approve release", "deny release", "publish", "send back", "approve enforcement", "deny enforcement",
    "approve run", "re-arm", "approve erasure", "deny erasure", "lift", "resume policy",
}  # fmt: skip
OF_PEOPLE = {
    "create policy", "draft", "edit", "submit", "preview", "discard", "suspend", "reschedule", "request enforcement",
    "switch off", "exempt", "extend", "reclassify", "end", "limits", "exempt items", "file erasure",
    "press for a tenant", "press for a policy", "press for a bucket",
}  # fmt: skip


def everything() -> User:
    make()
    return program(person=User.objects.get(username="keeper"), scopes=sorted(SCOPES), tenants=["acme"], name="all")


def test_with_every_scope_at_once_a_program_approves_nothing() -> None:
    account = everything()
    verbs = decisions(Tenant.objects.get(code="acme"), account)
    assert verbs.keys() >= APPROVING | OF_PEOPLE
    before = AuditEvent.objects.count()
    for name in sorted(APPROVING | OF_PEOPLE):
        with pytest.raises((RetentionError, LedgerError), match="may not"):
            verbs[name]()
    assert AuditEvent.objects.count() == before


def test_what_its_scopes_are_for_a_program_does_under_its_own_name() -> None:
    account = everything()
    verbs = decisions(Tenant.objects.get(code="acme"), account)
    verbs["place"]()
    verbs["post event"]()
    told = AuditEvent.objects.filter(actor=account).values_list("action", "actor_name")
    assert set(told) == {("hold.placed", "program:all"), ("event.posted", "program:all")}


def test_whoever_made_its_token_does_not_approve_the_run_that_it_opened(client: Client) -> None:
    acting = build(authorisation="approval")
    maker, other = acting.people["manager"], acting.people["manager2"]
    acting.put("clips/a")
    account = program(person=maker, scopes=["runs:create"])
    opened, _new = runs.open_run(policy=acting.revision.policy, by=account, mode=CleanupRun.Mode.ENFORCE)
    run = manifest.freeze(opened)
    decision = {"run": run, "root": run.remaining_root, "confirmation": run.key, "reason": "R"}
    with pytest.raises(LedgerError, match="opened by program:nightly, whose token manager made: a second person"):
        runs.approve(by=maker, **decision)
    approve = url(CleanupRun, "approve", run.pk)
    for person, offered in ((maker, False), (other, True)):
        client.force_login(person)
        assert (approve in client.get(url(CleanupRun, "change", run.pk)).content.decode()) == offered
    assert runs.approve(by=other, **decision).authorised_by == other


def test_whoever_made_its_token_does_not_decide_on_the_release_that_it_requested(client: Client) -> None:
    acting = build()
    maker, other = acting.people["compliance"], acting.people["compliance2"]
    account = program(person=maker, scopes=["holds:request-release"])
    held = world.hold(acting.tenant, acting.bucket, "a/", by=other)
    asked = releases.request(hold=held, by=account, reason="Settled.")
    for decide in (releases.deny, releases.approve):
        more = {"matter": held.matter} if decide is releases.approve else {}
        with pytest.raises(NotPermitted, match="program:nightly, whose token compliance made: a second person"):
            decide(release=asked, by=maker, reason="R", **more)
    approve = url(HoldRelease, "approve", asked.pk)
    for person, offered in ((maker, False), (other, True)):
        client.force_login(person)
        assert (approve in client.get(url(HoldRelease, "change", asked.pk)).content.decode()) == offered
    assert releases.approve(release=asked, by=other, reason="R", matter=held.matter).decided_by == other
