"""Secrets: replaced while both sign, revoked, never without one that signs for good, shown once."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from cleanup_project.base import roles, vault
from cleanup_project.base.models import AuditEvent, User
from tests.ledger.threads import Beside
from tests.webhooks.http import receiver
from tests.webhooks.world import endpoint, make_due, notice, sql, tell
from webhooks import dispatch, endpoints, secrets, signing
from webhooks.exceptions import WebhooksError
from webhooks.models import Endpoint, EndpointSecret
from webhooks.receiver import Refused, verify

pytestmark = pytest.mark.django_db
WHY = "The yearly rotation."


def expire(secret: EndpointSecret) -> None:
    """Let the overlap pass."""
    sql("UPDATE webhooks_endpointsecret SET expires_at = now() WHERE id = %s", secret.pk)


def live(made: Endpoint) -> list[int]:
    return [each.pk for each in made.secrets.live()]


def test_both_sign_while_one_replaces_the_other_the_newest_first_and_after_that_one(operator: User) -> None:
    with receiver() as inbox:
        made, old = endpoint(operator, inbox.url)
        new = secrets.rotate(endpoint=made, by=operator, reason=WHY)
        assert len(signing.parse_secret(new)) == 32
        tell(notice("a", "1"))
        dispatch.dispatch(threads=1)
        (first,) = inbox.requests
        assert first.is_signed_by(old)
        assert first.is_signed_by(new)
        by_newest = first.headers["webhook-signature"].split(" ")[0]
        assert verify([new], first.headers | {"webhook-signature": by_newest}, first.body, now=now(first.headers))
        expire(made.secrets.earliest("pk"))
        tell(notice("b", "2"))
        dispatch.dispatch(threads=1)
    second = inbox.requests[-1]
    assert second.headers["webhook-signature"].count("v1,") == 1
    assert second.is_signed_by(new)
    with pytest.raises(Refused):
        second.is_signed_by(old)


def now(headers: dict[str, str]) -> float:
    return float(headers["webhook-timestamp"])


def test_a_retry_that_was_queued_before_the_rotation_is_signed_by_the_new_set(operator: User) -> None:
    with receiver(lambda request: 204 if len(inbox.requests) > 1 else 500) as inbox:
        made, old = endpoint(operator, inbox.url)
        tell(notice("a", "1"))
        dispatch.dispatch(threads=1)
        new = secrets.rotate(endpoint=made, by=operator, reason="It leaked.", overlap=0)
        make_due()
        dispatch.dispatch(threads=1)
    before, after = inbox.requests
    assert before.is_signed_by(old)
    assert after.is_signed_by(new)
    assert (before.id, before.body) == (after.id, after.body)
    with pytest.raises(Refused):
        after.is_signed_by(old)


def test_the_overlap_ends_when_it_was_said_and_never_prolongs_an_earlier_end(operator: User) -> None:
    made, _ = endpoint(operator)
    secrets.rotate(endpoint=made, by=operator, reason=WHY, overlap=2)
    secrets.rotate(endpoint=made, by=operator, reason=WHY, overlap=168)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT round(extract(epoch FROM expires_at - now()) / 3600), revoked_at FROM webhooks_endpointsecret ORDER BY id"
        )
        assert cursor.fetchall() == [(2, None), (168, None), (None, None)]


def test_three_sign_at_the_most_unless_they_are_revoked_at_once(operator: User) -> None:
    made, _ = endpoint(operator)
    for _ in range(2):
        secrets.rotate(endpoint=made, by=operator, reason=WHY)
    with pytest.raises(WebhooksError, match="3 secrets sign already"):
        secrets.rotate(endpoint=made, by=operator, reason=WHY)
    assert len(live(made)) == 3
    secrets.rotate(endpoint=made, by=operator, reason="It leaked.", overlap=0)
    assert live(made) == [made.secrets.latest("pk").pk]
    assert made.secrets.filter(revoked_at__isnull=False).count() == 3


@pytest.mark.parametrize("overlap", [-1, 169])
def test_an_overlap_is_at_most_a_week(overlap: int, operator: User) -> None:
    made, _ = endpoint(operator)
    with pytest.raises(WebhooksError, match="0 to 168 hours"):
        secrets.rotate(endpoint=made, by=operator, reason=WHY, overlap=overlap)


def test_the_same_request_twice_rotates_once(operator: User) -> None:
    made, _ = endpoint(operator)
    (newest,) = live(made)
    secrets.rotate(endpoint=made, by=operator, reason=WHY, newest=newest)
    with pytest.raises(WebhooksError, match="rotated or revoked meanwhile"):
        secrets.rotate(endpoint=made, by=operator, reason=WHY, newest=newest)
    assert len(live(made)) == 2


def test_an_old_one_is_revoked_before_its_end_and_the_one_that_signs_for_good_is_not(operator: User) -> None:
    made, _ = endpoint(operator)
    (only,) = made.secrets.live()
    with pytest.raises(WebhooksError, match="nothing would sign for good"):
        secrets.revoke(secret=only, by=operator, reason="It leaked.")
    secrets.rotate(endpoint=made, by=operator, reason=WHY)
    newest, old = made.secrets.live()
    with pytest.raises(WebhooksError, match="nothing would sign for good"):
        secrets.revoke(secret=newest, by=operator, reason="It leaked.")
    assert secrets.revoke(secret=old, by=operator, reason="It leaked.").revoked_at is not None
    assert live(made) == [newest.pk]
    with pytest.raises(WebhooksError, match="does not sign any more"):
        secrets.revoke(secret=old, by=operator, reason="Again.")


def test_a_disabled_endpoint_gets_a_new_secret_and_a_retired_one_does_not(operator: User) -> None:
    made, _ = endpoint(operator, enabled=False)
    secrets.rotate(endpoint=made, by=operator, reason="It was lost on the way.", overlap=0)
    endpoints.retire(endpoint=made, by=operator, reason="Gone.")
    for verb in (
        lambda: secrets.rotate(endpoint=made, by=operator, reason=WHY),
        lambda: secrets.revoke(secret=made.secrets.latest("pk"), by=operator, reason=WHY),
    ):
        with pytest.raises(WebhooksError, match="retired for ever"):
            verb()
    assert live(made) == []


def test_keys_are_sealed_and_no_record_holds_a_secret(operator: User) -> None:
    made, first = endpoint(operator)
    texts = [first, secrets.rotate(endpoint=made, by=operator, reason=WHY)]
    secrets.revoke(secret=made.secrets.earliest("pk"), by=operator, reason="It leaked.")
    stored = [bytes(each.key_encrypted) for each in made.secrets.order_by("pk")]
    assert [vault.unseal(each) for each in stored] == [signing.parse_secret(text) for text in texts]
    told = " ".join(f"{each.reason} {each.before} {each.after}" for each in AuditEvent.objects.all())
    for text, sealed in zip(texts, stored, strict=True):
        assert signing.parse_secret(text) not in sealed
        assert text not in told
        assert text.removeprefix("whsec_") not in told
    actions = list(AuditEvent.objects.order_by("id").values_list("action", "reason"))
    assert actions[1:] == [("endpoint.secret_rotated", WHY), ("endpoint.secret_revoked", "It leaked.")]


@pytest.mark.parametrize("role", sorted(set(roles.MATRIX) - {roles.OPERATOR, roles.COMPLIANCE}))
def test_who_may_not_manage_endpoints_changes_no_secret(role: str, operator: User, person: Callable[..., User]) -> None:
    made, _ = endpoint(operator)
    someone = person("someone", role)
    with pytest.raises(WebhooksError, match="may not manage endpoints"):
        secrets.rotate(endpoint=made, by=someone, reason=WHY)
    with pytest.raises(WebhooksError, match="may not manage endpoints"):
        secrets.revoke(secret=made.secrets.get(), by=someone, reason=WHY)
    assert len(live(made)) == 1


@pytest.mark.parametrize("verb", ["rotate", "revoke"])
def test_a_reason_is_needed(verb: str, operator: User) -> None:
    made, _ = endpoint(operator)
    about: dict[str, Any] = {"endpoint": made} if verb == "rotate" else {"secret": made.secrets.get()}
    with pytest.raises(WebhooksError, match="State a reason"):
        getattr(secrets, verb)(by=operator, reason=" ", **about)


@pytest.mark.django_db(transaction=True)
def test_two_people_who_rotate_at_once_leave_three_at_the_most(operator: User) -> None:
    made, _ = endpoint(operator)
    secrets.rotate(endpoint=made, by=operator, reason=WHY)
    both = [Beside(secrets.rotate, endpoint=made, by=operator, reason=WHY) for _ in range(2)]
    refused = 0
    for each in both:
        try:
            each.answer()
        except WebhooksError as refusal:
            refused += "3 secrets sign already" in str(refusal)
    assert (refused, len(live(made))) == (1, 3)
