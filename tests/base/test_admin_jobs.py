"""Bulk jobs in the admin: how far, what became of every item, and the decisions about it."""

from collections.abc import Callable

import pytest
from django.test import Client

from cleanup_project.base import jobs, jobwork, roles
from cleanup_project.base.models import BulkItem, BulkJob, Heartbeat, User
from tests.base.test_jobs import a_kind, made, operator  # noqa: F401
from tests.base.test_signin_proof import grow_stale
from tests.web import quick_pages, url  # noqa: F401

pytestmark = pytest.mark.django_db


@pytest.fixture
def job(operator: User, client: Client) -> BulkJob:  # noqa: F811
    """Half done: ten of twenty."""
    job = made(operator, 20, rate=10)
    jobwork.work_chunk(job.pk)
    job.refresh_from_db()
    client.force_login(operator)
    return job


def test_its_page_says_how_far_it_is_and_leads_to_its_items(job: BulkJob, client: Client) -> None:
    shown = client.get(url(BulkJob, "change", job.pk)).content.decode()
    assert '<progress max="20" value="10" aria-label="10 of 20">' in shown
    assert 'hx-trigger="every 3s"' in shown
    assert f"{url(BulkItem, 'changelist')}?job={job.pk}&amp;outcome=restarted_even" in shown
    for words in ("clusters of work", "They hang.", "olaf", "restarted even", "waiting"):
        assert words in shown, words
    assert f"Restart {job.pk}" in client.get(url(BulkJob, "changelist")).content.decode()


def test_items_are_listed_by_job_and_outcome(job: BulkJob, client: Client) -> None:
    def listed(**query: object) -> list[int]:
        page = client.get(url(BulkItem, "changelist"), {"job": job.pk} | query)
        return [row.ordinal for row in page.context["cl"].result_list]

    assert listed() == list(range(1, 21))
    assert listed(outcome="waiting") == list(range(11, 21))
    even = [each.ordinal for each in job.items.order_by("ordinal")[:10] if each.subject_id % 2 == 0]
    assert listed(outcome="restarted_even") == even
    page = client.get(url(BulkItem, "changelist"), {"job": job.pk}).content.decode()
    assert url(Heartbeat, "change", job.items.get(ordinal=1).subject_id) in page
    assert "outcome=restarted" in page
    assert client.get(url(BulkItem, "changelist")).status_code == 200


def test_it_is_paused_resumed_slowed_and_cancelled(job: BulkJob, client: Client) -> None:
    def does(verb: str, **said: object) -> str:
        assert client.get(url(BulkJob, verb, job.pk)).status_code == 200
        answer = client.post(url(BulkJob, verb, job.pk), said)
        job.refresh_from_db()
        return answer.content.decode()

    def offered() -> set[str]:
        page = client.get(url(BulkJob, "change", job.pk)).content.decode()
        return {
            verb for verb in ("pause", "resume", "rate", "cancel") if f'href="{url(BulkJob, verb, job.pk)}"' in page
        }

    assert offered() == {"pause", "rate", "cancel"}
    assert "This field is required." in does("pause")
    does("pause", reason="Lunch.")
    assert (job.state, job.paused_because, offered()) == ("paused", "Lunch.", {"resume", "rate", "cancel"})
    assert "hx-trigger" not in client.get(url(BulkJob, "change", job.pk)).content.decode()
    assert "is paused, so it cannot be paused" in does("pause", reason="Lunch.")
    does("resume")
    assert job.state == "running"
    assert "less than or equal to 1000" in does("rate", rate=5000)
    does("rate", rate=7)
    assert job.rate == 7
    does("cancel", reason="Enough.")
    assert (job.state, offered()) == ("cancelled", set())
    page = client.get(url(BulkItem, "changelist"), {"job": job.pk, "outcome": "waiting"}).content.decode()
    assert "left as it was" in page


def test_an_open_session_sets_no_job_going_and_may_stop_it(job: BulkJob, client: Client) -> None:
    grow_stale(client)
    assert client.post(url(BulkJob, "pause", job.pk), {"reason": "Lunch."}).status_code == 302
    for verb in ("rate", "resume"):
        assert "Is it still you?" in client.post(url(BulkJob, verb, job.pk), {"rate": 900}).content.decode()
    job.refresh_from_db()
    assert (job.state, job.rate) == ("paused", 10)


@pytest.mark.parametrize(
    ("role", "reads", "decides"),
    [
        (roles.OPERATOR, 200, 200),
        (roles.COMPLIANCE, 200, 200),
        (roles.AUDITOR, 200, 403),
        (roles.ADMINISTRATOR, 200, 403),
        (roles.RETENTION_MANAGER, 404, 404),  # makes jobs of another kind, and sees none but those
    ],
)
def test_who_reads_and_who_decides(
    role: str, reads: int, decides: int, job: BulkJob, person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("someone", role))
    shown = client.get(url(BulkJob, "change", job.pk))
    assert shown.status_code == reads
    listed = client.get(url(BulkItem, "changelist"), {"job": job.pk}).context["cl"].result_list
    assert bool(listed) == (reads == 200)
    for verb in ("pause", "resume", "rate", "cancel"):
        assert client.get(url(BulkJob, verb, job.pk)).status_code == decides
        if decides == 403:
            assert client.post(url(BulkJob, verb, job.pk), {"reason": "R", "rate": 1}).status_code == 403
            assert f'href="{url(BulkJob, verb, job.pk)}"' not in client.get(url(BulkJob, "changelist")).content.decode()
    job.refresh_from_db()
    assert (job.state, job.rate) == ("running", 10)


def test_a_job_of_a_kind_that_is_gone_is_still_read(job: BulkJob, client: Client, person: Callable[..., User]) -> None:
    client.force_login(person("auditor", roles.AUDITOR))
    del jobs.KINDS[job.kind]
    assert f"restart {job.pk}" in client.get(url(BulkJob, "change", job.pk)).content.decode()
