"""A whole cluster in one process on virtual time: the real controllers, the real brokers, a client, one seed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from broker_sim.isr import LedPartition
from broker_sim.log.log_dir import parse_folder_name, parse_future_name
from broker_sim.replicas.partition import Partition
from controller.sim.disk import give_way
from controller.sim.invariants import Invariants
from controller.sim.programs import Programs
from controller.sim.refusals import Refusals
from controller.sim.shape import Shape
from controller.wire import log_events as ev
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.records import parse_header
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import (
    Create,
    WatchEvent,
    WatchKind,
    ZkOp,
    ZkResult,
    ZkSessionExpired,
    ZkUnreachable,
)
from controller.wire.znodes import TopicPartitionStateZNode
from controller.world.client import BrokerConnection
from controller.world.simulated.world import World
from controller.world.simulated.zk_session import SimulatedSession


class Cluster(Programs):
    """Programs, a machine `client` that asks them, and what must hold."""

    def __init__(
        self, world: World, folder: Path, *, brokers: int = 3, controllers: int = 1, shape: Shape | None = None
    ) -> None:
        super().__init__(world, folder, brokers=brokers, controllers=controllers, shape=shape)
        self.deletable: set[str] = set()  # topics whose epochs may begin again: those that somebody has asked to delete
        self.damaged: dict[str, str] = {}  # paths that hold what nobody may believe, and why
        self.refused = Refusals(world.loop.time, lambda: self.znode("/controller_epoch"), self.damaged)
        self.on_unclean_asked: Callable[[], object] = lambda: None  # told before an unclean election is asked for
        #: told of a partition whose state somebody damages: a leader that restarts may lead by what was before
        self.on_damaged: Callable[[tuple[str, int]], object] = lambda tp: None
        self.on_power_lost: Callable[[int], object] = lambda number: None  # told before a broker loses its power
        self.contradictions: list[str] = []  # answers and what they led to
        self.is_resettled = False  # its brokers have settings that an operation takes back
        #: requests and znodes for moves, those whose effect is looked at left out: so many were asked for, so far
        self.moves_of_others = 0
        self.rates_of_others = 0  # how often a throttle of a broker was asked for by hand
        #: (topic, partition, broker) of which a broker last said that it cannot delete it
        self.undeleted: set[tuple[str, int, int]] = set()
        #: (broker, topic, partition) -> controller epoch in which this broker was last to hear of its deletion,
        #: and has not answered
        self.untold: dict[tuple[int, str, int], int] = {}
        #: (topic, czxid) of topics whose znode was made to say nothing -> broker -> czxid of its registration by then
        self.emptied: dict[tuple[str, int], dict[int, int]] = {}
        self.disks_failed: set[int] = set()  # brokers of which a log dir was made to fail at once
        self.provoked: list[BaseException] = []  # what programs were made to complain of
        self.is_administered = False  # somebody works with the tools, who works alone
        self.armed: list[Callable[[], object]] = []  # take back what waits for its moment
        self._session: SimulatedSession | None = None
        self.invariants = Invariants(world.zookeeper.tree)
        world.zookeeper.on_operation.append(self.refused.operation)
        world.zookeeper.on_commit += [self._note_deletions, self.invariants.check]

    def _note_deletions(self, events: Sequence[WatchEvent]) -> None:
        """Until somebody asks for its deletion, or its znode is gone, a topic is held to what is promised of any; so is
        one that is made anew when no broker has anything of the former one."""
        for event in events:
            parent, _, topic = event.path.rpartition("/")
            is_marked = parent == "/admin/delete_topics" and event.kind is WatchKind.CREATED
            if is_marked or (parent == "/brokers/topics" and event.kind is WatchKind.DELETED):
                self.deletable.add(topic)
            elif parent == "/brokers/topics" and event.kind is WatchKind.CREATED and not self._is_left_of(topic):
                self.deletable.discard(topic)

    def _is_left_of(self, topic: str) -> bool:
        """Whether any broker, dead or alive, has a log of such a topic, or takes part in one."""
        logs = (parse_folder_name(path.name) or parse_future_name(path.name) for path in self.folder.glob("broker-*/*"))
        running = (broker.replicas for broker in self.brokers.values() if broker.replicas is not None)
        hosted = (tp for each in running for tp in each.table.partitions)
        return any(tp is not None and tp.topic == topic for tp in (*logs, *hosted))

    def has_had_a_failed_dir(self, broker: int) -> bool:
        """Whether a log dir of this broker has ever failed."""
        disk = self.disks.get(broker)
        return broker in self.disks_failed or (disk is not None and disk.has_failed)

    def healthy(self) -> bool:
        """All brokers are there, and each partition has all replicas in sync, and a leader among them."""
        return self.registered() == set(self.broker_ids) and all(
            (state := self.state(*tp)) is not None
            and set(self.assignment(*tp)) <= set(state["isr"])
            and state["leader"] in state["isr"]
            for tp in self.partitions()
        )

    def forgotten_before_s(self) -> float:
        """A coordinator may have forgotten, by now, what was committed before this time for a group without members.

        Who keeps the offsets need not be who stored them, and measures their age with a clock of its own.
        Source: `GroupMetadata.removeExpiredOffsets`; KIP-211; clients.md §8.
        """
        skew_ms = self.shape.clock_skew_max_ms if self.shape is not None else 0
        return self.world.loop.time() - self.offset_retention_s + 2 * skew_ms / 1000

    # -- the client ------------------------------------------------------------------------------------------------

    def topic_partitions(self, topic: str) -> list[int]:
        """Numbers of a topic's partitions, sorted; none when there is no such topic."""
        found = self.znode(f"/brokers/topics/{topic}")
        return sorted(map(int, found["partitions"])) if found else []

    def later(self, after_s: float, action: Callable[[], object]) -> None:
        """Does it after a while, whatever runs by then."""
        self.world.loop.call_later(after_s, action)

    async def shut_down(self, number: int) -> None:
        """As `stop`, where it runs and is not stopped already; gives up waiting after a minute."""
        if (number in self.brokers or number in self.controllers) and number not in self.paused:
            with suppress(TimeoutError):
                async with asyncio.timeout(60):
                    await self.stop(number)

    async def write_znode(self, op: ZkOp) -> str:
        """What somebody else writes to ZooKeeper; how that went, in a word."""
        self.moves_of_others += op.path == "/admin/reassign_partitions" if isinstance(op, Create) else 0
        try:
            (result,) = await (await self.operator()).perform([op])
        except (ZkUnreachable, ZkSessionExpired) as error:
            self._session = None
            return type(error).__name__
        return result.code.name

    async def operator(self) -> SimulatedSession:
        """The session of somebody else. Raises ZkUnreachable."""
        if self._session is None:
            connector = self.world.machine("operator").connector(session_timeout_ms=3_600_000)
            self._session = await connector.connect(on_watch=lambda event: None, on_expired=lambda: None)
        return self._session

    def at_once(self, operator: SimulatedSession, op: ZkOp, *, unseen: bool = False) -> ZkResult:
        """What somebody else writes, done in this moment, whatever is refused to others. `unseen`: no oracle hears of
        it, since it is no true content."""
        server = self.world.zookeeper
        commits, operations, refusal = server.on_commit, server.on_operation, server.tree.refusal
        server.tree.refusal = lambda _: None
        if unseen:
            server.on_commit, server.on_operation = [], []
        try:
            return server.perform(operator, op)
        finally:
            server.on_commit, server.on_operation, server.tree.refusal = commits, operations, refusal

    async def ask_one(self, number: int, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> str:
        """Asks one broker or controller; how that went, in a word."""
        try:
            await self.call(number, api_key, version, body)
        except (OSError, ProtocolError) as error:
            return type(error).__name__
        return "answered"

    async def call(self, number: int, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        """One request to one broker or controller, on a connection of its own. Raises OSError."""
        network, name = self.world.machine("client").network, self.machine(number).name
        connection = await BrokerConnection.open(network, name, self.port(number), client_id="sim", timeout_s=10)
        try:
            return await connection.call(api_key, version, body, timeout_s=15)
        finally:
            connection.close()

    async def ask_controller(self, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        """Asks whoever is the controller, until one answers as the controller."""
        for _ in range(120):
            active = self.active_controller()
            if active is not None:
                try:
                    return await self.call(active, api_key, version, body)
                except (OSError, ProtocolError):
                    pass
            await self.world.sleep(0.5)
        raise AssertionError(f"no controller answers {api_key.name}")

    async def create_topic(
        self, topic: str, assignments: Sequence[Sequence[int]], configs: Mapping[str, str] | None = None
    ) -> None:
        """Asks for the topic until it is there."""
        settings = [{"name": name, "value": value} for name, value in (configs or {}).items()]
        rows = [{"partition_index": n, "broker_ids": list(ids)} for n, ids in enumerate(assignments)]
        topic_row: dict[str, Any] = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": rows}
        topic_row["configs"] = settings
        body = {"topics": [topic_row], "timeout": 10_000, "validate_only": False}
        for _ in range(20):
            answer = await self.ask_controller(ApiKey.CREATE_TOPICS, 4, body)
            if answer.topics[0].error_code in (0, 36):
                return
            await self.world.sleep(1)
        raise AssertionError(f"topic {topic} is not created: {answer.topics[0]}")

    async def ask_once(self, api_key: ApiKey, version: int, body: Mapping[str, Any], *, counts: bool = True) -> str:
        """Asks the controller of this moment, if any; how that went, in a word."""
        if counts and api_key is ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            self.moves_of_others += 1
        active = self.active_controller()
        return "nobody to ask" if active is None else await self.ask_one(active, api_key, version, body)

    def mend(self) -> None:
        """Ends all faults; starts what is down, and again what has a broken disk."""
        world = self.world
        world.heal()
        for give_up in self.armed:
            give_up()
        world.zookeeper.slow(None)
        world.zookeeper.start()
        world.zookeeper.tree.refusal = lambda _: None
        for number in sorted(self.paused):
            self.resume(number)
        names = [self.machine(number).name for number in self.numbers()]
        for one in names:
            for other in names:
                world.network.set_latency(one, other, None)
        for disk in self.disks.values():
            disk.slow_s = 0.0
        broken = {number: list(disk.failing) for number, disk in self.disks.items() if disk.failing}
        for number in broken:
            self.disks[number].failing.clear()
        for number in (*broken, *self.stopping):
            self.kill(number)
        for number, failed in broken.items():
            give_way(failed, set(self.folder.glob(f"{self.machine(number).name}*")) - set(failed))
        for number in self.numbers():
            self.start_one(number)

    def start_refused_anew(self) -> list[int]:
        """Starts leaders anew, as an operator would, whose ISR change ZooKeeper refused for a reason of its own; which.

        Such a change stays pending, and its leader decides on no other until the next LeaderAndIsr, for which nobody
        asks in a healed cluster. A change that met another version is no excuse: whoever wrote that announces it.
        So is a broker that was away when a topic was deleted of which nothing could be read, or when a replica was
        moved away from it, and it starts without the logs that it has kept: it refuses the epochs of another topic of
        that name while they are lower, or cannot append to the log of the former one, as in Kafka without topic ids.
        Source: broker.md §9.1; docs/deviations.md (logs of an unreadable topic, log of a former topic).
        """
        kept = list(self._logs_of_former_topics())
        stuck = {broker for broker, tp, epoch in self._refused_changes() if self._is_pending(broker, tp, epoch)}
        for number in sorted(stuck | {broker for broker, _ in kept}):
            self.kill(number)
            for folder in (folder for broker, folder in kept if broker == number):
                shutil.rmtree(folder)
            self.start_one(number)
        return sorted(stuck | {broker for broker, _ in kept})

    def _logs_of_former_topics(self) -> Iterator[tuple[int, Path]]:
        """(broker, folder) of replicas that are not in sync, and are in a higher epoch than their topic ever had, or
        end within a batch of their leader, which sends that batch whole: one of the two was there before its topic."""
        for topic, partition in self.partitions():
            state, tp = self.state(topic, partition), TopicPartition(topic, partition)
            for number in self.assignment(topic, partition) if state is not None else ():
                replica = self._replica_on(number, tp)
                if state is None or number in state["isr"] or replica is None or replica.log is None:
                    continue
                is_ahead = max(replica.leader_epoch, replica.log.epochs.latest) > state["leader_epoch"]
                leader = self._replica_on(state["leader"], tp)
                pair = (number, state["leader"])
                is_torn = _ends_within_a_batch(replica, leader) and any(self.was_before_its_topic(n, tp) for n in pair)
                if is_ahead or is_torn:
                    yield number, replica.log.folder

    def was_before_its_topic(self, number: int, tp: TopicPartition) -> bool:
        """Whether this broker made its log of a partition when the znode of the topic was not there yet."""
        key, znode = (number, *tp), self.world.zookeeper.tree.get(f"/brokers/topics/{tp.topic}")
        made_s = (
            at_s
            for at_s, _, event in reversed(self.events)
            if event.get("event") == ev.LOG_CREATED and (event["broker_id"], event["topic"], event["partition"]) == key
        )
        if znode is None or (last_s := next(made_s, None)) is None:
            return False
        log_age_ms: float = (self.world.loop.time() - last_s) * 1000
        return log_age_ms > self.world.clock.now_ms() - znode.ctime

    def _refused_changes(self) -> Iterator[tuple[int, TopicPartition, int]]:
        """(leader, partition, leader epoch): the writer tells the path and the reason, then its broker the change."""
        path = ""
        for _, _, event in self.events:
            if event.get("event") != ev.ISR_WRITE_REFUSED:
                continue
            if "path" not in event:
                tp = TopicPartition(event["topic"], event["partition"])
                if path == TopicPartitionStateZNode.path(tp):
                    yield event["broker_id"], tp, event["leader_epoch"]
            path = event.get("path", "")

    def _is_pending(self, number: int, tp: TopicPartition, epoch: int) -> bool:
        """Whether that leader still is in that epoch, with a change under way."""
        led = self.led_by(number, tp)
        return led is not None and led.epoch == epoch and led.pending is not None

    async def move_in_place(self) -> list[tuple[str, int]]:
        """Asks, as an operator would, for the replicas that a partition has, where its leader has not heard that a move
        was cancelled, and refuses acks=all for good; which.

        Whoever cancelled it died when it had written the replicas, not yet the state. The next in office raises no
        epoch, and in the same epoch a leader heeds no LeaderAndIsr: it counts who was added, and waits for more in sync
        than there are replicas. Where whoever is in office has written the state, the leader must have heard.
        Source: docs/deviations.md (leader that heard of no cancellation).
        """
        deaf = {tp: self.assignment(*tp) for tp in self.partitions() if self._heard_of_no_cancellation(*tp)}
        for (topic, partition), replicas in deaf.items():
            rows = [{"partition_index": partition, "replicas": replicas}]
            body = {"timeout": 5_000, "topics": [{"name": topic, "partitions": rows}]}
            self.moves_of_others += 1
            await self.ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)
        return list(deaf)

    def _heard_of_no_cancellation(self, topic: str, partition: int) -> bool:
        """Whether its leader needs more in sync than there are replicas, for those that it believes are being added,
        in the epoch of a state that a former controller was the last to write."""
        state, replicas = self.state(topic, partition), set(self.assignment(topic, partition))
        if state is None or state["controller_epoch"] >= (self.znode("/controller_epoch") or 0):
            return False
        led = self.led_by(state["leader"], TopicPartition(topic, partition))
        return (
            led is not None
            and led.epoch == state["leader_epoch"]
            and replicas == set(led.replicas) - set(led.adding)
            and len(replicas) < led.effective_min_isr
        )

    def led_by(self, number: int, tp: TopicPartition) -> LedPartition | None:
        """What this broker knows of a partition as its leader, if it is one."""
        replica = self._replica_on(number, tp)
        return replica.led if replica is not None else None

    def _replica_on(self, number: int, tp: TopicPartition) -> Partition | None:
        broker = self.brokers.get(number)
        return broker.replicas.table.partitions.get(tp) if broker is not None and broker.replicas else None

    def ill(self) -> str:
        """What is not as it should be."""
        states = {
            f"{tp[0]}-{tp[1]}": (f"replicas {self.assignment(*tp)}", self.state(*tp))
            for tp in self.partitions()
            if (state := self.state(*tp)) is None or not set(self.assignment(*tp)) <= set(state["isr"])
        }
        return f"registered {sorted(self.registered())}, controller {self.active_controller()}, not whole {states}"


def _ends_within_a_batch(replica: Partition, leader: Partition | None) -> bool:
    """Whether the end of a replica's log lies within a batch of its leader's: no batch from there on continues it."""
    if replica.log is None or leader is None or leader.log is None:
        return False
    end, log = replica.log.leo, leader.log
    if not log.log_start_offset < end < log.leo:
        return False
    data = log.read(end, max_bytes=1, bound=log.leo, min_one=True)
    return bool(data) and parse_header(data).base_offset < end
