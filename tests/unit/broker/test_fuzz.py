"""Whatever stands in a znode that a broker reads, whatever a field of a request says: no acknowledged record is
lost, the broker serves on, no task of it dies, and after a repair everything ends well.

A few examples in the plain run, many by name: `pytest -m slow tests/unit/broker/test_fuzz.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker_sim.apis.table import ROWS
from controller.wire import control, control_bytes, protocol
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrEntry, UpdateMetadataEntry
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values, iterate
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, Delete, Exists, GetChildren, GetData, SetData, ZkCode
from controller.wire.znodes import (
    BrokerIdZNode,
    ConfigChangesZNode,
    ConfigEntityZNode,
    ProducerIdBlockZNode,
    TopicAssignment,
    TopicPartitionStateZNode,
    TopicZNode,
)
from tests.worlds.fuzz import few, many, takes_long
from tests.worlds.requests import requests

TP = TopicPartition("t", 0)
BOTH = (BrokerId(1), BrokerId(2))
#: of the state znode after its repair
VERSION = 5
FEW = few(12)
MANY = many(300)

#: What may be read at any time: path and a content that is right.
ZNODES: dict[str, bytes] = {
    ConfigEntityZNode.topic("t"): ConfigEntityZNode.encode({"retention.ms": "-1"}),
    ConfigEntityZNode.broker(None): ConfigEntityZNode.encode({}),
    ConfigEntityZNode.broker(1): ConfigEntityZNode.encode({}),
    ConfigChangesZNode.path: b"",
    f"{ConfigChangesZNode.sequence_path}0000000007": ConfigChangesZNode.encode("topics/t"),
    ProducerIdBlockZNode.path: ProducerIdBlockZNode.encode(BrokerId(2), 0, 999),
    TopicPartitionStateZNode.path(TP): b"",
    TopicZNode.path("t"): TopicZNode.encode(TopicAssignment(partitions={0: ReplicaAssignment(replicas=BOTH)})),
    BrokerIdZNode.path(9): b"",
}

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.text(max_size=5), st.floats()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
)


def wrong_documents(sound: bytes) -> st.SearchStrategy[bytes]:
    """A sound document with one value that is another one."""
    try:
        document = json.loads(sound)
    except ValueError:
        return st.just(b"{}")
    if not isinstance(document, dict) or not document:
        return st.just(b"{}")
    return st.builds(
        lambda name, value: json.dumps({**document, name: value}).encode(), st.sampled_from(sorted(document)), VALUES
    )


@dataclass(frozen=True)
class Damage:
    """What happens to one znode: it is refused with a code, gone, or holds these bytes."""

    path: str
    data: bytes | None = None
    code: ZkCode | None = None


@st.composite
def damages(draw: Any) -> Damage:
    path = draw(st.sampled_from(sorted(ZNODES)))
    how = draw(st.sampled_from(["bytes", "json", "document", "refused", "gone"]))
    if how == "refused":
        return Damage(path, code=draw(st.sampled_from([ZkCode.NO_AUTH, ZkCode.OTHER])))
    if how == "gone":
        return Damage(path)
    contents = {
        "bytes": st.binary(max_size=30),
        "json": VALUES.map(lambda value: json.dumps(value).encode()),
        "document": wrong_documents(ZNODES[path]),
    }
    return Damage(path, data=draw(contents[how]))


async def zk(cluster: Any, *ops: Any) -> None:
    await cluster.in_broker(1, cluster.brokers[1].zk.perform(list(ops)))


async def inflict(cluster: Any, damage: Damage) -> None:
    if damage.code is not None:
        code = damage.code
        cluster.world.zookeeper.tree.refusal = lambda op: (
            code if isinstance(op, GetData | GetChildren | Exists) and op.path == damage.path else None
        )
    elif damage.data is None:
        await zk(cluster, Delete(damage.path))
    else:
        await zk(cluster, Create(damage.path, damage.data), SetData(damage.path, damage.data))


async def produce(cluster: Any, value: bytes) -> int:
    records = build_values([(None, value)], timestamp=cluster.world.clock.now_ms())
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    answer = await cluster.call(1, ApiKey.PRODUCE, 8, {"acks": -1, "timeout": 3_000, "topic_data": topics})
    return int(answer.responses[0].partition_responses[0].error_code)


async def values(cluster: Any) -> list[bytes]:
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    body = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 20, "session_epoch": -1}
    answer = await cluster.call(1, ApiKey.FETCH, 11, {**body, "topics": [{"topic": "t", "partitions": rows}]})
    found = answer.responses[0].partitions[0]
    assert found.error_code == 0
    return [record.value or b"" for record in iterate(found.records)]


async def poke(cluster: Any) -> None:
    """Everything that makes a broker read: a notice, an alteration, a producer id, a new topic, a session."""
    for entity in ("topics/t", "brokers/<default>", "brokers/1"):
        await zk(cluster, Create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode(entity), sequence=True))
    resource = {"resource_type": 2, "resource_name": "t"}
    change = {"name": "segment.bytes", "config_operation": 0, "value": "1048576"}
    await cluster.call(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [{**resource, "configs": [change]}]})
    await cluster.call(1, ApiKey.DESCRIBE_CONFIGS, 3, {"resources": [{**resource, "configuration_keys": None}]})
    await cluster.call(1, ApiKey.INIT_PRODUCER_ID, 3, {"transactional_id": None, "transaction_timeout": 1})
    await cluster.call(1, ApiKey.METADATA, 9, {"topics": [{"name": "auto"}], "allow_auto_topic_creation": True})
    await cluster.in_broker(1, cluster.brokers[1].zk.expire())
    await cluster.world.sleep(70)


async def lead(cluster: Any, epoch: int) -> None:
    """The controller's word after the repair: as it was, in a newer epoch."""
    cluster.controller_epoch += 1
    state = LeaderAndIsr(
        leader=BrokerId(1),
        isr=BOTH,
        leader_epoch=epoch,
        partition_epoch=VERSION,
        controller_epoch=cluster.controller_epoch,
    )
    path = TopicPartitionStateZNode.path(TP)
    await zk(cluster, Delete(path), Create(path.removesuffix("/state")), Create(path, b"x"))
    for _ in range(VERSION):
        await zk(cluster, SetData(path, TopicPartitionStateZNode.encode(state)))
    for broker_id in cluster.brokers:
        entry = UpdateMetadataEntry(topic_partition=TP, state=state, replicas=BOTH)
        await cluster.update_metadata(broker_id, [entry])
    for broker_id in cluster.brokers:
        asked = LeaderAndIsrEntry(topic_partition=TP, state=state, assignment=ReplicaAssignment(replicas=BOTH))
        answer = await cluster.leader_and_isr(broker_id, [asked])
        assert [each.error_code for each in answer.partition_errors] == [0]


