"""The small world of `acting` on a store that speaks S3 over HTTP."""

from retention.models import Bucket
from retention.storage import BucketRef, VersionRef
from tests.ledger.acting import Acting, build
from tests.ledger.processes import Hooked
from tests.storage.labs import S3Lab


class Putting(Hooked):
    """A real store with what `Acting` needs to prepare it."""

    def __init__(self, lab: S3Lab) -> None:
        super().__init__(lab.store)
        self.lab = lab

    def put(self, bucket: BucketRef, key: str, body: bytes = b"x") -> VersionRef:
        return self.lab.put(bucket, key, body)


def world_at(url: str) -> Acting:
    lab = S3Lab("real", url)
    world = build(Putting(lab))
    place = lab.new_bucket()
    Bucket.objects.filter(pk=world.bucket.pk).update(
        name=place.name, endpoint_url=place.endpoint_url, region=place.region, addressing_style=place.addressing_style
    )
    world.bucket.refresh_from_db()
    return world
