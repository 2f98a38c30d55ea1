"""Execute a claimed batch: evidence before, request rows, control read, delete, evidence after.

No transaction is open during any call of the store; each command ends with one verdict, for `settle` to write.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from django.db import connection

from cleanup_project.base import clock
from cleanup_project.base.arrays import array
from cleanup_project.base.canonical import instant
from ledger import answers, claim, pace
from ledger.answers import Look
from ledger.batch import Batch, Claimed, Target
from ledger.claim import DELETE_SECONDS
from ledger.failures import Then, Trouble, rule_of
from ledger.outcomes import Outcome, Verdict
from retention import control
from retention.buckets import ref
from retention.models import Bucket, PolicyRevision
from retention.storage import (
    BucketRef,
    DeleteOutcome,
    Failure,
    FailureClass,
    ObjectStore,
    Presence,
    VersionRef,
    store_for,
)

Stores = Callable[[BucketRef], ObjectStore]
INSPECT_SECONDS: Final = 60.0
NOT_SENT_SECONDS: Final = 5.0  # until a command is due again that a halted request did not reach


@dataclass(slots=True)
class Executed:
    """The verdicts of a batch; `pause`: a fault that reaches beyond objects, after which the bucket is left alone."""

    verdicts: list[Verdict] = field(default_factory=list)
    pause: Failure | None = None
    throttled: bool = False


def execute(batch: Batch, stores: Stores = store_for) -> Executed:
    """Do what the batch's commands order, or find out what became of earlier requests."""
    job = Job(batch, stores)
    job.look_at_doubtful()
    job.gather_evidence()
    if job.commit_requests():
        job.delete(first := job.first_wave())
        job.delete(job.second_wave(first))
        job.conclude()
    return job.done


