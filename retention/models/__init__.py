from retention.models.catalogue import (
    Bucket,
    CatalogueSync,
    KeyRule,
    ObjectVersion,
    Role,
    Tenant,
)
from retention.models.control import Control, StopSwitch
from retention.models.disposition import Disposition
from retention.models.event import RetentionEvent
from retention.models.hold import HoldPrefix, HoldRelease, LegalHold
from retention.models.lifecycle import LifecycleRule
from retention.models.policy import Enforcement, EnforcementRequest, PolicyRevision, RetentionPolicy
from retention.models.preview import ImpactPreview
from retention.models.scope import ANY_CLASS, Scoped

__all__ = [
    "ANY_CLASS",
    "Bucket",
    "CatalogueSync",
    "Control",
    "Disposition",
    "Enforcement",
    "EnforcementRequest",
    "HoldPrefix",
    "HoldRelease",
    "ImpactPreview",
    "KeyRule",
    "LegalHold",
    "LifecycleRule",
    "ObjectVersion",
    "PolicyRevision",
    "RetentionEvent",
    "RetentionPolicy",
    "Role",
    "Scoped",
    "StopSwitch",
    "Tenant",
]
