"""What the demo's buckets hold, and what must become of each object: the yardstick of `demo --check`."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

MEDIA: Final = "demo-media"
LOCKED: Final = "demo-locked"
HELD_DAY: Final = 450  # days ago

ORIGINALS: Final = "originals-1-year"
EXPORTS: Final = "exports-90-days"
UPLOADS: Final = "uploads-30-days"
CONTRACTS: Final = "contracts-forever"


@dataclass(frozen=True, slots=True)
class Put:
    """One object to store, `versions` times. `due_under` names the policy that finds it due; None: nothing does."""

    bucket: str
    key: str
    due_under: str | None = None
    held: bool = False
    versions: int = 1
    locked: bool = False
    denied: bool = False
    deleted: bool = False


def folder(days_ago: int, today: date) -> str:
    """The date part of a key."""
    return (today - timedelta(days=days_ago)).strftime("%Y/%m/%d")


def objects(today: date) -> list[Put]:
    """A few hundred small media objects, dated by their keys."""
    return [*originals(today), *awkward(today), *exports(today), *others(), *locked(today), *denied(today)]


def originals(today: date) -> Iterator[Put]:
    """Originals with their thumbnails: some due for a year's retention, some not yet, ten of them on hold."""
    for n in range(110):
        day = folder(370 + n, today)
        yield Put(MEDIA, f"originals/{day}/clip-{n:04d}.mp4", ORIGINALS, held=370 + n == HELD_DAY)
        yield Put(MEDIA, f"thumbs/{day}/clip-{n:04d}.jpg")
    for n in range(9):
        yield Put(MEDIA, f"originals/{folder(HELD_DAY, today)}/evidence-{n}.mp4", ORIGINALS, held=True)
    for n in range(100):
        day = folder(5 + n, today)
        yield Put(MEDIA, f"originals/{day}/clip-{n + 500:04d}.mp4")
        yield Put(MEDIA, f"thumbs/{day}/clip-{n + 500:04d}.jpg")
    for n in range(10):
        yield Put(MEDIA, f"originals/{folder(600 + n, today)}/retake-{n}.mp4", ORIGINALS, versions=3)


def awkward(today: date) -> Iterator[Put]:
    """Keys that lesser tools confuse with one another."""
    day = folder(420, today)
    for name in ("a+b %41 &amp;", "caf\u00e9", "cafe\u0301", "\U0001f3ac take 1", "100%", "=SUM(A1)", "x" * 150):
        yield Put(MEDIA, f"originals/{day}/{name}.mp4", ORIGINALS)
    yield Put(MEDIA, "originals/2023/02/29/no-such-day.mp4")  # an unknown date is never due
    for key in ("originals//2020/01/01/x.mp4", "/leading.mp4", "folder/", "misc/ blank .txt"):
        yield Put(MEDIA, key)  # no rule matches: unscheduled


def exports(today: date) -> Iterator[Put]:
    """Monthly exports: due after 90 days, but the two newest of each series are always kept."""
    for series in ("finance", "usage", "audit"):
        for n in range(12):
            day = today - timedelta(days=30 * n)
            yield Put(MEDIA, f"exports/{series}/{day:%Y-%m-%d}.csv", EXPORTS if n >= 3 else None)
    for n in range(3):
        day = today - timedelta(days=200 + 30 * n)
        yield Put(MEDIA, f"exports/legacy/{day:%Y-%m-%d}.csv", EXPORTS if n == 2 else None)


def others() -> Iterator[Put]:
    """Uploads of another tenant, some deleted by it; contracts that are kept for ever; files that no policy covers."""
    for n in range(40):
        yield Put(MEDIA, f"uploads/{n:03d}.bin", deleted=n < 5)
    for n in range(15):
        yield Put(MEDIA, f"contracts/{n:03d}.pdf")
    for n in range(10):
        yield Put(MEDIA, f"misc/{n:03d}.txt")


def denied(today: date) -> Iterator[Put]:
    """Due originals that the store's policy lets nobody delete."""
    for n in range(3):
        yield Put(MEDIA, f"originals/{folder(500 + n, today)}/denied-{n}.mp4", ORIGINALS, denied=True)


def stale(today: date) -> list[dict[str, str]]:
    """What an old export of another system still names, as rows of an import: versions that the bucket does not have."""
    common = {"etag": "0" * 32, "size": "1000", "last_modified": "2020-01-01T00:00:00Z"}
    day = folder(800, today)
    return [
        {"key": f"originals/{day}/removed-elsewhere.mp4", "version_id": "00000000-0000-4000-8000-000000000000"}
        | common,
        {"key": f"originals/{day}/mistyped.mp4", "version_id": "not-a-version-id"} | common,
    ]


def locked(today: date) -> Iterator[Put]:
    """Due originals that the store itself locks; a scan cannot know, the delete call will be told."""
    for n in range(6):
        yield Put(LOCKED, f"originals/{folder(700 + n, today)}/master-{n}.mp4", ORIGINALS, locked=True)