class Job:
    """One batch on its way through the steps; a command with a verdict has left `going`."""

    def __init__(self, batch: Batch, stores: Stores) -> None:
        self.batch, self.stores = batch, stores
        self.done = Executed()
        self.going = {each.id: each for each in batch.commands if not each.inspect_due}
        self.answers: dict[int, DeleteOutcome] = {}  # by target
        self.seen: dict[int, Look] = {}  # after the deletion, by target
        named = {target.bucket_id for each in batch.commands for target in each.targets} | {batch.bucket_id}
        self.buckets = {bucket.pk: bucket for bucket in Bucket.objects.filter(pk__in=named)}
        self.settle_seconds = float(max(bucket.settle_seconds for bucket in self.buckets.values()))

    def look_at_doubtful(self) -> None:
        """Find out what became of requests that we lost sight of: read-only, so allowed under a hold."""
        looking = [each for each in self.batch.commands if each.inspect_due]
        seen = self.inspect(open_targets(looking))
        self.done.verdicts += [self.verdict_of_look(command, seen) for command in looking]

    def verdict_of_look(self, command: Claimed, seen: Mapping[int, Look]) -> Verdict:
        unseen = answers.note_gone(command, seen, before={"method": "an earlier request of ours"})
        if unseen is not None:
            self.heed(unseen)
            kind = answers.trouble_of_look(unseen)
            return Verdict.unseen(command, kind, answers.of_look(unseen), self.settle_seconds)
        if all(target.gone_at for target in command.targets):
            return Verdict.gone(command, Outcome.BY_ABSENCE, sent=False)
        return Verdict.present(command)

    def gather_evidence(self) -> None:
        """Evidence before: a recent listing of ours, else a look now. What is not there was not destroyed by us."""
        for command in [each for each in self.going.values() if not open_targets([each])]:
            self.leave(self.verdict_of_absence(command))  # seen absent in an earlier cycle: there is nothing to send
        unproven = list[Target]()
        for target in open_targets(self.going.values()):
            if target.listed_at is None:
                unproven.append(target)
            else:
                target.evidence = {"at": target.listed_at, "method": "listing"}
        if not unproven:
            return
        seen = self.inspect(unproven)
        for command in list(self.going.values()):
            if any(target.id in seen for target in command.targets):
                verdict = self.verdict_before(command, seen)
                if verdict is not None:
                    self.leave(verdict)

    def verdict_before(self, command: Claimed, seen: Mapping[int, Look]) -> Verdict | None:
        for target in open_targets([command]):
            if target.id in seen and answers.names_nothing(target, seen[target.id]) and not asked_before(command):
                detail = answers.of_look(seen[target.id])
                refused = seen[target.id].seen.failure
                return Verdict.failed(command, FailureClass.MALFORMED_VERSION, detail, sent=False, failure=refused)
        answers.note_gone(command, seen, before={"method": "none"})
        for target in command.targets:
            if target.id not in seen or target.gone_at:
                continue
            look = seen[target.id]
            trouble = answers.mismatch(target, look)
            if trouble is not None:
                self.heed(look)
                return Verdict.failed(command, trouble, answers.of_look(look), sent=False, failure=look.seen.failure)
            target.evidence = answers.evidence(look)
        if all(target.gone_at for target in command.targets):
            return self.verdict_of_absence(command)
        return None

    def verdict_of_absence(self, command: Claimed) -> Verdict:
        """Gone although this claim has sent nothing: by an earlier request of ours, or by somebody else."""
        if command.claims > 1 and asked_before(command):
            return Verdict.gone(command, Outcome.BY_ABSENCE, sent=False)
        said = PolicyRevision.objects.values_list("already_absent", flat=True).get(pk=command.revision_id)
        if said == PolicyRevision.AlreadyAbsent.SUCCESS:
            return Verdict.gone(command, Outcome.ALREADY_ABSENT, sent=False)
        return Verdict.dead(command, Trouble.ALREADY_ABSENT, "It was not there before any request of ours.")

    def commit_requests(self) -> bool:
        """Commit a request row for each command before anything is sent; False where nothing is left to send."""
        if not self.going:
            return False
        sent_before = max(0.0, self.batch.send_until - time.monotonic()) + DELETE_SECONDS
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO ledger_request (command_id, token, made_at, sent_before, worker) "
                "SELECT id, token, statement_timestamp(), statement_timestamp() + %s * interval '1 s', %s "
                "FROM unnest(%s::bigint[], %s::bigint[]) AS u (id, token)",
                [sent_before, self.batch.worker, array(self.going), array(each.token for each in self.going.values())],
            )
        return self.allowed()

    def allowed(self) -> bool:
        """The control read: while the epoch has moved, look again at every command and keep those that still may."""
        while self.going and control.read(self.batch.tenant_id)[0] != self.batch.epoch:
            kept = claim.recheck(self.batch, list(self.going.values()))
            self.going = {each.id: each for each in kept}
        return bool(self.going)

    def first_wave(self) -> list[Target]:
        """Every open target, but for current versions of which the command names older ones, too."""
        return [
            target
            for command in self.going.values()
            for target in open_targets([command])
            if not (target.current and older_ones(command, target))
        ]

    def second_wave(self, first: Sequence[Target]) -> list[Target]:
        """Those current versions, where all that is older was seen to be gone: it would come back to life otherwise."""
        sent = {target.id for target in first}
        return [
            target
            for command in self.going.values()
            for target in open_targets([command])
            if target.id not in sent and all(self.is_gone(older) for older in older_ones(command, target))
        ]

    def is_gone(self, target: Target) -> bool:
        return target.id in self.seen and self.seen[target.id].seen.state is Presence.GONE

    def delete(self, wave: Sequence[Target]) -> None:
        """Ask the store for each bucket's targets, and look at what it says is gone, or does not know.

        `proceed` reads the control row before each wave of a call's requests.
        """
        for bucket_id, targets in by_bucket(wave).items():
            if bucket_id != self.batch.bucket_id:
                pace.correct(bucket_id, len(targets))
            for chunk in chunks(targets):
                said = self.store(bucket_id).delete_versions(
                    ref(self.buckets[bucket_id]),
                    [target.ref for target in chunk],
                    deadline_seconds=DELETE_SECONDS,
                    proceed=self.proceed,
                )
                self.answers.update((target.id, said[target.ref]) for target in chunk)
        self.seen |= self.inspect([target for target in wave if self.to_confirm(target)])

    def proceed(self) -> bool:
        return time.monotonic() < self.batch.send_until and control.read(self.batch.tenant_id)[0] == self.batch.epoch

    def conclude(self) -> None:
        for command in list(self.going.values()):
            self.leave(self.verdict_after(command, self.seen))

    def to_confirm(self, target: Target) -> bool:
        answer = self.answers[target.id]
        # Some stores say NoSuchVersion of what is gone, others of an id that never was: the look decides.
        return answer.acknowledged or (
            answer.failure is not None and answer.failure.kind is FailureClass.MALFORMED_VERSION
        )

    def verdict_after(self, command: Claimed, seen: Mapping[int, Look]) -> Verdict:
        unseen = answers.note_gone(command, seen)
        if all(target.gone_at for target in command.targets):
            return Verdict.gone(command, Outcome.DELETED, sent=True)
        said = [
            self.answers[target.id] for target in command.targets if target.id in self.answers and not target.gone_at
        ]
        failures = [answer for answer in said if answer.failure is not None]
        self.done.throttled |= any(each.failure.kind is FailureClass.THROTTLED for each in failures if each.failure)
        for each in failures:
            if each.failure is not None and each.failure.ambiguous:
                return Verdict.ambiguous(command, each.failure.kind, answers.of_answer(each), self.settle_seconds)
        if unseen is not None:  # before the failures of other targets: nothing is parked while one may be gone unseen
            self.heed(unseen)
            kind = answers.trouble_of_look(unseen)
            return Verdict.ambiguous(command, kind, answers.of_look(unseen), self.settle_seconds)
        if failures:
            return self.verdict_of_failure(command, max(failures, key=answers.gravity), failures)
        return Verdict.failed(command, Trouble.SURVIVED, answers.of_answer(said[0]), sent=True)

    def verdict_of_failure(
        self, command: Claimed, worst: DeleteOutcome, all_failed: Sequence[DeleteOutcome]
    ) -> Verdict:
        """The gravest failure of its targets decides."""
        assert worst.failure is not None
        kind, detail = answers.class_of(worst.failure), answers.of_answer(worst)
        if answers.beyond_objects(worst):
            self.done.pause = worst.failure
        stopped = answers.stopped(worst.failure)  # before anything of it was executed: else it would be ambiguous
        if stopped or (not any(each.sent for each in all_failed) and kind != FailureClass.MALFORMED_REQUEST):
            waiting = 0.0 if stopped else NOT_SENT_SECONDS * min(command.claims, 60)
            sent = any(self.answers[target.id].sent for target in command.targets if target.id in self.answers)
            return Verdict.not_sent(command, detail, waiting, sent=sent)
        ends = [each.lock.retain_until for each in all_failed if each.lock and each.lock.retain_until]
        return Verdict.failed(
            command,
            kind,
            detail,
            sent=True,
            failure=worst.failure,
            retry_after=worst.failure.retry_after,
            held_until=max(ends, default=None),
        )

    def heed(self, look: Look) -> None:
        """A look that failed for a reason of this worker's own pauses it."""
        failure = look.seen.failure
        if failure is not None and rule_of(answers.class_of(failure)).then is Then.PAUSE:
            self.done.pause = failure

    def inspect(self, targets: Sequence[Target]) -> dict[int, Look]:
        """What is there of the targets now, with the database's time before the look."""
        found: dict[int, Look] = {}
        for bucket_id, some in by_bucket(targets).items():
            for chunk in chunks(some):
                at = instant(clock.now())
                looks = self.store(bucket_id).inspect(
                    ref(self.buckets[bucket_id]), [each.ref for each in chunk], deadline_seconds=INSPECT_SECONDS
                )
                found.update((each.id, Look(looks[each.ref], at)) for each in chunk)
        return found

    def store(self, bucket_id: int) -> ObjectStore:
        return self.stores(ref(self.buckets[bucket_id]))

    def leave(self, verdict: Verdict) -> None:
        del self.going[verdict.command.id]
        self.done.verdicts.append(verdict)


