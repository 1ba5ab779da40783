"""Each topic of a DeleteTopics is answered by what becomes of it: in time, later, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Create, Delete, Exists, GetChildren, ZkCode

Play = Callable[..., list[Any]]
TOPICS = ("here", "too", "there")


def manual(*brokers: int) -> dict[str, Any]:
    replicas = [{"partition_index": 0, "broker_ids": brokers}]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": replicas}


async def created(cluster: Any) -> None:
    """The controller can see nothing of the marks once there is that of `there`; a replica of `stays` is dead."""
    rows = [{"name": name, **manual(1)} for name in TOPICS] + [{"name": "stays", **manual(1, 9)}]
    await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": 5_000})
    tree, marks = cluster.world.zookeeper.tree, "/admin/delete_topics"

    def refusal(op: Any) -> ZkCode | None:
        hidden = op == GetChildren(marks, watch=True) and "there" in tree.get(marks).children
        return ZkCode.NO_AUTH if hidden else None

    tree.refusal = refusal


async def delete(cluster: Any, *names: str, timeout: int) -> dict[str, ErrorCode]:
    answer = await cluster.ask(ApiKey.DELETE_TOPICS, 4, {"topic_names": names, "timeout": timeout})
    assert [row["name"] for row in answer["responses"]] == list(names), "also who is named twice, as by Kafka 3.9.1"
    return {row["name"]: ErrorCode(row["error_code"]) for row in answer["responses"]}


NONE, LATE, UNKNOWN = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("timeout", "in_time"), [(500, True), (0, False), (-1, False)])
def test_who_waits_hears_of_each_topic_what_is_done_of_it(play: Play, timeout: int, in_time: bool) -> None:
    """A deletion that has begun is one that clients see, however long it lasts."""

    async def scenario(cluster: Any) -> None:
        await created(cluster)
        now = NONE if in_time else LATE
        found = await delete(cluster, "here", "none", "stays", "there", "here", timeout=timeout)
        assert found == {"here": now, "there": LATE, "none": UNKNOWN, "stays": now}
        again = await delete(cluster, "there", timeout=timeout)
        assert again == {"there": LATE}, "it is marked already"
        await cluster.world.sleep(1)
        tree = cluster.world.zookeeper.tree
        assert set(tree.get("/brokers/topics").children) == {"there", "too", "stays"}
        assert set(tree.get("/admin/delete_topics").children) == {"there", "stays"}

    play(scenario, brokers=1)


def test_all_topics_are_waited_for(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await created(cluster)
        asked = asyncio.ensure_future(delete(cluster, "here", "there", timeout=5_000))
        await cluster.world.sleep(1)
        assert not asked.done()
        cluster.world.zookeeper.tree.refusal = lambda _: None
        assert await asked == {"here": NONE, "there": NONE}

    play(scenario, brokers=1)


def test_a_topic_that_vanishes_meanwhile_is_unknown_and_not_marked(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await created(cluster)
        tree = cluster.world.zookeeper.tree

        def vanishing(op: Any) -> None:
            if op == Exists("/brokers/topics/here"):
                tree.refusal = lambda _: None
                for below in ("/partitions/0/state", "/partitions/0", "/partitions", ""):
                    tree.write(Delete("/brokers/topics/here" + below), session=0, now_ms=0)

        tree.refusal = vanishing
        assert await delete(cluster, "here", timeout=500) == {"here": UNKNOWN}
        assert not tree.get("/admin/delete_topics").children

    play(scenario, brokers=1)


def test_a_mark_that_cannot_be_written_fails_its_topic_alone(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        await created(cluster)
        path = "/admin/delete_topics/too"
        tree = cluster.world.zookeeper.tree
        tree.refusal = lambda op: ZkCode.NO_AUTH if isinstance(op, Create) and op.path == path else None
        found = await delete(cluster, "here", "too", timeout=500)
        assert found == {"here": NONE, "too": ErrorCode.UNKNOWN_SERVER_ERROR}

    play(scenario, brokers=1)
