"""Urgent erasure: an explicit list, two people, urgent, through the same ledger; holds and enforcement still win."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import DatabaseError, connection, transaction
from django.test import Client

from ledger import erasure, erasurelist, manifest, publish, quarantine, runs, schedule
from ledger.erasurelist import BadList, Named
from ledger.exceptions import AlreadyDecided, LedgerError, NotPermitted, NotReplayable
from ledger.models import CleanupCommand, CleanupRun, ErasureRequest, Receipt
from retention import dispositions, enforcement, policies
from retention.exceptions import RetentionError
from retention.models import Bucket, Enforcement, ObjectVersion, RetentionPolicy, Tenant
from retention.storage import VersionRef
from retention.storage.memory import Fault
from retention.why import why
from tests import world
from tests.ledger.acting import EPOCH, Acting, build
from tests.ledger.parking import DENIED
from tests.web import quick_pages, url  # noqa: F401

pytestmark = pytest.mark.django_db


@pytest.fixture
def acting() -> Acting:
    """A policy that keeps everything for a hundred years."""
    return build(period_number=100, period_unit="years")


def filed(acting: Acting, *lines: str, **fields: Any) -> ErasureRequest:
    values: dict[str, Any] = {
        "tenant": acting.tenant,
        "reference": "Letter 17",
        "authority": "GDPR, article 17",
        "reason": "The person asked for it.",
        "data": "\n".join(["bucket,key,version_id", *lines]).encode(),
        "form": "csv",
        "by": acting.people["manager"],
    }
    return erasure.file(**(values | fields))


def approved(acting: Acting, request: ErasureRequest) -> CleanupRun:
    run = erasure.approve(
        request=request, by=acting.people["compliance"], reason="Checked.", versions=request.version_count
    )
    manifest.freeze(run)
    publish.publish(run.pk)
    run.refresh_from_db()
    return run


def test_what_retention_keeps_is_erased_under_the_authority_that_was_filed(acting: Acting) -> None:
    kept, erased = acting.put("clips/kept"), acting.put("clips/erased")
    assert not why(erased).eligible
    run = approved(acting, filed(acting, "media,clips/erased,"))
    acting.drain()
    acting.settled()
    run.refresh_from_db()
    assert (run.state, run.counts) == ("closed", {"deleted": 1})
    assert acting.there(kept)
    assert not acting.there(erased)
    body = bytes(Receipt.objects.get().body).decode()
    assert "GDPR, article 17" in body


def test_an_asset_goes_whole_with_what_was_made_from_it(acting: Acting) -> None:
    acting.put("clips/a", asset="A1")
    acting.put("clips/a", b"newer", asset="A1", stored_at=EPOCH + timedelta(hours=2))
    made = {"original_key": "clips/a", "original_bucket": acting.bucket, "standalone": False, "asset": "A1"}
    acting.put("thumbs/a", stored_at=EPOCH + timedelta(hours=1), **made)
    acting.put("clips/b", asset="B2")
    request = filed(acting, data=b"asset\nA1\n")
    assert request.version_count == 3
    approved(acting, request)
    for _ in range(3):
        acting.due_now()
        acting.drain()
    left = ObjectVersion.objects.present().values_list("key", flat=True)
    assert sorted(left) == ["clips/b"]


def test_one_version_can_be_meant(acting: Acting) -> None:
    old, new = acting.put("clips/a"), acting.put("clips/a", b"newer")
    approved(acting, filed(acting, f"media,clips/a,{old.version_id}"))
    acting.drain()
    assert not acting.there(old)
    assert acting.there(new)


def test_urgent_erasure_overtakes_routine_expiry() -> None:
    acting = build()
    acting.put("clips/routine")
    acting.run()
    acting.put("clips/urgent")
    approved(acting, filed(acting, "media,clips/urgent,"))
    assert dict(CleanupCommand.objects.values_list("targets__key", "priority")) == {
        "clips/routine": 1,
        "clips/urgent": 0,
    }


class TestHoldsWin:
    def test_before_the_manifest(self, acting: Acting) -> None:
        row = acting.put("clips/a")
        world.hold(acting.tenant, acting.bucket, "clips/", by=acting.people["compliance"])
        request = filed(acting, "media,clips/a,")
        run = approved(acting, request)
        assert (run.state, run.item_count, run.parts.get().held) == ("closed", 0, 1)
        request.refresh_from_db()
        assert erasure.outcome(request) == {"left out": 1}
        assert acting.there(row)

    def test_after_publication(self, acting: Acting) -> None:
        row = acting.put("clips/a")
        approved(acting, filed(acting, "media,clips/a,"))
        world.hold(acting.tenant, acting.bucket, "clips/", by=acting.people["compliance"])
        acting.drain()
        assert acting.command("clips/a").state == "held"
        assert acting.there(row)

    def test_at_a_replay(self, acting: Acting) -> None:
        row = acting.put("clips/a")
        approved(acting, filed(acting, "media,clips/a,"))
        acting.store.inject(Fault("delete_versions", DENIED, frozenset({VersionRef(row.key, row.version_id)})))
        acting.drain()
        command = acting.command("clips/a")
        assert command.state == "dead"
        world.hold(acting.tenant, acting.bucket, "clips/", by=acting.people["compliance"])
        with pytest.raises(NotReplayable, match="legal hold"):
            quarantine.replay(command=command, by=acting.people["operator"], reason="Again.")


def test_a_dead_erasure_can_be_replayed_although_retention_would_keep_it(acting: Acting) -> None:
    row = acting.put("clips/a")
    approved(acting, filed(acting, "media,clips/a,"))
    acting.store.inject(Fault("delete_versions", DENIED, frozenset({VersionRef(row.key, row.version_id)})))
    acting.drain()
    quarantine.replay(command=acting.command("clips/a"), by=acting.people["operator"], reason="Rights granted.")
    acting.drain()
    assert not acting.there(row)


def test_a_policy_published_meanwhile_does_not_stop_it(acting: Acting) -> None:
    row = acting.put("clips/a")
    approved(acting, filed(acting, "media,clips/a,"))
    world.published(
        acting.tenant, acting.bucket, author=acting.people["manager"], publisher=acting.people["manager2"],
        period_number=200, period_unit="years",
    )  # fmt: skip
    acting.drain()
    assert not acting.there(row)


def test_what_somebody_exempted_meanwhile_is_kept(acting: Acting) -> None:
    row = acting.put("clips/a")
    approved(acting, filed(acting, "media,clips/a,"))
    dispositions.exempt([row.pk], by=acting.people["manager2"], reason="A court asked for it.")
    acting.drain()
    assert acting.command("clips/a").state == "withdrawn"
    assert acting.there(row)


def test_without_enforcement_nothing_is_erased_and_the_run_says_so(acting: Acting) -> None:
    row = acting.put("clips/a")
    enforced = Enforcement.objects.get()
    enforcement.switch_off(row=enforced, by=acting.people["manager"], reason="Not here.")
    run = approved(acting, filed(acting, "media,clips/a,"))
    assert (run.item_count, run.parts.get().not_enforced) == (0, 1)
    assert acting.there(row)


def test_an_erasure_governs_nothing_and_is_never_scheduled(acting: Acting) -> None:
    acting.put("clips/a")
    other = acting.put("clips/b")
    run = approved(acting, filed(acting, "media,clips/a,"))
    assert [finding.rule.policy for finding in why(other).findings] == ["originals"]
    RetentionPolicy.objects.update(schedule="* * * * *")
    assert run.policy not in {opened.policy for opened in schedule.tick()}
    with pytest.raises(LedgerError, match="file another request"):
        runs.open_run(policy=run.policy, by=None)


class TestTwoPeople:
    def test_the_one_who_filed_it_does_not_decide(self, acting: Acting) -> None:
        acting.put("clips/a")
        request = filed(acting, "media,clips/a,")
        with pytest.raises(NotPermitted, match="second person"):
            erasure.approve(request=request, by=acting.people["manager"], reason="Me.", versions=1)
        with pytest.raises(DatabaseError, match="erasure_second_person"), transaction.atomic():
            ErasureRequest.objects.update(
                approved=False,
                decided_by=acting.people["manager"],
                decided_at=request.requested_at,
                decision_reason="x",
            )
        assert not CleanupRun.objects.exists()

    def test_an_operator_neither_files_nor_decides(self, acting: Acting) -> None:
        acting.put("clips/a")
        with pytest.raises(NotPermitted, match="approve_run"):
            filed(acting, "media,clips/a,", by=acting.people["operator"])
        request = filed(acting, "media,clips/a,")
        with pytest.raises(NotPermitted, match="approve_run"):
            erasure.deny(request=request, by=acting.people["operator"], reason="No.")

    def test_the_number_is_typed_anew_and_a_reason_stated(self, acting: Acting) -> None:
        acting.put("clips/a")
        request = filed(acting, "media,clips/a,")
        with pytest.raises(LedgerError, match="names 1 object version, not 2"):
            erasure.approve(request=request, by=acting.people["compliance"], reason="Checked.", versions=2)
        with pytest.raises(LedgerError, match="State a reason"):
            erasure.approve(request=request, by=acting.people["compliance"], reason=" ", versions=1)

    def test_it_is_decided_once(self, acting: Acting) -> None:
        acting.put("clips/a")
        request = filed(acting, "media,clips/a,")
        erasure.deny(request=request, by=acting.people["compliance"], reason="Not ours.")
        with pytest.raises(AlreadyDecided, match="denied by compliance"):
            erasure.approve(request=request, by=acting.people["manager2"], reason="Checked.", versions=1)
        with pytest.raises(DatabaseError, match="decided, once"), transaction.atomic():
            ErasureRequest.objects.update(decision_reason="Something else.")
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("DELETE FROM ledger_erasurerequest")
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("UPDATE ledger_erasuretarget SET object_version_id = 0")
        assert not CleanupRun.objects.exists()


class TestLists:
    def test_a_line_that_names_nothing_refuses_the_list_unless_left_out(self, acting: Acting) -> None:
        acting.put("clips/a")
        with pytest.raises(BadList, match="line 3: media/clips/nothing names nothing present of acme"):
            filed(acting, "media,clips/a,", "media,clips/nothing,")
        request = filed(acting, "media,clips/a,", "media,clips/nothing,", leave_out_unknown=True)
        assert (request.lines, request.version_count) == (2, 1)
        assert request.left_out == [{"line": 3, "name": "media/clips/nothing"}]

    def test_what_belongs_to_another_tenant_is_not_named(self, acting: Acting) -> None:
        other = Tenant.objects.create(code="other", name="Other")
        world.version(acting.bucket, other, "clips/theirs")
        with pytest.raises(BadList, match="names nothing present of acme"):
            filed(acting, "media,clips/theirs,")

    def test_an_unknown_bucket_is_told(self, acting: Acting) -> None:
        acting.put("clips/a")
        with pytest.raises(BadList, match="line 2: elsewhere/clips/a names nothing"):
            filed(acting, "elsewhere,clips/a,")

    def test_of_two_stores_with_a_bucket_of_one_name_neither_is_guessed(self, acting: Acting) -> None:
        acting.put("clips/a")
        Bucket.objects.create(name="media", endpoint_url="https://other.example")
        with pytest.raises(BadList, match="2 stores have a bucket named media"):
            filed(acting, "media,clips/a,")
        request = filed(acting, "media@aws,clips/a,")
        assert request.version_count == 1

    def test_an_object_named_twice_is_one_target(self, acting: Acting) -> None:
        row = acting.put("clips/a", asset="A1")
        assert filed(acting, "media,clips/a,", f"media,clips/a,{row.version_id}").version_count == 1

    @pytest.mark.parametrize(
        ("data", "form", "words"),
        [
            (b"", "csv", "names nothing"),
            (b"\xff", "csv", "not UTF-8 .byte 0."),
            (b"key,colour\na,b\n", "csv", "must name columns out of asset, bucket, key, version_id"),
            (b"key,key\na,b\n", "csv", "each once"),
            (b"bucket,key\nmedia\n", "csv", "line 2: it has 1 fields where the header has 2"),
            (b'bucket,key\nmedia,"a\n', "csv", "line .: it is not CSV"),
            (b"bucket,key\nmedia,\n", "csv", "line 2: it must name bucket and key, or an asset"),
            (b"bucket,key,asset\nmedia,a,A1\n", "csv", "an asset and an object"),
            (b'"a', "csv", "line 1: it is not CSV"),
            (b'{"bucket": "b", "key": "\\ud800"}\n', "jsonl", "without lone surrogates"),
            (b"{\n", "jsonl", "line 1: it is not JSON"),
            (b"[1]\n", "jsonl", "line 1: it is no JSON object"),
            (b'{"asset": 1}\n', "jsonl", "line 1: every value must be text"),
            (b'{"asset": "A", "who": "x"}\n', "jsonl", "unknown names: who"),
            (b'{"bucket": "b", "key": "a\\u0000"}\n', "jsonl", "without NUL"),
        ],
    )
    def test_a_bad_list_is_refused_in_words(self, data: bytes, form: str, words: str) -> None:
        with pytest.raises(BadList, match=words):
            erasurelist.read(data, form)

    def test_both_forms_say_the_same(self) -> None:
        said = [Named(2, "media", "a, b", ""), Named(3, "media", "c", "v1")]
        assert erasurelist.read(b'bucket,key,version_id\nmedia,"a, b",\nmedia,c,v1\n', "csv") == said
        lines = b'\n{"bucket":"media","key":"a, b"}\n{"bucket":"media","key":"c","version_id":"v1"}\n'
        assert erasurelist.read(lines, "jsonl") == said

    def test_many_bad_lines_are_cut_short(self) -> None:
        with pytest.raises(BadList, match=r"line 21: .*; and 5 more\."):
            erasurelist.read(b"asset\n" + b" ,x\n" * 25, "csv")


def test_a_request_without_an_authority_is_refused(acting: Acting) -> None:
    acting.put("clips/a")
    with pytest.raises(ValidationError, match="authority"):
        filed(acting, "media,clips/a,", authority="")
    assert not ErasureRequest.objects.exists()


def test_nobody_drafts_another_revision_of_it(acting: Acting) -> None:
    acting.put("clips/a")
    run = approved(acting, filed(acting, "media,clips/a,"))
    with pytest.raises(RetentionError, match="urgent erasure"):
        policies.draft(policy=run.policy, by=acting.people["manager"])


class TestPages:
    def test_a_list_is_filed_and_approved_by_two_people(self, acting: Acting, client: Client) -> None:
        row = acting.put("clips/a")
        acting.put("clips/b")
        client.force_login(acting.people["manager"])
        said = {"tenant": acting.tenant.pk, "reference": "Letter 17", "authority": "GDPR", "reason": "Asked for."}
        page = client.post(
            url(ErasureRequest, "add"),
            said | {"list": SimpleUploadedFile("list.csv", b"bucket,key\nmedia,clips/no\n")},
        )
        (refused,) = page.context["adminform"].form.errors["list"]
        assert "line 2: media/clips/no names nothing present of acme" in refused
        good = SimpleUploadedFile("list.jsonl", b'{"bucket": "media", "key": "clips/a"}\n')
        page = client.post(url(ErasureRequest, "add"), said | {"list": good}, follow=True)
        assert "Filed: 1 object version." in page.content.decode()
        request = ErasureRequest.objects.get()
        approve = url(ErasureRequest, "approve", request.pk)
        assert approve not in page.content.decode()
        own = client.post(approve, {"versions": 1, "reason": "Mine."})
        assert "a second person must decide" in own.content.decode()
        client.force_login(acting.people["compliance"])
        assert approve in client.get(url(ErasureRequest, "change", request.pk)).content.decode()
        wrong = client.post(approve, {"versions": 2, "reason": "Checked."})
        assert wrong.context["adminform"].form.errors == {"versions": ["The request names 1 object version, not 2."]}
        page = client.post(approve, {"versions": 1, "reason": "Checked."}, follow=True)
        assert "erases it, before everything else" in page.content.decode()
        request.refresh_from_db()
        assert request.run is not None
        manifest.freeze(request.run)
        publish.publish(request.run.pk)
        acting.drain()
        assert not acting.there(row)
        assert "1 destroyed" in client.get(url(ErasureRequest, "change", request.pk)).content.decode()
        there = client.get(url(CleanupRun, "change", CleanupRun.objects.get().pk)).content.decode()
        assert f'href="{url(ErasureRequest, "change", request.pk)}">Erasure request</a>' in there

    def test_a_request_is_denied_with_a_reason(self, acting: Acting, client: Client) -> None:
        acting.put("clips/a")
        request = filed(acting, "media,clips/a,")
        client.force_login(acting.people["compliance"])
        deny = url(ErasureRequest, "deny", request.pk)
        assert "This field is required" in client.post(deny, {"reason": ""}).content.decode()
        assert "denied: nothing is erased" in client.post(deny, {"reason": "No."}, follow=True).content.decode()

    def test_who_has_no_right_sees_no_button_and_is_refused(self, acting: Acting, client: Client) -> None:
        acting.put("clips/a")
        request = filed(acting, "media,clips/a,")
        client.force_login(acting.people["operator"])
        assert client.get(url(ErasureRequest, "add")).status_code == 403
        for verb in ("approve", "deny"):
            assert client.post(url(ErasureRequest, verb, request.pk), {"reason": "x"}).status_code == 403
            assert url(ErasureRequest, verb, request.pk) not in (
                client.get(url(ErasureRequest, "change", request.pk)).content.decode()
            )
