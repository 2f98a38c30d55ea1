"""Every page of the site, everybody: who may open it, and that whoever may not gets nothing by POST either.

`PAGES` says what each page takes, written from DECISIONS, "Who may what", and not from the code; which role has which right
stands in `roles.MATRIX`. A page that is not in the table fails a test, so that a new one cannot be forgotten.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.db.models import Model
from django.test import Client
from django.urls import URLResolver, get_resolver, reverse

from cleanup_project.base import roles
from cleanup_project.base.models import Alarm, BulkItem, BulkJob, User
from ledger.models import CleanupCommand, CleanupRun, DeadLetter, HoldReport, ManifestItem, Receipt
from retention.models import LegalHold, ObjectVersion
from tests.everything import REGISTERED, first, make
from tests.web import quick_pages, url  # noqa: F401


@dataclass(frozen=True)
class Page:
    """What opening a page takes: the sight of `shows`, if it shows rows of a model, and one of `rights`, if it decides."""

    rights: frozenset[str] = frozenset()
    shows: type[Model] | None = None
    row: type[Model] | None = None  # whose number stands in the address
    more: tuple[str, ...] = ()  # what else does


def decides(*rights: str) -> frozenset[str]:
    assert set(rights) <= set(roles.RIGHTS)
    return frozenset(rights)


STANDARD: Final = ("changelist", "change", "history")
# Pages that add something, by the right that it takes; no other model has one.
ADDS: Final = {
    "base_user": "manage_settings",
    "base_apitoken": "manage_settings",
    "retention_tenant": "manage_settings",
    "retention_bucket": "manage_settings",
    "retention_keyrule": "manage_settings",
    "retention_retentionpolicy": "draft_policy",
    "retention_policyrevision": "draft_policy",
    "retention_enforcementrequest": "publish_policy",
    "retention_retentionevent": "post_event",
    "retention_legalhold": "place_hold",
    "retention_stopswitch": "stop",
    "ledger_erasurerequest": "approve_run",
    "webhooks_endpoint": "operate",
}
# Decisions on the page of a row: `<app>_<model>_<verb>`, and any of the rights that allow it.
VERBS: Final = {
    "retention_bucket_seen": decides("review_quarantine"),
    "retention_bucket_limits": decides("publish_policy"),
    "retention_objectversion_exempt": decides("approve_run"),
    "retention_objectversion_extend": decides("approve_run"),
    "retention_objectversion_reclassify": decides("approve_run"),
    "retention_disposition_end": decides("approve_run"),
    "retention_enforcementrequest_approve": decides("publish_policy"),
    "retention_enforcementrequest_deny": decides("publish_policy"),
    "retention_enforcement_switch_off": decides("publish_policy"),
    "retention_retentionevent_withdraw": decides("post_event"),
    "retention_legalhold_release": decides("place_hold"),
    "retention_holdrelease_approve": decides("approve_release"),
    "retention_holdrelease_deny": decides("approve_release"),
    "retention_retentionpolicy_suspend": decides("publish_policy"),
    "retention_retentionpolicy_resume": decides("publish_policy"),
    "retention_retentionpolicy_reschedule": decides("publish_policy"),
    "retention_policyrevision_edit": decides("draft_policy"),
    "retention_policyrevision_preview": decides("draft_policy", "publish_policy"),
    "retention_policyrevision_submit": decides("draft_policy"),
    "retention_policyrevision_send_back": decides("publish_policy"),
    "retention_policyrevision_publish": decides("publish_policy"),
    "retention_policyrevision_discard": decides("draft_policy"),
    "retention_stopswitch_lift": decides("rearm"),
    "ledger_cleanuprun_approve": decides("approve_run"),
    "ledger_cleanuprun_exempt": decides("approve_run"),
    "ledger_cleanuprun_extend": decides("approve_run"),
    "ledger_cleanuprun_pause": decides("operate"),
    "ledger_cleanuprun_resume": decides("operate"),
    "ledger_cleanuprun_rearm": decides("rearm"),
    "ledger_cleanuprun_cancel": decides("approve_run", "operate"),
    "ledger_cleanupcommand_replay": decides("operate"),
    "ledger_deadletter_replay": decides("operate"),
    "ledger_deadletter_close": decides("review_quarantine"),
    "ledger_erasurerequest_approve": decides("approve_run"),
    "ledger_erasurerequest_deny": decides("approve_run"),
    "webhooks_endpoint_ping": decides("operate"),
    "webhooks_endpoint_enable": decides("operate"),
    "webhooks_endpoint_disable": decides("operate"),
    "webhooks_endpoint_edit": decides("operate"),
    "webhooks_endpoint_rotate": decides("operate"),
    "webhooks_endpoint_revoke": decides("operate"),
    "webhooks_endpoint_retire": decides("operate"),
    "webhooks_delivery_redeliver": decides("operate"),
    "base_user_reset-factor": decides("manage_settings"),
    "base_user_end-sessions": decides("manage_settings"),
    "base_user_unlink-provider": decides("manage_settings"),
    "base_apitoken_replace": decides("manage_settings"),
    "base_apitoken_revoke": decides("manage_settings"),
    "base_bulkjob_pause": decides("operate"),
    "base_bulkjob_resume": decides("operate"),
    "base_bulkjob_rate": decides("operate"),
    "base_bulkjob_cancel": decides("operate"),
}
# Whoever could make bulk jobs of one kind sees those.
MAKES_JOBS: Final = decides("operate", "review_quarantine", "approve_run")
# Whoever placed a hold reads its report, whatever their role is now.
OF_ONE_PERSON: Final = {"ledger_holdreport_acknowledge": HoldReport}
# Pages of their own, in the admin and beside it.
OTHERS: Final = {
    "admin:index": Page(),
    "admin:auth_user_password_change": Page(decides("manage_settings"), row=User),
    "admin:retention_unscheduled": Page(shows=ObjectVersion),
    "admin:retention_past_maximum": Page(shows=ObjectVersion),
    "admin:retention_legalhold_register": Page(shows=LegalHold),
    "admin:ledger_cleanuprun_manifest": Page(shows=ManifestItem, row=CleanupRun, more=("csv",)),
    "admin:webhooks_delivery_bulk": Page(decides("operate")),
    "admin:ledger_cleanupcommand_now": Page(shows=CleanupCommand, row=CleanupCommand),
    "admin:ledger_cleanuprun_live": Page(shows=CleanupRun, row=CleanupRun),
    "admin:ledger_cleanuprun_compare": Page(shows=CleanupRun, row=CleanupRun),
    "admin:ledger_cleanuprun_certificate": Page(shows=CleanupRun, row=CleanupRun),
    "admin:ledger_deadletter_replay_many": Page(decides("operate"), shows=DeadLetter),
    "admin:ledger_deadletter_close_many": Page(decides("review_quarantine"), shows=DeadLetter),
    "admin:ledger_receipt_verify": Page(shows=Receipt, row=Receipt),
    "admin:ledger_receipt_document": Page(decides("export_receipts"), shows=Receipt, row=Receipt),
    "admin:ledger_receipt_export": Page(decides("export_receipts"), shows=Receipt),
    "admin:ledger_receipt_recent_exports": Page(decides("export_receipts"), shows=Receipt),
    "admin:ledger_receiptexport_check": Page(),
    "admin:retention_objectversion_why": Page(shows=ObjectVersion, row=ObjectVersion),
    "my-work": Page(),
    "dashboard": Page(),
    "find": Page(shows=ObjectVersion),  # which all who may view anything that it finds may view
}
# Django's own, which show nothing of ours; the pages of signing in (tests/base/test_signin*.py) begin with one of `SIGNIN`.
SIGNIN: Final = ("account_", "mfa_", "signin_", "openid_connect_")
# For programs, who come in by tokens and by nothing else: tests/operations/api/test_api_matrix.py.
API: Final = ("api:", "api-")
ELSEWHERE: Final = {
    # What asks a store, and what is there only once it was made: with their own tests.
    "ledger_cleanupcommand_store", "ledger_deadletter_now", "ledger_cleanuprun_certificate_json",
    "ledger_receiptexport_manifest", "ledger_receiptexport_part",
    "trigger-tick", "trigger-wake",  # no pages: programs ring there with a secret (test_triggers)
    "login", "logout", "password_change", "password_change_done", "autocomplete", "jsi18n", "view_on_site", "app_list",
}  # fmt: skip


def pages() -> dict[str, Page]:
    """Every page of the table by the name of its address."""
    found = dict(OTHERS)
    for model in REGISTERED:
        name = f"{model._meta.app_label}_{model._meta.model_name}"
        found |= {f"admin:{name}_changelist": Page(shows=model)}
        found |= {f"admin:{name}_{each}": Page(shows=model, row=model) for each in ("change", "history")}
        found[f"admin:{name}_add"] = Page(decides(ADDS[name]) if name in ADDS else frozenset({"nobody's"}))
        found[f"admin:{name}_delete"] = Page(frozenset({"nobody's"}), row=model)
    for name, rights in VERBS.items():
        model = apps.get_model(*name.split("_", 2)[:2])
        found[f"admin:{name}"] = Page(rights, shows=model, row=model)
    for name, model in OF_ONE_PERSON.items():
        found[f"admin:{name}"] = Page(frozenset({"nobody's"}), shows=model, row=model)
    return found


def names(resolver: Any, namespace: str = "") -> Iterator[str]:
    """The name of every address that the site answers at."""
    for each in resolver.url_patterns:
        if isinstance(each, URLResolver):
            yield from names(each, f"{each.namespace}:" if each.namespace else namespace)
        elif each.name:
            yield namespace + each.name


def address(name: str, page: Page) -> str:
    numbers = (first(page.row).pk,) if page.row else ()
    return reverse(name, args=[*numbers, *page.more])


@dataclass(frozen=True)
class Somebody:
    """A person, and what the table of DECISIONS gives them."""

    label: str
    rights: frozenset[str] = frozenset()
    reads: frozenset[str] | None = frozenset()  # applications; None: all
    gets_in: bool = True
    role: str = ""
    fields: tuple[tuple[str, Any], ...] = ()

    def sees(self, model: type[Model]) -> bool:
        if self.reads is None or (model is Alarm and self.role):
            return True
        if model in (BulkJob, BulkItem) and "operate" in self.rights:
            return True
        if model in (User, Group):
            return bool(self.rights & {"manage_settings", "read_everything"})
        return model._meta.app_label in self.reads

    def may(self, page: Page) -> bool:
        return (not page.rights or bool(page.rights & self.rights)) and (page.shows is None or self.sees(page.shows))

    def meets(self, page: Page) -> int:
        if not self.gets_in:
            return 302
        if page.shows in (BulkJob, BulkItem) and not self.sees(page.shows):
            # A list of their own kinds, and none of those is the row of `everything`.
            return 403 if not self.rights & MAKES_JOBS else 404 if page.row else 200
        return 200 if self.may(page) else 403

    def client(self, person: Callable[..., User]) -> Client:
        client = Client(enforce_csrf_checks=True)
        if self.label != "nobody logged in":
            someone = person(
                self.label.replace(" ", "-"), *filter(None, [self.role]), **dict(self.fields) | {"is_active": True}
            )
            client.force_login(someone)
            if dict(self.fields).get("is_active") is False:
                User.objects.filter(pk=someone.pk).update(is_active=False)
        return client


EVERYBODY: Final = [
    *(Somebody(role, rights, roles.READS[role], role=role) for role, rights in roles.MATRIX.items()),
    Somebody("superuser", roles.SUPERUSER_RIGHTS, None, fields=(("is_superuser", True),)),
    Somebody("without a role"),
    Somebody("nobody logged in", gets_in=False),
    Somebody("deactivated", gets_in=False, role=roles.COMPLIANCE, fields=(("is_active", False),)),
]


def test_every_page_of_the_site_is_in_the_table() -> None:
    served = {name for name in names(get_resolver()) if name.removeprefix("admin:") not in ELSEWHERE}
    served = {name for name in served if not name.startswith((*SIGNIN, *API))}
    assert served == set(pages()), "say in this file who may open it"


@pytest.mark.parametrize("somebody", EVERYBODY, ids=lambda each: each.label)
def test_everybody_opens_what_the_table_says_and_gets_nothing_else_by_post(
    somebody: Somebody, person: Callable[..., User]
) -> None:
    make()
    client = somebody.client(person)
    client.get(reverse("my-work"))
    token = client.cookies["csrftoken"].value if "csrftoken" in client.cookies else ""
    wrong = []
    for name, page in pages().items():
        place = address(name, page)
        answer = client.get(place)
        expected = somebody.meets(page)
        if answer.status_code != expected:
            wrong.append((name, "GET", answer.status_code, expected))
        if somebody.gets_in and not somebody.may(page) and not name.endswith(("_changelist", "_history")):
            refused = client.post(place, {"csrfmiddlewaretoken": token, "post": "yes", "reason": "Because."})
            if refused.status_code not in {403, 404, 405} or b"CSRF" in refused.content:
                wrong.append((name, "POST", refused.status_code, 403))
    assert wrong == []


def test_a_person_who_is_not_of_the_staff_gets_in_nowhere(person: Callable[..., User], client: Client) -> None:
    outsider = person("outsider", roles.COMPLIANCE)
    User.objects.filter(pk=outsider.pk).update(is_staff=False)
    client.force_login(outsider)
    for name in ("my-work", "dashboard", "admin:index", "admin:ledger_cleanuprun_changelist"):
        assert client.get(reverse(name)).status_code == 302, name


def test_a_decision_without_its_token_is_refused(person: Callable[..., User]) -> None:
    make()
    client = Client(enforce_csrf_checks=True)
    client.force_login(person("someone", roles.COMPLIANCE))
    for name, rights in VERBS.items():
        if rights & roles.MATRIX[roles.COMPLIANCE]:
            page = pages()[f"admin:{name}"]
            assert client.post(address(f"admin:{name}", page), {"reason": "R"}).status_code == 403, name
