"""From the first socket to the first UpdateMetadata, and what that request changes besides the metadata."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from controller.wire import control_bytes
from controller.wire.control import LeaderAndIsrEntry, UpdateMetadataEntry, UpdateMetadataRequest
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.types import (
    GROUP_METADATA_TOPIC,
    BrokerId,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)
from controller.world.client import BrokerConnection

TP = TopicPartition("t", 0)
STATE = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=3)


def test_a_socket_is_open_before_the_registration_and_what_comes_in_waits(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        world = cluster.world
        broker = cluster.make(1)
        cluster.machine(1).start(broker.start())
        connection = None
        while connection is None:
            try:
                connection = await BrokerConnection.open(cluster.client.network, "broker-1", 9092, client_id="c")
            except OSError:
                await world.sleep(0.0005)
        assert "1" not in world.zookeeper.tree.get("/brokers/ids").children, "it is not registered yet"
        request = UpdateMetadataRequest(
            to=BrokerId(1),
            controller_id=BrokerId(100),
            controller_epoch=1,
            broker_epoch=-1,
            partition_states=(),
            live_brokers=(),
        )
        asked = asyncio.ensure_future(connection.call(ApiKey.UPDATE_METADATA, 6, control_bytes.encode(request)))
        await world.until(asked.done, within_s=30, what="the answer")
        assert asked.result().error_code == ErrorCode.NONE
        assert "1" in world.zookeeper.tree.get("/brokers/ids").children, "it was answered once it was registered"
        assert broker.context.metadata.controller_id == 100

    in_memory(scenario)


def test_a_follower_waits_for_update_metadata(in_memory: Any) -> None:
    """Until it names the leader alive, LeaderAndIsr makes a log and no follower."""

    async def scenario(cluster: Any) -> None:
        first = await cluster.start(1)
        await cluster.start(2)
        state = LeaderAndIsr(leader=BrokerId(2), isr=(BrokerId(2),), leader_epoch=0)
        replicas = ReplicaAssignment(replicas=(BrokerId(2), BrokerId(1)))
        entry = LeaderAndIsrEntry(topic_partition=TP, state=state, assignment=replicas, is_new=True)
        answer = await cluster.leader_and_isr(1, [entry])
        assert [p.error_code for p in answer.partition_errors] == [ErrorCode.NONE]
        partition = first.context.replicas.table.partitions[TP]
        assert (partition.leader_epoch, partition.leader, partition.log.leo) == (-1, None, 0)
        await cluster.update_metadata(1, [UpdateMetadataEntry(topic_partition=TP, state=state, replicas=(2, 1))])
        await cluster.leader_and_isr(1, [entry])
        assert (partition.leader_epoch, partition.leader) == (0, 2)

    in_memory(scenario)


def test_a_partition_without_a_leader_stays_in_the_metadata(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await cluster.start(1)
        none = LeaderAndIsr(leader=None, isr=(BrokerId(1),), leader_epoch=4)
        entry = UpdateMetadataEntry(topic_partition=TP, state=none, replicas=(BrokerId(1),), offline_replicas=(9,))
        await cluster.update_metadata(1, [entry])
        (topic,) = (await cluster.call(1, ApiKey.METADATA, 9, {"topics": [{"name": "t"}]})).topics
        (partition,) = topic.partitions
        assert (topic.error_code, partition.error_code) == (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
        assert (partition.leader_id, partition.leader_epoch, list(partition.offline_replicas)) == (-1, 4, [9])

    in_memory(scenario)


# -- groups and what is deleted ---------------------------------------------------------------------------------------


def commit(group: str = "g", **offsets: int) -> dict[str, Any]:
    """Of partition 0 of each topic, or of the one that its name says: `t_1=5`."""
    topics = [
        {
            "name": name.partition("_")[0],
            "partitions": [
                {
                    "partition_index": int(name.partition("_")[2] or 0),
                    "committed_offset": offset,
                    "committed_metadata": "",
                }
            ],
        }
        for name, offset in offsets.items()
    ]
    return {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}


async def with_group(cluster: Any) -> None:
    await cluster.start(1, offsets_topic_num_partitions=1)
    for topic in ("t", "u"):
        await cluster.create_topic(topic, [(1,)])
    await cluster.create_topic(GROUP_METADATA_TOPIC, [(1,)])
    await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, commit(t=5, u=6))


async def committed(cluster: Any, group: str = "g", *, at: int = 1) -> dict[str, int]:
    answer = await cluster.call(at, ApiKey.OFFSET_FETCH, 7, {"group_id": group, "topics": None})
    return {
        f"{topic.name}_{p.partition_index}" if p.partition_index else topic.name: p.committed_offset
        for topic in answer.topics
        for p in topic.partitions
    }


#: what, the offsets that were committed -> those that are left once topic `t`, of three partitions, is gone
GONE = [
    ("of all its partitions", {"t": 1, "t_1": 2, "t_2": 3, "u": 6}, {"u": 6}),
    ("of one partition, though the topic had more", {"t_1": 2, "u": 6}, {"u": 6}),
    ("of another topic stay", {"u": 6}, {"u": 6}),
    ("with the group that has no others", {"t": 1, "t_2": 3}, {}),
]


@pytest.mark.parametrize(("_", "offsets", "left"), GONE, ids=[row[0] for row in GONE])
def test_offsets_of_a_deleted_topic_go(in_memory: Any, _: str, offsets: dict[str, int], left: dict[str, int]) -> None:
    async def scenario(cluster: Any) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id, offsets_topic_num_partitions=1)
        for topic, partitions in (("t", [(1,)] * 3), ("u", [(1,)]), (GROUP_METADATA_TOPIC, [(1, 2)])):
            await cluster.create_topic(topic, partitions)
        for group, of_group in (("g", offsets), ("other", {"u": 7, "t_2": 8})):
            await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, commit(group, **of_group))
            assert await committed(cluster, group) == of_group
        gone = [
            UpdateMetadataEntry(
                topic_partition=TopicPartition("t", number), state=STATE, replicas=(BrokerId(1),), being_deleted=True
            )
            for number in range(3)
        ]
        await cluster.update_metadata(1, gone)
        for coordinator in (1, 2):  # and where the groups were loaded from their log
            await cluster.world.sleep(1)
            found = [await committed(cluster, group, at=coordinator) for group in ("g", "other")]
            assert found == [left, {"u": 7}]
            (group,) = (await cluster.call(coordinator, ApiKey.DESCRIBE_GROUPS, 4, {"groups": ["g"]})).groups
            assert group.group_state == ("Empty" if left else "Dead")
            if coordinator == 1:
                await cluster.create_topic(GROUP_METADATA_TOPIC, [(2, 1)], leader_epoch=1, is_new=False)

    in_memory(scenario)


def test_offsets_of_a_deleted_topic_go_also_where_nobody_knew_of_it_any_more(in_memory: Any) -> None:
    """Of a topic whose deletion lasts brokers are told again and again; one that starts meanwhile reads the offsets
    after it was told first. Source: Kafka 3.9 `ZkMetadataCache.updateMetadata`."""

    async def scenario(cluster: Any) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id, offsets_topic_num_partitions=1)
        for topic, replicas in (("t", [(1,)]), ("u", [(1,)]), (GROUP_METADATA_TOPIC, [(1, 2)])):
            await cluster.create_topic(topic, replicas)
        await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, commit(t=5, u=6))
        await cluster.world.sleep(1)
        await cluster.in_broker(2, cluster.brokers[2].stop(controlled=False))
        await cluster.start(2, offsets_topic_num_partitions=1)
        gone = UpdateMetadataEntry(
            topic_partition=TopicPartition("t", 0), state=STATE, replicas=(BrokerId(1),), being_deleted=True
        )
        await cluster.update_metadata(2, [gone])
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(2, 1)], leader_epoch=1, is_new=False)
        await cluster.world.sleep(1)
        assert await committed(cluster, at=2) == {"t": 5, "u": 6}
        await cluster.update_metadata(2, [gone])
        assert await committed(cluster, at=2) == {"u": 6}

    in_memory(scenario)


SUBSCRIBED_TO_T = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
ROWS = [
    {"name": "t", "partitions": [{"partition_index": 0}]},
    {"name": "u", "partitions": [{"partition_index": 0}, {"partition_index": 7}]},
]


async def delete_offsets(cluster: Any, group: str = "g") -> tuple[int, dict[tuple[str, int], int]]:
    answer = await cluster.call(1, ApiKey.OFFSET_DELETE, 0, {"group_id": group, "topics": ROWS})
    codes = {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}
    return answer.error_code, codes


async def join(
    cluster: Any, protocol_type: str, subscription: bytes = SUBSCRIBED_TO_T, *, is_stable: bool = True
) -> None:
    body = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": protocol_type,
        "protocols": [{"name": "range", "metadata": subscription}],
    }
    joined = await cluster.call(1, ApiKey.JOIN_GROUP, 3, body)
    member = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    if is_stable:
        await cluster.call(1, ApiKey.SYNC_GROUP, 2, {**member, "assignments": []})


def test_offsets_of_topics_that_members_subscribe_to_are_not_deleted(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await with_group(cluster)
        assert await delete_offsets(cluster, "nobody") == (ErrorCode.GROUP_ID_NOT_FOUND, {})
        assert await delete_offsets(cluster, "") == (ErrorCode.INVALID_GROUP_ID, {})
        await join(cluster, "consumer")
        assert await delete_offsets(cluster) == (
            ErrorCode.NONE,
            {
                ("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                ("u", 0): ErrorCode.NONE,
                ("u", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            },
        )
        assert await committed(cluster) == {"t": 5}

    in_memory(scenario)


def test_where_nobody_knows_to_what_a_member_subscribes_no_offset_is_deleted(in_memory: Any) -> None:
    """Source: Kafka 3.9 `GroupMetadata.isSubscribedToTopic`."""

    async def scenario(cluster: Any) -> None:
        await with_group(cluster)
        await join(cluster, "consumer", b"?")
        subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await delete_offsets(cluster) == (
            ErrorCode.NONE,
            {("t", 0): subscribed, ("u", 0): subscribed, ("u", 7): unknown},
        )
        assert await committed(cluster) == {"t": 5, "u": 6}

    in_memory(scenario)


@pytest.mark.parametrize("is_stable", [True, False], ids=["all have joined", "they are about to"])
def test_offsets_of_a_group_that_is_no_consumers_stay_while_it_has_members(in_memory: Any, is_stable: bool) -> None:
    async def scenario(cluster: Any) -> None:
        await with_group(cluster)
        await join(cluster, "connect", is_stable=is_stable)
        assert await delete_offsets(cluster) == (ErrorCode.NON_EMPTY_GROUP, {})
        assert await committed(cluster) == {"t": 5, "u": 6}

    in_memory(scenario)


async def with_a_follower(cluster: Any) -> None:
    """Broker 1 leads the groups' partition, which two must have in sync for a commit."""
    for broker_id in (1, 2):
        await cluster.start(broker_id, offsets_topic_num_partitions=1, min_insync_replicas=2)
    for topic, partitions in (("t", [(1,)]), ("u", [(1,)]), (GROUP_METADATA_TOPIC, [(1, 2)])):
        await cluster.create_topic(topic, partitions)


