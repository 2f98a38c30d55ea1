"""The demo's people, catalogue settings, policies and hold: made by the same verbs that people use."""

import secrets
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from django.contrib.auth.models import Group

from cleanup_project.base import roles
from cleanup_project.base.models import User
from cleanup_project.operations.demo import dataset
from retention import enforcement, holds, policies, preview
from retention.models import Bucket, KeyRule, RetentionPolicy, Tenant

PEOPLE: Final = {
    "manager": roles.RETENTION_MANAGER,
    "manager2": roles.RETENTION_MANAGER,
    "compliance": roles.COMPLIANCE,
    "compliance2": roles.COMPLIANCE,
    "operator": roles.OPERATOR,
    "auditor": roles.AUDITOR,
    "administrator": roles.ADMINISTRATOR,
}
ORIGINAL: Final = "originals/{year}/{month}/{day}/{asset}.mp4"
EPOCH: Final = datetime(2020, 1, 1, tzinfo=UTC)


# Policy: whose it is, in which buckets, and what its revision says.
TERMS: Final[dict[str, tuple[str, tuple[str, ...], dict[str, Any]]]] = {
    dataset.ORIGINALS: (
        "acme",
        ("media", "locked"),
        {
            "title": "Original footage",
            "authority": "Production agreement, section 12",
            "prefixes": ["originals/"],
            "retention_classes": ["video"],
            "trigger": "dated_at",
            "period_number": 365,
            "period_unit": "days",
            "authorisation": "standing",
            "already_absent": "success",
            "cap_share_percent": 75,  # the first run makes up for years
        },
    ),
    dataset.EXPORTS: (
        "acme",
        ("media",),
        {
            "title": "Monthly exports",
            "authority": "Data minimisation policy 3.1",
            "prefixes": ["exports/"],
            "retention_classes": ["export"],
            "trigger": "dated_at",
            "period_number": 90,
            "period_unit": "days",
            "keep_newest": 2,
        },
    ),
    dataset.UPLOADS: (
        "globex",
        ("media",),
        {
            "title": "Raw uploads",
            "authority": "Terms of service, section 7",
            "prefixes": ["uploads/"],
            "retention_classes": ["*"],
            "trigger": "stored_at",
            "period_number": 30,
            "period_unit": "days",
            "remove_expired_markers": True,
        },
    ),
    dataset.CONTRACTS: (
        "acme",
        ("media",),
        {
            "title": "Contracts",
            "authority": "Commercial code",
            "prefixes": ["contracts/"],
            "retention_classes": ["contract"],
            "trigger": "stored_at",
            "period_number": 0,
            "period_unit": "days",
            "retain_permanently": True,
        },
    ),
}


@dataclass(frozen=True)
class Scene:
    """What the demo works on."""

    password: str
    buckets: list[Bucket]
    policies: list[RetentionPolicy]
    operator: User


def build(endpoint_url: str, today: date) -> Scene:
    """Make everything that is there before the first sync."""
    password = secrets.token_urlsafe(9)
    people = {name: person(name, role, password) for name, role in PEOPLE.items()}
    # Revisions come into force at once, so that there is something to see.
    acme = Tenant.objects.create(code="acme", name="Acme Media", shortening_delay_hours=0)
    globex = Tenant.objects.create(code="globex", name="Globex", shortening_delay_hours=0)
    store = {"endpoint_url": endpoint_url, "addressing_style": Bucket.Addressing.PATH}
    media = Bucket.objects.create(name=dataset.MEDIA, **store)
    locked = Bucket.objects.create(name=dataset.LOCKED, **store)
    key_rules(media, locked, acme, globex)
    made = policies_of(acme, globex, media, locked, people["manager"], people["manager2"])
    holds.place(
        tenant=acme,
        matter="Doe v. Acme, 24-cv-0117",
        title="Footage of the incident",
        authority="Preservation order of the district court",
        reason="Litigation",
        custodian="Studio archive",
        buckets=[media],
        prefixes=[f"originals/{dataset.folder(dataset.HELD_DAY, today)}/"],
        retention_classes=["*"],
        by=people["compliance"],
    )
    for bucket, prefix in ((media, "originals/"), (media, "thumbs/"), (locked, "originals/")):
        asked = enforcement.request(
            tenant=acme,
            bucket=bucket,
            prefix=prefix,
            by=people["manager"],
            reason="Originals and their thumbnails come first",
        )
        enforcement.approve(request=asked, by=people["manager2"], reason="Their dry runs were read")
    return Scene(password, [media, locked], made, people["operator"])


def person(name: str, role: str, password: str) -> User:
    made = User.objects.create_user(name, email=f"{name}@example.org", password=password, is_staff=True)
    made.groups.add(Group.objects.get(name=role))
    return made


def key_rules(media: Bucket, locked: Bucket, acme: Tenant, globex: Tenant) -> None:
    """How keys say what an object is."""
    rows: list[dict[str, Any]] = [
        {"pattern": ORIGINAL, "tenant": acme, "retention_class": "video"},
        {
            "pattern": "thumbs/{year}/{month}/{day}/{asset}.jpg",
            "tenant": acme,
            "role": "derivative",
            "original_key": ORIGINAL,
        },
        {
            "pattern": "exports/{set}/{year}-{month}-{day}.csv",
            "tenant": acme,
            "series": "{set}",
            "retention_class": "export",
        },
        {"pattern": "contracts/{asset}.pdf", "tenant": acme, "retention_class": "contract"},
        {"pattern": "uploads/{_*}", "tenant": globex, "retention_class": "upload"},
    ]
    for bucket, wanted in ((media, rows), (locked, rows[:1])):
        for position, row in enumerate(wanted, 1):
            rule = KeyRule(bucket=bucket, position=10 * position, **row)
            rule.full_clean()
            rule.save()


def policies_of(
    acme: Tenant, globex: Tenant, media: Bucket, locked: Bucket, author: User, publisher: User
) -> list[RetentionPolicy]:
    """Four policies, each drafted by one manager and published by the other."""
    tenants, buckets = {"acme": acme, "globex": globex}, {"media": media, "locked": locked}
    made = []
    for code, (owner, places, fields) in TERMS.items():
        policy = policies.create(tenant=tenants[owner], code=code, by=author)
        bucket_ids = [buckets[place].pk for place in places]
        revision = policies.draft(
            policy=policy, by=author, bucket_ids=bucket_ids, retroactive=True, effective_from=EPOCH, **fields
        )
        policies.submit(revision=revision, by=author)
        preview.request(revision=revision, by=author)
        policies.publish(revision=revision, by=publisher, reason="Agreed with legal")
        made.append(policy)
    return made
