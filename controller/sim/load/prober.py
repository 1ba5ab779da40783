"""A client that asks for what must be refused: requests of the past, of the future, and of nobody.

Each probe is one function, drawn again and again. What counts is that the answer is an error that the table of the
request allows, and that nothing has changed; no answer at all proves nothing.
Source: spec broker.md §5 to §7, §12.1; clients.md §3.1, §4, §7; controller.md §4, §8; Kafka's error tables.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.load.consumer import fetch_body
from controller.sim.load.group_probes import FAR, GroupProbes
from controller.sim.load.ledger import Ledger, Sent
from controller.sim.load.links import CallFailed
from controller.sim.load.probing import keep_asking
from controller.sim.oracles.brokers import replicas
from controller.sim.shape import TOPIC
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import Record, build_batch
from controller.wire.types import BrokerId

PAUSE_S: Final = 0.7
#: What a partition that is not led here, not there, or on a broken disk is answered, whatever was asked.
ELSEWHERE: Final = frozenset(
    {
        *(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR),
        *(ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE),
    }
)
#: A producer id that no broker gives: its batches are written with epochs and sequences of the probe's own.
FOREIGN_PRODUCER: Final = 900_000_000


class Prober(GroupProbes):
    """`run` is a program."""

    def __init__(self, cluster: Cluster, ledger: Ledger, name: str) -> None:
        super().__init__(cluster, ledger, name)
        assert cluster.shape is not None
        self._partitions = cluster.shape.partitions
        #: partition -> what is there of the foreign producer there: (last acknowledged batch, its base offset)
        self._written: dict[int, tuple[bytes, int]] = {}
        #: how often each probe was answered
        self.answered: dict[str, int] = {}
        self.is_stopping = False

    async def run(self) -> None:
        """Until `is_stopping`."""
        await keep_asking(self, PROBES, self._links.chance, pause_s=PAUSE_S)

    def _some_replica(self) -> tuple[int, int, Any] | None:
        """(broker, partition, its replica) of a running broker."""
        partition = self._links.chance.randrange(self._partitions)
        found = [
            (broker, partition, replica)
            for broker, tp, replica in replicas(self._cluster)
            if tp == (TOPIC, partition) and broker not in self._cluster.paused
        ]
        return self._links.chance.choice(found) if found else None

    # -- reading ---------------------------------------------------------------------------------------------------

    async def fetch_of_another_epoch(self) -> None:
        """A leader epoch above the broker's is unknown, one below it is fenced. §12.1."""
        if (found := self._some_replica()) is None:
            return
        broker, partition, replica = found
        epoch_here = replica.leader_epoch
        is_future = self._links.chance.random() < 0.5 or epoch_here < 1
        epoch = epoch_here + FAR if is_future else epoch_here - 1
        body = fetch_body(TOPIC, partition, 0, epoch=epoch)
        answer = await self._links.call(broker, ApiKey.FETCH, 11, body)
        expected = ErrorCode.UNKNOWN_LEADER_EPOCH if is_future else ErrorCode.FENCED_LEADER_EPOCH
        code = answer.responses[0].partitions[0].error_code
        self.expect(f"a fetch of {TOPIC}-{partition} in epoch {epoch}", code, ELSEWHERE | {expected})

    async def fetch_beyond_the_end(self) -> None:
        """An offset that is not there is out of range. §12.1."""
        partition = self._links.chance.randrange(self._partitions)
        leader = self._links.leader(TOPIC, partition)
        if leader is None:
            return
        answer = await self._links.call(leader, ApiKey.FETCH, 11, fetch_body(TOPIC, partition, FAR))
        row = answer.responses[0].partitions[0]
        self._links.forget_leader(TOPIC, partition)
        self.expect(
            f"a fetch of {TOPIC}-{partition} at {FAR}", row.error_code, ELSEWHERE | {ErrorCode.OFFSET_OUT_OF_RANGE}
        )

    async def fetch_session_of_another_epoch(self) -> None:
        """Each fetch of a session carries the next epoch; the same once more, or a later one, is refused. KIP-227."""
        if (found := self._some_replica()) is None:
            return
        broker, partition, _ = found
        made = await self._fetch_in_session(broker, fetch_body(TOPIC, partition, 0) | {"session_epoch": 0})
        if made.error_code != 0 or made.session_id == 0:
            return
        body = fetch_body(TOPIC, partition, 0) | {"session_id": made.session_id, "topics": []}
        first = await self._fetch_in_session(broker, body | {"session_epoch": 1})
        refused = {ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_ID_NOT_FOUND}
        if first.error_code == 0:
            epoch = self._links.chance.choice((1, 5))
            again = await self._fetch_in_session(broker, body | {"session_epoch": epoch})
            self.expect(f"fetch {epoch} of a session instead of 2", again.error_code, refused)
        await self._fetch_in_session(broker, body | {"session_epoch": -1})

    async def _fetch_in_session(self, broker: int, body: dict[str, Any]) -> Any:
        return await self._links.call(broker, ApiKey.FETCH, 11, body)

    async def ask_for_the_end_of_an_epoch(self) -> None:
        """The end of an epoch that is over is where the next one begins, and never above the log's end. KIP-101."""
        if (found := self._some_replica()) is None:
            return
        broker, partition, replica = found
        asked = self._links.chance.randint(0, max(0, replica.leader_epoch))
        rows = [{"partition": partition, "current_leader_epoch": -1, "leader_epoch": asked}]
        body = {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": rows}]}
        answer = await self._links.call(broker, ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, body)
        row = answer.topics[0].partitions[0]
        name = f"{TOPIC}-{partition} of broker {broker} ends epoch {asked} as {row.leader_epoch} at {row.end_offset}"
        if row.error_code == 0 and row.leader_epoch > asked:
            self._ledger.broken.append(f"a wrong answer: {name}")

    # -- writing ---------------------------------------------------------------------------------------------------

    async def write_as_a_fenced_producer(self) -> None:
        """Of a producer id, an older epoch, a gap in the sequence and a batch once more are told apart. KIP-98."""
        partition = self._links.chance.randrange(self._partitions)
        if (TOPIC, partition) in self._ledger.unclean:
            self._written.pop(partition, None)
            return
        if partition not in self._written:
            batch = self._batch(partition, epoch=5, sequence=0)
            code, base = await self._produce(partition, batch)
            if code == 0:
                self._written[partition] = batch, base
            return
        batch, base = self._written[partition]
        kind = self._links.chance.choice(("older epoch", "gap", "again"))
        if kind == "again":
            code, at = await self._produce(partition, batch)
            if code == 0 and at not in (base, -1):
                self._ledger.broken.append(f"a batch of {TOPIC}-{partition} at {base} was stored again at {at}")
            return
        older = kind == "older epoch"
        code, _ = await self._produce(
            partition, self._batch(partition, epoch=4 if older else 5, sequence=1 if older else 7)
        )
        expected = ErrorCode.INVALID_PRODUCER_EPOCH if older else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        allowed = ELSEWHERE | {expected, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_PRODUCER_ID}
        if (TOPIC, partition) not in self._ledger.unclean:
            self.expect(f"a batch with an {kind}" if older else "a batch after a gap", code, allowed)

    def _batch(self, partition: int, *, epoch: int, sequence: int) -> bytes:
        value = f"{self.name}/{partition}/{self._number:06d}".encode()
        self._ledger.sent[value] = Sent(self.name, (TOPIC, partition), self._number, False)
        self._number += 1
        records = [Record(0, self._cluster.world.clock.now_ms(), None, value)]
        identity = FOREIGN_PRODUCER + partition
        return build_batch(records, producer_id=identity, producer_epoch=epoch, base_sequence=sequence)

    async def _produce(self, partition: int, batch: bytes) -> tuple[int, int]:
        """(error code, base offset). Raises: CallFailed."""
        leader = self._links.leader(TOPIC, partition)
        if leader is None:
            raise CallFailed("nobody leads")
        topic = {"name": TOPIC, "partition_data": [{"index": partition, "records": batch}]}
        body = {"transactional_id": None, "acks": -1, "timeout": 3_000, "topic_data": [topic]}
        answer = await self._links.call(leader, ApiKey.PRODUCE, 8, body)
        row = answer.responses[0].partition_responses[0]
        if row.error_code != 0:
            self._links.forget_leader(TOPIC, partition)
        return int(row.error_code), int(row.base_offset)

    async def start_a_transaction(self) -> None:
        """There are no transactions here: they are refused, not half done."""
        body = {"transactional_id": "x", "transaction_timeout": 60_000}
        answer = await self._links.call(self._links.any_broker(), ApiKey.INIT_PRODUCER_ID, 1, body)
        if answer.error_code == 0:
            self._ledger.broken.append("a wrong answer: a transaction was begun")

    # -- control ---------------------------------------------------------------------------------------------------

    async def obey_an_older_controller(self) -> None:
        """A controller epoch below the highest seen is refused, whatever it asks for. controller.md §2.4."""
        if (found := self._some_replica()) is None:
            return
        broker, partition, replica = found
        epoch_here = self._cluster.brokers[broker].context.controller_epoch
        row = {"partition_index": partition, "leader_epoch": replica.leader_epoch + 1, "delete_partition": False}
        topics = [{"topic_name": TOPIC, "partition_states": [row]}] if self._links.chance.random() < 0.5 else []
        head = {"controller_id": 1001, "controller_epoch": epoch_here - 1, "broker_epoch": -1}
        answer = await self._links.call(broker, ApiKey.STOP_REPLICA, 3, {**head, "topic_states": topics})
        self.expect("a StopReplica of an older controller", answer.error_code, {ErrorCode.STALE_CONTROLLER_EPOCH})

    async def lead_by_a_repeated_request(self) -> None:
        """A LeaderAndIsr whose leader epoch is not newer, or whose partition epoch is older, changes nothing. §6.1."""
        if (found := self._some_replica()) is None or found[2].leader is None:
            return
        broker, partition, replica = found
        if (state := self._cluster.state(TOPIC, partition)) is None:
            return
        is_older = replica.partition_epoch > 0 and self._links.chance.random() < 0.5
        before = replica.leader, replica.leader_epoch
        row = {
            "partition_index": partition,
            "controller_epoch": state["controller_epoch"],
            "leader": broker if replica.leader != broker else replica.leader,
            "leader_epoch": before[1] + (1 if is_older else 0),
            "isr": state["isr"],
            "partition_epoch": replica.partition_epoch - 1 if is_older else replica.partition_epoch + 1,
            "replicas": list(replica.assignment.replicas),
            "adding_replicas": [],
            "removing_replicas": [],
            "is_new": False,
        }
        body = {
            "controller_id": 1001,
            "controller_epoch": self._cluster.brokers[broker].context.controller_epoch,
            "broker_epoch": -1,
            "topic_states": [{"topic_name": TOPIC, "partition_states": [row]}],
            "live_leaders": [],
        }
        # who is told here of itself as a leader in another's epoch is seen by `leader_is_zookeepers`
        await self._links.call(broker, ApiKey.LEADER_AND_ISR, 4, body)

    async def stop_in_an_older_epoch(self) -> None:
        """A StopReplica of an older leader epoch leaves the replica where it is. broker.md §7."""
        if (found := self._some_replica()) is None or found[2].leader_epoch < 1:
            return
        broker, partition, replica = found
        row = {
            "partition_index": partition,
            "leader_epoch": replica.leader_epoch - 1,
            "delete_partition": self._links.chance.random() < 0.5,
        }
        body = {
            "controller_id": 1001,
            "controller_epoch": self._cluster.brokers[broker].context.controller_epoch,
            "broker_epoch": -1,
            "topic_states": [{"topic_name": TOPIC, "partition_states": [row]}],
        }
        answer = await self._links.call(broker, ApiKey.STOP_REPLICA, 3, body)
        if answer.error_code == 0:
            code = answer.partition_errors[0].error_code
            allowed = {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR}
            if not replica.is_offline and replica.log is not None:
                self.expect("a StopReplica of an older leader epoch", code, allowed)
        else:
            self.expect("a StopReplica", answer.error_code, {ErrorCode.STALE_CONTROLLER_EPOCH})

    # -- the controller --------------------------------------------------------------------------------------------

    async def shut_down_an_older_life(self) -> None:
        """A controlled shutdown of a former life of a broker is refused: of one that the controller does not know, as
        an error that Kafka did not expect. A controller that has yet to hear of the new life takes it for the one that
        it believes in, if that is not younger. controller.md §11.5, KIP-380."""
        broker = self._links.chance.choice(list(self._cluster.broker_ids))
        znode = self._cluster.world.zookeeper.tree.get(f"/brokers/ids/{broker}")
        if znode is None:
            return
        epoch = znode.czxid - 1
        body = {"broker_id": broker, "broker_epoch": epoch}
        lives = [self._believed_epoch(broker)]
        answer = await self._ask_controller(ApiKey.CONTROLLED_SHUTDOWN, 3, body)
        allowed = {ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.STALE_CONTROLLER_EPOCH}
        lives.append(self._believed_epoch(broker))
        if None in lives:
            allowed.add(ErrorCode.UNKNOWN_SERVER_ERROR)
        if any(life is not None and life <= epoch for life in lives):
            allowed.add(ErrorCode.NONE)
        self.expect(f"a shutdown of a former life of broker {broker}", answer.error_code, allowed)

    def _believed_epoch(self, broker: int) -> int | None:
        """Of the life of the broker that the controller in office believes in; None: it does not know the broker."""
        active = self._cluster.controllers.get(self._cluster.active_controller() or -1)
        life = active.state.live_brokers.get(BrokerId(broker)) if active is not None else None
        return None if life is None else life.broker_epoch

    async def move_to_nobody(self) -> None:
        """A move to a broker that does not live, or of what is not there, is refused. §8.1."""
        nobody = self._links.chance.choice(([999], [1, 999], [999, 1]))
        rows = [{"partition_index": self._links.chance.choice((0, FAR)), "replicas": nobody}]
        body = {"timeout": 5_000, "topics": [{"name": TOPIC, "partitions": rows}]}
        answer = await self._ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)
        refused = {ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        if answer.error_code == 0:
            code = answer.responses[0].partitions[0].error_code
            self.expect("a move to broker 999", code, refused | {ErrorCode.NOT_CONTROLLER})

    async def elect_where_nothing_is(self) -> None:
        """An election of a partition that there is not is refused; one whose preferred leader leads is not needed."""
        rows = [{"topic": TOPIC, "partitions": [FAR]}]
        body = {"election_type": 0, "topic_partitions": rows, "timeout": 2_000}
        answer = await self._ask_controller(ApiKey.ELECT_LEADERS, 2, body)
        for topic in answer.replica_election_results:
            for row in topic.partition_result:
                refused = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT}
                self.expect("an election where nothing is", row.error_code, refused)

    async def _ask_controller(self, api_key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        """Raises: CallFailed, OSError, ProtocolError."""
        active = self._cluster.active_controller()
        if active is None:
            raise CallFailed("there is no controller")
        return await self._cluster.call(active, api_key, version, body)


PROBES: Final[tuple[Callable[[Prober], Awaitable[None]], ...]] = (
    *(Prober.fetch_of_another_epoch, Prober.fetch_beyond_the_end, Prober.fetch_session_of_another_epoch),
    *(Prober.ask_for_the_end_of_an_epoch, Prober.write_as_a_fenced_producer, Prober.start_a_transaction),
    *(Prober.commit_as_nobody, Prober.delete_a_group, Prober.ask_for_a_deleted_group),
    *(
        Prober.obey_an_older_controller,
        Prober.stop_in_an_older_epoch,
        Prober.lead_by_a_repeated_request,
        Prober.shut_down_an_older_life,
    ),
    *(Prober.move_to_nobody, Prober.elect_where_nothing_is, Prober.replace_a_static_member),
)