async def leave_it_alone(cluster: Any) -> None:
    """Broker 2 is in sync no more."""
    entry = LeaderAndIsrEntry(
        topic_partition=TopicPartition(GROUP_METADATA_TOPIC, 0),
        state=LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=1),
        assignment=ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2))),
    )
    assert (await cluster.leader_and_isr(1, [entry])).error_code == ErrorCode.NONE


async def delete_t(cluster: Any) -> None:
    gone = UpdateMetadataEntry(topic_partition=TP, state=STATE, replicas=(BrokerId(1),), being_deleted=True)
    await cluster.update_metadata(1, [gone])


def test_what_is_deleted_is_gone_also_while_nothing_can_be_committed(in_memory: Any) -> None:
    """Source: Kafka 3.9 `GroupMetadataManager.cleanupGroupMetadata`, which appends with requiredAcks 0."""

    async def scenario(cluster: Any) -> None:
        await with_a_follower(cluster)
        for group, offsets in (("g", {"t": 5, "u": 6}), ("h", {"u": 7}), ("i", {"t": 1, "u": 2})):
            await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, commit(group, **offsets))
        await leave_it_alone(cluster)
        (answer,) = (await cluster.call(1, ApiKey.OFFSET_COMMIT, 7, commit(u=8))).topics
        assert answer.partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        (deleted,) = (await cluster.call(1, ApiKey.DELETE_GROUPS, 1, {"groups_names": ["h"]})).results
        assert deleted.error_code == ErrorCode.NONE
        assert (await delete_offsets(cluster, "i"))[1]["u", 0] == ErrorCode.NONE
        await delete_t(cluster)
        left = {"g": {"u": 6}, "h": {}, "i": {}}
        assert {group: await committed(cluster, group) for group in left} == left
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(1, 2)], leader_epoch=2, is_new=False)
        await cluster.world.sleep(1)
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(2, 1)], leader_epoch=3, is_new=False)
        await cluster.world.sleep(1)
        assert {group: await committed(cluster, group, at=2) for group in left} == left, "as its log tells"

    in_memory(scenario)


