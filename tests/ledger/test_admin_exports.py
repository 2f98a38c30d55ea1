"""Receipts and their exports in the admin: found, verified, exported by whom it is for, and each download on record."""

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from cleanup_project.base import canonical, roles
from cleanup_project.base.models import AuditEvent, User
from ledger import exportcheck, exportfiles, exports, proofs
from ledger.exceptions import NotPermitted
from ledger.models import Receipt, ReceiptExport, ReceiptLocator
from retention.models import Tenant
from tests.ledger.acting import Acting
from tests.ledger.exporting import auditor, destroyed, order, rows, whole
from tests.web import places_taken, quick_pages, url  # noqa: F401

pytestmark = pytest.mark.django_db(transaction=True)

EXPORT = "admin:ledger_receipt_export"
KEYS = ("clips/one", "=two", "clips/three")


@pytest.fixture
def world(settings: Any, tmp_path: Path) -> Acting:
    settings.EXPORT_DIR = tmp_path / "exports"
    return destroyed(KEYS)


@pytest.fixture
def reader(world: Acting, client: Client) -> User:
    user = auditor()
    client.force_login(user)
    return user


def asked(**parts: str) -> dict[str, str]:
    return {"form": "people", "way": "sent", "token": str(uuid4()), **parts}


def listed(client: Client, **query: Any) -> list[Receipt]:
    response = client.get(url(Receipt, "changelist"), query)
    assert response.status_code == 200
    return list(response.context["cl"].result_list)


def files(world: Acting, by: User) -> ReceiptExport:
    export = exports.request_files(order(), by=by)
    assert exports.work_slice(export.pk, budget_seconds=60)
    return ReceiptExport.objects.get(pk=export.pk)


def test_the_list_says_what_is_gone_and_on_whose_word(world: Acting, reader: User, client: Client) -> None:
    page = client.get(url(Receipt, "changelist")).content.decode()
    for words in (
        "clips/one",
        "and 1 more",
        "originals/1",
        "standing",
        "not delivered yet",
        bytes(Receipt.objects.last().digest).hex(),
    ):  # type: ignore[union-attr]
        assert words in page, words
    world.settled()
    assert "delivered" in client.get(url(Receipt, "changelist")).content.decode()
    ReceiptLocator.objects.all().delete()
    page = client.get(url(Receipt, "changelist")).content.decode()
    assert "forgotten" in page
    assert "clips/one" not in page


def test_what_is_searched_for_is_found_exactly(world: Acting, reader: User, client: Client) -> None:
    for receipt in Receipt.objects.all():
        name = receipt.locators.get(ordinal=1)
        for term in (name.key, receipt.command_key, bytes(receipt.digest).hex()):
            assert listed(client, q=term) == [receipt], term
    assert listed(client, q="clips/one.webm") == listed(client, q="clips/one")
    assert listed(client, q="clips/on") == []


def test_filters_narrow_the_list_and_stand_in_its_address(world: Acting, reader: User, client: Client) -> None:
    run = Receipt.objects.first().run  # type: ignore[union-attr]
    for query, number in (
        ({"policy": "originals"}, 3),
        ({"bucket": "media", "outcome": "deleted"}, 3),
        ({"run": run.key}, 3),
        ({"run": run.pk}, 3),
        ({"tenant": "acme", "q": "=two"}, 1),
        ({"outcome": "by_absence"}, 0),
        ({"issued_from": "2020-01-01", "issued_before": "2999-01-01 00:00"}, 3),
        ({"issued_from": "2999-01-01"}, 0),
    ):
        assert len(listed(client, **query)) == number, query
    page = client.get(url(Receipt, "changelist"), {"policy": "originals", "q": "=two"}).content.decode()
    assert 'name="policy" value="originals"' in page
    assert f'href="{reverse(EXPORT)}?policy=originals"' in page


def test_a_filter_that_means_nothing_is_said(world: Acting, reader: User, client: Client) -> None:
    for query, words in (
        ({"policy": "none"}, "There is no policy none."),
        ({"issued_from": "yesterday"}, "Enter a valid date/time."),
        ({"issued_from": "2026-02-01", "issued_before": "2026-01-01"}, "The end must be later than the beginning."),
        ({"run": "99999"}, "There is no run 99999."),
    ):
        response = client.get(url(Receipt, "changelist"), query)
        assert words in response.content.decode(), words
        assert list(response.context["cl"].result_list) == []


def test_a_receipt_is_verified_with_what_else_is_on_record(world: Acting, reader: User, client: Client) -> None:
    receipt = Receipt.objects.first()
    assert receipt is not None
    page = url(Receipt, "verify", receipt.pk)
    proofs = client.get(page).context["proofs"]
    assert [proof.holds for proof, _pill in proofs] == [True] * 7
    kept = receipt.locators.get(ordinal=1)
    ReceiptLocator.objects.filter(receipt=receipt.command_id).delete()
    ReceiptLocator.objects.create(
        receipt=receipt, ordinal=1, bucket=kept.bucket, key="another", version_id=kept.version_id
    )
    assert [proof.holds for proof, _pill in client.get(page).context["proofs"]] == [True] * 6 + [False]
    ReceiptLocator.objects.all().delete()
    assert client.get(page).context["proofs"][-1][0].holds is None
    assert "not checked" in client.get(page).content.decode()