async def with_records(cluster: Any) -> None:
    for number in (1, 2):
        await cluster.start(number)
    await cluster.create_topic("t", [(1, 2)])
    await zk(cluster, *(Create(path, data) for path, data in ZNODES.items() if data))
    await zk(cluster, SetData(TopicZNode.path("t"), ZNODES[TopicZNode.path("t")]))
    assert await produce(cluster, b"before") == 0


async def ends_well(cluster: Any, epoch: int) -> None:
    await lead(cluster, epoch)
    await cluster.world.until(lambda: True, within_s=1, what="a moment")
    assert await produce(cluster, b"after") == 0
    found = await values(cluster)
    assert found[0] == b"before" and found[-1] == b"after"


def check_znodes(in_memory: Any, limits: settings) -> None:
    @limits
    @given(damages())
    def check(damage: Damage) -> None:
        async def scenario(cluster: Any) -> None:
            await with_records(cluster)
            await inflict(cluster, damage)
            await poke(cluster)
            assert (await values(cluster))[0] == b"before"
            cluster.world.zookeeper.tree.refusal = lambda _: None
            sound = {path: data for path, data in ZNODES.items() if data}
            await zk(cluster, Create(ConfigChangesZNode.path))
            await zk(cluster, *(Create(path, data) for path, data in sound.items()))
            await zk(cluster, *(SetData(path, data) for path, data in sound.items()))
            await cluster.world.sleep(5)
            await ends_well(cluster, 3)

        in_memory(scenario)

    unharmed(check)


def unharmed(check: Callable[[], None]) -> None:
    with capture_logs() as lines:
        check()
    harm = {ev.TASK_FAILED, ev.REQUEST_FAILED, ev.BROKER_HALTED}
    broken = [line for line in lines if line["event"] in harm and "exc_info" in line]
    assert broken == []


def test_znodes(in_memory: Any) -> None:
    check_znodes(in_memory, FEW)


@takes_long
def test_znodes_for_long(in_memory: Any) -> None:
    check_znodes(in_memory, MANY)


# -- control requests --------------------------------------------------------------------------------------------------

STATE = LeaderAndIsr(leader=BrokerId(1), isr=BOTH, leader_epoch=2, partition_epoch=1, controller_epoch=1)
EXTREMES = st.sampled_from([-(2**31), -3, -2, -1, 0, 1, 2, 3, 9, 2**15, 2**31 - 1])
IDS = st.lists(st.sampled_from([-2, -1, 0, 1, 2, 3, 7, 2**31 - 1]), max_size=4)


