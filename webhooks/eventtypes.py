"""What receivers are told: each type of event, the members of its data, and the JSON Schemas that are made of both.

The one source of docs/schemas and docs/events.md (`manage.py schemas`). Within a version members are added, never taken
away or given another meaning; anything else is a new version.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string", "minLength": 1}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "integer", "minimum": 1}
INSTANT: Final[Schema] = {
    "type": "string", "format": "date-time", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$",
}  # fmt: skip
DIGEST: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
OBJECTS: Final[Schema] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["bucket", "key", "version_id"],
        "properties": {"bucket": TEXT, "key": {"type": "string"}, "version_id": {"type": "string"}},
        "additionalProperties": True,
    },
}


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an event's data, in words and as a schema."""

    words: str
    schema: Schema
    required: bool = True


@dataclass(frozen=True, slots=True)
class EventType:
    """`words`: when it is told, in one line. `subject`: what its order and its sequence belong to."""

    words: str
    subject: str
    data: Mapping[str, Member] = field(default_factory=dict)
    version: int = 1


OF_RUN: Final = {
    "run": Member("The run's name.", TEXT),
    "policy": Member("The code of its policy.", TEXT),
}
MODE: Final = {"mode": Member("Whether it destroys anything.", one_of("dry_run", "enforce"))}
OF_COMMAND: Final = {
    "bytes": Member("The size of all targets.", COUNT),
    "command_key": Member("The command: tenant, asset, version and policy revision.", TEXT),
    "policy": Member("The code of the policy that governs it.", TEXT),
    "revision": Member("The number of that policy's revision.", NUMBER),
    "run": Member("The name of the run that it belongs to now.", TEXT),
    "targets": Member("How many object versions it names.", NUMBER),
    "objects": Member(
        "Bucket, key and version id of each target; for endpoints alone that ask for object keys.", OBJECTS, False
    ),
    "objects_omitted": Member("How many targets the body had no room for; beside `objects`.", COUNT, False),
}
OF_QUARANTINE: Final = {
    **OF_COMMAND,
    "attempts": Member("How many attempts were charged.", COUNT),
    "cycle": Member("Which cycle of the command it was; the first is 0.", COUNT),
    "failure_class": Member("What the last failure was.", TEXT),
}

OF_ALARM: Final = {
    "alarm": Member("The alarm's number.", NUMBER),
    "kind": Member("What kind of alarm it is, for example `run.tripped`.", TEXT),
    "raised_at": Member("When it was first noticed.", INSTANT),
    "subject_id": Member("The number of what it is about; empty: the installation.", {"type": "string"}),
    "subject_type": Member(
        "What that is, for example `ledger.cleanuprun`; empty: the installation.", {"type": "string"}
    ),
    "tenant": Member("The code of the tenant that it belongs to; empty: no single one.", {"type": "string"}),
}

