"""Tables of the application `base`."""

from typing import Final

from cleanup_project.operations.dictionary.tables import EVER, Personal, Table

ACCOUNT, WHO, SIGN_IN, NAMES, WORDS = (
    Personal.ACCOUNT, Personal.WHO, Personal.SIGN_IN, Personal.NAMES, Personal.WORDS,
)  # fmt: skip

TABLES: Final = {
    "User": Table("base.admin", "for ever: deactivated, never deleted", """
password: Hashed with Argon2id; unusable where an identity provider lets them in.
last_login: When they last signed in.
first_name: First name.
last_name: Family name.
email: The address that an identity provider must vouch for.
date_joined: When the account was made.
""", dict.fromkeys(("username", "password", "first_name", "last_name", "email", "last_login", "date_joined", "tenants",
                    "is_active", "is_staff", "is_superuser"), ACCOUNT)),
    "Session": Table("base.signin.store base.signin.sessions",
                     "until 8 hours after its last use; what is over is removed at the next sign-in of anybody", """
session_key: What the cookie names.
session_data: Signed: who, since when, how one signed in.
expire_date: When it is over.
person: Whose it is.
""", {"session_key": SIGN_IN, "session_data": SIGN_IN}),
    "AuditEvent": Table("base.audit", EVER, """
actor: The person; null: the system.
before: The changed values before, as JSON.
after: The changed values after, as JSON; of a sign-in, the network address.
request_id: As the log has it.
""", {"actor_name": WHO, "reason": WORDS, "subject_label": NAMES, "before": WORDS, "after": SIGN_IN}),
    "ApiToken": Table("base.apitokens", EVER, """
account: The program's account.
scopes: What it may ask for.
replaces: The token that it takes the place of.
expires_at: It opens nothing from then on.
last_used_from: The network address of its last use.
revoked_at: When it was revoked; null: it was not.
revoked_by: Who revoked it.
revoked_reason: Why it was revoked.
""", {"last_used_from": SIGN_IN, "revoked_reason": WORDS}),
    "ApiUse": Table("base.apirates", "with its token; emptied by a crash", """
token: The token.
reads: How many reads in that minute.
writes: How many writes in that minute.
"""),
    "Heartbeat": Table("base.heartbeats", "until another cluster serves its queue, if this one has ended", """
host: Name of the host.
started_at: When the cluster was started.
last_start_at: When it last began a task.
last_end_at: When it last ended one.
last_ack_at: When it last acknowledged one.
restarts: How often its supervisor replaced it.
"""),
    "Alarm": Table("base.alarms base.jobpace webhooks.health cleanup_project.operations.watch.telling", EVER, """
raised_at: When it was first noticed.
cleared_at: When it was over; null: it is open.
""", {"subject_label": NAMES}),
    "BulkJob": Table("base.jobs base.jobwork", EVER, """
total: How many items it has.
done: How many have their outcome.
paused_because: Why it is paused.
""", {"selection": NAMES, "reason": WORDS, "paused_because": WORDS}),
    "BulkItem": Table("base.jobs base.jobwork", EVER, """
job: The bulk job.
outcome: What became of it; empty until it is done.
detail: The same in words.
done_at: When it was done.
""", {"detail": Personal.ANSWERS}),
    "Rollup": Table("base.rollups", "2, 8, 60 and 400 days, the longer the stretch", """
metric: What happened.
begins_at: Beginning of the stretch.
n: How often.
"""),
    "RollupTotal": Table("base.rollups", EVER, """
metric: What happened.
label: A class or an outcome; empty where the metric has none.
bucket: Of `rollups.bucket_of`; -1 where nothing was timed.
n: How often.
"""),
    "RollupMark": Table("base.rollups", EVER, """
source: Which source.
counted_until: Until when it was counted.
"""),
}  # fmt: skip
