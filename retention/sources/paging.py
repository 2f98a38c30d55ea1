"""Reading a listing to its end without losing a version on the way.

A listing is not a snapshot. While it is read, versions disappear, and stores differ in what they do when the version
that marks the place is gone: some end the listing, some skip the rest of the key. So a page is resumed by key alone: its
last key, of which more may follow, is read again with the next page. Only where one key fills a page must a version mark
the place; it is then looked at once the next page is there, and where it has gone, the key is read again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from retention import catalogue
from retention.exceptions import RetentionError
from retention.storage import BucketRef, ListedVersion, ListPage, ObjectStore, Presence, VersionRef

MAX_RESTARTS: Final = 20  # of one key, whose versions are being deleted while we read them


class ListingUnusable(RetentionError):
    """The store's pages cannot be put together to a whole."""


@dataclass(frozen=True, slots=True)
class Page:
    """Versions that one request showed, and the database's time before it was sent.

    Every version up to the key `after` has now been shown; `counted` is by how many versions that is more than before
    (0 in the middle of a key that fills pages).
    """

    versions: Sequence[ListedVersion]
    observed_at: datetime
    after: str
    counted: int


def pages(store: ObjectStore, place: BucketRef, *, prefix: str = "", after: str = "") -> Iterator[Page]:
    """The listing behind the key `after`, in key order. A version may be shown twice, none is left out.

    Raises StorageError, and ListingUnusable for pages that make no sense.
    """
    at: VersionRef | None = None  # the place within a key that fills pages
    pending = restarts = 0
    while True:
        observed_at = catalogue.now()
        page = store.list_versions(
            place,
            prefix=prefix,
            key_marker=at.key if at else after or None,
            version_id_marker=at.version_id if at else None,
        )
        if at is not None and not still_there(store, place, at):
            restarts += 1
            if restarts > MAX_RESTARTS:
                raise ListingUnusable(
                    f"The versions of {at.key!r} disappear faster than they can be listed. Try later."
                )
            at, pending = None, 0
            continue
        # moto repeats a version of the marker's key.
        versions = [each for each in page.versions if not after or each.key > after]
        if page.next_key_marker is None:
            last = versions[-1].key if versions else after
            yield Page(versions, observed_at, last, pending + len(versions))
            return
        whole = [each for each in versions if each.key < page.next_key_marker]
        check_progress(page, versions)
        if whole:
            yield Page(whole, observed_at, whole[-1].key, pending + len(whole))
            after, at, pending, restarts = whole[-1].key, None, 0, 0
        else:
            pending += len(versions)
            yield Page(versions, observed_at, after, 0)
            at = within(page)


def check_progress(page: ListPage, versions: Sequence[ListedVersion]) -> None:
    """A truncated page must bring something new, in key order, and end where it says."""
    if not versions or versions[-1].key != page.next_key_marker:
        raise ListingUnusable(
            f"The store's listing is not in key order, or goes in circles: a page ends at "
            f"{versions[-1].key if versions else None!r} and says that it ends at {page.next_key_marker!r}."
        )


def within(page: ListPage) -> VersionRef:
    """The version behind which a page of one single key goes on."""
    if page.next_key_marker is None or not page.next_version_id_marker:
        raise ListingUnusable(f"The store gives no version marker within {page.next_key_marker!r}.")
    return VersionRef(page.next_key_marker, page.next_version_id_marker)


def still_there(store: ObjectStore, place: BucketRef, ref: VersionRef) -> bool:
    """Whether the version is surely there: then it was so when the page behind it was read."""
    seen = store.inspect(place, [ref])[ref]
    return seen.state in (Presence.PRESENT, Presence.DELETE_MARKER)
