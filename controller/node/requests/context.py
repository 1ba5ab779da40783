"""What a request handler may use, and what several of them share.

Handlers run in the connections' tasks. They read the state, which only the controller's own task changes, and reach
that task through events; what they write to ZooKeeper is written as Kafka's brokers do it, unfenced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from controller.core.events import ControllerState
from controller.core.view import ClusterView
from controller.node.channels import Channels
from controller.node.config import Properties
from controller.node.config_changes import DynamicConfigs
from controller.node.loop import ControllerLoop
from controller.node.requests.groups_topic import GroupsTopic
from controller.node.zk_watches import Zk
from controller.rules.placement import Chance
from controller.wire import log_events as ev
from controller.wire import protocol, znodes
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import Request
from controller.wire.types import Broker, TopicPartition
from controller.wire.zk_operations import Check, Create, GetData, Multi, SetData, ZkCode
from controller.world.producer_ids import ProducerIds

Body = dict[str, Any]

#: How long a request waits at most for a failover in progress.
SETTLE_S: Final = 30.0
NOT_CONTROLLER_TEXT: Final = "This is not the correct controller for this cluster."
#: `Errors.UNKNOWN_SERVER_ERROR` in words.
UNKNOWN_ERROR_TEXT: Final = "The server experienced an unexpected error when processing the request."


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """This controller, as its request handlers see it. `endpoint` is where it listens itself.

    `cluster_id` is empty where it was removed when the controller started.
    `listener` is the one on which the request came: who asks is told of addresses of the same listener.
    """

    state: ClusterView
    loop: ControllerLoop
    channels: Channels
    zk: Zk
    properties: Properties
    configs: DynamicConfigs
    cluster_id: str
    endpoint: Broker
    listener: str
    chance: Chance
    producer_ids: ProducerIds
    groups_topic: GroupsTopic
    log: FilteringBoundLogger

    def log_unexpected(self, request: Request, error: KafkaError, **keys: Any) -> None:
        """Tells the log why a peer got UNKNOWN_SERVER_ERROR, as the peer is not told (see `KafkaError.own_text`)."""
        if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            name = protocol.api_name(request.api_key)
            self.log.warning(ev.REQUEST_FAILED, request=name, reason=error.message, **keys)

    @property
    def is_active(self) -> bool:
        """Whether this process holds the office."""
        return self.state.serving

    def check_active(self) -> None:
        """Raises: KafkaError NOT_CONTROLLER, without a text: Kafka has one for it in the reassignment APIs only."""
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

    def knows_topic(self, topic: str) -> bool:
        """Whether brokers' metadata has the topic: some partition had a leader once, deletion has not started."""
        if topic in self.state.topics_with_deletion_started:
            return False
        return any(
            self.state.leadership(TopicPartition(topic, partition)) is not None
            for partition in self.state.topic_assignment(topic)
        )

    def has_leaders(self, topic: str, partitions: Iterable[int]) -> bool:
        """Whether each of these partitions has a leader."""
        states = (self.state.leadership(TopicPartition(topic, partition)) for partition in partitions)
        return all(state is not None and state.leader is not None for state in states)

    async def settled(self) -> None:
        """Waits until no election or failover is in progress: half-loaded, the state would say "no such topic"."""
        if self._is_changing():
            await self.loop.until(lambda: not self._is_changing(), SETTLE_S)

    def _is_changing(self) -> bool:
        return self.loop.gauges.state is ControllerState.CONTROLLER_CHANGE

    async def wait(self, condition: Callable[[], bool], timeout_ms: int) -> None:
        """Waits until `condition` holds, this process loses the office, or the time is over."""
        await self.loop.until(lambda: not self.is_active or condition(), timeout_ms / 1000)


#: Partitions that one request may create, or add to a topic. Kafka has no limit; a topic's znode must stay below 1 MiB.
PARTITIONS_MAX: Final = 100_000


def check_size(partitions: int) -> None:
    """Raises: KafkaError INVALID_PARTITIONS, for more partitions than fit into a znode: no peer may make us grow, or
    keep us from all others, by one request."""
    if partitions > PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions are too many; {PARTITIONS_MAX} fit into a request."
        )


Handler = Callable[[Node, Request], Awaitable[Body]]
#: The answer to a request that failed as a whole.
Failure = Callable[[Request, ErrorCode, str | None], Body]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One row of the table: who answers, from which version to which, and what a failure looks like."""

    handle: Handler
    failed: Failure
    versions: tuple[int, int]


async def write_entity_configs(node: Node, entity_path: str, configs: Mapping[str, str]) -> None:
    """Sets or creates a config node, guarded by the version of `/controller`, as 3.9 does.

    Raises: KafkaError STALE_CONTROLLER_EPOCH, when there is no controller or it changed meanwhile.
    Source: spec controller.md §1.5.
    """
    path, data = znodes.ConfigEntityZNode.path(entity_path), znodes.ConfigEntityZNode.encode(configs)
    (controller,) = await node.zk.perform([GetData(znodes.ControllerZNode.path)])
    if controller.stat is None or not controller.ok:
        raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, "There is no controller to guard the write of configs.")
    guard = Check(znodes.ControllerZNode.path, controller.stat.version)
    for _ in range(_CREATE_RACES):
        (written,) = await node.zk.perform([Multi((guard, SetData(path, data)))])
        if written.ok:
            return
        if written.results and written.results[0].code in (ZkCode.BAD_VERSION, ZkCode.NO_NODE):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, "The controller changed while configs were written.")
        check_written(path, written.code, ZkCode.NO_NODE)
        created = await create_recursive(node, path, data)
        if created is ZkCode.OK:
            return
        check_written(path, created, ZkCode.NODE_EXISTS)
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path} appeared and vanished {_CREATE_RACES} times.")


#: How often a config node may appear and vanish under a writer before it gives up.
_CREATE_RACES: Final = 5


async def create_recursive(node: Node, path: str, data: bytes | None) -> ZkCode:
    """Creates a node and what it needs above it; the code of the node's own create."""
    (created,) = await node.zk.perform([Create(path, data)])
    if created.code is ZkCode.NO_NODE:
        parts = path.strip("/").split("/")
        parents = ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts))]
        *_, created = await node.zk.perform([*(Create(parent) for parent in parents), Create(path, data)])
    return created.code


async def announce_config_change(node: Node, entity_path: str) -> None:
    """Tells every broker to read the configs of an entity again."""
    change = Create(
        znodes.ConfigChangesZNode.sequence_path, znodes.ConfigChangesZNode.encode(entity_path), sequence=True
    )
    (created,) = await node.zk.perform([change])
    check_written(change.path, created.code)


def check_written(path: str, code: ZkCode, *expected: ZkCode) -> None:
    """Raises: KafkaError UNKNOWN_SERVER_ERROR, for a result that is neither OK nor expected."""
    if code is not ZkCode.OK and code not in expected:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper answered {code.name} to the write of {path}.")