@pytest.mark.parametrize(
    ("member", "value", "broken"),
    [
        ("manifest", {"item": "00" * 32}, [1, 2]),
        ("manifest", {"ordinal": 99}, [1, 2]),
        ("manifest", {"root": "00" * 32}, [1, 3]),
        ("approval", {"root": "00" * 32}, [1, 4]),
    ],
)
def test_a_forged_document_is_not_borne_out(
    member: str, value: dict[str, Any], broken: list[int], world: Acting
) -> None:
    """Its own digest is made anew, as whoever owns the database could."""
    receipt = Receipt.objects.get(command_key__contains="asset-1")
    document = json.loads(bytes(receipt.body))
    document[member] |= value
    receipt.body = canonical.encode(document)
    receipt.digest = sha256(receipt.body).digest()
    assert [place for place, proof in enumerate(proofs.proofs(receipt)) if proof.holds is False] == broken
    receipt.digest = b"\0" * 32
    receipt.outcome = "by_absence"
    assert [place for place, proof in enumerate(proofs.proofs(receipt)) if proof.holds is False] == sorted(
        {0, 5, *broken}
    )


def test_the_document_is_its_canonical_bytes_and_fetching_it_is_on_record(
    world: Acting, reader: User, client: Client
) -> None:
    receipt = Receipt.objects.first()
    assert receipt is not None
    response = client.get(url(Receipt, "document", receipt.pk))
    assert response.content == bytes(receipt.body)
    event = AuditEvent.objects.get(action="receipt.downloaded")
    assert (event.actor, event.subject_id) == (reader, str(receipt.pk))
    client.force_login(world.people["operator"])
    assert client.get(url(Receipt, "document", receipt.pk)).status_code == 403
    assert "Document as a file" not in client.get(url(Receipt, "change", receipt.pk)).content.decode()


def test_an_export_is_sent_as_the_answer(world: Acting, reader: User, client: Client) -> None:
    page = client.get(reverse(EXPORT), {"policy": "originals"})
    assert page.context["number"] == 3
    assert 'name="policy" value="originals"' in page.content.decode()
    response = client.post(reverse(EXPORT), asked(policy="originals"))
    export = ReceiptExport.objects.get()
    assert export.state == "running"
    found = rows(whole(response.streaming_content))  # type: ignore[arg-type, attr-defined]
    assert [row["key"] for row in found] == ["clips/one", "'=two", "clips/three"]
    name = export.parts.get().file_name
    assert response.headers["Content-Disposition"] == f'attachment; filename="{name}"'
    shown = client.get(reverse("admin:ledger_receipt_recent_exports")).content.decode()
    assert ReceiptExport.objects.get().digest in shown


def test_a_form_that_is_sent_again_leads_to_the_export_that_it_made(
    world: Acting, reader: User, client: Client
) -> None:
    form = asked()
    whole(client.post(reverse(EXPORT), form).streaming_content)  # type: ignore[arg-type, attr-defined]
    again = client.post(reverse(EXPORT), form)
    assert again.headers["Location"] == url(ReceiptExport, "change", ReceiptExport.objects.get().pk)
    other = client.post(reverse(EXPORT), form | {"form": "machines"})
    assert "This form was used already" in other.content.decode()
    token = str(other.context["form"]["token"].value())
    assert token != form["token"]
    assert 'value="machines" required id="selection_form_1" checked' in other.content.decode()
    anew = client.post(reverse(EXPORT), form | {"form": "machines", "token": token})
    assert len(rows(whole(anew.streaming_content))) == 3  # type: ignore[arg-type, attr-defined]
    counted = client.post(reverse(EXPORT), form | {"_count": "Count again"})
    assert counted.context["form"]["token"].value() != form["token"]


