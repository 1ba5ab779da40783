"""CreatePartitions: each topic of a request is answered by its name, and only what can be is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Create, SetData, ZkCode

Play = Callable[..., list[Any]]
Answers = dict[str, tuple[int, str | None]]
UNWRITABLE = "/brokers/topics/unwritable"


async def made(cluster: Any, topics: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """Creates topics of these replicas."""
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": p, "broker_ids": ids} for p, ids in enumerate(lists)],
        }
        for name, lists in topics.items()
    ]
    await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": 500})


async def grow(cluster: Any, *rows: tuple[str, int, list[list[int]] | None], **more: Any) -> Answers:
    topics = [
        {"name": name, "count": count, "assignments": None if lists is None else [{"broker_ids": i} for i in lists]}
        for name, count, lists in rows
    ]
    answer = await cluster.ask(ApiKey.CREATE_PARTITIONS, 2, {"topics": topics, "timeout": 5_000, **more})
    results = {row["name"]: (row["error_code"], row["error_message"]) for row in answer["results"]}
    assert len(results) == len(answer["results"]), "each name once"
    return results


async def lists_of(cluster: Any, topic: str) -> Any:
    return json.loads(await cluster.read(f"/brokers/topics/{topic}"))["partitions"]


GROWN: list[tuple[str, int, list[list[int]] | None, int, str | None]] = [  # topic, count, replicas -> code, text
    ("t", 3, None, ErrorCode.NONE, None),
    ("twice", 2, None, ErrorCode.INVALID_REQUEST, "Duplicate topic in request."),
    ("leaving", 3, None, ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion."),
    ("unwritable", 2, None, ErrorCode.UNKNOWN_SERVER_ERROR, None),
    ("huge", 100_003, None, ErrorCode.INVALID_PARTITIONS, "100001 partitions are too many; 100000 fit into a request."),
    ("strangers", 3, [[64, 9], [1, 7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT,
     "Unknown broker(s) in replica assignment: 7, 9, 64."),
    *((name, 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
      for name in ("", "../ids", "t/partitions", "a\0b")),
    ("twice", 3, None, ErrorCode.INVALID_REQUEST, "Duplicate topic in request."),
]  # fmt: skip


@pytest.mark.parametrize("validate_only", [False, True], ids=["done", "only validated"])
def test_each_topic_is_grown_or_refused_for_itself(play: Play, validate_only: bool) -> None:
    """Why one cannot be written is told to the log alone. A registration that does not parse is no broker."""
    code_there = {("unwritable", True): ErrorCode.NONE}

    async def scenario(cluster: Any) -> None:
        one = {name: [[1]] for name in ("t", "twice", "unwritable", "strangers")}
        await made(cluster, {**one, "huge": [[1], [2]], "leaving": [[1], [9]]})
        await cluster.ask(ApiKey.DELETE_TOPICS, 4, {"topic_names": ["leaving"], "timeout": 500})
        for broker_id in (0, 7):  # first and last
            await cluster.zk(Create(f"/brokers/ids/{broker_id}", b"no registration"))
        cluster.world.zookeeper.tree.refusal = lambda op: (
            ZkCode.NO_AUTH if isinstance(op, SetData) and op.path == UNWRITABLE else None
        )
        before = {name: await lists_of(cluster, name) for name in ("twice", "leaving", "unwritable", "huge")}
        answers = await grow(cluster, *(row[:3] for row in GROWN), validate_only=validate_only)
        assert answers == {
            name: (code_there.get((name, validate_only), code), text) for name, _, _, code, text in GROWN
        }
        assert {name: await lists_of(cluster, name) for name in before} == before
        grown = {"0": [1]} if validate_only else {"0": [1], "1": [2], "2": [3]}
        assert await lists_of(cluster, "t") == grown

    lines = [line for line in play(scenario) if line["event"] == ev.REQUEST_FAILED]
    assert [(line["topic"], UNWRITABLE in line["reason"]) for line in lines] == [("unwritable", True)] * (
        not validate_only
    )


@pytest.mark.parametrize("timeout_ms", [0, -1, 700])
def test_an_addition_is_answered_when_all_lead_or_the_time_is_over(play: Play, timeout_ms: int) -> None:
    """Who does not wait is told of the time, of what is written all the same; a refusal stays one."""
    held = "/brokers/topics/held/partitions/1"

    async def scenario(cluster: Any) -> None:
        await made(cluster, {"quick": [[1]], "held": [[1]]})
        cluster.world.zookeeper.tree.refusal = lambda op: (
            ZkCode.NO_AUTH if isinstance(op, Create) and op.path.startswith(held) else None
        )
        before = cluster.world.loop.time()
        answers = await grow(cluster, ("quick", 2, None), ("held", 2, None), ("none", 2, None), timeout=timeout_ms)
        took_ms = 1_000 * (cluster.world.loop.time() - before)
        late = (ErrorCode.REQUEST_TIMED_OUT, None)
        assert (answers["quick"], answers["held"]) == ((ErrorCode.NONE, None) if timeout_ms > 0 else late, late)
        assert answers["none"][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert max(timeout_ms, 0) <= took_ms < max(timeout_ms, 0) + 500
        assert {len(await lists_of(cluster, name)) for name in ("quick", "held")} == {2}

    play(scenario)


@pytest.mark.parametrize("timeout_ms", [0, 5_000])
def test_who_has_nothing_to_wait_for_does_not_wait(play: Play, timeout_ms: int) -> None:
    async def scenario(cluster: Any) -> None:
        await made(cluster, {"t": [[1]]})
        before = cluster.world.loop.time()
        answers = await grow(cluster, ("t", 2, None), validate_only=True, timeout=timeout_ms)
        assert answers == {"t": (ErrorCode.NONE, None)}
        assert cluster.world.loop.time() - before < 0.5

    play(scenario)


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_whichever_partition_moves_or_has_no_leader_the_topic_is_waited_for(play: Play, partition: int) -> None:
    """A topic of which any partition moves does not grow; one of which any has no leader is not all there."""

    async def scenario(cluster: Any) -> None:
        lists = [[9] if p == partition else [1] for p in range(3)]
        await made(cluster, {"moving": [[1]] * 3, "leaderless": lists})
        path = "/brokers/topics/moving"
        content = json.loads(await cluster.read(path)) | {"adding_replicas": {str(partition): [2]}}
        content["partitions"][str(partition)] = [1, 2]
        await cluster.zk(SetData(path, json.dumps(content).encode()))
        answers = await grow(cluster, ("moving", 4, [[1]]), ("leaderless", 4, [[1]]), timeout=500)
        assert answers["moving"][0] == ErrorCode.REASSIGNMENT_IN_PROGRESS
        assert answers["leaderless"] == (ErrorCode.REQUEST_TIMED_OUT, None)

    play(scenario)


def test_what_another_hand_added_meanwhile_is_not_taken_for_ones_own(play: Play) -> None:
    """As many partitions are no proof that it was this addition that was done."""

    async def scenario(cluster: Any) -> None:
        await made(cluster, {"t": [[1]]})
        path, theirs = "/brokers/topics/t", json.dumps({"version": 1, "partitions": {"0": [1], "1": [2]}}).encode()
        tree, writes = cluster.world.zookeeper.tree, list[SetData]()

        def refusal(op: Any) -> ZkCode | None:
            """Of the first write: somebody was faster."""
            if not isinstance(op, SetData) or op.path != path:
                return None
            writes.append(op)
            return ZkCode.BAD_VERSION if len(writes) == 1 else None

        def read(op: Any, read: Any = tree.read) -> Any:
            result = read(op)
            return result._replace(data=theirs) if writes and getattr(op, "path", "") == path else result

        tree.read = read
        tree.refusal = refusal
        answers = await grow(cluster, ("t", 2, [[3]]))
        assert answers["t"] == (ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partitions.")
        assert len(writes) == 1

    play(scenario)
