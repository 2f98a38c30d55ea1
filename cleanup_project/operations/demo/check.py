"""Counts the demo again, from the bucket and by the pure rule, and says every difference in a sentence."""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator
from hashlib import sha256
from http.cookiejar import CookieJar
from typing import Any

from cleanup_project.operations.demo.stage import Played
from ledger.models import CleanupRun
from retention import why
from retention.buckets import ref
from retention.eligibility import Reason, Verdict
from retention.models import Bucket, ObjectVersion
from retention.storage import ListedVersion, store_for

Name = tuple[str, str, str]  # bucket, key, version id


def summary(played: Played, web_url: str) -> dict[str, Any]:
    """The main job in numbers, with a sentence for each deviation."""
    listed = dict(listing(played.scene.buckets))
    verdicts = [(row, why.why(row)) for row in ObjectVersion.objects.select_related("bucket", "tenant")]
    dry = [run for run in played.runs if run.mode == CleanupRun.Mode.DRY_RUN]
    deviations = [
        *catalogue_deviations(played, listed),
        *(sentence for run in played.runs for sentence in manifest_deviations(run, listed)),
        *expectation_deviations(played, dry),
        *rule_deviations(dry, verdicts),
        *web_deviations(web_url, played),
    ]
    return {
        "objects_listed": len(listed),
        "candidates": sum(run.item_count or 0 for run in dry),
        "held": sum(part.held for run in dry for part in run.parts.all()),
        "not_enforced": sum(part.not_enforced for run in played.runs for part in run.parts.all()),
        "unscheduled": sum(verdict.reason is Reason.UNSCHEDULED for _row, verdict in verdicts),
        "runs": [
            {"run": run.key, "mode": run.mode, "state": run.state, "root": run.manifest_root} for run in played.runs
        ],
        "deviations": deviations,
    }


def listing(buckets: list[Bucket]) -> Iterator[tuple[Name, ListedVersion]]:
    """Every version and marker, straight from the store."""
    for bucket in buckets:
        store, place = store_for(ref(bucket)), ref(bucket)
        key_marker = version_id_marker = None
        while True:
            page = store.list_versions(place, key_marker=key_marker, version_id_marker=version_id_marker)
            for each in page.versions:
                yield (bucket.name, each.key, each.version_id), each
            key_marker, version_id_marker = page.next_key_marker, page.next_version_id_marker
            if key_marker is None:
                break


def catalogue_deviations(played: Played, listed: dict[Name, ListedVersion]) -> Iterator[str]:
    if len(listed) != played.expected_listing:
        yield f"The store shows {len(listed)} versions, but {played.expected_listing} were made."
    rows = {
        (row.bucket.name, row.key, row.version_id): row
        for row in ObjectVersion.objects.present().select_related("bucket")
    }
    for name in listed.keys() ^ rows.keys():
        yield f"{name} is {'in the bucket' if name in listed else 'in the catalogue'} alone."
    for name in listed.keys() & rows.keys():
        if (listed[name].etag, listed[name].size) != (rows[name].etag, rows[name].size):
            yield f"{name} is catalogued with another ETag or size."


def manifest_deviations(run: CleanupRun, listed: dict[Name, ListedVersion]) -> Iterator[str]:
    """Targets that the bucket does not have exactly, and digests that do not lead to the root."""
    root = sha256()
    for part in run.parts.order_by("number"):
        lines = list(part.items.order_by("ordinal").values_list("line", flat=True))
        digest = sha256(b"".join(sha256(line.encode()).digest() for line in lines))
        root.update(digest.digest())
        if digest.hexdigest() != part.digest:
            yield f"{part.key} has another digest than its lines."
        for target in (target for line in lines for target in json.loads(line)["targets"]):
            found = listed.get((target["bucket"], target["key"], target["version_id"]))
            if found is None or found.etag != target["etag"]:
                yield f"{part.key} names {target['key']!r} {target['version_id']}, which the bucket does not have."
    if root.hexdigest() != run.manifest_root:
        yield f"{run.key} has another manifest root than its parts."


def expectation_deviations(played: Played, dry: list[CleanupRun]) -> Iterator[str]:
    """What the data set says must be due, against what the manifests name."""
    for run in dry:
        wanted = {
            (each.bucket, each.key): each.versions
            for each in played.objects
            if each.due_under == run.policy.code and not each.held
        }
        found: dict[tuple[str, str], int] = {}
        for line in run.items.values_list("line", flat=True):
            first = json.loads(line)["targets"][0]
            found[first["bucket"], first["key"]] = found.get((first["bucket"], first["key"]), 0) + 1
        for name in sorted(wanted.items() ^ found.items()):
            yield f"{run.policy.code}: {name[0]} should be named {wanted.get(name[0], 0)} times, is {found.get(name[0], 0)}."


def rule_deviations(dry: list[CleanupRun], verdicts: list[tuple[ObjectVersion, Verdict]]) -> Iterator[str]:
    """The pure rule, applied to every catalogued version, against the manifests that SQL froze."""
    eligible = {row.pk for row, verdict in verdicts if verdict.eligible}
    named = {pk for run in dry for pk in run.items.values_list("object_version_id", flat=True)}
    for pk in eligible ^ named:
        yield f"Object version {pk} is {'eligible by the rule' if pk in eligible else 'in a manifest'} alone."


def web_deviations(web_url: str, played: Played) -> Iterator[str]:
    """An auditor signs in and sees the runs."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    login = f"{web_url}/admin/login/?next=/admin/ledger/cleanuprun/"
    with browser.open(login) as page:
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.read().decode())
    form = {
        "username": "auditor",
        "password": played.scene.password,
        "csrfmiddlewaretoken": token.group(1) if token else "",
    }
    with browser.open(login, urllib.parse.urlencode(form).encode()) as page:
        text = page.read().decode()
    for run in played.runs:
        if run.key not in text:
            yield f"The auditor does not see {run.key}."
