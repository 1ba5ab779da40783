"""The questions to a world at rest: a sound cluster answers all of them right, and each wrong answer is noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.sim.cluster import Cluster
from controller.sim.questions.every import wrong_answers
from controller.sim.shape import TOPIC, Shape
from controller.wire.codec.reader import Message
from controller.wire.protocol import ApiKey
from controller.world.simulated.world import World, run_world

pytestmark = [pytest.mark.sim, pytest.mark.long]
#: Kind of request -> fields of its answer that are held to be right, each with another value of its kind.
TOLD: Mapping[ApiKey, str] = {
    ApiKey.PRODUCE: "base_offset error_code log_append_time",
    ApiKey.FETCH: "error_code records log_start_offset",
    ApiKey.LIST_OFFSETS: "offset timestamp",
    ApiKey.METADATA: "node_id host port rack cluster_id controller_id error_code is_internal leader_id leader_epoch "
    "replica_nodes isr_nodes offline_replicas name topic_authorized_operations cluster_authorized_operations "
    "partition_index",
    ApiKey.OFFSET_COMMIT: "error_code",
    ApiKey.OFFSET_FETCH: "committed_offset committed_leader_epoch metadata name",
    ApiKey.FIND_COORDINATOR: "error_code node_id host port",
    ApiKey.JOIN_GROUP: "error_code generation_id protocol_name leader member_id metadata",
    ApiKey.HEARTBEAT: "error_code",
    ApiKey.LEAVE_GROUP: "error_code",
    ApiKey.SYNC_GROUP: "error_code assignment protocol_type protocol_name",
    ApiKey.DESCRIBE_GROUPS: "error_code group_state protocol_data member_id client_id member_metadata "
    "member_assignment authorized_operations",
    ApiKey.LIST_GROUPS: "group_id protocol_type group_state",
    ApiKey.CREATE_TOPICS: "name error_code num_partitions replication_factor value config_source",
    ApiKey.DELETE_TOPICS: "name error_code",
    ApiKey.DELETE_RECORDS: "error_code low_watermark",
    ApiKey.INIT_PRODUCER_ID: "error_code producer_epoch",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "error_code leader_epoch end_offset",
    ApiKey.DESCRIBE_CONFIGS: "error_code name value config_source",
    ApiKey.ALTER_CONFIGS: "error_code",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "error_code",
    ApiKey.DESCRIBE_LOG_DIRS: "error_code log_dir name partition_index partition_size offset_lag is_future_key",
    ApiKey.CREATE_PARTITIONS: "name error_code",
    ApiKey.DELETE_GROUPS: "error_code",
    ApiKey.ELECT_LEADERS: "error_code topic partition_id",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "error_code",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "error_code",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "error_code",
    ApiKey.OFFSET_DELETE: "error_code",
    ApiKey.DESCRIBE_CLUSTER: "cluster_id controller_id broker_id host port rack cluster_authorized_operations",
}
#: Among so many conversations is one in which a field is told: not each version has it.
CONVERSATIONS = 40
SHAPE = Shape(brokers=3, controllers=1, racks=2, log_dirs=2, replication_factor=2, partitions=2)


class Asked(Cluster):
    """Counts what is asked, and lets `change` have each answer."""

    def __init__(self, world: World, folder: Path, *, shape: Shape) -> None:
        super().__init__(world, folder, shape=shape)
        self.change: Callable[[ApiKey, Any], None] = lambda key, answer: None
        #: (kind, version) -> how often
        self.asked: Counter[tuple[ApiKey, int]] = Counter()

    async def call(self, number: int, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> Any:
        self.asked[api_key, version] += 1
        answer = await super().call(number, api_key, version, body)
        self.change(api_key, answer)
        return answer


async def _rests(cluster: Asked) -> None:
    world = cluster.world
    await cluster.start()
    assert cluster.shape is not None
    await cluster.create_topic(TOPIC, cluster.shape.assignments(2, 2), {"retention.ms": "5000000"})
    body = {"key": "somebody", "key_type": 0}
    while (await cluster.call(1, ApiKey.FIND_COORDINATOR, 2, body)).error_code:
        await world.sleep(0.5)
    await world.until(cluster.healthy, within_s=30, what="all replicas in sync")
    await world.sleep(1)


def test_a_sound_cluster_answers_right_in_every_version_and_is_then_as_it_was(tmp_path: Path) -> None:
    async def look(world: World) -> None:
        cluster = Asked(world, tmp_path, shape=SHAPE)
        with cluster.logging():
            await _rests(cluster)
            before = cluster.partitions()
            for seed in range(30):
                assert await wrong_answers(cluster, seed) == []
        assert cluster.partitions() == before
        asked = {key: sorted(version for other, version in cluster.asked if other == key) for key in TOLD}
        assert {key for key, _ in cluster.asked} == set(TOLD)
        for key in (
            ApiKey.METADATA,
            ApiKey.JOIN_GROUP,
            ApiKey.OFFSET_COMMIT,
            ApiKey.CREATE_TOPICS,
            ApiKey.LIST_OFFSETS,
        ):
            assert asked[key] == list(range(asked[key][0], asked[key][-1] + 1))

    run_world(1, look)


def test_clients_with_a_listener_of_their_own_are_answered_right_and_reach_no_other(tmp_path: Path) -> None:
    async def look(world: World) -> None:
        cluster = Asked(world, tmp_path, shape=replace(SHAPE, first_id=0, client_listener=True))
        with cluster.logging():
            await _rests(cluster)
            assert await wrong_answers(cluster, 1, in_full=True) == []
        assert sorted(cluster.brokers) == [0, 1, 2]
        for machine, ports in (("client", {9094}), ("broker-1", {9092, 9094})):
            assert {port for port in (9092, 9094) if await _reaches(world, machine, port)} == ports

    run_world(1, look)


async def _reaches(world: World, machine: str, port: int) -> bool:
    try:
        (await world.machine(machine).network.connect("broker-0", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("key", TOLD, ids=lambda key: key.name)
def test_an_answer_that_is_not_right_is_noted(key: ApiKey, tmp_path: Path) -> None:
    missed: list[str] = []

    async def look(world: World) -> None:
        cluster = Asked(world, tmp_path, shape=SHAPE)
        with cluster.logging():
            await _rests(cluster)
            for name in TOLD[key].split():
                missed.extend([name] * (not await _is_noted(cluster, key, name)))

    run_world(1, look)
    assert missed == []


async def _is_noted(cluster: Asked, key: ApiKey, name: str) -> bool:
    """Whether other values of this field are noted in the first conversation in which it is told."""
    for seed in range(CONVERSATIONS):
        changed: list[Message] = []

        def change(asked: ApiKey, answer: Any, changed: list[Message] = changed) -> None:
            for row in _rows(answer) if asked is key else ():
                if hasattr(row, name):
                    setattr(row, name, _another(getattr(row, name)))
                    changed.append(row)

        cluster.change = change
        wrong = await wrong_answers(cluster, f"{name} {seed}", in_full=True)
        cluster.change = lambda asked, answer: None
        if changed:
            await wrong_answers(cluster, name)  # what a conversation that went wrong has left goes
            return bool(wrong)
        assert wrong == []
    return False


def _rows(value: object) -> Iterator[Message]:
    """All structures of an answer."""
    if isinstance(value, Message):
        yield value
        for name in value.__slots__:
            yield from _rows(getattr(value, name))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _rows(each)


def _another(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}~"
        case bytes() | bytearray() | memoryview():
            return b"" if len(value) else b"~"
        case None:
            return "~"
        case _:
            return (*value, 99)
