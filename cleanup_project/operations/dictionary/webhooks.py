"""Tables of the application `webhooks`."""

from typing import Final

from cleanup_project.operations.dictionary.tables import EVER, Personal, Table

NAMES, WORDS, ANSWERS = Personal.NAMES, Personal.WORDS, Personal.ANSWERS

TABLES: Final = {
    "Endpoint": Table("webhooks.endpoints webhooks.health", EVER, """
name: What people call it.
url: Where events are posted; its query may hold a secret of the receiver's.
created_at: When it was made.
disabled_at: Since when it is disabled; null: it is enabled.
disabled_reason: Why it is disabled.
concurrency: How many deliveries may be on their way to it at once.
concurrency_cut_at: When that was last halved.
""", {"disabled_reason": WORDS}),
    "EndpointSecret": Table("webhooks.secrets cleanup_project.operations.resealing", EVER, """
key_encrypted: The key, sealed under `ENCRYPTION_KEYS`.
expires_at: It signs until then; null: until it is rotated.
revoked_at: When it was ended at once.
"""),
    "Lane": Table("webhooks.outbox", EVER, """
subject: What the events are about: the asset, or what docs/events.md says.
n: The last sequence that was given.
""", {"subject": NAMES}),
    "OutboxEvent": Table("webhooks.outbox webhooks.settlement", EVER, """
type: Of docs/events.md.
subject: What it is about.
name: Of the fact, within its type.
occurrence: Of what may happen again: which time it was.
schema_version: Of the body.
emitted_at: When the fact was committed, as the body states it.
settled_at: When every delivery that was owed had been delivered or cancelled.
""", {"subject": NAMES, "name": NAMES, "command_key": NAMES, "body": NAMES}),
    "DetailedBody": Table("webhooks.outbox", "30 days after its event was settled (the sweep)", """
body: The frozen bytes, object keys included.
""", {"body": NAMES}),
    "Delivery": Table(
        "webhooks.outbox webhooks.claiming webhooks.recording webhooks.lanes webhooks.cancel webhooks.redelivery", EVER, """
requested_by: Who had it sent again; null: it was owed from the beginning.
sequence: Of the event.
attempts: Charged ones.
last_status: HTTP status of the last answer.
last_class: Class of the last failure.
last_error: What went wrong last.
cancel_reason: Why it is not owed any more.
""", {"last_error": ANSWERS, "cancel_reason": WORDS}),
    "DeliveryAttempt": Table("webhooks.claiming webhooks.recording", EVER, """
delivery: The delivery.
number: Which attempt of the delivery.
token: The lease token under which it was sent.
is_probe: Whether it asked if the circuit can close.
""", {"error": ANSWERS, "headers": ANSWERS, "response": ANSWERS}),
    "Ping": Table("webhooks.pings", EVER, """
event_id: Of the ping.
sent_by: Who sent it.
""", {"error": ANSWERS, "headers": ANSWERS, "response": ANSWERS}),
}  # fmt: skip
