"""Quarantine in the admin: by cause, narrowed in the address, with the present truth, replayed or closed one or many."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from cleanup_project.base import jobs, jobwork, roles
from cleanup_project.base.models import BulkItem, BulkJob, User
from ledger import bulk, quarantine
from ledger.admin import entrypages, manyentries
from ledger.models import DeadLetter
from retention.models import Bucket
from retention.storage import VersionRef
from tests.ledger.acting import Acting, build
from tests.ledger.parking import parked
from tests.ledger.test_bulk import only, work
from tests.web import quick_pages, url  # noqa: F401
from tests.world import hold

pytestmark = pytest.mark.django_db
LIST = "changelist"


@pytest.fixture
def world() -> Acting:
    return build()


@pytest.fixture
def compliance(world: Acting, client: Client) -> User:
    client.force_login(world.people["compliance"])
    return world.people["compliance"]


@pytest.fixture(autouse=True)
def a_store(world: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages ask the store of the world."""
    look_each = entrypages.present.look_each
    monkeypatch.setattr(entrypages.present, "look_each", lambda commands: look_each(commands, world.stores))


def many(verb: str) -> str:
    return reverse(f"admin:ledger_deadletter_{verb}_many")


def shown(client: Client, address: str, query: Any = None) -> str:
    response = client.get(address, query or {})
    assert response.status_code == 200
    return str(response.content.decode())


def listed(client: Client, **query: Any) -> list[str]:
    page = client.get(url(DeadLetter, LIST), query).context["page"]
    return [entry.key.removeprefix("clips/") for entry in page.entries]


def sent_along(page: str) -> dict[str, str]:
    """The hidden inputs of the confirmation page, by name."""
    return dict(re.findall(r'<input type="hidden" name="(expected|token)" value="([^"]*)">', page))


def confirm(client: Client, verb: str, query: str, **said: Any) -> Any:
    """Look at the count, then confirm what it shows."""
    address = f"{many(verb)}?{query}"
    return client.post(address, sent_along(shown(client, address)) | {"rate": 50, "reason": "Repaired."} | said)


def test_it_opens_with_the_causes_each_with_what_to_do_and_a_way_to_all_of_it(
    world: Acting, compliance: User, client: Client
) -> None:
    parked(world, "a", "b")
    page = shown(client, url(DeadLetter, LIST))
    query = f"class=permission&amp;code=AccessDenied&amp;bucket={world.bucket.pk}"
    for text in ("What is open, by cause", "Grant s3:DeleteObjectVersion", f'href="?{query}" class="large">2<',
                 f"{many('replay')}?{query}", f"{many('close')}?{query}", "media", "acme"):  # fmt: skip
        assert text in page, text
    assert "What is open, by cause" not in shown(client, url(DeadLetter, LIST), {"class": "permission"})


def test_the_list_is_narrowed_by_what_the_address_names(world: Acting, compliance: User, client: Client) -> None:
    *_, c = parked(world, "a/1", "a/2", "b=c")
    DeadLetter.objects.filter(pk=c.pk).update(failure_class="transient", storage_code="", attempts=8)
    stamp = f"{c.entered_at:%Y-%m-%dT%H:%M:%S}.{c.entered_at:%f}"
    assert listed(client) == ["a/1", "a/2", "b=c"]
    for query, found in (
        ({"class": "transient"}, ["b=c"]),
        ({"code": "AccessDenied"}, ["a/1", "a/2"]),
        ({"code": "-"}, ["b=c"]),
        ({"bucket": world.bucket.pk}, ["a/1", "a/2", "b=c"]),
        ({"tenant": world.tenant.pk, "class": "permission"}, ["a/1", "a/2"]),
        ({"policy": world.revision.policy_id}, ["a/1", "a/2", "b=c"]),
        ({"run": c.run_id}, ["a/1", "a/2", "b=c"]),
        ({"run": c.run.key}, ["a/1", "a/2", "b=c"]),
        ({"run": "another"}, []),
        ({"prefix": "clips/a/"}, ["a/1", "a/2"]),
        ({"prefix": "clips/b="}, ["b=c"]),
        ({"prefix": "clips/_"}, []),
        ({"since": stamp}, ["a/1", "a/2", "b=c"]),
        ({"until": stamp}, []),
        ({"attempts": 8}, ["b=c"]),
        ({"q": c.command.key}, ["b=c"]),
        ({"q": c.command.key[:-1]}, []),
    ):
        assert listed(client, **query) == found, query
    quarantine.close(command=c.command, by=compliance, reason="Kept.")
    assert listed(client) == ["a/1", "a/2"]
    assert listed(client, entries="resolved") == ["b=c"]
    assert listed(client, entries="all") == ["b=c", "a/2", "a/1"]


