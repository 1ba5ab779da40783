"""What outlives a change of role, and what does not: the high watermark, a write to ZooKeeper that is under way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker_sim.isr import LedPartition
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
ALL = (1, 2, 3)

# -- the high watermark -----------------------------------------------------------------------------------------------

#: what, the leaders that broker 1 hears of, one after another; it led before. 9: one that is not alive
TERMS = [
    ("a newer epoch", [1]),
    ("a follower", [2]),
    ("a follower, and a leader again", [2, 1]),
    ("a follower of one leader after another, and a leader again", [2, 3, 1]),
    ("a leader that nobody knows", [9, 1]),
]


@pytest.mark.parametrize("meanwhile", ["all have all", "one lags", "too few are in sync"])
@pytest.mark.parametrize(("_", "leaders"), TERMS, ids=[row[0] for row in TERMS])
def test_the_high_watermark_stays_whatever_becomes_of_a_leader(
    tmp_path: Path, _: str, leaders: list[int], meanwhile: str
) -> None:
    """Nothing is fetched meanwhile: it is what this broker knows. It began with 2, and with none that followed it."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 2, ALL, ALL, is_new=True)
        for _number in range(2):
            await cluster.produce(TP, 2, acks=-1)
        partition = cluster.nodes[1].partition(TP)
        await cluster.world.until(lambda: partition.hw == 2, within_s=5, what="1 knows that")
        cluster.appoint(TP, 1, ALL, ALL)
        for _number in range(3):
            await cluster.produce(TP, 1, acks=-1)
        if meanwhile == "one lags":
            cluster.nodes[3].paused.add(TP)
            await cluster.world.sleep(1)
            await cluster.produce(TP, 1)
        if meanwhile == "too few are in sync":
            cluster.nodes[1].manager.configs.set_topic_config("t", {"min.insync.replicas": "3"})
        assert (partition.hw, partition.log.leo) == (5, 6 if meanwhile == "one lags" else 5)
        for leader in leaders:
            isr = ALL if meanwhile != "too few are in sync" else (leader,)
            cluster.appoint(TP, leader, isr, (*ALL, 9), to=(1,))
            assert (partition.hw, partition.led is not None) == (5, leader == 1 or leader == 9)
        cluster.nodes[1].manager.table.trace.flush_runs()
        told = [row["hw"] for row in cluster.rows(1) if row["ev"] in ("leader", "follower")]
        assert told == [0, 2, *[5 for leader in leaders if leader != 9]]
        cluster.stop_replica(TP, 1, delete=False)
        assert partition.hw == 5
        await cluster.stop(1)
        await cluster.start(1)
        table = cluster.nodes[1].manager.table
        assert table.dirs.checkpointed_high_watermark(table.dirs.get(TP)) == 5

    Cluster.run(tmp_path, scenario, brokers=ALL)


# -- writes of the ISR ------------------------------------------------------------------------------------------------


class SlowWrites:
    """Writes to the state table, each of which waits to be let in, and again before its answer comes back."""

    def __init__(self, cluster: Cluster) -> None:
        self.waiting: list[tuple[asyncio.Event, asyncio.Event]] = []
        table: Any = cluster.zk
        self._write, table.write_isr = table.write_isr, self._slowly
        self._world = cluster.world

    async def _slowly(self, *asked: Any) -> Any:
        gates = asyncio.Event(), asyncio.Event()
        self.waiting.append(gates)
        await gates[0].wait()
        result = await self._write(*asked)
        await gates[1].wait()
        return result

    async def until(self, count: int) -> None:
        await self._world.until(lambda: len(self.waiting) == count, within_s=90, what=f"write {count}")

    async def let_in(self, number: int) -> None:
        self.waiting[number][0].set()
        await self._world.sleep(1)

    async def answer(self, number: int) -> None:
        self.waiting[number][1].set()
        await self._world.sleep(1)


async def removing_3(cluster: Cluster) -> SlowWrites:
    """Broker 1 leads, and its write of an ISR without 3 is under way."""
    writes = SlowWrites(cluster)
    cluster.appoint(TP, 1, ALL, ALL, is_new=True)
    await cluster.produce(TP, 1, acks=-1)
    cluster.nodes[3].paused.add(TP)
    await cluster.world.sleep(1)
    await cluster.produce(TP, 1)
    await writes.until(1)
    return writes


def belief(led: LedPartition) -> tuple[Any, ...]:
    return led.isr, led.partition_epoch, led.pending, led.high_watermark


#: what, the leaders that broker 1 hears of while its write is under way
FORMER = [
    ("in a newer epoch of its own", [1]),
    ("after another leader's", [2, 1]),
    ("after two newer epochs", [1, 1]),
]


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize("has_another", [True, False])
@pytest.mark.parametrize(("_", "leaders"), FORMER, ids=[row[0] for row in FORMER])
def test_the_answer_to_a_write_of_a_former_term_changes_nothing(
    tmp_path: Path, _: str, leaders: list[int], has_another: bool, is_written: bool
) -> None:
    """Neither where nothing is under way in the new term, nor where another change is: that one's answer counts."""

    async def scenario(cluster: Cluster) -> None:
        writes = await removing_3(cluster)
        partition = cluster.nodes[1].partition(TP)
        assert partition.led.pending.isr == (1, 2)
        if is_written:
            await writes.let_in(0)
            assert cluster.isr(TP) == (1, 2)
        cluster.nodes[2].paused.add(TP)
        for leader in leaders:
            cluster.appoint(TP, leader, ALL, ALL, to=(1,))
        await cluster.produce(TP, 1)
        version = cluster.zk.states[TP][1]
        if has_another:
            await writes.until(2)
            assert partition.led.pending.isr == (1,)
        before = belief(partition.led)
        await writes.let_in(0)
        await writes.answer(0)
        assert belief(partition.led) == before
        assert (before[0], before[1]) == (ALL, version)
        assert cluster.zk.refused == ([] if is_written else [TP])
        await writes.until(2)
        await writes.let_in(1)
        await writes.answer(1)
        assert cluster.zk.states[TP][0].isr == (1,)
        assert belief(partition.led) == ((1,), version + 1, None, partition.log.leo)

    Cluster.run(tmp_path, scenario, brokers=ALL)


def test_the_answer_to_a_write_of_one_that_no_longer_leads_changes_nothing(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        writes = await removing_3(cluster)
        cluster.appoint(TP, 2, ALL, ALL)
        await writes.let_in(0)
        await writes.answer(0)
        assert (cluster.isr(TP), cluster.zk.refused) == (ALL, [TP])
        leader, follower = cluster.nodes[2].partition(TP), cluster.nodes[1].partition(TP)
        assert (leader.led.isr, follower.led, follower.hw) == (ALL, None, 1)

    Cluster.run(tmp_path, scenario, brokers=ALL)


@pytest.mark.parametrize("leader", [1, 2], ids=["it leads on in a newer epoch", "another leads"])
def test_the_controller_hears_of_a_write_that_counted_whatever_became_of_its_term(tmp_path: Path, leader: int) -> None:
    """It wrote its newer epoch over a state that it may not have read since."""

    async def scenario(cluster: Cluster) -> None:
        writes = await removing_3(cluster)
        await writes.let_in(0)
        cluster.appoint(TP, leader, (1, 2), ALL)
        await writes.answer(0)
        await cluster.world.sleep(10)
        assert [partitions for _, partitions in cluster.zk.propagated] == [(TP,)]

    Cluster.run(tmp_path, scenario, brokers=ALL)
