"""A small, scriptable cluster that speaks the wire protocol on the simulated network, for tools to talk to."""

from __future__ import annotations

import io
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controller.admin.toolkit.machine import Machine
from controller.wire import protocol
from controller.wire.errors import ErrorCode
from controller.wire.framing import FrameBuffer
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition
from controller.world.ports import Connection
from controller.world.simulated.loop import run as run_virtually
from controller.world.simulated.net import SimulatedNetwork

PORT = 9092
MainAsync = Callable[[Sequence[str], Machine], Awaitable[int]]


class FixedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


@dataclass
class Partition:
    replicas: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]
    leader_epoch: int = 0


@dataclass
class FakeCluster:
    """Its state is plain; `answers` replaces what a request gets (by api), `seen` has every request with its broker."""

    brokers: dict[int, str | None] = field(default_factory=lambda: dict.fromkeys(range(3)))
    controller: int = 0
    #: Brokers that do not say that they serve these requests.
    lacks: dict[int, set[int]] = field(default_factory=dict)
    down: set[int] = field(default_factory=set)
    #: Brokers that refuse connections, and those that take requests and never answer, though the others list them.
    dead: set[int] = field(default_factory=set)
    mute: set[int] = field(default_factory=set)
    #: Requests at which brokers close the connection.
    closes_at: set[ApiKey] = field(default_factory=set)
    #: Requests that nobody answers.
    unanswered: set[ApiKey] = field(default_factory=set)
    topics: dict[str, dict[int, Partition]] = field(default_factory=dict)
    running: dict[TopicPartition, ReplicaAssignment] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    sizes: dict[PartitionReplica, int] = field(default_factory=dict)
    futures: dict[PartitionReplica, str] = field(default_factory=dict)
    #: How much of a log the copy in another directory has.
    copied: dict[PartitionReplica, int] = field(default_factory=dict)
    log_dir: str = "/data"
    answers: dict[int, Callable[[int, Any], dict[str, Any] | None]] = field(default_factory=dict)
    seen: list[tuple[int, ApiKey, Any]] = field(default_factory=list)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    committed: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    end_offset: int = 100
    #: What a server that is no Kafka says first.
    greeting: bytes = b""

    def topic(self, name: str, *replicas: Sequence[int]) -> None:
        """Creates a topic, its leaders first and all in sync."""
        self.topics[name] = {
            number: Partition(replicas=tuple(r), leader=r[0], isr=tuple(r)) for number, r in enumerate(replicas)
        }

    def finish(self) -> None:
        """Completes every reassignment."""
        for partition, reassignment in self.running.items():
            target = tuple(reassignment.target_replicas)
            self.topics[partition.topic][partition.partition] = Partition(target, target[0], target)
        self.running.clear()

    def requests(self, api: ApiKey) -> list[Any]:
        return [body for _, key, body in self.seen if key is api]

    async def start(self, network: SimulatedNetwork) -> None:
        for broker in self.brokers:
            if broker not in self.down | self.dead:
                await network.view(f"b{broker}").listen(f"b{broker}", PORT, self._serve(broker))

    def _serve(self, broker: int) -> Callable[[Connection], Awaitable[None]]:
        async def serve(connection: Connection) -> None:
            frames = FrameBuffer()
            if self.greeting:
                connection.send(self.greeting)
            while data := await connection.recv():
                for frame in frames.feed(data):
                    request = protocol.decode_request(frame)
                    self.seen.append((broker, request.api_key, request.body))
                    if request.api_key in self.closes_at:
                        connection.close()
                        return
                    if broker not in self.mute and request.api_key not in self.unanswered:
                        connection.send(self._answer(broker, request))

        return serve

    def _answer(self, broker: int, request: protocol.Request) -> bytes:
        scripted = self.answers.get(request.api_key, lambda b, body: None)(broker, request.body)
        values = scripted if scripted is not None else HANDLERS[request.api_key](self, broker, request.body)
        return protocol.encode_response(request.api_key, request.api_version, request.correlation_id, values)


