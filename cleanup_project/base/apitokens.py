"""Tokens of the API: made by an administrator, shown once, replaced with an overlap, revoked. Their sole writer.

A token reads `cleanup_<public id>_<secret>`, so that scanners of secrets know it when it lies where it should not. The secret
is 32 random bytes, of which SHA-256 is kept: a slow hash protects what people choose, and nobody guesses 256 bits.
"""

import hmac
import re
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, Final, NoReturn

import structlog
from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.db.models.functions import Least, Now

from cleanup_project.base import alarms, audit, clock, tenancy
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import LONGEST_TOKEN, ApiToken, User
from cleanup_project.base.scopes import SCOPES, Scope, rights_of

PATTERN: Final = r"cleanup_[0-9a-f]{12}_[0-9a-f]{64}"
NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
ACCOUNT: Final = "program:{}"  # a colon stands in nobody's user name
RIGHT: Final = "base.manage_settings"
OVERLAP: Final = 24  # hours
LONGEST_OVERLAP: Final = 168
NOTED_EVERY: Final = timedelta(minutes=1)
EXPIRING: Final = "token.expiring"  # alarm
EXPIRES_SOON: Final = timedelta(days=14)
REFUSED: Final = (
    "This needs a valid API token: send the header Authorization: Bearer cleanup_…, with a token that is neither expired nor "
    "revoked. An administrator makes one under API tokens."
)

log = structlog.get_logger(__name__)


class Unauthenticated(Exception):
    """No valid token was sent. The words are the same whatever is wrong with it; the log has the reason."""


class TokenRefused(Exception):
    """What was asked for about a token is not allowed, and why; nothing was changed. `field`: of the form."""

    def __init__(self, words: str, field: str = "") -> None:
        super().__init__(words)
        self.field = field


def authenticate(header: str | None, address: str | None = None) -> ApiToken:
    """The token in an `Authorization` header, its account loaded. Raises Unauthenticated.

    Notes the use, with the network address that it came from, in a statement of its own: call it before a transaction begins.
    """
    scheme, _, text = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not re.fullmatch(PATTERN, text):
        refuse("no token of ours" if header else "no header")
    _, public_id, secret = text.split("_")
    found: Any = ApiToken.objects.filter(public_id=public_id).select_related("account").annotate(now=Now()).first()
    if found is None or not hmac.compare_digest(bytes(found.digest), digest(secret)):
        refuse("unknown", public_id)
    token: ApiToken = found
    now: datetime = found.now
    if token.revoked_at is not None:
        refuse("revoked", public_id)
    if token.expires_at <= now:
        refuse("expired", public_id)
    if not token.account.is_active:
        refuse("its account is not active", public_id)
    if token.last_used_at is None or token.last_used_at <= now - NOTED_EVERY:
        note_use(token, address)
    return token


def refuse(reason: str, public_id: str = "") -> NoReturn:
    log.warning("token refused", reason=reason, token=public_id)
    raise Unauthenticated(REFUSED)


def note_use(token: ApiToken, address: str | None) -> None:
    """At most once a minute, however many requests come at once: whoever is second finds it noted."""
    try:
        address = str(ip_address((address or "").partition("%")[0]))  # without the zone of an IPv6 address
    except ValueError:  # a proxy that forwards something else, or a socket that has none
        address = None
    stale = Q(last_used_at=None) | Q(last_used_at__lte=Now() - NOTED_EVERY)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=Now(), last_used_from=address)


def digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def create(
    *, name: str, scopes: Sequence[str], tenants: Sequence[str], days: int, by: User, reason: str
) -> tuple[ApiToken, str]:
    """An account for a program, its first token, and the token's text, this once. No tenants: of every tenant.

    Raises TokenRefused; nobody gives a program the sight of a tenant that they do not see themselves.
    """
    permitted(by, tenants)
    check(reason, days)
    if not NAME.fullmatch(name):
        raise TokenRefused("Use 1 to 63 lower-case letters, digits and hyphens, beginning without a hyphen.", "name")
    if not scopes or set(scopes) - SCOPES.keys():
        raise TokenRefused(f"Choose one or more of these scopes: {', '.join(SCOPES)}.", "scopes")
    account = User(
        username=ACCOUNT.format(name), is_program=True, tenants=sorted(set(tenants)), rights=rights_of(scopes)
    )
    account.set_unusable_password()
    with transaction.atomic():
        try:
            with transaction.atomic():
                account.save(force_insert=True)
        except IntegrityError:
            raise TokenRefused(
                f"There is a program {name} already: replace its token, or take another name.", "name"
            ) from None
        token, text = issue(account, sorted(set(scopes)), days, by)
        audit.record(action="token.created", subject=token, by=by, reason=reason, after=told(token))
    return token, text