TYPES: Final[Mapping[str, EventType]] = {
    "media.deleted": EventType(
        "Every target of a command is confirmed gone, and its receipt is written.",
        "the asset",
        {
            **OF_COMMAND,
            "outcome": Member(
                "By our request; found gone after an unresolved request of ours; or gone before any.",
                one_of("deleted", "by_absence", "already_absent"),
            ),
            "receipt_sha256": Member("SHA-256 of the receipt's bytes, in hex.", DIGEST),
        },
    ),
    "run.opened": EventType(
        "A run was opened: its manifest is being frozen.",
        "`run:` and the run's name",
        {
            **OF_RUN,
            **MODE,
            "as_of": Member("The instant at which eligibility is judged.", INSTANT),
            "by": Member("Who opened it: a person, a program, or the system.", one_of("person", "program", "system")),
            "erasure": Member("Whether it carries out an urgent erasure.", {"type": "boolean"}),
        },
    ),
    "run.needs_approval": EventType(
        "A run waits for a person, since it was sealed or since more was exempted from it.",
        "`run:` and the run's name",
        {
            **OF_RUN,
            **MODE,
            "because": Member(
                "The policy asks for it, a cap is exceeded, or an exemption has undone the authorisation.",
                one_of("policy", "cap", "exemption"),
            ),
            "bytes": Member("The size of all targets in the manifest.", COUNT),
            "caps": Member("The caps that it is over.", {"type": "array", "items": TEXT}),
            "exempt": Member("How many items were exempted when it began to wait; more may have been since.", COUNT),
            "items": Member("How many items the whole manifest has.", NUMBER),
            "manifest_root": Member(
                "SHA-256 over the digests of the manifest's parts, in hex. Where items are exempted, what is approved is the "
                "root of what remains, which the run's page states.",
                DIGEST,
            ),
            "targets": Member("How many object versions the manifest names.", NUMBER),
        },
    ),
    "run.tripped": EventType(
        "The circuit breaker stopped a run: too much of what it tried had failed.",
        "`run:` and the run's name",
        {
            **OF_RUN,
            "failed": Member("Outcomes that failed since the run began or was re-armed.", NUMBER),
            "minimum": Member("The number of outcomes from which it is judged.", COUNT),
            "percent": Member("The share that may fail.", COUNT),
            "tried": Member("All outcomes since then.", NUMBER),
        },
    ),
    "run.closed": EventType(
        "A run has ended: all that it names has an outcome, or a person cancelled it.",
        "`run:` and the run's name",
        {
            **OF_RUN,
            **MODE,
            "counts": Member(
                "Items by outcome; empty where nothing was to be destroyed, and where it was cancelled.",
                {"type": "object", "additionalProperties": COUNT},
            ),
            "items": Member(
                "How many items the manifest has; null where it was never sealed.",
                {**COUNT, "type": ["integer", "null"]},
            ),
            "manifest_root": Member(
                "SHA-256 over the digests of the manifest's parts, in hex; empty where it was never sealed.",
                {"type": "string", "pattern": "^([0-9a-f]{64})?$"},
            ),
            "state": Member("How it ended.", one_of("closed", "cancelled")),
        },
    ),
    "hold.placed": EventType(
        "A legal hold is in force.",
        "`hold:` and the hold's number",
        {
            "buckets": Member("How many buckets its scope names.", NUMBER),
            "dated": Member("Whether it covers a range of dates alone.", {"type": "boolean"}),
            "hold": Member("The hold's number.", NUMBER),
            "prefixes": Member("How many key prefixes its scope names.", NUMBER),
            "retention_classes": Member("How many retention classes its scope names; 0: every class.", COUNT),
        },
    ),
    "hold.released": EventType(
        "A legal hold was released by two people: what it covered returns to its schedule.",
        "`hold:` and the hold's number",
        {
            "hold": Member("The hold's number.", NUMBER),
            "placed_at": Member("Since when it was in force.", INSTANT),
            "release": Member("The number of the request that was approved.", NUMBER),
        },
    ),
    "quarantine.entered": EventType(
        "A command failed for good: a person must decide.", "the asset", OF_QUARANTINE
    ),
    "quarantine.resolved": EventType(
        "A quarantine entry was closed, or its command goes on or has succeeded.",
        "the asset",
        {
            **OF_QUARANTINE,
            "resolution": Member(
                "A person had it replayed or closed it; a later run took it up; or it was found deleted.",
                one_of("replayed", "closed", "adopted", "deleted"),
            ),
        },
    ),
    "endpoint.disabled": EventType(
        "An endpoint was disabled, by the rules or by a person: its events are held. Of a retired one, none is owed.",
        "`endpoint:` and the endpoint's number",
        {
            "endpoint_id": Member("The endpoint's number.", NUMBER),
            "rule": Member(
                "What did it: no success for too long, 410 twice, an address that is not allowed, or a person.",
                one_of("failing", "gone", "blocked", "person"),
            ),
        },
    ),
    "alarm.raised": EventType("Something needs a person.", "`alarm:` and the alarm's number", OF_ALARM),
    "alarm.cleared": EventType(
        "What an alarm was about is over.",
        "`alarm:` and the alarm's number",
        {**OF_ALARM, "cleared_at": Member("When it was over.", INSTANT)},
    ),
}  # fmt: skip
# Sent when a person asks for it, whatever the endpoint subscribes to; in no lane, so its sequence is 0.
PING: Final = "endpoint.ping"
PINGED: Final = EventType(
    "A person asked whether the endpoint answers.",
    "`endpoint:` and the endpoint's number",
    {"endpoint": Member("The endpoint's name.", TEXT)},
)

# What an endpoint can subscribe to, each type in one line.
EVENT_TYPES: Final[Mapping[str, str]] = {name: each.words for name, each in TYPES.items()}
EVERY: Final[Mapping[str, EventType]] = {**TYPES, PING: PINGED}


def file_name(type: str) -> str:
    return f"{type}.v{EVERY[type].version}.json"


def schema(type: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a whole body of this type."""
    told = EVERY[type]
    envelope: dict[str, Schema] = {
        "id": {
            "type": "string",
            "pattern": "^evt_[a-z2-7]{40}$",
            "description": "Of the fact: the same on every attempt and redelivery.",
        },
        "type": {"const": type, "description": told.words},
        "schema_version": {"const": told.version, "description": "Rises when a member goes or changes its meaning."},
        "timestamp": {**INSTANT, "description": "When it was written, in the transaction of its fact; UTC."},
        "subject": {**TEXT, "description": f"Events of one subject come in order. Here: {told.subject}."},
        "sequence": {**COUNT, "description": "Counts the subject's events of all types from 1, without a gap."},
        "data": data_schema(told),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": file_name(type),
        "title": type,
        "description": told.words,
        "type": "object",
        "required": sorted(envelope),
        "properties": envelope,
        "additionalProperties": True,
    }


def data_schema(told: EventType) -> dict[str, Any]:
    return {
        "type": "object",
        "required": sorted(name for name, member in told.data.items() if member.required),
        "properties": {
            name: {**member.schema, "description": member.words} for name, member in sorted(told.data.items())
        },
        "additionalProperties": True,
    }


def page() -> str:
    """Every type with its subject and its members, in Markdown."""
    rows = "".join(f"| `{name}` | {each.subject} | {each.words} |\n" for name, each in EVERY.items())
    table = f"| type | subject | when |\n|---|---|---|\n{rows}"
    return "\n".join([table, *(chapter(name, each) for name, each in EVERY.items())])


def chapter(name: str, told: EventType) -> str:
    rows = "".join(
        f"| `{member}` | {each.words}{'' if each.required else ' Optional.'} |\n"
        for member, each in sorted(told.data.items())
    )
    return (
        f"## {name}\n\nVersion {told.version}: [{file_name(name)}](schemas/{file_name(name)})\n\n"
        f"| member of `data` | meaning |\n|---|---|\n{rows}"
    )