def _api_versions(cluster: FakeCluster, broker: int, _: Any) -> dict[str, Any]:
    lacks = cluster.lacks.get(broker, set())
    keys = [k for k in sorted({*HANDLERS, *map(ApiKey, cluster.answers), ApiKey.FETCH}) if k not in lacks]
    return {"api_keys": [{"api_key": k, "min_version": 0, "max_version": HIGHEST.get(k, 0)} for k in keys]}


def _metadata(cluster: FakeCluster, _: int, body: Any) -> dict[str, Any]:
    names = list(cluster.topics) if body.topics is None else [t.name for t in body.topics]
    return {
        "brokers": [
            {"node_id": b, "host": f"b{b}", "port": PORT, "rack": rack}
            for b, rack in cluster.brokers.items()
            if b not in cluster.down
        ],
        "controller_id": cluster.controller,
        "topics": [_topic(cluster, name) for name in names],
    }


def _topic(cluster: FakeCluster, name: str) -> dict[str, Any]:
    if name not in cluster.topics:
        return {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": name, "partitions": []}
    return {
        "name": name,
        "is_internal": name.startswith("__"),
        "partitions": [
            {
                "partition_index": n,
                "leader_id": p.leader,
                "leader_epoch": p.leader_epoch,
                "replica_nodes": list(p.replicas),
                "isr_nodes": list(p.isr),
            }
            for n, p in cluster.topics[name].items()
        ],
    }


def _create_topics(cluster: FakeCluster, broker: int, body: Any) -> dict[str, Any]:
    results = []
    for topic in body.topics:
        code = ErrorCode.NONE
        if broker != cluster.controller:
            code = ErrorCode.NOT_CONTROLLER
        elif topic.name in cluster.topics:
            code = ErrorCode.TOPIC_ALREADY_EXISTS
        else:
            lists = [a.broker_ids for a in topic.assignments] or [[0]] * max(1, topic.num_partitions)
            cluster.topic(topic.name, *lists)
            cluster.configs[2, topic.name] = {c.name: c.value for c in topic.configs}
        message = f"Topic '{topic.name}' already exists." if code is ErrorCode.TOPIC_ALREADY_EXISTS else None
        results.append({"name": topic.name, "error_code": code, "error_message": message})
    return {"topics": results}


def _create_partitions(cluster: FakeCluster, _: int, body: Any) -> dict[str, Any]:
    for topic in body.topics:
        partitions = cluster.topics[topic.name]
        for number in range(len(partitions), topic.count):
            partitions[number] = replace(partitions[0])
    return {"results": [{"name": t.name} for t in body.topics]}


def _delete_topics(cluster: FakeCluster, _: int, body: Any) -> dict[str, Any]:
    for name in body.topic_names:
        del cluster.topics[name]
    return {"responses": [{"name": name} for name in body.topic_names]}


def _describe_configs(cluster: FakeCluster, broker: int, body: Any) -> dict[str, Any]:
    results = []
    for resource in body.resources:
        result = {"resource_type": resource.resource_type, "resource_name": resource.resource_name, "configs": []}
        results.append(result)
        if resource.resource_type == 2 and resource.resource_name not in cluster.topics:
            result |= {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error_message": ""}
            continue
        own = cluster.configs[resource.resource_type, resource.resource_name]
        source = 1 if resource.resource_type == 2 else 2 if resource.resource_name else 3
        defaults = {"min.insync.replicas": "1", "retention.ms": "604800000"} if resource.resource_type == 2 else {}
        result["configs"] = [
            {
                "name": name,
                "value": own.get(name, defaults.get(name)),
                "config_source": source if name in own else 5,
                "synonyms": [{"name": name, "value": value, "source": source}] if (value := own.get(name)) else [],
            }
            for name in {**defaults, **own}
        ]
    return {"results": results}


def _alter_configs(cluster: FakeCluster, broker: int, body: Any) -> dict[str, Any]:
    responses = []
    for resource in body.resources:
        response = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        responses.append(response)
        if resource.resource_type == 2 and resource.resource_name not in cluster.topics:
            name = resource.resource_name
            text = f"The topic '{name}' does not exist."
            response |= {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "error_message": text}
            continue
        if resource.resource_type == 4:
            assert resource.resource_name in ("", str(broker)), "a broker changes only its own configs"
        own = cluster.configs[resource.resource_type, resource.resource_name]
        for config in resource.configs:
            if config.config_operation == 1:
                own.pop(config.name, None)
            else:
                own[config.name] = config.value
    return {"responses": responses}


def _list_reassignments(cluster: FakeCluster, broker: int, body: Any) -> dict[str, Any]:
    if broker != cluster.controller:
        return {"error_code": ErrorCode.NOT_CONTROLLER, "topics": []}
    wanted = None if body.topics is None else {(t.name, p) for t in body.topics for p in t.partition_indexes}
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for partition, r in cluster.running.items():
        if wanted is None or tuple(partition) in wanted:
            topics[partition.topic].append(
                {
                    "partition_index": partition.partition,
                    "replicas": list(r.replicas),
                    "adding_replicas": list(r.adding_replicas),
                    "removing_replicas": list(r.removing_replicas),
                }
            )
    return {"topics": [{"name": n, "partitions": p} for n, p in topics.items()]}


def _alter_reassignments(cluster: FakeCluster, _: int, body: Any) -> dict[str, Any]:
    responses: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for topic in body.topics:
        for asked in topic.partitions:
            key = TopicPartition(topic.name, asked.partition_index)
            state = cluster.topics[topic.name][asked.partition_index]
            now = cluster.running.get(key, ReplicaAssignment(replicas=tuple(map(BrokerId, state.replicas))))
            responses[topic.name].append({"partition_index": asked.partition_index})
            if asked.replicas is None:
                state.replicas = tuple(now.origin_replicas)
                cluster.running.pop(key, None)
                continue
            moved = now.reassign_to(asked.replicas)
            state.replicas = tuple(moved.replicas)
            if moved.is_being_reassigned:
                cluster.running[key] = moved
    return {"responses": [{"name": n, "partitions": p} for n, p in responses.items()]}


def _elect_leaders(cluster: FakeCluster, _: int, body: Any) -> dict[str, Any]:
    everything = body.topic_partitions is None
    asked = (
        {(t, n) for t, parts in cluster.topics.items() for n in parts}
        if everything
        else {(t.topic, n) for t in body.topic_partitions for n in t.partitions}
    )
    results: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for topic, number in sorted(asked):
        partition = cluster.topics.get(topic, {}).get(number)
        code, message = ErrorCode.NONE, None
        if partition is None:
            code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
        elif partition.leader == partition.replicas[0]:
            code = ErrorCode.ELECTION_NOT_NEEDED
        elif partition.replicas[0] not in partition.isr:
            code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        else:
            partition.leader = partition.replicas[0]
        if not (everything and code is ErrorCode.ELECTION_NOT_NEEDED):
            results[topic].append({"partition_id": number, "error_code": code, "error_message": message})
    return {"replica_election_results": [{"topic": t, "partition_result": r} for t, r in results.items()]}


def _describe_log_dirs(cluster: FakeCluster, broker: int, body: Any) -> dict[str, Any]:
    wanted = None if body.topics is None else {(t.topic, p) for t in body.topics for p in t.partitions}
    dirs: dict[str, list[dict[str, Any]]] = {cluster.log_dir: []}
    for topic, partitions in cluster.topics.items():
        for number, partition in partitions.items():
            replica = PartitionReplica(TopicPartition(topic, number), BrokerId(broker))
            if broker not in partition.replicas or (wanted is not None and (topic, number) not in wanted):
                continue
            entry = {"partition_index": number, "partition_size": cluster.sizes.get(replica, 0), "offset_lag": 0}
            dirs[cluster.log_dir].append({"name": topic, "partitions": [entry]})
            if (future := cluster.futures.get(replica)) is not None:
                size = cluster.copied.get(replica, 0)
                copy = {"partition_index": number, "partition_size": size, "offset_lag": 5, "is_future_key": True}
                dirs.setdefault(future, []).append({"name": topic, "partitions": [copy]})
    return {"results": [{"log_dir": path, "topics": topics} for path, topics in dirs.items()]}


def _alter_log_dirs(cluster: FakeCluster, broker: int, body: Any) -> dict[str, Any]:
    results = []
    for directory in body.dirs:
        for topic in directory.topics:
            for number in topic.partitions:
                replica = PartitionReplica(TopicPartition(topic.name, number), BrokerId(broker))
                if directory.path == cluster.log_dir:
                    cluster.futures.pop(replica, None)
                else:
                    cluster.futures[replica] = directory.path
                results.append({"topic_name": topic.name, "partitions": [{"partition_index": number}]})
    return {"results": results}


def _list_offsets(cluster: FakeCluster, _: int, body: Any) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": t.name,
                "partitions": [
                    {"partition_index": p.partition_index, "offset": 0 if p.timestamp == -2 else cluster.end_offset}
                    for p in t.partitions
                ],
            }
            for t in body.topics
        ]
    }


