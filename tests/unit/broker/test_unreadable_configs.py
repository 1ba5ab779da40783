"""ZooKeeper does not show a config, or it does not parse: nothing is taken for empty, and all is well afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_sim.broker import StartRefused
from controller.wire import log_events as ev
from controller.wire.control import LeaderAndIsrEntry, StopReplicaEntry, UpdateMetadataEntry
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, Exists, GetChildren, GetData, SetData, ZkCode, ZkOp
from controller.wire.znodes import BrokerIdZNode, ConfigChangesZNode, ConfigEntityZNode, ProducerIdBlockZNode

TP = TopicPartition("t", 0)
ONE = BrokerId(1)
SAFE = ConfigEntityZNode.encode({"min.insync.replicas": "2", "retention.ms": "-1"})
PATH = ConfigEntityZNode.topic("t")


def led(epoch: int, topic_partition: TopicPartition = TP) -> LeaderAndIsrEntry:
    return LeaderAndIsrEntry(
        topic_partition=topic_partition,
        state=LeaderAndIsr(leader=ONE, isr=(ONE,), leader_epoch=epoch),
        assignment=ReplicaAssignment(replicas=(ONE,)),
        is_new=True,
    )


def refuse(cluster: Any, path: str, kind: Any = GetData) -> None:
    def refusal(op: ZkOp | Any) -> ZkCode | None:
        return ZkCode.NO_AUTH if isinstance(op, kind) and op.path == path else None

    cluster.world.zookeeper.tree.refusal = refusal


def allow(cluster: Any) -> None:
    cluster.world.zookeeper.tree.refusal = lambda _: None


async def write(cluster: Any, path: str, data: bytes) -> None:
    zk = cluster.brokers[1].zk
    await cluster.in_broker(1, zk.perform([Create(path, data), SetData(path, data)]))


async def notify(cluster: Any, entity_path: str) -> None:
    notice = Create(ConfigChangesZNode.sequence_path, ConfigChangesZNode.encode(entity_path), sequence=True)
    await cluster.in_broker(1, cluster.brokers[1].zk.perform([notice]))
    await cluster.world.sleep(1)


def hosted(cluster: Any) -> Any:
    return cluster.brokers[1].context.replicas.table.partitions.get(TP)


async def host(cluster: Any, epoch: int = 0) -> int:
    entry = led(epoch)
    await cluster.update_metadata(1, [UpdateMetadataEntry(topic_partition=TP, state=entry.state, replicas=(ONE,))])
    answer = await cluster.leader_and_isr(1, [entry])
    return int(answer.partition_errors[0].error_code)


async def delete(cluster: Any) -> None:
    await cluster.stop_replica(1, [StopReplicaEntry(topic_partition=TP, leader_epoch=-2, delete_partition=True)])


BREAKS: list[tuple[str, Callable[[Any], None], bytes]] = [
    ("it may not be read", lambda cluster: refuse(cluster, PATH), SAFE),
    ("it does not parse", lambda cluster: None, b'{"version":1,"config":'),
    ("a value cannot be", lambda cluster: None, ConfigEntityZNode.encode({"retention.ms": "soon"})),
    ("a value is too small", lambda cluster: None, ConfigEntityZNode.encode({"segment.bytes": "0"})),
]


@pytest.mark.parametrize(("damage", "data"), [row[1:] for row in BREAKS], ids=[row[0] for row in BREAKS])
def test_a_partition_is_hosted_once_its_topics_configs_can_be_read(
    in_memory: Any, damage: Callable[[Any], None], data: bytes
) -> None:
    """Each time: what waited before was stopped by then, or is hosted."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        for first, is_stopped in ((0, True), (3, False), (6, False)):
            await write(cluster, PATH, data)
            damage(cluster)
            for epoch in (first, first + 1, first):  # the newest counts, not the last
                assert await host(cluster, epoch) == ErrorCode.UNKNOWN_SERVER_ERROR
            await cluster.world.sleep(30)
            assert hosted(cluster) is None, "not with the defaults"
            if is_stopped:
                await delete(cluster)
            allow(cluster)
            await write(cluster, PATH, SAFE)
            await cluster.world.sleep(3)
            partition = hosted(cluster)
            assert (partition is None) == is_stopped
            if partition is not None:
                assert (partition.leader_epoch, partition.min_insync_replicas) == (first + 1, 2)
                assert partition.log.config.retention_ms == -1
                await delete(cluster)

    in_memory(scenario)


