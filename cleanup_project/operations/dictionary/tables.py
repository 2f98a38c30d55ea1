"""What the models do not say of their tables: who writes a row, how long it is kept, and which columns are personal data."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

EVER: Final = "for ever"
COMPACTED: Final = (
    "until `manage.py compact`, run by a timer of the installation, sums it up: 365 days after the command was notified"
)


class Personal(StrEnum):
    """Why a column is personal data, or may be."""

    ACCOUNT = "account"
    WHO = "who acted"
    SIGN_IN = "sign-in"
    WORDS = "free words"
    NAMES = "names of objects"
    ANSWERS = "answers of others"


class Table(NamedTuple):
    """`writers`: the modules that write it. `words`: of columns that the model has no help text for, a line each."""

    writers: str
    kept: str
    words: str = ""
    personal: Mapping[str, Personal] = {}

    def column_words(self) -> dict[str, str]:
        return by_name(self.words)


def by_name(text: str) -> dict[str, str]:
    """Lines of `name: words`; one that begins with blanks goes on."""
    found: dict[str, str] = {}
    name = ""
    for line in text.strip().splitlines():
        if line.startswith(" "):
            found[name] += " " + line.strip()
        else:
            name, _, words = line.partition(": ")
            found[name] = words
    return found


# Columns that mean the same wherever they stand.
COMMON: Final = by_name("""
id: Number of the row.
tenant: Whose it is.
bucket: The bucket.
policy: The retention policy.
revision: The policy revision.
run: The run.
command: The command.
command_key: Key of the command: tenant:asset:version:policy-revision.
asset: Id of the asset, as the bucket's key rule makes it.
etag: As it was catalogued, without quotes.
bytes: Size of all that it names, in bytes.
size: In bytes.
reason: Why, in the words of whoever decided.
by: Who decided.
at: When.
created_at: When the row was made.
created_by: Who made it.
requested_by: Who asked for it.
requested_at: When it was asked for.
decided_by: Who decided, another person than the one who asked.
decided_at: When it was decided.
decision: What was decided; empty while it waits.
decision_reason: Why it was decided so.
started_at: When it began.
finished_at: When it ended; null while it goes on.
token: The lease token of the claim.
lease_token: Rises by one with each claim; only its holder may record an outcome.
lease_until: When the lease ends; null: nobody has it.
worker: Host and process.
cycle: Which cycle of the command; 0 is the first.
failure_class: The class of the failure; docs/guides/operator.md says what follows from it.
event_id: `evt_` and 40 characters, the same for the same fact for ever.
state: Where it stands.
body: The frozen bytes.
body_sha256: SHA-256 of `body`.
number: Counted from 1.
item_id: The manifest item.
prefix: Beginning of the keys, byte by byte; empty is the whole bucket.
subject_type: Application and model of what it is about.
subject_id: Its number there.
subject_label: What it was called at the time.
worked_at: When somebody last worked at it.
status: HTTP status of the answer; null where none came.
error: What went wrong, in words.
response: The first bytes of the answer's body, as they came.
bytes_read: How much of the answer's body was read.
dns_ms: Milliseconds of the name's look-up.
connect_ms: Milliseconds until connected.
tls_ms: Milliseconds of the TLS handshake.
endpoint: The endpoint.
event: The event.
lane: The order in which it stands.
sequence: Its place among the events of its subject, from 1 without a gap.
""")


class Foreign(NamedTuple):
    """A table that a library or Django makes."""

    table: str
    what: str
    kept: str
    personal: str = ""


FOREIGN: Final = (
    Foreign("account_emailaddress", "django-allauth's list of e-mail addresses; the address that counts is the person's own.",
            "with the person", "e-mail address"),
    Foreign("account_emailconfirmation", "django-allauth's; nothing is confirmed by mail here, so it stays empty.", "empty"),
    Foreign("auth_group", "The roles, brought in line with `cleanup_project/base/roles.py` by every migration.", EVER),
    Foreign("auth_group_permissions", "The rights of each role; likewise.", EVER),
    Foreign("auth_permission", "Django's permissions, and the rights of the role matrix.", EVER),
    Foreign("base_cache", "The cache that processes share: failed attempts to sign in, and where walks of the sweep ended.",
            "counts for 5 minutes; the row goes when it is asked for next, or when the table is full",
            "names that were tried, network addresses"),
    Foreign("base_user_groups", "Which person has which role.", "until the role is taken away; the audit record keeps it",
            "who has which role"),
    Foreign("base_user_user_permissions", "Django's; no page writes it, and no decision asks it.", "empty"),
    Foreign("django_admin_log", "Django's own record of its admin; ours is `base_auditevent`.", EVER,
            "who changed what"),
    Foreign("django_content_type", "Django's list of models.", EVER),
    Foreign("django_migrations", "Which migrations were applied.", EVER),
    Foreign("django_q_ormq", "Messages of the queue: the name of a task and one number.", "until a worker has taken it"),
    Foreign("django_q_schedule", "One row: the tick, once a minute.", EVER),
    Foreign("django_q_task", "Tasks that failed, with their traceback; successes are not kept.",
            "30 days; removed when a cluster starts", "what an error message quotes"),
    Foreign("mfa_authenticator", "Second factors and recovery codes, sealed under `ENCRYPTION_KEYS`.",
            "until it is removed or reset", "whose second factor it is"),
    Foreign("socialaccount_socialaccount", "Which subject of the identity provider is which person.",
            "until it is unlinked", "issuer, subject, and what the provider said of the person"),
    Foreign("socialaccount_socialapp", "django-allauth's; the provider comes from the settings, so it stays empty.", "empty"),
    Foreign("socialaccount_socialtoken", "django-allauth's; no tokens of the provider are kept, so it stays empty.", "empty"),
)  # fmt: skip
