"""What must hold of transactions whatever happens; each check is about one promise."""

from typing import TYPE_CHECKING

from muster.codec.error_codes import ErrorCode
from muster.codec.transaction_log import TopicPartition
from muster.core.transactions.states import AT_REST, PREPARED, TransactionState
from muster.core.transactions.writes import WriteMarkers
from tests.sim.transactions.logs import Intent, fates
from tests.sim.transactions.producers import INIT, Producer, Sent, Story

if TYPE_CHECKING:
    from tests.sim.transactions.world import TransactionSim


class Checkers:
    def __init__(self, world: "TransactionSim") -> None:
        self._world = world
        self._given: dict[tuple[str, int, int], tuple[str, int]] = {}
        """Who was given a producer id and epoch: no two producers have the same."""
        self._newest: dict[int, int] = {}
        """The newest epoch of each producer id that somebody has heard of."""

    def check(self) -> None:
        """After every step."""
        world = self._world
        assert world.coordinator.hard_state() == world.shadow.hard_state(), "the log does not explain the state"
        self._check_pending_offsets()
        self._check_atomicity()

    # Fencing.

    def answer_is_heard(self, sent: Sent, error: ErrorCode, producer_id: int, producer_epoch: int) -> None:
        if error is not ErrorCode.NONE or producer_id == -1:
            return
        who = (sent.producer.name, sent.life)
        given = (sent.producer.transactional_id, producer_id, producer_epoch)
        assert self._given.setdefault(given, who) == who, f"{given} was given to {self._given[given]} and to {who}"
        if sent.kind == INIT:
            newest = self._newest.get(producer_id, -1)
            assert producer_epoch >= newest, f"{given} is older than {newest}, which somebody has"
        self._newest[producer_id] = max(self._newest.get(producer_id, -1), producer_epoch)

    def batch_is_written(self, sent: Sent) -> None:
        """No record of an epoch that was fenced: a newer one has been given to somebody since."""
        newest = self._newest.get(sent.producer_id, -1)
        assert sent.producer_epoch >= newest, f"{sent} is written, but {newest} is in use"

    # Atomicity.

    def marker_is_due(self, markers: WriteMarkers) -> None:
        """A marker is written because the log says so, and that is safe."""
        world = self._world
        transaction = world.coordinator.transactions[markers.transactional_id]
        assert transaction.state in PREPARED, f"{markers} of a transaction in {transaction.state.name}"
        assert markers.commit is (transaction.state is TransactionState.PREPARE_COMMIT)
        assert (markers.producer_id, markers.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)
        assert transaction.encoded in world.log.entries[: world.log.flushed], f"{markers} before its decision is safe"

    def _check_atomicity(self) -> dict[Intent, set[bool | None]]:
        """All batches of one transaction, in all partitions, end the same way; those that have not may still do so."""
        ends: dict[Intent, set[bool | None]] = {}
        for log in self._world.partitions.values():
            for batch, commit in fates(log):
                ends.setdefault(batch.intent, set()).add(commit)
        for intent, outcomes in ends.items():
            assert not {True, False} <= outcomes, f"{intent} is committed and aborted"
        return ends

    def _check_pending_offsets(self) -> None:
        """No offset is pending without a transaction that may still end."""
        world = self._world
        alive = {each.producer_id for each in world.coordinator.transactions.values() if each.state not in AT_REST}
        for group in world.groups.groups.values():
            assert group.pending.keys() <= alive, f"offsets are pending of {group.pending.keys() - alive}"

    def check_the_end(self) -> None:
        """When all has come to rest: what producers were told is so."""
        ends = self._check_atomicity()
        for intent, outcomes in ends.items():
            assert None not in outcomes, f"{intent} never ended"
        logs = self._world.partitions.items()
        written = {(partition, batch.value): commit for partition, log in logs for batch, commit in fates(log)}
        for producer in self._world.producers:
            for story in producer.stories:
                self._check_story(producer, story, written, ends)

    def _check_story(
        self,
        producer: Producer,
        story: Story,
        written: dict[tuple[TopicPartition, int], bool | None],
        ends: dict[Intent, set[bool | None]],
    ) -> None:
        ended = ends.get(story.intent, set())
        if story.ended is not None:
            assert ended <= {story.ended}, f"{producer.name} was told {story.ended} of {story}, but {ended}"
        if story.ended:
            for place in story.acknowledged:
                assert written.get(place), f"{place} of {story} was acknowledged and committed, and is not there"
        if True not in story.ends_sent or (story.failed and len(story.ends_sent) == 1):
            assert True not in ended, f"{story} is committed, which nobody was told"
