"""What requests name, as far as the account of their token sees it: tenants by code, buckets by name, policies by code."""

from collections.abc import Iterable, Sequence
from typing import Any

from cleanup_project.base import tenancy
from cleanup_project.base.models import User
from cleanup_project.operations.api.problems import Problem
from cleanup_project.operations.api.shapes import Scope
from retention import buckets
from retention.exceptions import RetentionError
from retention.models import Bucket, RetentionPolicy, Tenant
from retention.models.scope import Scoped


def wrong(field: str, words: str) -> Problem:
    return Problem("invalid", words, errors={field: [words]})


def tenant(by: User, code: str, field: str = "tenant") -> Tenant:
    found = tenancy.scoped(Tenant.objects.all(), by, "code").filter(code=code).first()
    if found is None:
        raise wrong(field, f"There is no tenant {code} here that this token may see.")
    return found


def policy(by: User, code: str, field: str = "policy") -> RetentionPolicy:
    found = tenancy.scoped(RetentionPolicy.objects.all(), by, "tenant__code").filter(code=code).first()
    if found is None:
        raise wrong(field, f"There is no policy {code} here that this token may see.")
    return found


def bucket(by: User, name: str) -> Bucket:
    (found,) = some_buckets(by, [name], "bucket")
    return found


def some_buckets(by: User, names: Sequence[str], field: str) -> list[Bucket]:
    """Each of these, once; read once for all of them."""
    known = buckets.known(by.tenants)
    try:
        return [buckets.among(known, each) for each in dict.fromkeys(names)]
    except RetentionError as refusal:
        raise wrong(field, str(refusal)) from None


def scope(by: User, asked: Scope) -> dict[str, Any]:
    """As the verbs take it."""
    return {
        "tenant": tenant(by, asked.tenant),
        "buckets": some_buckets(by, asked.buckets, "buckets"),
        "prefixes": list(dict.fromkeys(asked.prefixes)),
        "retention_classes": list(dict.fromkeys(asked.retention_classes)),
    }


def bucket_names(rows: Iterable[Scoped]) -> dict[int, str]:
    """By number, of all that these name; one query."""
    wanted = {pk for row in rows for pk in row.bucket_ids}
    return dict(Bucket.objects.filter(pk__in=wanted).values_list("pk", "name"))


def scope_told(row: Scoped, names: dict[int, str]) -> dict[str, Any]:
    shown: Sequence[str] = [names.get(pk, str(pk)) for pk in row.bucket_ids]
    return {
        "tenant": row.tenant.code,
        "buckets": shown,
        "prefixes": row.prefixes,
        "retention_classes": row.retention_classes,
    }
