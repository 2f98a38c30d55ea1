"""Who may decide what: the role matrix as data, and its groups.

The rights hang on the unmanaged model `base.Right`; groups are brought in line with `MATRIX` after every migration, so
that the table below is the truth. Approvals are decisions of named people: being a superuser grants none of them.
"""

from typing import Any, Final

from django.apps import AppConfig, apps

RIGHTS: Final = {
    "draft_policy": "Draft and submit a retention policy",
    "publish_policy": "Publish a policy revision or widen enforcement (not the author)",
    "approve_run": "Approve a run, exempt items (not who opened it)",
    "place_hold": "Place a legal hold, request its release",
    "approve_release": "Approve the release of a hold (not who asked)",
    "review_quarantine": "Review quarantine, close without retry",
    "operate": "Replay, pause, resume, manage endpoints, redeliver",
    "post_event": "Post or withdraw a retention event",
    "stop": "Press the stop switch",
    "rearm": "Lift the stop switch, re-arm a circuit breaker",
    "read_everything": "Read everything",
    "export_receipts": "Export receipts",
    "manage_settings": "Manage users, buckets, tokens and settings",
}

# Rights by which something is decided, or by which other people get theirs: whoever has one needs a second factor.
DECIDING: Final = frozenset(RIGHTS) - {"draft_policy", "stop", "read_everything", "export_receipts"}

RETENTION_MANAGER: Final = "Retention manager"
COMPLIANCE: Final = "Compliance"
OPERATOR: Final = "Operator"
AUDITOR: Final = "Auditor"
ADMINISTRATOR: Final = "Administrator"

MATRIX: Final[dict[str, frozenset[str]]] = {
    RETENTION_MANAGER: frozenset({"draft_policy", "publish_policy", "approve_run", "post_event", "stop"}),
    COMPLIANCE: frozenset(RIGHTS) - {"draft_policy", "manage_settings"},
    OPERATOR: frozenset({"operate", "stop"}),
    AUDITOR: frozenset({"read_everything", "export_receipts"}),
    ADMINISTRATOR: frozenset({"manage_settings", "stop"}),
}

# A superuser repairs settings and reads; every other right is a decision that only a role gives.
SUPERUSER_RIGHTS: Final = frozenset({"manage_settings", "read_everything"})

# Which applications' records each role sees in the admin; None stands for all of them.
READS: Final[dict[str, frozenset[str] | None]] = {
    RETENTION_MANAGER: frozenset({"retention", "ledger"}),
    COMPLIANCE: None,
    OPERATOR: frozenset({"retention", "ledger", "webhooks"}),
    AUDITOR: None,
    ADMINISTRATOR: frozenset({"base", "retention"}),
}

# What is wrong now concerns every role.
SEEN_BY_ALL: Final = frozenset({"view_alarm"})


def bring_groups_in_line(app_config: AppConfig, **_: Any) -> None:
    """`post_migrate` receiver: make each role's group hold exactly its rights and its view permissions.

    Runs once for each application; permissions of one that is not migrated yet follow with its own turn.
    """
    from django.contrib.auth.management import create_permissions
    from django.contrib.auth.models import Group, Permission

    create_permissions(app_config, verbosity=0)
    if not apps.is_installed("django.contrib.auth") or app_config.label not in {
        "base",
        "retention",
        "ledger",
        "webhooks",
    }:
        return
    own = Permission.objects.filter(content_type__app_label=app_config.label)
    for role, rights in MATRIX.items():
        group, _created = Group.objects.get_or_create(name=role)
        reads = READS[role]
        viewable = (
            own.filter(codename__startswith="view_") if reads is None or app_config.label in reads else own.none()
        )
        wanted = set(viewable) | set(own.filter(codename__in=rights | SEEN_BY_ALL))
        group.permissions.remove(*own.exclude(pk__in=[permission.pk for permission in wanted]))
        group.permissions.add(*wanted)