def _find_coordinator(cluster: FakeCluster, _: int, body: Any) -> dict[str, Any]:
    return {"node_id": 1, "host": "b1", "port": PORT}


def _list_groups(cluster: FakeCluster, broker: int, _: Any) -> dict[str, Any]:
    mine = cluster.groups if broker == 1 else {}
    return {
        "groups": [
            {"group_id": g, "protocol_type": "consumer", "group_state": values["group_state"]}
            for g, values in mine.items()
        ]
    }


def _describe_groups(cluster: FakeCluster, _: int, body: Any) -> dict[str, Any]:
    dead = {"group_state": "Dead", "protocol_type": "", "protocol_data": "", "members": []}
    return {"groups": [{"group_id": g, **cluster.groups.get(g, dead)} for g in body.groups]}


def _offset_fetch(cluster: FakeCluster, _: int, body: Any) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for partition, offset in cluster.committed.get(body.group_id, {}).items():
        topics[partition.topic].append({"partition_index": partition.partition, "committed_offset": offset})
    return {"topics": [{"name": n, "partitions": p} for n, p in topics.items()]}


HANDLERS: dict[ApiKey, Callable[[FakeCluster, int, Any], dict[str, Any]]] = {
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.METADATA: _metadata,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_reassignments,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_reassignments,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_log_dirs,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.OFFSET_FETCH: _offset_fetch,
}
#: Versions of real brokers, above and below what the tools know.
HIGHEST = {
    ApiKey.METADATA: 9,
    ApiKey.CREATE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DELETE_TOPICS: 4,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 0,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
    ApiKey.LIST_OFFSETS: 5,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.LIST_GROUPS: 4,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.OFFSET_COMMIT: 7,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.FETCH: 11,
}


@dataclass(frozen=True)
class Outcome:
    """What a run of a tool left."""

    code: int
    out: str
    err: str
    took_s: float


def run_tool(
    main: MainAsync, cluster: FakeCluster, argv: Iterable[str], *, bootstrap: str | None = "b0:9092"
) -> Outcome:
    """Runs a tool against the cluster on virtual time."""
    out, err = io.StringIO(), io.StringIO()
    words = [*(["--bootstrap-server", bootstrap] if bootstrap else []), *argv]

    async def scenario() -> tuple[int, float]:
        import asyncio

        network = SimulatedNetwork(random.Random(7))
        await cluster.start(network)
        machine = Machine(network=network.view("laptop"), clock=FixedClock(), chance=random.Random(1), out=out, err=err)
        start = asyncio.get_running_loop().time()
        code = await main(words, machine)
        return code, asyncio.get_running_loop().time() - start

    code, took_s = run_virtually(scenario())
    return Outcome(code, out.getvalue(), err.getvalue(), took_s)
