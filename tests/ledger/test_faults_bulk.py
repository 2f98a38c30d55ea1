"""Eighty thousand commands, a prefix that is denied and a key that the store cannot read: the others are not held up."""

from collections.abc import Collection

import pytest
from django.db.models import Count

from ledger import publish
from ledger.models import DeadLetter, Receipt
from ledger.states import RunState
from retention.storage import BucketRef, DeleteOutcome, Failure, FailureClass, VersionRef
from retention.storage.memory import MemoryStore
from tests.ledger import invariants
from tests.ledger.acting import build
from webhooks.models import OutboxEvent

OBJECTS = 80_000
DENIED = 37
MALFORMED = "b/malformed"


class Denying(MemoryStore):
    """Denies a prefix for ever, and refuses to understand one key."""

    def _delete(self, bucket: BucketRef, ref: VersionRef) -> DeleteOutcome:
        kind = FailureClass.PERMISSION if ref.key.startswith("denied/") else None
        kind = FailureClass.MALFORMED_REQUEST if ref.key == MALFORMED else kind
        if kind is not None:
            return DeleteOutcome.failed(Failure.of(kind, kind, "said the store"), sent=True)
        return super()._delete(bucket, ref)

    def inspect(
        self, bucket: BucketRef, refs: Collection[VersionRef], *, deadline_seconds: float = 60.0
    ) -> dict[VersionRef, object]:
        self.calls.clear()  # nobody asks for them here, and they would be many
        return super().inspect(bucket, refs, deadline_seconds=deadline_seconds)


@pytest.mark.bulk
@pytest.mark.django_db(transaction=True)
def test_a_denied_prefix_and_a_malformed_key_do_not_stop_the_other_seventy_nine_thousand() -> None:
    world = build(Denying())
    done = OBJECTS - DENIED - 1
    world.fill([f"a/{n:05}" for n in range(done)] + [MALFORMED] + [f"denied/{n:02}" for n in range(DENIED)])
    run = world.run()
    while run.state != RunState.CLOSED:
        assert world.drain(budget_seconds=600).commands
        publish.publish(run.pk)
        world.settled()
        run.refresh_from_db()
    assert run.counts == {"deleted": done, "dead": DENIED + 1}
    assert Receipt.objects.count() == OutboxEvent.objects.filter(type="media.deleted").count() == done
    quarantine = DeadLetter.objects.filter(resolved_at=None).values_list("failure_class")
    assert dict(quarantine.annotate(Count("pk")).order_by()) == {"permission": DENIED, "malformed_request": 1}
    assert DeadLetter.objects.get(failure_class="malformed_request").command.targets.get().key == MALFORMED
    invariants.check(world.stores)
