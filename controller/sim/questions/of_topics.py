"""A topic is made, grown and deleted, and what cannot be is refused: CreateTopics, CreatePartitions, DeleteTopics.

Source: spec broker.md §16.2 to §16.4, controller.md §10.1; Kafka 3.9 `ZkAdminManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from controller.sim.questions.inquiry import ASKED, IMPOSSIBLE, MISSING, Inquiry
from controller.sim.shape import TOPIC
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

ALSO_MISSING: Final = f"{MISSING}-either"
CONFIGS: Final = {"segment.bytes": "5000", "min.insync.replicas": "1"}
#: From these versions on a request may only be tried, and an answer says what was made.
TRIES_FROM, TELLS_FROM = 1, 5
TOPIC_CONFIG: Final = 1
TIMEOUT_MS: Final = 20_000


async def create(inquiry: Inquiry) -> None:
    """Of many topics in one request that one is made that can be; one that is only tried is not."""
    cluster, chance = inquiry.cluster, inquiry.chance
    version, count = chance.choice((0, 1, 2, 3, 4, 5, 5)), chance.randint(1, 3)
    factor = chance.randint(1, min(3, len(inquiry.brokers)))
    own = _row(ASKED, count, factor, configs=CONFIGS)
    if chance.random() < 0.5:
        replicas = [chance.sample(inquiry.brokers, factor) for _ in range(count)]
        own |= {"num_partitions": -1, "replication_factor": -1, **_lists(dict(enumerate(replicas)))}
    refused = _refused(inquiry)
    topics = [own, *(row for row, _ in refused.values())]
    right = {ASKED: ErrorCode.NONE, **{name: code for name, (_, code) in refused.items()}}
    before = cluster.children("/brokers/topics")
    for tries in (True, False) if version >= TRIES_FROM else (False,):
        body = {"topics": topics, "timeout": TIMEOUT_MS, "validate_only": tries}
        answer = await inquiry.ask_office(ApiKey.CREATE_TOPICS, version, body)
        found = {row.name: ErrorCode.of(row.error_code) for row in answer.topics}
        inquiry.expect(f"CreateTopics {version}{' that only tries' if tries else ''}", found, right)
        there = before if tries else sorted([*before, ASKED])
        inquiry.expect("which topics there are then", cluster.children("/brokers/topics"), there)
        if version >= TELLS_FROM:
            rows = [_as_told(row) for row in answer.topics if row.name == ASKED]
            inquiry.expect("what is told of the topic", rows, [(count, factor, CONFIGS)])
    _made(inquiry, own, count, factor)
    await _known_everywhere(inquiry, ASKED, ErrorCode.NONE)


def _refused(inquiry: Inquiry) -> dict[str, tuple[dict[str, Any], ErrorCode]]:
    """name -> what is asked for under it, and why there is no such topic."""
    one, bad = inquiry.brokers[0], ErrorCode.INVALID_REPLICA_ASSIGNMENT
    rows = [
        (_row(TOPIC, 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        *((_row(name, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION) for name in (IMPOSSIBLE, "..", "x" * 250)),
        (_row("none", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (_row("many", 1, len(inquiry.brokers) + 1), ErrorCode.INVALID_REPLICATION_FACTOR),
        (_row("odd", 1, 1, configs={"segment.bytes": "few"}), ErrorCode.INVALID_CONFIG),
        (_row("tiered", 1, 1, configs={"remote.storage.enable": "true"}), ErrorCode.INVALID_CONFIG),
        (_row("unformed", 1, 1, configs={"message.format.version": "9.9"}), ErrorCode.INVALID_CONFIG),
        (_row("both", 1, 1) | _lists({0: [one]}), ErrorCode.INVALID_REQUEST),
        (_row("twice", -1, -1) | _lists({0: [one, one]}), bad),
        (_row("later", -1, -1) | _lists({1: [one]}), bad),
        (_row("uneven", -1, -1) | _lists({0: [one, 99], 1: [one]}), bad),
    ]
    return {row["name"]: (row, code) for row, code in rows}


def _lists(replicas: Mapping[int, Sequence[int]]) -> dict[str, Any]:
    return {"assignments": [{"partition_index": n, "broker_ids": list(each)} for n, each in replicas.items()]}


async def made_by_asking(inquiry: Inquiry) -> None:
    """A topic that there is not is made where somebody asks for it who lets it be made, whoever else asks; then it is
    deleted. Nobody makes one that cannot be."""
    cluster, name = inquiry.cluster, f"{ASKED}-for"
    body = {"topics": [{"name": name}, {"name": IMPOSSIBLE}], "allow_auto_topic_creation": True}
    two = inquiry.chance.sample(inquiry.brokers, min(2, len(inquiry.brokers)))
    asking = [inquiry.ask(number, ApiKey.METADATA, inquiry.chance.randint(1, 9), body) for number in two]
    for answer in await asyncio.gather(*asking):
        found = {row.name: ErrorCode.of(row.error_code) for row in answer.topics}
        right = {name: ErrorCode.LEADER_NOT_AVAILABLE, IMPOSSIBLE: ErrorCode.INVALID_TOPIC_EXCEPTION}
        inquiry.expect("Metadata of a topic that is to be made", found, right)
    await _known_everywhere(inquiry, name, ErrorCode.NONE)
    counts = len(cluster.topic_partitions(name)), len(cluster.assignment(name, 0))
    inquiry.expect("its partitions and replicas", counts, (1, 1))
    await _deleted(inquiry, name)


async def _known_everywhere(inquiry: Inquiry, topic: str, right: ErrorCode) -> None:
    """Each broker soon tells the same of the topic."""

    async def answered() -> object:
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        answers = [await inquiry.ask(number, ApiKey.METADATA, 5, asked) for number in inquiry.brokers]
        return [ErrorCode.of(each.topics[0].error_code) for each in answers]

    await inquiry.becomes("Metadata of the topic", answered, [right] * len(inquiry.brokers))


def _row(name: str, count: int, factor: int, configs: Mapping[str, str] | None = None) -> dict[str, Any]:
    rows = [{"name": key, "value": value} for key, value in (configs or {}).items()]
    return {"name": name, "num_partitions": count, "replication_factor": factor, "assignments": [], "configs": rows}


def _as_told(row: Any) -> tuple[int, int, dict[str, str]]:
    own = {each.name: each.value for each in row.configs or () if each.config_source == TOPIC_CONFIG}
    return int(row.num_partitions), int(row.replication_factor), own


def _made(inquiry: Inquiry, asked: Mapping[str, Any], count: int, factor: int) -> None:
    """What was asked for stands in ZooKeeper, spread over racks where those count; each partition has its leader."""
    cluster = inquiry.cluster
    inquiry.expect("with which configs", cluster.znode(f"/config/topics/{ASKED}"), {"version": 1, "config": CONFIGS})
    replicas = [cluster.assignment(ASKED, number) for number in cluster.topic_partitions(ASKED)]
    inquiry.expect("how many replicas there are", [len(set(each)) for each in replicas], [factor] * count)
    if asked["assignments"]:
        inquiry.expect("who has them", replicas, [row["broker_ids"] for row in asked["assignments"]])
    elif cluster.shape is not None and cluster.shape.racks:
        racks = {number: cluster.znode(f"/brokers/ids/{number}").get("rack") for number in inquiry.brokers}
        apart = min(factor, len(set(racks.values())))
        found = [len({racks[number] for number in each}) for each in replicas]
        inquiry.expect("in how many racks they are", [min(each, apart) for each in found], [apart] * count)
    _lead(inquiry)


def _lead(inquiry: Inquiry) -> None:
    cluster = inquiry.cluster
    first = [cluster.assignment(ASKED, number)[0] for number in cluster.topic_partitions(ASKED)]
    states = [cluster.state(ASKED, number) for number in cluster.topic_partitions(ASKED)]
    inquiry.expect("who leads", [state and state["leader"] for state in states], first)


async def grow(inquiry: Inquiry) -> None:
    """More partitions, with as many replicas as the first; no fewer, not as many, and none of what is not there."""
    cluster, version = inquiry.cluster, inquiry.chance.randint(0, 2)
    before = cluster.content_of(ASKED)["partitions"]
    count = len(before)
    for tries in (True, False):
        rows = [(ASKED, count + 2, None), (TOPIC, 1, None), (MISSING, 3, None), (ALSO_MISSING, 0, None)]
        answer = await _grow(inquiry, version, rows, tries=tries)
        right = {ASKED: ErrorCode.NONE, TOPIC: ErrorCode.INVALID_PARTITIONS}
        right |= dict.fromkeys((MISSING, ALSO_MISSING), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        inquiry.expect(f"CreatePartitions {version}{' that only tries' if tries else ''}", answer, right)
        there = count if tries else count + 2
        inquiry.expect("how many partitions there are then", len(cluster.topic_partitions(ASKED)), there)
    after = cluster.content_of(ASKED)["partitions"]
    inquiry.expect("which replicas those before it have", {number: after.get(number) for number in before}, before)
    factors = {len(set(replicas)) for number, replicas in after.items() if number not in before}
    inquiry.expect("how many replicas the new ones have", factors, {len(before["0"])})
    strange = [replicas for replicas in after.values() if not set(replicas) <= set(inquiry.brokers)]
    inquiry.expect("which replicas are nobody's", strange, [])
    _lead(inquiry)
    wrong = await _grow(inquiry, version, [(ASKED, count + 3, [[99]])], tries=False)
    inquiry.expect("partitions of nobody", wrong, {ASKED: ErrorCode.INVALID_REPLICA_ASSIGNMENT})
    rows = [(ASKED, count + 3, None), (ASKED, count + 4, None)]
    twice = await _grow(inquiry, version, rows, tries=False)
    inquiry.expect("who grows twice in one request", twice, {ASKED: ErrorCode.INVALID_REQUEST})
    short = await _grow(inquiry, version, [(ASKED, count + 4, [[inquiry.brokers[0]]])], tries=False)
    inquiry.expect("partitions without replicas", short, {ASKED: ErrorCode.INVALID_REPLICA_ASSIGNMENT})
    inquiry.expect("how many there are at last", len(cluster.topic_partitions(ASKED)), count + 2)


async def _grow(
    inquiry: Inquiry, version: int, rows: Sequence[tuple[str, int, list[list[int]] | None]], *, tries: bool
) -> dict[str, ErrorCode]:
    topics = [
        {
            "name": name,
            "count": count,
            "assignments": None if lists is None else [{"broker_ids": each} for each in lists],
        }
        for name, count, lists in rows
    ]
    body = {"topics": topics, "timeout": TIMEOUT_MS, "validate_only": tries}
    answer = await inquiry.ask_office(ApiKey.CREATE_PARTITIONS, version, body)
    return {row.name: ErrorCode.of(row.error_code) for row in answer.results}


async def delete(inquiry: Inquiry) -> None:
    """A topic is gone when that is answered, its configs and its logs soon, everywhere."""
    await _deleted(inquiry, ASKED)


async def _deleted(inquiry: Inquiry, topic: str) -> None:
    cluster, version = inquiry.cluster, inquiry.chance.randint(0, 4)
    body = {"topic_names": [topic, MISSING], "timeout": TIMEOUT_MS}
    answer = await inquiry.ask_office(ApiKey.DELETE_TOPICS, version, body)
    found = {row.name: ErrorCode.of(row.error_code) for row in answer.responses}
    right = {topic: ErrorCode.NONE, MISSING: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    inquiry.expect(f"DeleteTopics {version}", found, right)

    async def left() -> object:
        parents = "/brokers/topics", "/config/topics", "/admin/delete_topics"
        folders = [path.name for path in cluster.folder.glob(f"broker-*/{topic}-[0-9]*") if "-delete" not in path.name]
        return [parent for parent in parents if topic in cluster.children(parent)], folders

    await inquiry.becomes("what is left of a deleted topic", left, ([], []))
    await _known_everywhere(inquiry, topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
