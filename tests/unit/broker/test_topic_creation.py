"""Topics that a broker creates by itself: what ZooKeeper is told, in which order."""

from __future__ import annotations

from typing import Any

import pytest

from controller.wire.protocol import ApiKey
from controller.wire.types import GROUP_METADATA_TOPIC
from controller.wire.zk_operations import Create, SetData, ZkCode
from controller.wire.znodes import ConfigEntityZNode, TopicZNode


@pytest.mark.parametrize("topic", ["t", GROUP_METADATA_TOPIC])
def test_a_topic_has_its_configs_from_its_first_moment_on(in_memory: Any, topic: str) -> None:
    """The controller acts when it sees the topic, and who hosts it then reads its configs once."""

    async def scenario(cluster: Any) -> None:
        await cluster.start(1, offsets_topic_replication_factor=1, offsets_topic_num_partitions=2)
        written: list[str] = []

        def note(op: Any) -> ZkCode | None:
            if isinstance(op, (Create, SetData)) and op.path in (
                ConfigEntityZNode.topic(topic),
                TopicZNode.path(topic),
            ):
                written.append(op.path)
            return None

        cluster.world.zookeeper.tree.refusal = note
        if topic == GROUP_METADATA_TOPIC:
            await cluster.call(1, ApiKey.FIND_COORDINATOR, 2, {"key": "g"})
        else:
            await cluster.call(1, ApiKey.METADATA, 5, {"topics": [{"name": topic}], "allow_auto_topic_creation": True})
        await cluster.world.sleep(1)
        created = written.index(TopicZNode.path(topic))
        assert ConfigEntityZNode.topic(topic) in written[:created] and written.count(TopicZNode.path(topic)) == 1

    in_memory(scenario)
