"""Features of topics and moves that need the whole system: real controllers and brokers on virtual time, real tools."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from controller.admin.why.from_zookeeper import ZkView
from controller.rules.placement import BrokerRack, infer_start
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId
from controller.world.client import BrokerConnection
from tests.worlds.system import System, play

from ..sim.cluster import BROKER_PORT

pytestmark = pytest.mark.sim
TOPIC6 = {"version": 1, "partitions": {"2": [1, 2], "1": [2, 1], "3": [2, 1], "0": [1, 2]}}


def layout(system: System, topic: str) -> dict[int, tuple[BrokerId, ...]]:
    found = system.znode(f"/brokers/topics/{topic}")["partitions"]
    return {int(n): tuple(map(BrokerId, found[n])) for n in sorted(found, key=int)}


@pytest.mark.feature("000-03", "003-06", "003-07", "004-09")
def test_a_refused_creation_writes_nothing(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("there", "1")
        before = (system.children("/brokers/topics"), system.children("/config/topics"))
        for words, text in (
            (("--topic", "a b"), "contains one or more characters other than ASCII alphanumerics"),
            (("--topic", "t", "--replication-factor", "4"), "Replication factor: 4 larger than available brokers: 3."),
            (("--topic", "t", "--partitions", "0"), "The partitions must be greater than 0"),
            (("--topic", "t", "--replication-factor", "0"), "The replication factor must be between 1 and 32767"),
            (("--topic", "t", "--replication-factor", "32768"), "The replication factor must be between 1 and 32767"),
            (("--topic", "t", "--config", "nope=1"), "Unknown topic config name: nope"),
            (("--topic", "there"), "Topic 'there' already exists."),
        ):
            ran = await system.tool("topics", "--create", *words)
            assert ran.code == 1 and text in ran.out, (words, ran.out)
        assert (system.children("/brokers/topics"), system.children("/config/topics")) == before

    play(tmp_path, scenario)


@pytest.mark.feature("000-13", "000-05", "001-04", "003-04", "003-10", "003-14", "003-15", "004-05")
def test_first_second_and_third_topic(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.ok("topics", "--create", "--topic", "first-topic")
        await system.ok("topics", "--create", "--topic", "second-topic", "--partitions", "3")
        counts = ("--partitions", "3", "--replication-factor", "3")
        await system.ok("topics", "--create", "--topic", "third-topic", *counts)
        await system.until(system.healthy, within_s=30, what="leaders and replicas")
        await system.sleep(2)
        shapes = {name: [len(r) for r in layout(system, name).values()] for name in system.children("/brokers/topics")}
        assert shapes == {"first-topic": [1], "second-topic": [1, 1, 1], "third-topic": [3, 3, 3]}
        brokers = [BrokerRack(broker_id=BrokerId(b)) for b in (1, 2, 3)]
        for name in shapes:
            placed = layout(system, name)
            assert infer_start(brokers, placed) is not None, "the znode holds what the arithmetic gives"
            assert system.znode(f"/config/topics/{name}") == {"version": 1, "config": {}}
            for number, replicas in placed.items():
                assert system.state(name, number)["leader"] == replicas[0]
                for broker in (1, 2, 3):
                    assert (f"{name}-{number}" in system.log_folders(broker)) == (broker in replicas)
        leader = f"broker-{layout(system, 'third-topic')[0][0]}"
        assert await system.produce("third-topic", 0, b"first")  # a log has no files before its first batch
        folder = next(path for path in (system.folder / leader).rglob("third-topic-0"))
        names = {path.name for path in folder.iterdir()}
        assert {"0" * 20 + end for end in (".log", ".index", ".timeindex")} <= names
        body = {"topics": [{"name": "first-topic"}], "allow_auto_topic_creation": False}
        for broker in (1, 2, 3):
            told = await system.call(broker, ApiKey.METADATA, 5, body)
            assert [t.error_code for t in told.topics] == [0], "every broker knows it"

    play(tmp_path, scenario)


@pytest.mark.feature("000-14", "000-17")
def test_a_plan_waits_for_a_controller_and_for_brokers(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        active = system.active_controller()
        assert active is not None
        system.kill(active)
        await system.write(system.put("/brokers/topics/planned", TOPIC6))
        await system.sleep(30)
        assert system.state("planned", 0) is None
        view = await ZkView.open(system.world.machine("client").connector(session_timeout_ms=60_000))
        found = await view.topic("planned")
        assert found is not None and found.states == {}
        await view.close()
        await system.hold(1, 2, 3)
        await system.write(system.put("/brokers/topics/lonely", {"version": 1, "partitions": {"0": [3]}}))
        for number in (1, 2, 3, active):
            system.start_one(number)
        await system.until(
            lambda: bool(system.state("planned", 3)) and bool(system.state("lonely", 0)), within_s=60, what="leaders"
        )
        assert [system.state("planned", n)["leader"] for n in range(4)] == [1, 2, 1, 2]
        assert system.state("lonely", 0)["leader"] == 3

    play(tmp_path, scenario)


@pytest.mark.feature("000-15", "000-18", "001-04")
def test_topics_by_znode(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("topic-test1", "1:2,2:1,1:2,2:1")
        uneven = {"version": 1, "partitions": {"2": [1, 2], "1": [2], "3": [2, 1], "0": [1, 2]}}
        nobody = {"version": 1, "partitions": {"0": [77]}}
        await system.write(system.put("/brokers/topics/topic-test6", TOPIC6))
        await system.write(system.put("/brokers/topics/topic-test7", uneven))
        await system.write(system.put("/brokers/topics/nobody", nobody))
        await system.until(
            lambda: all(system.state(t, 3) for t in ("topic-test6", "topic-test7")), within_s=20, what="leaders"
        )
        await system.sleep(5)

        async def described(name: str) -> str:
            ran = await system.ok("topics", "--describe", "--topic", name)
            lines = [line for line in ran.out.splitlines() if not line.startswith("Topic:")]
            return "\n".join(lines).replace(name, "T")

        assert await described("topic-test6") == await described("topic-test1")
        seventh = await described("topic-test7")
        assert "Partition: 1\tLeader: 2\tReplicas: 2\tIsr: 2\t" in seventh
        under = await system.ok("topics", "--describe", "--topic", "topic-test7", "--under-replicated-partitions")
        assert under.out == "", "one replica of one is not too few"
        assert system.state("nobody", 0) is None
        view = await ZkView.open(system.world.machine("client").connector(session_timeout_ms=60_000))
        found = await view.topic("nobody")
        await view.close()
        assert found is not None and found.assignment[0].replicas == (77,) and not found.states, "and no leader"

    play(tmp_path, scenario)


@pytest.mark.feature("002-20")
def test_a_moved_topic_can_be_deleted_and_a_deleted_one_not_moved(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2")
        system.deletable.add("t")
        system.world.machine("broker-3").pause()
        await system.move(tmp_path, "t", 0, (1, 3))
        await system.ok("topics", "--delete", "--topic", "t")
        system.world.machine("broker-3").resume()
        await system.until(lambda: not system.children("/brokers/topics"), within_s=60, what="the deletion")
        assert (await system.move(tmp_path, "t", 0, (1, 3))).code == 1

    play(tmp_path, scenario)


@pytest.mark.feature("002-21", "002-23", "002-24", "002-25")
def test_the_znodes_of_a_move_in_order(tmp_path: Path) -> None:
    """ORS 1,2,3 to TRS 4,5,6; broker 7 is a member of no list and 2 stays in the ISR to the end."""
    seen: list[Any] = []

    async def scenario(system: System) -> None:
        await system.create("t", "1:2:3")

        def look(*_: Any) -> None:
            now = (system.replicas("t"), sorted(system.state("t", 0)["isr"]), system.state("t", 0)["leader"])
            if not seen or seen[-1] != now:
                seen.append(now)

        look()
        system.world.zookeeper.on_commit.append(look)
        await system.move(tmp_path, "t", 0, (4, 5, 6))
        await system.until(lambda: system.settled("t", (4, 5, 6)), within_s=60, what="the move")
        await system.sleep(2)

    system = play(tmp_path, scenario, brokers=6)
    both = ([4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3])
    assert seen[0] == (([1, 2, 3], [], []), [1, 2, 3], 1)
    assert seen[1] == (both, [1, 2, 3], 1), "both lists stand in the topic node"
    grown = [isr for lists, isr, leader in seen if lists == both and leader == 1]
    assert grown[-1] == [1, 2, 3, 4, 5, 6], "done once the target is in the ISR; old members do not hinder"
    assert all(set(a) <= set(b) for a, b in itertools.pairwise(grown))
    after = [(isr, leader) for lists, isr, leader in seen if lists == both and leader == 4]
    assert after[0] == ([1, 2, 3, 4, 5, 6], 4) and after[-1] == ([4, 5, 6], 4)
    assert seen[-1] == (([4, 5, 6], [], []), [4, 5, 6], 4)
    stops: dict[int, list[bool]] = {}
    for line in system.lines:
        if '"replica.stopped"' in line:
            told = json.loads(line.split(" ", 2)[2])
            stops.setdefault(told["broker_id"], []).append(told["delete_partition"])
    assert stops == {1: [False, True], 2: [False, True], 3: [False, True]}, "first without, then with deletion"


@pytest.mark.feature("003-01", "003-03", "004-02", "004-23")
def test_records_in_order_on_all_replicas_and_none_lost(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2:3,2:3:1")
        await system.sleep(2)
        values = [b"%03d" % n for n in range(40)]
        for value in values:
            assert await system.produce("t", 1, value), "to the partition that was given"
        assert await system.read("t", 1) == values
        assert await system.read("t", 0) == []
        ends = {}
        for broker in (1, 2, 3):
            log = next((system.folder / f"broker-{broker}").rglob("t-1/" + "0" * 20 + ".log"))
            ends[broker] = log.read_bytes()
        assert ends[1] == ends[2] == ends[3] != b"", "the same bytes at the leader and its followers"
        system.kill(2)
        await system.until(lambda: system.state("t", 1)["leader"] == 3, within_s=30, what="another leader")
        await system.check_nothing_acknowledged_is_lost()
        assert await system.read("t", 1) == values

    play(tmp_path, scenario)


@pytest.mark.feature("003-12", "003-13", "000-18", "003-11")
def test_znodes_of_a_topic_with_a_dead_broker(tmp_path: Path) -> None:
    order: list[str] = []

    async def scenario(system: System) -> None:
        await system.hold(1)

        def look(*_: Any) -> None:
            for path in ("/config/topics/t", "/brokers/topics/t", "/brokers/topics/t/partitions/0/state"):
                if path not in order and system.znode(path) is not None:
                    order.append(path)

        system.world.zookeeper.on_commit.append(look)
        await system.ok("topics", "--create", "--topic", "t", "--replica-assignment", "1:3:2")
        await system.until(lambda: system.state("t", 0) is not None, within_s=20, what="a leader")
        assert system.replicas("t") == ([1, 3, 2], [], []), "a plan by hand is stored as it is"
        state = system.state("t", 0)
        assert (state["leader"], sorted(state["isr"])) == (3, [2, 3]), "the first live one, and all live ones"
        await system.hold(2, 3)
        assert system.znode("/brokers/topics/t") is not None and system.znode("/config/topics/t") is not None

    play(tmp_path, scenario)
    assert order == ["/config/topics/t", "/brokers/topics/t", "/brokers/topics/t/partitions/0/state"]


@pytest.mark.feature("004-01", "004-05")
def test_partitions_grow_only_and_a_new_broker_gets_none(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        system.kill(4)
        await system.until(lambda: system.registered() == {1, 2, 3}, within_s=30, what="three brokers")
        await system.ok("topics", "--create", "--topic", "t", "--replica-assignment", "1:2,2:3")
        await system.sleep(5)
        await system.ok("topics", "--alter", "--topic", "t", "--partitions", "4")
        await system.until(lambda: len(layout(system, "t")) == 4, within_s=20, what="two more")
        for count, text in (("3", "Topic currently has 4 partitions, which is higher than the requested 3."),
                            ("4", "Topic already has 4 partitions.")):  # fmt: skip
            ran = await system.tool("topics", "--alter", "--topic", "t", "--partitions", count)
            assert ran.code == 1 and text in ran.out
        before = layout(system, "t")
        system.start_one(4)
        await system.until(lambda: 4 in system.registered(), within_s=30, what="the new broker")
        await system.sleep(120)
        assert layout(system, "t") == before and not any(4 in r for r in before.values())
        assert not {name for name in system.log_folders(4) if name.startswith("t-")}

    play(tmp_path, scenario, brokers=4)


@pytest.mark.feature("000-02", "000-10", "002-33", "002-31")
def test_a_move_that_names_a_directory(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2")
        here = str(system.folder / "broker-2")
        rows = [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", here]}]
        (tmp_path / "dirs.json").write_text(json.dumps({"version": 1, "partitions": rows}))
        file = ("--reassignment-json-file", str(tmp_path / "dirs.json"))
        ran = await system.ok("reassign-partitions", "--execute", *file)
        assert f"Successfully started moving log directory to {here} for replica t-0 with broker 2 \n" in ran.out
        verified = await system.ok("reassign-partitions", "--verify", *file)
        assert "Reassignment of replica t-0-2 completed successfully.\n" in verified.out
        rows[0]["log_dirs"] = ["any", "/nowhere"]
        (tmp_path / "dirs.json").write_text(json.dumps({"version": 1, "partitions": rows}))
        refused = await system.tool("reassign-partitions", "--execute", *file)
        assert refused.code == 1 and "Failed to alter dir for t-0-2" in refused.out

    play(tmp_path, scenario)


@pytest.mark.feature("003-09")
def test_requests_of_a_connection_are_answered_in_order(tmp_path: Path) -> None:
    """The first one waits at the broker for half a second, and the others behind it."""

    async def scenario(system: System) -> None:
        await system.create("t", "1")
        await system.sleep(2)
        connection = await BrokerConnection.open(
            system.world.machine("client").network, "broker-1", BROKER_PORT, client_id="c", timeout_s=5
        )
        rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
        fetch = {
            "replica_id": -1, "max_wait": 500, "min_bytes": 1, "max_bytes": 1000, "session_epoch": -1,
            "topics": [{"topic": "t", "partitions": rows}],
        }  # fmt: skip
        metadata = {"topics": [], "allow_auto_topic_creation": False}
        asked = [(ApiKey.FETCH, 11, fetch), (ApiKey.METADATA, 5, metadata), (ApiKey.API_VERSIONS, 0, {})]
        order: list[tuple[ApiKey, float]] = []

        async def ask(api_key: ApiKey, version: int, body: dict[str, Any]) -> None:
            await connection.call(api_key, version, body, timeout_s=10)
            order.append((api_key, asyncio.get_running_loop().time()))

        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(ask(*one) for one in asked))
        connection.close()
        assert [key for key, _ in order] == [key for key, _, _ in asked]
        assert order[0][1] - began >= 0.5, "the first really waited"

    play(tmp_path, scenario)
