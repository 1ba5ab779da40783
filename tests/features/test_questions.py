"""The eleven questions about reassignment, asked of the whole system on virtual time. Spec admin.md §3.11."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller.wire.protocol import ApiKey
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import Create, SetData
from controller.wire.znodes import TopicPartitionStateZNode
from tests.worlds.system import System, play

pytestmark = [pytest.mark.sim, pytest.mark.feature("002-34")]
ASKED = "/admin/reassign_partitions"


def state(system: System, topic: str = "t", partition: int = 0) -> Any:
    return system.state(topic, partition)


@pytest.mark.feature("002-QA-01")
@pytest.mark.parametrize("target", [(1, 2, 3), (3, 1, 2)], ids=["behind", "in front"])
def test_added_replicas_leave_the_leader_where_it_is(tmp_path: Path, target: tuple[int, ...]) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2")
        before = state(system)
        assert (await system.move(tmp_path, "t", 0, target)).code == 0
        await system.until(lambda: system.settled("t", target), within_s=30, what="the move")
        after = state(system)
        assert (after["leader"], sorted(after["isr"])) == (1, [1, 2, 3])
        assert after["leader_epoch"] > before["leader_epoch"]
        if target[0] != 1:
            words = ("--election-type", "preferred", "--topic", "t", "--partition", "0")
            assert "Successfully completed" in (await system.ok("leader-election", *words)).out
            assert state(system)["leader"] == target[0]

    play(tmp_path, scenario)


@pytest.mark.feature("002-QA-02")
@pytest.mark.parametrize(
    ("target", "leader"), [((1, 2), 1), ((3, 1), 1), ((2, 3), 2), ((3, 2), 3)],
    ids=["the leader stays", "it stays though not first", "it goes: the first", "it goes: the first in the list"],
)  # fmt: skip
def test_removed_replicas_elect_only_when_the_leader_goes(tmp_path: Path, target: tuple[int, ...], leader: int) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2:3")
        await system.move(tmp_path, "t", 0, target)
        await system.until(lambda: system.settled("t", target), within_s=30, what="the move")
        await system.until(lambda: sorted(state(system)["isr"]) == sorted(target), within_s=30, what="the ISR")
        assert state(system)["leader"] == leader

    play(tmp_path, scenario)


@pytest.mark.feature("002-QA-02")
def test_a_dead_leader_is_replaced_from_the_target(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2:3")
        await system.hold(1)
        await system.until(lambda: state(system)["leader"] == 2, within_s=10, what="the next leader")
        await system.move(tmp_path, "t", 0, (3, 2))
        await system.until(lambda: system.settled("t", (3, 2)), within_s=30, what="the move")
        assert state(system)["leader"] == 2

    play(tmp_path, scenario)


@pytest.mark.feature("002-QA-03")
def test_a_topic_deleted_while_it_moves_is_deleted_at_once_as_in_3_9(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2")
        system.deletable.add("t")
        system.world.machine("broker-3").pause()
        await system.move(tmp_path, "t", 0, (1, 2, 3))
        assert system.replicas("t")[1] == [3]
        await system.ok("topics", "--delete", "--topic", "t")
        system.world.machine("broker-3").resume()
        await system.until(lambda: "t" not in system.children("/brokers/topics"), within_s=60, what="the deletion")
        await system.until(lambda: not system.children("/admin/delete_topics"), within_s=5, what="the marker is gone")

    play(tmp_path, scenario)


@pytest.mark.feature("002-QA-03")
def test_a_topic_that_is_being_deleted_is_not_moved(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2")
        system.deletable.add("t")
        await system.hold(2)
        await system.ok("topics", "--delete", "--topic", "t")
        ran = await system.move(tmp_path, "t", 0, (1, 3))
        assert (ran.code, system.replicas("t")) == (1, ([1, 2], [], []))
        assert "Topic t not found." in ran.out, "brokers no longer tell of it"
        row = {"name": "t", "partitions": [{"partition_index": 0, "replicas": [1, 3]}]}
        asked = await system.ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": 1000, "topics": [row]})
        assert asked.responses[0].partitions[0].error_message == "The partition does not exist."

    play(tmp_path, scenario)


@pytest.mark.feature("002-QA-04")
def test_replicas_count_as_added_once_they_are_in_the_isr_and_without_a_leader_never(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1")
        await system.hold(1)
        await system.until(lambda: state(system)["leader"] == -1, within_s=10, what="no leader")
        assert (await system.move(tmp_path, "t", 0, (2,))).code == 0
        for _ in range(3):
            await system.sleep(60)
            assert system.replicas("t") == ([2, 1], [2], [1])
        system.start_one(1)
        await system.until(lambda: system.settled("t", (2,)), within_s=60, what="the move, once its source is back")

    play(tmp_path, scenario)


@pytest.mark.feature("002-QA-05")
def test_old_replicas_go_only_when_all_new_ones_are_in_sync(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2")
        await system.produce("t", 0, b"x" * 10)
        system.world.machine("broker-4").pause()
        await system.move(tmp_path, "t", 0, (3, 4))
        await system.until(lambda: 3 in state(system)["isr"], within_s=20, what="one of the two in sync")
        assert {1, 2} <= set(state(system)["isr"]), "nobody went"
        assert "t-0" in system.log_folders(1) & system.log_folders(2)
        system.world.machine("broker-4").resume()
        await system.until(lambda: system.settled("t", (3, 4)), within_s=60, what="the move")
        await system.until(lambda: "t-0" not in system.log_folders(1), within_s=60, what="the old log is gone")

    play(tmp_path, scenario, brokers=4)


@pytest.mark.feature("002-QA-05", "002-22")
def test_a_replaced_move_gives_up_the_replicas_it_no_longer_needs(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2")
        await system.hold(3)
        system.start_one(3)
        await system.until(lambda: 3 in system.registered(), within_s=30, what="broker 3")
        system.world.machine("broker-3").pause()
        await system.move(tmp_path, "t", 0, (1, 3))
        assert system.replicas("t") == ([1, 3, 2], [3], [2])
        assert (await system.move(tmp_path, "t", 0, (1, 4), "--additional")).code == 0
        system.world.machine("broker-3").resume()
        await system.until(lambda: system.settled("t", (1, 4)), within_s=60, what="the second move")
        await system.until(lambda: "t-0" not in system.log_folders(3), within_s=60, what="no log is left on 3")

    play(tmp_path, scenario, brokers=4)


@pytest.mark.feature("002-QA-06", "002-18", "002-19", "002-28", "002-15")
def test_the_znode_may_be_written_by_hand(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2,2:1")
        rows = [
            {"topic": "t", "partition": 0, "replicas": [1, 3]},
            {"topic": "t", "partition": 77, "replicas": [1]},
            {"topic": "nix", "partition": 0, "replicas": [1]},
        ]
        made = await system.write(system.put(ASKED, {"version": 1, "partitions": rows}))
        assert made[0].ok
        again = await system.write(system.put(ASKED, {"version": 1, "partitions": rows}))
        assert again[0].code.name == "NODE_EXISTS", "a second one must wait for the first"
        await system.until(lambda: system.settled("t", (1, 3)), within_s=30, what="the move")
        await system.until(lambda: system.znode(ASKED) is None, within_s=10, what="the node is cleared")
        assert system.settled("t", (2, 1), 1), "what was not asked for is as it was"

    system = play(tmp_path, scenario, controllers=2)
    refused = [line for line in system.lines if "reassignment.refused" in line]
    assert len(refused) == 2, "one controller of the two acts"


@pytest.mark.feature("002-QA-06")
def test_a_znode_that_does_not_parse_is_ignored(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2")
        await system.write(Create(ASKED, b"{no json"))
        await system.sleep(5)
        assert system.settled("t", (1, 2))
        assert (await system.move(tmp_path, "t", 0, (1, 3))).code == 0
        await system.until(lambda: system.settled("t", (1, 3)), within_s=30, what="moves by request go on")

    play(tmp_path, scenario)


@pytest.mark.feature("002-QA-07", "002-09", "002-14", "002-30")
def test_a_throttle_is_set_everywhere_it_matters_and_removed_by_verify(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2")
        await system.produce("t", 0, b"x" * 1000)
        ran = await system.move(tmp_path, "t", 0, (2, 3), "--throttle", "1000000")
        assert "The inter-broker throttle limit was set to 1000000 B/s\n" in ran.out
        rates = {"leader.replication.throttled.rate": "1000000", "follower.replication.throttled.rate": "1000000"}
        for broker in (1, 2, 3):
            assert system.znode(f"/config/brokers/{broker}") == {"version": 1, "config": rates}
        lists = system.znode("/config/topics/t")["config"]
        assert lists["leader.replication.throttled.replicas"] == "0:1,0:2"
        assert lists["follower.replication.throttled.replicas"] == "0:3"
        await system.until(lambda: system.settled("t", (2, 3)), within_s=60, what="the move")
        verified = await system.ok(
            "reassign-partitions", "--verify", "--reassignment-json-file", str(tmp_path / "plan.json")
        )
        assert "Clearing broker-level throttles on brokers 1,2,3\n" in verified.out
        await system.until(lambda: system.znode("/config/brokers/1")["config"] == {}, within_s=10, what="cleared rates")
        assert system.znode("/config/topics/t")["config"] == {}

    play(tmp_path, scenario)


@pytest.mark.feature("002-QA-08")
def test_a_mere_reorder_elects_nobody(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("[002-34+002-QA-08]"), "the id of a test names its rows"

    async def scenario(system: System) -> None:
        await system.create("t", "1:2:3")
        assert (await system.move(tmp_path, "t", 0, (3, 2, 1))).code == 0
        await system.until(lambda: system.settled("t", (3, 2, 1)), within_s=10, what="the new order")
        assert state(system)["leader"] == 1
        await system.ok("leader-election", "--election-type", "preferred", "--all-topic-partitions")
        assert state(system)["leader"] == 3

    play(tmp_path, scenario)


@pytest.mark.feature("002-QA-09")
def test_a_throttle_written_by_hand_counts_once_it_is_announced(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2")
        value = {"version": 1, "config": {"follower.replication.throttled.rate": "777"}}
        await system.write(Create("/config/brokers/2", b"{}"), SetData("/config/brokers/2", b"{}"))
        await system.write(SetData("/config/brokers/2", system.put("", value).data))
        await system.sleep(5)
        assert "777" not in (await system.ok("configs", "--describe", "--broker", "2")).out
        await system.write(
            Create("/config/changes/config_change_", b'{"version":2,"entity_path":"brokers/2"}', sequence=True)
        )
        await system.sleep(1)
        assert (
            "follower.replication.throttled.rate=777" in (await system.ok("configs", "--describe", "--broker", "2")).out
        )

    play(tmp_path, scenario)


@pytest.mark.feature("002-QA-10", "002-27", "002-19")
@pytest.mark.parametrize("by_znode", [False, True], ids=["asked by request", "asked by znode"])
def test_another_controller_goes_on_with_the_move(tmp_path: Path, by_znode: bool) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2")
        await system.hold(3)
        system.start_one(3)
        await system.until(lambda: 3 in system.registered(), within_s=30, what="broker 3")
        system.world.machine("broker-3").pause()
        if by_znode:
            rows = [{"topic": "t", "partition": 0, "replicas": [1, 3]}]
            await system.write(system.put(ASKED, {"version": 1, "partitions": rows}))
        else:
            await system.move(tmp_path, "t", 0, (1, 3))
        await system.until(lambda: system.replicas("t") == ([1, 3, 2], [3], [2]), within_s=10, what="its begin")
        first = system.active_controller()
        assert first is not None
        system.kill(first)
        await system.until(
            lambda: system.active_controller() not in (None, first), within_s=60, what="the other controller"
        )
        system.world.machine("broker-3").resume()
        await system.until(lambda: system.settled("t", (1, 3)), within_s=90, what="the move")
        await system.until(lambda: system.znode(ASKED) is None, within_s=10, what="nothing is asked any more")

    play(tmp_path, scenario, controllers=2)


@pytest.mark.feature("002-QA-11")
def test_the_znode_loses_each_partition_when_it_is_done(tmp_path: Path) -> None:
    async def scenario(system: System) -> None:
        await system.create("t", "1:2,1:2")
        await system.hold(4)
        rows = [
            {"topic": "t", "partition": 0, "replicas": [1, 3]},
            {"topic": "t", "partition": 1, "replicas": [1, 4]},
        ]
        system.start_one(4)
        await system.until(lambda: 4 in system.registered(), within_s=30, what="broker 4")
        system.world.machine("broker-4").pause()
        await system.write(system.put(ASKED, {"version": 1, "partitions": rows}))
        await system.until(lambda: system.settled("t", (1, 3)), within_s=30, what="the first move")
        await system.until(
            lambda: [r["partition"] for r in system.znode(ASKED)["partitions"]] == [1], within_s=10, what="one is left"
        )
        system.world.machine("broker-4").resume()
        await system.until(lambda: system.znode(ASKED) is None, within_s=60, what="none is left")
        assert system.settled("t", (1, 4), 1)
        path = TopicPartitionStateZNode.path(TopicPartition("t", 1))
        assert set(system.znode(path)["isr"]) == {1, 4}

    play(tmp_path, scenario, brokers=4)