def replace(*, token: ApiToken, days: int, overlap: int = OVERLAP, by: User, reason: str) -> tuple[ApiToken, str]:
    """A new token of the same account and scopes, and its text, this once; the old one ends after `overlap` hours.

    0 hours, for a token that others may know: the old one is revoked at once. Raises TokenRefused.
    """
    permitted(by, token.account.tenants)
    check(reason, days)
    if not 0 <= overlap <= LONGEST_OVERLAP:
        raise TokenRefused(f"The old token can go on for 0 to {LONGEST_OVERLAP} hours.", "overlap")
    with transaction.atomic():
        old = lock(token)
        if not old.account.is_active:
            raise TokenRefused(
                f"The account of {old} is not active: no token of it opens anything, nor would a new one."
            )
        if ApiToken.objects.filter(replaces=old).exists():
            raise TokenRefused(f"{old} was replaced already: replace the token that took its place.")
        new, text = issue(old.account, old.scopes, days, by, replaces=old)
        if overlap:
            ends = Least(F("expires_at"), Now() + timedelta(hours=overlap))
            ApiToken.objects.filter(pk=old.pk).update(expires_at=ends)
        else:
            ApiToken.objects.filter(pk=old.pk).update(revoked_at=Now(), revoked_by=by, revoked_reason=reason)
        alarms.clear(EXPIRING, old)
        audit.record(
            action="token.replaced", subject=old, by=by, reason=reason,
            after={"token": new.public_id, "overlap_hours": overlap},
        )  # fmt: skip
        audit.record(action="token.created", subject=new, by=by, reason=reason, after=told(new))
    return new, text


def revoke(*, token: ApiToken, by: User, reason: str) -> ApiToken:
    """It opens nothing any more, from the next request on. Raises TokenRefused.

    Where it leaves a program no token that opens, the account ends, too: what goes on in its name, as bulk jobs do, pauses.
    """
    permitted(by, token.account.tenants)
    check(reason)
    with transaction.atomic():
        old = lock(token)
        ApiToken.objects.filter(pk=old.pk).update(revoked_at=Now(), revoked_by=by, revoked_reason=reason)
        if not old.account.tokens.live().exists():
            User.objects.filter(pk=old.account_id).update(is_active=False)
        alarms.clear(EXPIRING, old)
        audit.record(action="token.revoked", subject=old, by=by, reason=reason)
    token.refresh_from_db()
    return token


def behind(account: User | None, person: User) -> str:
    """Who asked for something, where that counts as this person themselves: they did, or a program whose token they made.

    Whoever makes a token sees it, so the two are no two parties. Empty where they are.
    """
    if account == person:
        return str(person)
    made = account is not None and account.is_program and account.tokens.filter(created_by=person).exists()
    return f"{account}, whose token {person} made" if made else ""


def watch() -> int:
    """Raise an alarm about each token that ends soon, or has ended, until somebody replaces or revokes it; how many."""
    now = clock.now()
    ending = ApiToken.objects.filter(revoked_at=None, replaced_by=None, expires_at__lte=now + EXPIRES_SOON)
    rows = list(ending.select_related("account"))
    for token in rows:
        ends = "has expired" if token.expires_at <= now else "expires"
        alarms.notice(
            EXPIRING,
            token,
            f"The token {ends} at {instant(token.expires_at)}. Replace it, or revoke it if nobody needs it.",
        )
    return len(rows)


def permitted(by: User, tenants: Sequence[str]) -> None:
    if not by.has_perm(RIGHT):
        raise TokenRefused(f"{by} may not manage API tokens: that needs the role Administrator.")
    if not tenancy.within(tenants, by):
        raise TokenRefused(f"{by} manages tokens for {', '.join(by.tenants)}, and for nobody else.", "tenants")


def check(reason: str, days: int = 1) -> None:
    if not reason.strip():
        raise TokenRefused("State a reason: it is kept for ever.", "reason")
    if not 1 <= days <= LONGEST_TOKEN:
        raise TokenRefused(f"A token lasts 1 to {LONGEST_TOKEN} days.", "days")


def lock(token: ApiToken) -> ApiToken:
    """The row as it is now, under its account's lock until the transaction ends. Raises TokenRefused for a revoked one."""
    User.objects.select_for_update(no_key=True).get(pk=token.account_id)
    now = ApiToken.objects.select_related("account").get(pk=token.pk)
    if now.revoked_at is not None:
        raise TokenRefused(f"{now} is revoked for ever: make a new token, for a program of another name.")
    return now


def issue(
    account: User, scopes: Sequence[str], days: int, by: User, replaces: ApiToken | None = None
) -> tuple[ApiToken, str]:
    public_id, secret = secrets.token_hex(6), secrets.token_hex(32)
    token = ApiToken.objects.create(
        account=account,
        public_id=public_id,
        digest=digest(secret),
        scopes=list(scopes),
        created_by=by,
        replaces=replaces,
        expires_at=Now() + timedelta(days=days),
    )
    token.refresh_from_db()
    return token, f"cleanup_{public_id}_{secret}"


def told(token: ApiToken) -> dict[str, Any]:
    """As the audit record keeps it: never the secret."""
    return {
        "scopes": token.scopes,
        "tenants": token.account.tenants,
        "expires_at": instant(token.expires_at),
    }


__all__ = [
    "SCOPES",
    "Scope",
    "TokenRefused",
    "Unauthenticated",
    "authenticate",
    "create",
    "replace",
    "revoke",
    "watch",
]