def test_what_is_refused_is_said_in_the_form_and_nothing_is_lost(
    world: Acting, reader: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    response = client.post(reverse(EXPORT), asked(policy="none", bucket="media"))
    page = response.content.decode()
    assert "There is no policy none." in page
    assert 'name="bucket" value="media"' in page
    assert "cannot be told yet" in page
    monkeypatch.setattr(exports, "PART_ROWS", 2)
    page = client.post(reverse(EXPORT), asked()).content.decode()
    assert "More than 2 receipts match" in page
    assert "<strong>3</strong> receipts match" in page
    counted = client.post(reverse(EXPORT), asked(outcome="by_absence", form="machines") | {"_count": "Count again"})
    assert "<strong>0</strong> receipts match" in counted.content.decode()
    assert 'value="machines" required id="selection_form_1" checked' in counted.content.decode()
    assert not ReceiptExport.objects.exists()


def test_what_finds_no_place_is_said_and_nothing_is_lost(world: Acting, reader: User, client: Client) -> None:
    client.post(reverse(EXPORT), asked(way="files"))
    export = ReceiptExport.objects.get()
    exports.work_slice(export.pk, budget_seconds=60)
    with places_taken():
        refused = client.post(reverse(EXPORT), asked(bucket="media"))
        fetched = client.get(url(ReceiptExport, "part", export.pk, 1))
    for response in (refused, fetched):
        assert (response.status_code, response["Retry-After"]) == (429, "30")
        assert "4 downloads are being sent already" in response.content.decode()
    assert 'name="bucket" value="media"' in refused.content.decode()
    assert ReceiptExport.objects.count() == 1
    assert not AuditEvent.objects.filter(action="export.downloaded").exists()


def test_files_are_made_shown_and_fetched(world: Acting, reader: User, client: Client) -> None:
    response = client.post(reverse(EXPORT), asked(way="files", form="machines"))
    export = ReceiptExport.objects.get()
    page = url(ReceiptExport, "change", export.pk)
    assert response.headers["Location"] == page
    assert 'hx-trigger="every 3s"' in client.get(page).content.decode()
    exports.work_slice(export.pk, budget_seconds=60)
    shown = client.get(page).content.decode()
    assert 'hx-trigger="every 3s"' not in shown
    part = export.parts.get()
    address = url(ReceiptExport, "part", export.pk, part.number)
    assert f'href="{address}"' in shown
    fetched = client.get(address)
    assert fetched.headers["Content-Length"] == str(part.bytes)
    assert len(rows(whole(fetched.streaming_content))) == 3  # type: ignore[arg-type, attr-defined]
    assert AuditEvent.objects.filter(action="export.downloaded", actor=reader).count() == 1
    manifest = client.get(url(ReceiptExport, "manifest", export.pk))
    assert manifest.json()["parts"][0]["sha256"] == part.sha256
    assert client.get(url(ReceiptExport, "check")).content == Path(exportcheck.__file__).read_bytes()
    assert client.get(url(ReceiptExport, "part", export.pk, 2)).status_code == 404


@pytest.mark.parametrize("role", sorted(roles.MATRIX))
def test_who_may_export_and_fetch(role: str, world: Acting, client: Client, person: Callable[..., User]) -> None:
    export = files(world, auditor("maker"))
    client.force_login(person("someone", role))
    may = "export_receipts" in roles.MATRIX[role]
    assert client.get(reverse(EXPORT)).status_code == (200 if may else 403)
    assert client.get(reverse("admin:ledger_receipt_recent_exports")).status_code == (200 if may else 403)
    response = client.post(reverse(EXPORT), asked())
    assert response.status_code == (200 if may else 403)
    response.close()
    for page in (url(ReceiptExport, "part", export.pk, 1), url(ReceiptExport, "manifest", export.pk)):
        fetched = client.get(page)
        assert fetched.status_code == (200 if may else 403)
        fetched.close()
    listing = client.get(url(Receipt, "changelist"))
    assert ("Export these" in listing.content.decode()) == may
    assert ReceiptExport.objects.filter(requested_by__username="someone").exists() == may


def test_people_of_one_tenant_see_and_fetch_nothing_of_others(world: Acting, client: Client) -> None:
    Tenant.objects.create(code="other", name="Other")
    export = files(world, auditor("maker"))
    client.force_login(auditor("narrow", tenants=["other"]))
    assert client.get(reverse(EXPORT)).context["number"] == 0
    found = whole(client.post(reverse(EXPORT), asked()).streaming_content)  # type: ignore[arg-type, attr-defined]
    assert rows(found) == []
    assert "There is no tenant acme." in client.post(reverse(EXPORT), asked(tenant="acme")).content.decode()
    key = Receipt.objects.get(command_key__contains="asset-0").run
    for said in (key.key, str(key.pk), key.policy.code):
        name = "policy" if said == key.policy.code else "run"
        assert f"There is no {name} {said}." in client.post(reverse(EXPORT), asked(**{name: said})).content.decode()
    with pytest.raises(NotPermitted):
        exportfiles.download(export.parts.get(), by=User.objects.get(username="narrow"))
    assert client.get(url(ReceiptExport, "part", export.pk, 1)).status_code == 404
    assert client.get(url(ReceiptExport, "manifest", export.pk)).status_code == 404
    shown = client.get(reverse("admin:ledger_receipt_recent_exports")).content.decode()
    assert f"export {export.pk}<" not in shown
    own = ReceiptExport.objects.get(requested_by__username="narrow")
    assert own.tenants == ["other"]
    assert f"export {own.pk}<" in shown


def test_pages_take_a_constant_number_of_queries(world: Acting, reader: User, client: Client) -> None:
    def counts() -> list[int]:
        found = []
        for page in (url(Receipt, "changelist"), url(ReceiptExport, "changelist"), reverse(EXPORT)):
            with CaptureQueriesContext(connection) as captured:
                assert client.get(page).status_code == 200
            found.append(len(captured))
        return found

    files(world, reader)
    few = counts()
    for key in ("more", "and-more"):
        world.settled()
        world.put(key, asset=key)
        world.run()
        world.drain()
        files(world, reader)
    assert counts() == few