def body_of(cluster: Any, api_key: ApiKey) -> dict[str, Any]:
    """A request that is right, as a mapping."""
    head = cluster.epochs(1)
    if api_key is ApiKey.LEADER_AND_ISR:
        entry = LeaderAndIsrEntry(topic_partition=TP, state=STATE, assignment=ReplicaAssignment(replicas=BOTH))
        leader_and_isr = control.LeaderAndIsrRequest(
            partition_states=(entry,), live_leaders=cluster.registered(), **head
        )
        data, version = control_bytes.encode(leader_and_isr), control.LEADER_AND_ISR_VERSION
    elif api_key is ApiKey.UPDATE_METADATA:
        told = UpdateMetadataEntry(topic_partition=TP, state=STATE, replicas=BOTH)
        update = control.UpdateMetadataRequest(partition_states=(told,), live_brokers=cluster.registered(), **head)
        data, version = control_bytes.encode(update), control.UPDATE_METADATA_VERSION
    else:
        stop = control.StopReplicaEntry(topic_partition=TP, leader_epoch=2, delete_partition=False)
        data = control_bytes.encode(control.StopReplicaRequest(partition_states=(stop,), **head))
        version = control.STOP_REPLICA_VERSION
    plain: dict[str, Any] = protocol.plain(protocol.decode_request_body(api_key, version, data))
    return plain


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every field, as the way to it."""
    if isinstance(value, dict):
        return [place for name, inner in value.items() for place in places(inner, (*path, name))]
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return [path] + [place for n, inner in enumerate(value) for place in places(inner, (*path, n))]
    return [path]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: replaced(value[path[0]], path[1:], new)}
    return [replaced(each, path[1:], new) if n == path[0] else each for n, each in enumerate(value)]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def others(old: Any) -> st.SearchStrategy[Any]:
    if isinstance(old, bool):
        return st.just(not old)
    if isinstance(old, int):
        return EXTREMES
    if isinstance(old, str):
        return st.one_of(st.sampled_from(["", ".", "..", "a/b", "u", "x" * 300, "\u0000"]), st.text(max_size=4))
    if isinstance(old, list) and old and isinstance(old[0], int):
        return IDS
    if isinstance(old, list):
        return st.sampled_from([[], old + old])
    return st.none()


VERSIONS = {
    ApiKey.LEADER_AND_ISR: control.LEADER_AND_ISR_VERSION,
    ApiKey.UPDATE_METADATA: control.UPDATE_METADATA_VERSION,
    ApiKey.STOP_REPLICA: control.STOP_REPLICA_VERSION,
}


def check_fields(in_memory: Any, api_key: ApiKey, limits: settings) -> None:
    @limits
    @given(st.data())
    def check(data: Any) -> None:
        async def scenario(cluster: Any) -> None:
            await with_records(cluster)
            body = body_of(cluster, api_key)
            place = data.draw(st.sampled_from(places(body)))
            wrong = replaced(body, place, data.draw(others(at(body, place))))
            # The controller's word: the records may go, resp. all is ignored that is older than that version.
            is_final = place[-1] in ("delete_partition", "partition_epoch")
            is_final = is_final or (place[-1] == "leader_epoch" and at(wrong, place) == 2**31 - 1)  # no newer one
            # refused by its connection, or not to be put into bytes
            with suppress(OSError, protocol.ProtocolError, ValueError):
                await cluster.call(1, api_key, VERSIONS[api_key], wrong)
            await cluster.world.sleep(70)
            assert (await cluster.call(1, ApiKey.API_VERSIONS, 0, {})).error_code == 0
            if not is_final:
                cluster.brokers[1].context.controller_epoch = cluster.controller_epoch
                await ends_well(cluster, 5 if "leader_epoch" not in place else 2**31 - 1)

        in_memory(scenario)

    unharmed(check)


@pytest.mark.parametrize("api_key", VERSIONS, ids=lambda key: key.name)
def test_fields(in_memory: Any, api_key: ApiKey) -> None:
    check_fields(in_memory, api_key, FEW)


@takes_long
@pytest.mark.parametrize("api_key", VERSIONS, ids=lambda key: key.name)
def test_fields_for_long(in_memory: Any, api_key: ApiKey) -> None:
    check_fields(in_memory, api_key, MANY)


# -- requests of clients -----------------------------------------------------------------------------------------------

#: Those whose sense it is that records go, or that say how long they stay.
FINAL = (ApiKey.DELETE_RECORDS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
CLIENTS = {key: row.versions for key, row in ROWS.items() if key not in VERSIONS}


def check_requests(in_memory: Any, limits: settings) -> None:
    @limits
    @given(st.lists(requests(CLIENTS), min_size=1, max_size=4))
    def check(drawn: list[tuple[ApiKey, int, dict[str, Any]]]) -> None:
        async def scenario(cluster: Any) -> None:
            await with_records(cluster)
            for api_key, version, body in drawn:
                with suppress(OSError, protocol.ProtocolError, TimeoutError):  # refused by its connection
                    await asyncio.wait_for(cluster.call(1, api_key, version, body), 600)
                    continue
                cluster.connections.pop(1).close()
            await cluster.world.sleep(70)
            assert (await cluster.call(1, ApiKey.API_VERSIONS, 0, {})).error_code == 0
            if not {api_key for api_key, _, _ in drawn}.intersection(FINAL):
                await ends_well(cluster, 5)

        in_memory(scenario)

    unharmed(check)


def test_requests_of_clients(in_memory: Any) -> None:
    check_requests(in_memory, FEW)


@takes_long
def test_requests_of_clients_for_long(in_memory: Any) -> None:
    check_requests(in_memory, MANY)