@pytest.mark.parametrize("jump_ms", [-60_000, 60_000])
def test_a_clock_that_is_set_ends_no_session_and_lengthens_none(in_memory: Any, jump_ms: int) -> None:
    """Source: Kafka's `SystemTimer`, which counts by `Time.hiResClockMs`."""

    async def members(cluster: Any) -> int:
        (group,) = (await cluster.call(1, ApiKey.DESCRIBE_GROUPS, 4, {"groups": ["g"]})).groups
        return len(group.members)

    async def scenario(cluster: Any) -> None:
        await with_group(cluster)
        await join(cluster, "consumer")
        cluster.machine(1).clock.skew_ms += jump_ms
        await cluster.world.sleep(9)
        assert await members(cluster) == 1
        await cluster.world.sleep(2)
        assert await members(cluster) == 0

    in_memory(scenario)


def test_what_is_being_committed_for_a_deleted_topic_goes_with_it(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await with_a_follower(cluster)
        groups = cluster.brokers[1].context.groups
        under_way = asyncio.ensure_future(cluster.call(1, ApiKey.OFFSET_COMMIT, 7, commit(t=5, u=6)))
        while (entry := groups.entry("g")) is None or not entry.commits_under_way:
            await cluster.world.sleep(0.0001)
        assert not entry.offsets
        groups.partitions_deleted([TP])
        await under_way
        assert await committed(cluster) == {"u": 6}
        await cluster.world.sleep(1)
        await cluster.create_topic(GROUP_METADATA_TOPIC, [(2, 1)], leader_epoch=1, is_new=False)
        await cluster.world.sleep(1)
        assert await committed(cluster, at=2) == {"u": 6}

    in_memory(scenario)
