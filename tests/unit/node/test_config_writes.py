"""Configs are written as they were asked for, under the eyes of one controller, whatever becomes of `/controller`, or
of their own znode, between the looks and the write."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Create, Delete, Multi, SetData, ZkCode, ZkWriteOp
from controller.wire.znodes import ConfigChangesZNode, ConfigEntityZNode
from tests.worlds.alterations import check_alterations

Play = Callable[..., list[Any]]
PATH = ConfigEntityZNode.topic("t")
BEFORE, BETWEEN, AFTER = {"retention.ms": "1"}, {"retention.ms": "2"}, {"retention.ms": "3"}
GONE, CHANGED = Delete("/controller"), SetData("/controller", b'{"version":2,"brokerid":77,"timestamp":"0"}')

#: who writes meanwhile -> whether configs were there, what (at the n-th write of them), whether the write is refused
MEANWHILE: list[tuple[str, bool, dict[int, ZkWriteOp], bool]] = [
    ("nobody", True, {}, False),
    ("nobody, and there are none yet", False, {}, False),
    ("the controller goes", True, {1: GONE}, True),
    ("the controller goes, and there are none yet", False, {1: GONE}, True),
    ("the controller changes", True, {1: CHANGED}, True),
    ("the controller changes, and there are none yet", False, {1: CHANGED}, True),
    ("another writes", True, {1: SetData(PATH, ConfigEntityZNode.encode(BETWEEN))}, False),
    ("another creates", False, {2: Create(PATH, ConfigEntityZNode.encode(BETWEEN))}, False),
    ("another removes", True, {1: Delete(PATH)}, False),
    ("another creates, and the controller goes", False,
     {2: Create(PATH, ConfigEntityZNode.encode(BETWEEN)), 3: GONE}, True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("is_there", "writes", "is_refused"), [row[1:] for row in MEANWHILE], ids=[row[0] for row in MEANWHILE]
)
def test_configs_are_written_and_announced_or_neither(
    play: Play, is_there: bool, writes: dict[int, ZkWriteOp], is_refused: bool
) -> None:
    async def scenario(cluster: Any) -> None:
        rows = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": 5_000})
        await cluster.zk(SetData(PATH, ConfigEntityZNode.encode(BEFORE)) if is_there else Delete(PATH))
        tree, attempts = cluster.world.zookeeper.tree, 0

        def meddle(op: Any) -> None:
            nonlocal attempts
            whole = op.ops[-1] if isinstance(op, Multi) else op
            if getattr(whole, "path", None) == PATH and isinstance(op, Multi | Create):
                attempts += 1
                if attempts in writes:
                    tree.refusal = lambda _: None
                    assert tree.write(writes[attempts], session=0, now_ms=0).result.ok
                    tree.refusal = meddle

        tree.refusal = meddle
        change = {"resource_type": 2, "resource_name": "t", "configs": [{"name": "retention.ms", "value": "3"}]}
        answer = await cluster.ask(ApiKey.ALTER_CONFIGS, 1, {"resources": [change], "validate_only": False})
        tree.refusal = lambda _: None
        assert set(writes) <= set(range(attempts + 1)), "it all happened"
        code = ErrorCode.STALE_CONTROLLER_EPOCH if is_refused else ErrorCode.NONE
        assert [row["error_code"] for row in answer["responses"]] == [code]
        theirs = BETWEEN if 2 in writes else BEFORE if is_there else None
        found = tree.get(PATH)
        assert (None if found is None else json.loads(found.payload)["config"]) == (theirs if is_refused else AFTER)
        assert len(tree.get(ConfigChangesZNode.path).children) == (0 if is_refused else 1)

    play(scenario, brokers=1)


def test_whatever_stands_there_becomes_what_was_asked_for(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        async def ask(api: ApiKey, body: dict[str, Any]) -> Any:
            (row,) = (await cluster.ask(api, 1, body))["responses"]
            return row["error_code"]

        rows = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": 5_000})
        await check_alterations(cluster.world.zookeeper.tree, ask, own=100)

    play(scenario, brokers=1)


@pytest.mark.parametrize("api", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS], ids=lambda api: api.name)
@pytest.mark.parametrize("name", ["t/partitions", "t/partitions/0", "../topics/t"])
def test_what_stands_below_a_topic_is_no_topic(play: Play, name: str, api: ApiKey) -> None:
    async def scenario(cluster: Any) -> None:
        rows = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": 5_000})
        operation = {} if api is ApiKey.ALTER_CONFIGS else {"config_operation": 0}
        change = {"name": "retention.ms", "value": "3", **operation}
        resource = {"resource_type": 2, "resource_name": name, "configs": [change]}
        answer = await cluster.ask(api, 1, {"resources": [resource], "validate_only": False})
        assert [row["error_code"] for row in answer["responses"]] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert set(cluster.world.zookeeper.tree.get("/config/topics").children) == {"t"}
        assert not cluster.world.zookeeper.tree.get(PATH).children

    play(scenario, brokers=1)


def test_without_a_controller_nobody_writes_configs(play: Play) -> None:
    async def scenario(cluster: Any) -> None:
        tree = cluster.world.zookeeper.tree
        before = tree.get(ConfigEntityZNode.broker(None))
        assert tree.write(GONE, session=0, now_ms=0).result.ok  # it fires no watch: this one has not heard of it
        change = {"resource_type": 4, "resource_name": "", "configs": [{"name": "log.retention.ms", "value": "3"}]}
        answer = await cluster.ask(ApiKey.ALTER_CONFIGS, 1, {"resources": [change], "validate_only": False})
        assert [row["error_code"] for row in answer["responses"]] == [ErrorCode.STALE_CONTROLLER_EPOCH]
        assert tree.get(ConfigEntityZNode.broker(None)) == before
        assert not tree.get(ConfigChangesZNode.path).children

    play(scenario, brokers=0)


#: what of the writes of configs ZooKeeper refuses, where there are none yet
REFUSED: list[tuple[str, Callable[[Any], bool]]] = [
    ("the write", lambda op: isinstance(op, Multi) and op.ops[-1].path == PATH),
    ("the creation", lambda op: isinstance(op, Create) and op.path == PATH),
    ("the notice", lambda op: isinstance(op, Create) and op.path == ConfigChangesZNode.sequence_path),
]


@pytest.mark.parametrize("refused", [row[1] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_who_alters_configs_hears_that_zookeeper_refuses(play: Play, refused: Callable[[Any], bool]) -> None:
    async def scenario(cluster: Any) -> None:
        await created_without_configs(cluster)
        tree = cluster.world.zookeeper.tree
        tree.refusal = lambda op: ZkCode.NO_AUTH if refused(op) else None
        assert await altered(cluster) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert not tree.get(ConfigChangesZNode.path).children

    play(scenario, brokers=1)


@pytest.mark.parametrize("times", [4, 5])
def test_configs_that_appear_and_vanish_are_written_or_it_is_said(play: Play, times: int) -> None:
    async def scenario(cluster: Any) -> None:
        await created_without_configs(cluster)
        tree, met = cluster.world.zookeeper.tree, 0

        def meddle(op: Any) -> None:
            nonlocal met
            if isinstance(op, Create) and op.path == PATH and met < times:
                met, tree.refusal = met + 1, lambda _: None
                tree.write(Create(PATH, ConfigEntityZNode.encode(BETWEEN)), session=0, now_ms=0)
                tree.refusal = meddle
            elif isinstance(op, Multi) and op.ops[-1].path == PATH and met < times:
                tree.refusal = lambda _: None
                tree.write(Delete(PATH), session=0, now_ms=0)
                tree.refusal = meddle

        tree.refusal = meddle
        code = await altered(cluster)
        is_written = times < 5
        assert code == (ErrorCode.NONE if is_written else ErrorCode.UNKNOWN_SERVER_ERROR)
        assert json.loads(tree.get(PATH).payload)["config"] == (AFTER if is_written else BETWEEN)
        assert len(tree.get(ConfigChangesZNode.path).children) == is_written

    play(scenario, brokers=1)


def test_configs_are_written_once_and_with_what_is_above_them(play: Play) -> None:
    """Somebody has removed the parent of all configs of topics."""

    async def scenario(cluster: Any) -> None:
        tree = cluster.world.zookeeper.tree
        tree.write(Delete("/config/topics"), session=0, now_ms=0)
        rows = [{"name": "t", "num_partitions": 1, "replication_factor": 1,
                 "configs": [{"name": "retention.ms", "value": "3"}]}]  # fmt: skip
        answer = await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": 5_000})
        assert answer["topics"][0]["error_code"] == ErrorCode.NONE
        found = tree.get(PATH)
        assert (json.loads(found.payload)["config"], found.version) == (AFTER, 0)
        assert tree.get("/config/topics").payload is None

    play(scenario, brokers=1)


async def created_without_configs(cluster: Any) -> None:
    rows = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
    await cluster.ask(ApiKey.CREATE_TOPICS, 5, {"topics": rows, "timeout": 5_000})
    await cluster.zk(Delete(PATH))


async def altered(cluster: Any) -> ErrorCode:
    change = {"resource_type": 2, "resource_name": "t", "configs": [{"name": "retention.ms", "value": "3"}]}
    answer = await cluster.ask(ApiKey.ALTER_CONFIGS, 1, {"resources": [change], "validate_only": False})
    return ErrorCode(answer["responses"][0]["error_code"])
