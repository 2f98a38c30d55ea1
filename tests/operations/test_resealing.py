"""Changing the keys of what is sealed: all of it anew, or nothing."""

import base64
import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.core.management import CommandError, call_command
from django.db import IntegrityError, OperationalError, ProgrammingError, connection, transaction

from cleanup_project.base import roles, vault
from cleanup_project.base.models import AuditEvent, User
from cleanup_project.operations import resealing
from ledger import receipts
from ledger.models import TenantSalt
from retention.models import Tenant
from tests.webhooks.world import endpoint
from webhooks import secrets
from webhooks.models import Endpoint

pytestmark = pytest.mark.django_db

OLD, NEW, OTHER = (base64.urlsafe_b64encode(bytes([number]) * 32).decode() for number in (1, 2, 3))
KINDS = {"secrets of endpoints": 2, "salts of tenants": 1, "second factors": 2}


@pytest.fixture
def olaf(person: Callable[..., User]) -> User:
    return person("olaf", roles.OPERATOR)


@pytest.fixture
def kept(settings: Any, tenant: Tenant, olaf: User) -> Endpoint:
    """An endpoint with two live secrets and one that signs no more, a salt, and both kinds of second factors, under OLD."""
    settings.ENCRYPTION_KEYS = [OLD]
    made, _secret = endpoint(olaf)
    secrets.rotate(endpoint=made, by=olaf, reason="Known to others", overlap=0)
    secrets.rotate(endpoint=made, by=olaf, reason="Yearly")
    receipts.salt(tenant.pk)
    sealed = vault.seal(b"BASE32").decode()
    Authenticator.objects.create(user=olaf, type="totp", data={"secret": sealed})
    Authenticator.objects.create(user=olaf, type="recovery_codes", data={"seed": sealed, "used_mask": 5})
    connection.check_constraints()  # which would wait for this transaction's end
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    return made


def opened(made: Endpoint, tenant: Tenant) -> list[Any]:
    factors = Authenticator.objects.order_by("pk").values_list("data", flat=True)
    texts = [vault.unseal(data[name].encode()) for data in factors for name in ("secret", "seed") if name in data]
    return [secrets.keys(made), receipts.salt(tenant.pk), texts]


def reseal() -> dict[str, int]:
    said = StringIO()
    call_command("reseal", "--json", stdout=said)
    told: dict[str, Any] = json.loads(said.getvalue())
    assert told.pop("key") == vault.fingerprint()
    return told


def test_the_same_secrets_open_by_the_new_key_alone(kept: Endpoint, tenant: Tenant, olaf: User, settings: Any) -> None:
    before = opened(kept, tenant)
    assert reseal() == KINDS
    settings.ENCRYPTION_KEYS = [NEW]
    assert opened(kept, tenant) == before
    assert Authenticator.objects.get(type="recovery_codes").data["used_mask"] == 5
    told = AuditEvent.objects.filter(action="secret.resealed").order_by("pk")
    assert {each.after["key"] for each in told} == {vault.fingerprint()}
    assert len({(each.after["kind"], each.after["row"]) for each in told}) == 5
    assert [(each.subject_label, each.after["kind"], each.actor_name) for each in told] == [
        (str(kept), "secrets of endpoints", "system"), (str(kept), "secrets of endpoints", "system"),
        (str(tenant), "salts of tenants", "system"),
        (str(olaf), "second factors", "system"), (str(olaf), "second factors", "system"),
    ]  # fmt: skip


def test_what_signs_no_more_keeps_its_old_seal(kept: Endpoint) -> None:
    reseal()
    (revoked,) = kept.secrets.exclude(pk__in=kept.secrets.live().values("pk"))
    assert vault.is_aged(bytes(revoked.key_encrypted))


def test_again_it_changes_nothing(kept: Endpoint) -> None:
    reseal()
    assert reseal() == dict.fromkeys(KINDS, 0)
    assert AuditEvent.objects.filter(action="secret.resealed").count() == 5


def test_one_that_no_key_opens_leaves_everything_as_it_was(kept: Endpoint, tenant: Tenant, settings: Any) -> None:
    settings.ENCRYPTION_KEYS = [OTHER]
    lost = Authenticator.objects.get(type="totp")
    lost.data = {"secret": vault.seal(b"BASE32").decode()}
    lost.save()
    settings.ENCRYPTION_KEYS = [NEW, OLD]
    with pytest.raises(CommandError, match="Nothing was changed"):
        reseal()
    assert all(vault.is_aged(bytes(each.key_encrypted)) for each in kept.secrets.live())
    assert vault.is_aged(bytes(TenantSalt.objects.get().sealed))
    assert not AuditEvent.objects.filter(action="secret.resealed").exists()


def test_salts_are_as_append_only_afterwards_as_before(kept: Endpoint) -> None:
    reseal()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        TenantSalt.objects.update(sealed=b"another")


def test_whoever_changes_a_secret_at_the_moment_is_not_waited_for_without_end(
    kept: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waiting() -> Any:
        raise OperationalError("canceling statement due to lock timeout")

    monkeypatch.setattr(resealing, "factors", waiting)
    with pytest.raises(CommandError, match="Run it again"):
        reseal()
    assert all(vault.is_aged(bytes(each.key_encrypted)) for each in kept.secrets.live())


def test_what_goes_wrong_otherwise_is_not_put_down_to_the_role(kept: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ProgrammingError("relation does not exist")

    monkeypatch.setattr(resealing, "factors", broken)
    with pytest.raises(ProgrammingError):
        reseal()