def test_a_known_topic_whose_configs_cannot_be_read_now_waits_with_its_new_partitions_alone(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        await write(cluster, PATH, SAFE)
        assert await host(cluster) == 0
        refuse(cluster, PATH)
        added = TopicPartition("t", 1)
        answer = await cluster.leader_and_isr(1, [led(1), led(1, added)])
        assert [row.error_code for row in answer.partition_errors] == [0, ErrorCode.UNKNOWN_SERVER_ERROR]
        assert hosted(cluster).leader_epoch == 1
        allow(cluster)
        await cluster.world.sleep(3)
        assert cluster.brokers[1].context.replicas.table.partitions[added].min_insync_replicas == 2

    in_memory(scenario)


#: the leader epoch of a stop, while epoch 3 waits -> whether it counts
STOPS = {"its own": (3, True), "a newer": (4, True), "of a deletion": (-2, True), "none": (-1, True), "old": (2, False)}


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "stopped alone"])
@pytest.mark.parametrize("epoch", STOPS)
def test_a_partition_that_was_stopped_meanwhile_is_not_hosted(in_memory: Any, epoch: str, is_deleted: bool) -> None:
    """A stop of an older leader epoch comes late, over a connection that was given up: it is refused, as one of a
    partition that is hosted is."""
    stop_epoch, counts = STOPS[epoch]

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        refuse(cluster, PATH)
        await host(cluster, 3)
        stop = StopReplicaEntry(topic_partition=TP, leader_epoch=stop_epoch, delete_partition=is_deleted)
        answer = await cluster.stop_replica(1, [stop])
        error = ErrorCode.NONE if counts else ErrorCode.FENCED_LEADER_EPOCH
        assert [row.error_code for row in answer.partition_errors] == [error]
        allow(cluster)
        await cluster.world.sleep(5)
        assert (hosted(cluster) is None) == counts
        assert counts or hosted(cluster).leader_epoch == 3

    in_memory(scenario)