@pytest.mark.parametrize(
    "query", [{"clas": "permission"}, {"class": "nonsense"}, {"bucket": "x"}, {"since": "soon"}, {"q": "a\x00"}]
)
def test_what_cannot_be_understood_narrows_to_nothing_and_says_so(
    query: dict[str, str], world: Acting, compliance: User, client: Client
) -> None:
    parked(world, "a")
    page = client.get(url(DeadLetter, LIST), query)
    assert page.context["page"].entries == ()
    assert 'role="alert"' in page.content.decode()
    for verb in ("replay", "close"):
        page = client.post(
            f"{many(verb)}", {"expected": 1, "token": "0" * 32, "rate": 5, "reason": "R"}, query_params=query
        )
        assert 'role="alert"' in page.content.decode()
    assert not BulkJob.objects.exists()


def test_pages_follow_one_another_and_so_do_entries(
    world: Acting, compliance: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = parked(world, *"abcde")
    monkeypatch.setattr(entrypages, "PAGE", 2)
    ids = [entry.pk for entry in entries]
    first = client.get(url(DeadLetter, LIST), {"class": "permission"}).context
    assert (first["older"], first["newer"]) == (f"class=permission&after={ids[1]}", 0)
    assert listed(client, after=ids[1]) == ["c", "d"]
    assert listed(client, after=ids[3]) == ["e"]
    last = client.get(url(DeadLetter, LIST), {"after": ids[3]}).context
    assert (last["older"], last["newer"]) == (0, f"before={ids[4]}")
    assert listed(client, before=ids[4]) == ["c", "d"]
    assert listed(client, before=ids[2]) == ["a", "b"]
    assert client.get(url(DeadLetter, LIST), {"before": ids[2]}).context["newer"] == 0
    assert listed(client, entries="all", after=ids[4]) == ["d", "c"]
    assert listed(client, entries="all", before=ids[2]) == ["e", "d"]
    context = client.get(url(DeadLetter, "change", ids[2]), {"_changelist_filters": "class=permission"}).context
    assert (context["previous"], context["following"]) == (ids[1], ids[3])
    context = client.get(url(DeadLetter, "change", ids[4])).context
    assert (context["previous"], context["following"]) == (ids[3], None)
    page = shown(client, url(DeadLetter, LIST), {"class": "permission"})
    assert f"{url(DeadLetter, 'change', ids[0])}?_changelist_filters=class%3Dpermission" in page


def test_a_key_is_escaped_once_and_an_entry_leads_back(world: Acting, compliance: User, client: Client) -> None:
    (entry,) = parked(world, "a&b")
    page = shown(client, url(DeadLetter, LIST))
    assert "clips/a&amp;b<" in page
    assert "&amp;amp;b" not in page
    page = shown(client, url(DeadLetter, "change", entry.pk), {"_changelist_filters": "class=permission"})
    assert f'<a href="{url(DeadLetter, LIST)}?class=permission">Back to the list</a>' in page


def test_looking_at_a_page_stays_on_it(world: Acting, compliance: User, client: Client) -> None:
    first, _second = parked(world, "a", "b")
    context = client.get(url(DeadLetter, LIST), {"after": first.pk, "look": 1}).context
    assert context["look"] == f"after={first.pk}&look=1"
    assert len(context["truths"]) == 1


def test_what_takes_too_long_is_said_and_can_be_narrowed(
    world: Acting, compliance: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_args: Any) -> Any:
        raise OperationalError("canceling statement due to statement timeout")

    parked(world, "a")
    said = sent_along(shown(client, many("close"))) | {"rate": 5, "reason": "R"}
    monkeypatch.setattr("ledger.admin.quarantine.page_of", slow)
    page = shown(client, url(DeadLetter, LIST), {"class": "permission"})
    assert "takes too long" in page
    assert 'name="class"' in page
    monkeypatch.setattr(bulk, "count", slow)
    assert manyentries.TOO_LONG in client.post(many("close"), said).content.decode()
    assert not BulkJob.objects.exists()


def test_buckets_of_others_are_not_offered(world: Acting, compliance: User, client: Client) -> None:
    parked(world, "a")
    other = Bucket.objects.create(name="others-only")
    assert other.name in shown(client, url(DeadLetter, LIST))
    only(world, "compliance", world.tenant.code)
    page = client.get(url(DeadLetter, LIST))
    assert other.name not in page.content.decode()
    assert list(page.context["filter"].form.fields["bucket"].queryset) == [world.bucket]


def test_how_it_is_now_is_looked_up_when_one_asks(world: Acting, compliance: User, client: Client) -> None:
    one, two = parked(world, "one", "two")
    assert "Looked at" not in shown(client, url(DeadLetter, LIST))
    placed = hold(world.tenant, world.bucket, "clips/two", by=compliance)
    gone = VersionRef("clips/one", world.versions["clips/one"][0].version_id)
    world.store.delete_versions(world.place, [gone], deadline_seconds=5)
    page = shown(client, url(DeadLetter, "now", one.pk))
    assert "Nothing is in the way of a replay." in page
    assert "object absent" in page
    for address, query in (
        (url(DeadLetter, "change", two.pk), {"look": 1}),
        (url(DeadLetter, LIST), {"look": 1, "prefix": "clips/two"}),
    ):
        page = shown(client, address, query)
        assert f"A legal hold covers it (hold {placed.pk})" in page
        assert "object present" in page
        assert "Looked at" in page


def test_all_that_match_are_counted_confirmed_and_become_a_job(world: Acting, compliance: User, client: Client) -> None:
    *_, other = parked(world, "a", "b", "c")
    DeadLetter.objects.filter(pk=other.pk).update(failure_class="transient")
    hold(world.tenant, world.bucket, "clips/a", by=compliance)
    page = shown(client, many("replay"), {"class": "permission"})
    for text in (
        "Replay: 2 entries",
        "2 open entries, of the class permission",
        "1 of 2 would be refused now.",
        "A legal hold covers it",
    ):
        assert text in page, text
    answer = confirm(client, "replay", "class=permission", repair="policy")
    job = BulkJob.objects.get()
    assert answer.headers["Location"] == url(BulkJob, "change", job.pk)
    assert (job.total, job.selection, job.details) == (2, "open entries, of the class permission", {"repair": "policy"})
    assert DeadLetter.objects.filter(resolved_at=None).count() == 3  # nothing happens in the request
    work(job)
    page = shown(client, url(BulkJob, "change", job.pk))
    for text in (
        "What was not done, and why",
        "A legal hold covers it",
        f"{url(BulkItem, LIST)}?job={job.pk}&amp;outcome=refused",
    ):
        assert text in page, text


def test_the_ticked_ones_alone_are_closed(world: Acting, compliance: User, client: Client) -> None:
    one, two, three = parked(world, "one", "two", "three")
    page = shown(client, url(DeadLetter, LIST))
    assert f'name="ids" value="{one.pk}"' in page
    confirm(client, "close", f"ids={one.pk}&ids={three.pk}")
    job = work(BulkJob.objects.get())
    assert (job.selection, job.total) == ("chosen one by one", 2)
    two.refresh_from_db()
    assert two.resolved_at is None
    assert set(job.items.values_list("subject_id", flat=True)) == {one.pk, three.pk}


@pytest.mark.parametrize("ids", [[""], ["", "abc"], ["{pk}", "abc"], ["{pk}", "9" * 19], ["{pk}", "-1"]])
def test_without_what_is_ticked_nothing_is_chosen(
    ids: list[str], world: Acting, compliance: User, client: Client
) -> None:
    one, _two = parked(world, "one", "two")
    query = {"ids": [each.format(pk=one.pk) for each in ids]}
    assert '<input type="hidden" name="ids" value="">' in shown(client, url(DeadLetter, LIST))
    assert client.get(url(DeadLetter, LIST), query).context["page"].entries == ()
    for verb in ("replay", "close"):
        said = sent_along(shown(client, many(verb))) | {"expected": 2, "rate": 5, "reason": "R"}
        for page in (client.get(many(verb), query), client.post(many(verb), said, query_params=query)):
            assert page.status_code == 200
            assert "Tick the entries that are meant" in page.content.decode()
            assert 'name="expected"' not in page.content.decode()
    assert not BulkJob.objects.exists()


def test_sent_twice_it_is_one_job_and_what_differs_from_what_was_seen_is_refused(
    world: Acting, compliance: User, client: Client
) -> None:
    parked(world, "a", "b")
    said = sent_along(shown(client, many("replay"))) | {"rate": 50, "reason": "Repaired."}
    answers = [client.post(many("replay"), said) for _ in range(2)]
    assert {answer.headers["Location"] for answer in answers} == {url(BulkJob, "change", BulkJob.objects.get().pk)}
    answer = confirm(client, "close", "", expected=3).content.decode()
    assert "You saw 3, and 2 match now." in answer
    assert "This field is required." in confirm(client, "close", "", reason=" ").content.decode()
    assert BulkJob.objects.count() == 1


def test_for_more_than_a_few_their_number_is_typed(
    world: Acting, compliance: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    parked(world, "a", "b", "c")
    monkeypatch.setattr(manyentries, "TYPED_ABOVE", 2)
    for typed in ("", "2", "4"):
        assert (
            "Type 3, the number of entries that you confirm."
            in confirm(client, "replay", "", typed=typed).content.decode()
        )
    assert not BulkJob.objects.exists()
    assert confirm(client, "replay", "", typed="3").status_code == 302


@pytest.mark.parametrize(
    ("role", "reads", "replays", "closes"),
    [
        (roles.COMPLIANCE, True, True, True),
        (roles.OPERATOR, True, True, False),
        (roles.RETENTION_MANAGER, True, False, False),
        (roles.AUDITOR, True, False, False),
        (roles.ADMINISTRATOR, False, False, False),
    ],
)
def test_who_sees_and_may_do_what_to_many(
    role: str, reads: bool, replays: bool, closes: bool, world: Acting, person: Callable[..., User], client: Client
) -> None:
    (entry,) = parked(world, "a")
    client.force_login(person("someone", role))
    for address in (url(DeadLetter, LIST), url(DeadLetter, "now", entry.pk), url(DeadLetter, "change", entry.pk)):
        assert client.get(address).status_code == (200 if reads else 403)
    page = client.get(url(DeadLetter, LIST)).content.decode()
    for verb, may in (("replay", replays), ("close", closes)):
        assert (many(verb) in page) == may
        assert client.get(many(verb)).status_code == (200 if may else 403)
        assert client.post(many(verb), {"reason": "R"}).status_code == (200 if may else 403)
    assert not BulkJob.objects.exists()


def test_of_other_tenants_nothing_is_seen_counted_or_done(world: Acting, compliance: User, client: Client) -> None:
    (entry,) = parked(world, "a")
    only(world, "compliance", "elsewhere")
    page = client.get(url(DeadLetter, LIST))
    assert page.context["page"].entries == ()
    assert page.context["groups"] == []
    assert world.tenant.code not in page.content.decode()
    assert client.get(url(DeadLetter, LIST), {"tenant": world.tenant.pk}).context["page"].entries == ()
    for verb in ("now", "replay", "close"):
        assert client.get(url(DeadLetter, verb, entry.pk)).status_code == 404
    assert client.get(url(DeadLetter, "change", entry.pk)).status_code == 404
    for verb in ("replay", "close"):
        assert "Nothing that is open matches." in shown(client, many(verb), {"ids": entry.pk})
    only(world, "compliance", world.tenant.code)
    assert client.get(url(DeadLetter, "change", entry.pk)).status_code == 200


def test_an_entrys_page_tells_its_story(world: Acting, compliance: User, client: Client) -> None:
    (entry,) = parked(world, "a")
    quarantine.replay(command=entry.command, by=compliance, reason="Once more.", repair="the policy")
    page = shown(client, url(DeadLetter, "change", entry.pk))
    for text in (
        "AccessDenied No.",
        "into quarantine",
        "replayed by compliance",
        "Once more.",
        "Repaired: the policy",
        "clips/a<",
    ):
        assert text in page, text
    assert url(DeadLetter, "replay", entry.pk) not in page


def test_the_number_of_queries_does_not_depend_on_the_number_of_entries(
    world: Acting, compliance: User, client: Client
) -> None:
    def queries(address: str, query: dict[str, Any]) -> int:
        with CaptureQueriesContext(connection) as captured:
            shown(client, address, query)
        return len(captured)

    def counts() -> list[int]:
        pages = (
            (url(DeadLetter, LIST), {}),
            (url(DeadLetter, LIST), {"look": 1, "class": "permission"}),
            (many("replay"), {}),
        )
        return [queries(address, query) for address, query in pages]

    parked(world, "a")
    few = counts()
    parked(world, *"bcdefg")
    parked(world, *"hijklmno")
    assert DeadLetter.objects.filter(resolved_at=None).count() > 6
    assert counts() == few


def test_a_job_that_runs_says_about_when_it_will_have_ended(world: Acting, compliance: User, client: Client) -> None:
    parked(world, "a", "b", "c")
    confirm(client, "replay", "", rate=1)
    job = BulkJob.objects.get()
    jobwork.work_chunk(job.pk)
    page = shown(client, url(BulkJob, "change", job.pk))
    assert "less than a minute" in page
    assert 'hx-trigger="every 3s"' in page
    jobs.pause(job=job, by=compliance, reason="Lunch.")
    page = shown(client, url(BulkJob, "change", job.pk))
    assert "hx-trigger" not in page
    assert "until somebody resumes it: Lunch." in page
    assert bulk.REPLAYED in page
