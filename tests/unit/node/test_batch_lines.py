"""The log lines of the state machines and of control requests: what one topic, and what a hundred thousand, leave."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import structlog

from controller.core.transitions import AnyTransition, PartitionState, ReplicaState, Transition
from controller.node.batch_lines import NAMED, log_transitions
from controller.wire import log_events as ev
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, TopicPartition
from tests.worlds.node import Cluster, play


def lines(level: int, *done: AnyTransition) -> list[dict[str, Any]]:
    """What is logged at this level."""
    kept: list[dict[str, Any]] = []

    def keep(_: object, method: str, event: Any) -> Any:
        kept.append({"level": method, **event})
        raise structlog.DropEvent

    logger = structlog.make_filtering_bound_logger(level)
    log_transitions(structlog.wrap_logger(None, processors=[keep], wrapper_class=logger), done, 7)
    return kept


def born(count: int) -> Transition[PartitionState]:
    partitions = [TopicPartition("t", number) for number in range(count)]
    return Transition(partitions, (PartitionState.NEW,) * count, PartitionState.ONLINE)


def test_a_batch_is_one_line_at_info_and_each_of_it_at_debug() -> None:
    batch = {"event": ev.PARTITIONS_TRANSITIONED, "transitions": {"NewPartition -> OnlinePartition": 2}}
    common = {"level": "info", "controller_epoch": 7, "topics": ["t"]}
    assert lines(logging.INFO, born(2)) == [{**batch, **common}]
    first, *singles = lines(logging.DEBUG, born(2))
    assert first == {**batch, **common}
    assert [(each["event"], each["partition"], each["from"], each["to"]) for each in singles] == [
        (ev.PARTITION_TRANSITIONED, number, "NewPartition", "OnlinePartition") for number in (0, 1)
    ]
    assert lines(logging.WARNING, born(2)) == []


def test_brokers_share_a_line_and_origins_are_counted_apart() -> None:
    partitions = (TopicPartition("t", 0), TopicPartition("t", 1))
    mixed = (ReplicaState.OFFLINE, ReplicaState.NEW)
    done = [Transition(partitions, mixed, ReplicaState.ONLINE, BrokerId(number)) for number in (1, 2)]
    (line,) = lines(logging.INFO, *done)
    assert line["transitions"] == {"NewReplica -> OnlineReplica": 2, "OfflineReplica -> OnlineReplica": 2}
    assert (line["event"], line["brokers"]) == (ev.REPLICAS_TRANSITIONED, [1, 2])
    assert {each.get("replica") for each in lines(logging.DEBUG, *done)[1:]} == {1, 2}


class _Unreadable(list[TopicPartition]):
    """Fails where anybody walks over it."""

    def __iter__(self) -> Any:
        raise AssertionError("a big batch must not be walked over at info")


def test_a_big_batch_names_nobody() -> None:
    count = NAMED + 1
    partitions = _Unreadable(born(count).partitions)
    (line,) = lines(logging.INFO, Transition(partitions, born(count).before, PartitionState.ONLINE))
    assert line["transitions"] == {"NewPartition -> OnlinePartition": count}
    assert "topics" not in line


@pytest.mark.parametrize("request_name", ["LeaderAndIsr", "UpdateMetadata"])
def test_a_topic_is_followed_from_its_znode_to_its_brokers(request_name: str) -> None:
    """One world: machines in Kafka's order, then a line for each request that a broker answered."""

    async def create(cluster: Cluster) -> None:
        body = {"topics": [{"name": "orders", "num_partitions": 2, "replication_factor": 3}], "timeout": 9000}
        await cluster.ask(ApiKey.CREATE_TOPICS, 4, body)
        await asyncio.sleep(1)

    about = [line for line in play(create) if line.get("topics") == ["orders"]]
    machines = [next(iter(line["transitions"])) for line in about if "transitions" in line]
    assert machines == [
        "NonExistentPartition -> NewPartition",
        "NonExistentReplica -> NewReplica",
        "NewPartition -> OnlinePartition",
        "NewReplica -> OnlineReplica",
    ]
    sent = [line for line in about if line["event"] == ev.REQUEST_SENT and line["request"] == request_name]
    assert {(line["broker"], line["partitions"], line["error"]) for line in sent} >= {
        (number, 2, "NONE") for number in (1, 2, 3)
    }


def test_topics_of_one_request_reach_each_broker_together() -> None:
    """The write of each waits for ZooKeeper several times; the controller finds all of them in one event or two."""
    names = [f"t{number}" for number in range(20)]

    async def create(cluster: Cluster) -> None:
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 3} for name in names]
        answer = await cluster.ask(ApiKey.CREATE_TOPICS, 4, {"topics": topics, "timeout": 9000})
        assert {topic["error_code"] for topic in answer["topics"]} == {0}
        await asyncio.sleep(1)

    told = [x for x in play(create) if x["event"] == ev.REQUEST_SENT and x["request"] == "LeaderAndIsr"]
    assert sum(line["partitions"] for line in told) == 3 * len(names)
    assert len(told) <= 3 * 2