def test_a_deletion_that_comes_while_the_configs_are_read_at_last_deletes(
    in_memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        refuse(cluster, PATH)
        assert await host(cluster) == ErrorCode.UNKNOWN_SERVER_ERROR
        configs, has_read, go_on = cluster.brokers[1].context.configs, asyncio.Event(), asyncio.Event()
        read = configs.load_topics

        async def read_slowly(*topics: Any, **more: Any) -> Any:
            found = await read(*topics, **more)
            has_read.set()
            await go_on.wait()
            return found

        monkeypatch.setattr(configs, "load_topics", read_slowly)
        allow(cluster)
        await has_read.wait()
        deletion = asyncio.ensure_future(delete(cluster))
        await cluster.world.sleep(1)
        go_on.set()
        await deletion
        await cluster.world.sleep(3)
        assert hosted(cluster) is None

    in_memory(scenario)


def test_a_stop_withdraws_what_it_names_and_nothing_else(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        refuse(cluster, PATH)
        all_of_it = [TopicPartition("t", n) for n in range(4)]
        await cluster.leader_and_isr(1, [led(3, tp) for tp in all_of_it])
        stops = [StopReplicaEntry(tp, 3 - tp.partition % 2, tp.partition < 2) for tp in all_of_it[:3]]
        answer = await cluster.stop_replica(1, stops)
        assert [row.error_code for row in answer.partition_errors] == [0, ErrorCode.FENCED_LEADER_EPOCH, 0]
        allow(cluster)
        await cluster.world.sleep(5)
        assert set(cluster.brokers[1].context.replicas.table.partitions) == {all_of_it[1], all_of_it[3]}

    in_memory(scenario)


def test_a_stop_that_is_too_old_for_what_waits_leaves_what_is_hosted_of_an_older_epoch(in_memory: Any) -> None:
    """A topic that the metadata lost for a while is not known any more, though its partition is here."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        assert await host(cluster, 1) == ErrorCode.NONE
        cluster.brokers[1].context.configs.forget_topics(["t"])
        refuse(cluster, PATH)
        assert await host(cluster, 3) == ErrorCode.UNKNOWN_SERVER_ERROR
        stop = StopReplicaEntry(topic_partition=TP, leader_epoch=2, delete_partition=True)
        answer = await cluster.stop_replica(1, [stop])
        assert answer.partition_errors[0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert hosted(cluster).leader_epoch == 1
        allow(cluster)
        await cluster.world.sleep(5)
        assert hosted(cluster).leader_epoch == 3

    in_memory(scenario)


@pytest.mark.parametrize("late", [2, 3, 4])
def test_of_what_waits_and_what_is_told_once_configs_can_be_read_the_newer_counts(in_memory: Any, late: int) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        refuse(cluster, PATH)
        await host(cluster, 3)
        allow(cluster)
        assert await host(cluster, late) == ErrorCode.NONE
        assert hosted(cluster).leader_epoch == late, "told before what waits was looked at again"
        await cluster.world.sleep(5)
        assert hosted(cluster).leader_epoch == max(late, 3)
        assert cluster.brokers[1].context.postponed.entries == [], "nothing waits any more"

    in_memory(scenario)


def test_a_change_that_cannot_be_read_leaves_what_is_in_force_and_is_asked_again(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        await write(cluster, PATH, SAFE)
        assert await host(cluster) == 0
        refuse(cluster, PATH)
        await notify(cluster, "topics/t")
        await cluster.world.sleep(3)
        assert hosted(cluster).min_insync_replicas == 2
        allow(cluster)
        await write(cluster, PATH, ConfigEntityZNode.encode({}))
        await cluster.world.sleep(3)
        assert hosted(cluster).min_insync_replicas == 1

    in_memory(scenario)


def test_new_defaults_count_once_a_broker_can_read_its_own_configs_too(in_memory: Any) -> None:
    """Not before, for whatever is looked at meanwhile: its own may say otherwise."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        assert await host(cluster) == 0
        await write(cluster, ConfigEntityZNode.broker(None), ConfigEntityZNode.encode({"min.insync.replicas": "2"}))
        refuse(cluster, ConfigEntityZNode.broker(ONE))
        await notify(cluster, "brokers/<default>")
        await notify(cluster, "topics/t")
        assert hosted(cluster).min_insync_replicas == 1
        allow(cluster)
        await cluster.world.sleep(3)
        assert hosted(cluster).min_insync_replicas == 2

    in_memory(scenario)


def test_a_value_that_cannot_be_leaves_what_is_in_force_and_does_not_stop_later_notices(in_memory: Any) -> None:
    """Kafka logs that the notice failed, and takes the next one (`ZkNodeChangeNotificationListener`)."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        await write(cluster, PATH, SAFE)
        assert await host(cluster) == 0
        await write(cluster, PATH, ConfigEntityZNode.encode({"min.insync.replicas": "1", "retention.ms": "soon"}))
        with capture_logs() as lines:
            await notify(cluster, "topics/t")
            await write(cluster, ConfigEntityZNode.topic("u"), ConfigEntityZNode.encode({"segment.bytes": "700"}))
            await notify(cluster, "topics/u")
        (refused,) = [line["reason"] for line in lines if line["event"] == ev.CONFIG_REFUSED]
        assert refused.endswith("Invalid value soon for configuration retention.ms: Not a number of type LONG")
        assert not [line for line in lines if line["event"] == ev.TASK_FAILED]
        partition = hosted(cluster)
        assert (partition.min_insync_replicas, partition.log.config.retention_ms) == (2, -1)
        assert cluster.brokers[1].context.replicas.table.overrides["u"] == {"segment.bytes": "700"}
        await cluster.start(2)
        await write(cluster, PATH, ConfigEntityZNode.encode({"retention.ms": "5", "of.a.later.kafka": "x"}))
        await cluster.world.sleep(3)
        assert (partition.min_insync_replicas, partition.log.config.retention_ms) == (1, 5)

    in_memory(scenario)


#: what ZooKeeper refuses while a change is announced
HIDDEN = {
    "the list of notices": (ConfigChangesZNode.path, GetChildren),
    "whether there is one": (ConfigChangesZNode.path, Exists),
    "what changed": (PATH, GetData),
}


@pytest.mark.parametrize("since", ["while it starts", "when it runs", "in its next session"])
@pytest.mark.parametrize("what", HIDDEN)
def test_a_change_that_may_not_be_seen_counts_once_it_may_and_so_does_the_next(
    in_memory: Any, what: str, since: str
) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        if since != "while it starts":
            await cluster.start(2)
        before = None
        for value in ("2", "3"):
            after = {"min.insync.replicas": value}
            await write(cluster, PATH, ConfigEntityZNode.encode(after))
            with capture_logs() as lines:
                refuse(cluster, *HIDDEN[what])
                await notify(cluster, "topics/t")
                broker = cluster.brokers.get(2) or await cluster.start(2)
                if since == "in its next session":
                    cluster.world.zookeeper.expire_session(broker.zk.session_id)
                await cluster.world.sleep(3)
            overrides = broker.context.replicas.table.overrides
            assert overrides.get("t") == before
            assert {line["event"] for line in lines} & {ev.ZK_READ_REFUSED, ev.CONFIG_REFUSED}
            allow(cluster)
            await cluster.world.sleep(3)
            assert overrides["t"] == after
            before = {"segment.bytes": value * 4}
            await write(cluster, PATH, ConfigEntityZNode.encode(before))
            await notify(cluster, "topics/t")
            assert overrides["t"] == before

    in_memory(scenario)


def test_an_alteration_does_not_write_over_what_it_could_not_read(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        await write(cluster, PATH, SAFE)
        assert await host(cluster) == 0
        refuse(cluster, PATH)
        configs = [{"name": "segment.bytes", "config_operation": 0, "value": "4096"}]
        body = {"resources": [{"resource_type": 2, "resource_name": "t", "configs": configs}]}
        answer = await cluster.call(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
        assert answer.responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        allow(cluster)
        assert cluster.world.zookeeper.tree.read(GetData(PATH)).data == SAFE

    in_memory(scenario)


def test_a_broker_whose_own_configs_may_not_be_read_does_not_start(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        refuse(cluster, ConfigEntityZNode.broker(None))
        broker = cluster.make(1)
        with pytest.raises(StartRefused, match="/config/brokers/<default> cannot be read: NO_AUTH"):
            await cluster.in_broker(1, broker.start())

    in_memory(scenario)


def test_a_broker_that_may_not_register_says_what_zookeeper_said(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        refuse(cluster, BrokerIdZNode.path(ONE), Create)
        broker = cluster.make(1)
        with pytest.raises(StartRefused, match="/brokers/ids/1: NO_AUTH"):
            await cluster.in_broker(1, broker.start())

    in_memory(scenario)


@pytest.mark.parametrize("why", ["zookeeper refuses", "the id is another's"])
def test_a_broker_that_may_not_register_again_serves_on_and_hears_of_changes(in_memory: Any, why: str) -> None:
    """Source: Kafka 3.9 `ZooKeeperClient.callAfterInitializingSession`."""

    async def scenario(cluster: Any) -> None:
        for number in (1, 2):
            await cluster.start(number)
        broker, own = cluster.brokers[1], BrokerIdZNode.path(1)
        other = cluster.brokers[2].zk
        if why == "zookeeper refuses":
            refuse(cluster, own, Create)
        with capture_logs() as lines:
            cluster.world.zookeeper.expire_session(broker.zk.session_id)
            if why != "zookeeper refuses":
                await cluster.in_broker(2, other.perform([Create(own, b"{}", ephemeral=True)]))
            await cluster.world.sleep(40)
        assert ev.BROKER_REGISTRATION_FAILED in [line["event"] for line in lines]
        allow(cluster)
        entity = ConfigEntityZNode.broker(ONE)
        await write(cluster, entity, ConfigEntityZNode.encode({"max.connections.per.ip": "7"}))
        await notify(cluster, "brokers/1")
        assert broker.context.configs.dynamic == {"max.connections.per.ip": "7"}

    in_memory(scenario)


def test_producer_ids_do_not_begin_again_where_the_last_block_may_not_be_read(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        ask = {"transactional_id": None, "transaction_timeout": 1, "producer_id": -1, "producer_epoch": -1}
        refuse(cluster, ProducerIdBlockZNode.path)
        answer = await cluster.call(1, ApiKey.INIT_PRODUCER_ID, 3, ask)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        allow(cluster)
        assert (await cluster.call(1, ApiKey.INIT_PRODUCER_ID, 3, ask)).producer_id == 0

    in_memory(scenario)