def open_targets(commands: Iterable[Claimed]) -> list[Target]:
    return [target for command in commands for target in command.targets if not target.gone_at]


def older_ones(command: Claimed, target: Target) -> list[Target]:
    """Older versions of a target's key that its own command names, and that are still to go."""
    return [
        each
        for each in open_targets([command])
        if each is not target
        and (each.bucket_id, each.ref.key) == (target.bucket_id, target.ref.key)
        and each.stored_at <= target.stored_at
    ]


def by_bucket(targets: Iterable[Target]) -> Mapping[int, list[Target]]:
    found: dict[int, list[Target]] = defaultdict(list)
    for target in targets:
        found[target.bucket_id].append(target)
    return found


def chunks(targets: Iterable[Target]) -> list[list[Target]]:
    """At most 1,000 targets for one call, none named twice: two incarnations of a `null` version have one name."""
    todo = list(targets)
    if len(todo) <= claim.BATCH and len({target.ref for target in todo}) == len(todo):
        return [todo] if todo else []
    found: list[dict[VersionRef, Target]] = []
    for target in todo:
        chunk = next((each for each in found if len(each) < claim.BATCH and target.ref not in each), None)
        if chunk is None:
            chunk = {}
            found.append(chunk)
        chunk[target.ref] = target
    return [list(chunk.values()) for chunk in found]


def asked_before(command: Claimed) -> bool:
    """Whether a request of ours for this command may ever have left us."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT FROM ledger_request r WHERE r.command_id = %s AND NOT EXISTS (SELECT FROM "
            "ledger_attempt a WHERE a.command_id = r.command_id AND a.token = r.token AND NOT a.late "
            "AND a.outcome IN ('not_sent', 'held', 'withdrawn')))",
            [command.id],
        )
        return bool(cursor.fetchone()[0])
