"""What a follower makes of its leader's answers: it goes on, waits for the controller, or ignores what came late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_sim.replicas.fetch_session import FetchSessionCache
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey
from controller.wire.records import iterate
from controller.wire.types import TopicPartition
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
BOTH = (1, 2)


def failed(cluster: Cluster, broker: int = 2) -> int:
    """Kafka's FailedPartitionsCount."""
    return sum(fetcher.failed_partitions for fetcher in cluster.nodes[broker].manager.fetchers.fetchers.values())


def lagging(cluster: Cluster, broker: int = 2) -> list[TopicPartition]:
    """Those of which ConsumerLag is told."""
    fetchers = cluster.nodes[broker].manager.fetchers.fetchers.values()
    return [tp for fetcher in fetchers for tp, _ in fetcher.lags]


def counted(cluster: Cluster) -> list[Any]:
    """What broker 1 is asked from now on."""
    asked: list[Any] = []
    answer = cluster.nodes[1].answer

    async def note(request: Any) -> Any:
        asked.append(request.api_key)
        return await answer(request)

    cluster.nodes[1].answer = note
    return asked


# -- refusals ---------------------------------------------------------------------------------------------------------


async def leader_is_ahead_of_a_fetch(cluster: Cluster) -> None:
    cluster.appoint(TP, 1, BOTH, BOTH, is_new=True)
    await cluster.produce(TP, 1, acks=-1)
    cluster.appoint(TP, 1, BOTH, BOTH, to=(1,))


async def leader_is_ahead_of_a_truncation(cluster: Cluster) -> None:
    cluster.appoint(TP, 1, BOTH, BOTH, is_new=True)
    await cluster.produce(TP, 1, acks=-1)
    cluster.nodes[2].paused.add(TP)
    cluster.appoint(TP, 1, BOTH, BOTH, to=(2,))
    cluster.appoint(TP, 1, BOTH, BOTH, to=(1,))
    cluster.nodes[2].paused.clear()


async def leader_is_behind_a_fetch(cluster: Cluster) -> None:
    cluster.appoint(TP, 1, BOTH, BOTH, to=(1,), is_new=True)
    cluster.appoint(TP, 1, BOTH, BOTH, to=(2,), is_new=True)


async def leader_is_behind_a_truncation(cluster: Cluster) -> None:
    cluster.appoint(TP, 1, BOTH, BOTH, is_new=True)
    await cluster.produce(TP, 1, acks=-1)
    cluster.appoint(TP, 1, BOTH, BOTH, to=(2,))


async def leader_has_not_heard_of_it(cluster: Cluster) -> None:
    cluster.appoint(TP, 1, BOTH, BOTH, to=(2,), is_new=True)


async def leader_follows_yet(cluster: Cluster) -> None:
    cluster.appoint(TP, 2, BOTH, BOTH, is_new=True)
    await cluster.produce(TP, 2, acks=-1)
    cluster.appoint(TP, 1, BOTH, BOTH, to=(2,))


#: what the two have heard -> whether the follower asks again by itself
REFUSED = [
    (leader_is_ahead_of_a_fetch, False),
    (leader_is_ahead_of_a_truncation, False),
    (leader_is_behind_a_fetch, True),
    (leader_is_behind_a_truncation, True),
    (leader_has_not_heard_of_it, True),
    (leader_follows_yet, True),
]


@pytest.mark.parametrize(("heard", "asks_again"), REFUSED, ids=[row[0].__name__ for row in REFUSED])
def test_a_follower_that_is_behind_waits_for_the_controller_and_one_that_is_ahead_for_its_leader(
    tmp_path: Path, heard: Any, asks_again: bool
) -> None:
    """Source: spec broker.md §13; Kafka 3.9 `AbstractFetcherThread.onPartitionFenced`."""

    async def scenario(cluster: Cluster) -> None:
        await heard(cluster)
        await cluster.world.sleep(3)
        asked = counted(cluster)
        await cluster.world.sleep(20)
        assert failed(cluster) == (0 if asks_again else 1)
        assert asks_again or lagging(cluster) == []
        assert (15 <= len(asked) <= 25) if asks_again else asked == []
        cluster.resend(TP, BOTH, to=(1,) if asks_again else (2,))
        assert (await cluster.produce(TP, 1, acks=-1, timeout_ms=3_000)).error is ErrorCode.NONE
        assert (failed(cluster), cluster.isr(TP)) == (0, BOTH)
        logs = [b"".join(cluster.nodes[broker].manager.read_records(TP)) for broker in BOTH]
        assert logs[0] == logs[1]

    Cluster.run(tmp_path, scenario, brokers=BOTH)


# -- answers that come too late ---------------------------------------------------------------------------------------


def slow_answers(cluster: Cluster, delay_s: float) -> list[Any]:
    """Broker 1 answers fetches at once; its answers, which are listed, are under way for so long."""
    answers: list[Any] = []
    answer = cluster.nodes[1].answer_fetch

    async def slowly(body: Any) -> Any:
        made = await answer(body)
        answers.append(made)
        await asyncio.sleep(delay_s)
        return made

    cluster.nodes[1].answer_fetch = slowly
    return answers


def of_partition(answers: list[Any]) -> list[Any]:
    return [p for answer in answers for topic in answer.get("responses", ()) for p in topic["partitions"]]


#: what the follower hears while the answer is under way: leaders, one after another
HEARD = [("a newer epoch of the same leader", [1]), ("another leader and this one again", [3, 1])]


@pytest.mark.parametrize(("_", "leaders"), HEARD, ids=[row[0] for row in HEARD])
def test_a_refusal_of_the_former_epoch_does_not_stop_the_newer_one(tmp_path: Path, _: str, leaders: list[int]) -> None:
    """The leader hears first, and refuses the fetch that waits; the follower hears before it has the answer."""

    async def scenario(cluster: Cluster) -> None:
        cluster.appoint(TP, 1, (1, 2, 3), (1, 2, 3), is_new=True)
        await cluster.produce(TP, 1, acks=-1)
        answers = slow_answers(cluster, 0.3)
        await cluster.world.sleep(2)
        answers.clear()
        for leader in leaders:
            cluster.appoint(TP, leader, (1, 2, 3), (1, 2, 3), to=(1,))
        await cluster.world.until(lambda: bool(of_partition(answers)), within_s=1, what="the answer is under way")
        assert {p["error_code"] for p in of_partition(answers)} == {ErrorCode.FENCED_LEADER_EPOCH}
        cluster.resend(TP, (1, 2, 3), to=(2, 3))
        assert (await cluster.produce(TP, 1, acks=-1, timeout_ms=3_000)).error is ErrorCode.NONE
        assert (failed(cluster), failed(cluster, 3)) == (0, 0)

    Cluster.run(tmp_path, scenario, brokers=(1, 2, 3))


def on_their_way(cluster: Cluster) -> Callable[[], bool]:
    answers = slow_answers(cluster, 0.3)
    return lambda: any(p["records"] for p in of_partition(answers))


def at_a_slow_disk(cluster: Cluster) -> Callable[[], bool]:
    waiting: list[int] = []
    cluster.nodes[2].manager.table.disk_wait_s = lambda _, size: waiting.append(size) or 0.3
    return lambda: bool(waiting)


def behind_another_partition(cluster: Cluster) -> Callable[[], bool]:
    """Of the same answer: its leader refuses it, and takes long to say where its log begins and ends."""
    leader, other, asked = cluster.nodes[1], TopicPartition("a", 0), list[Any]()
    cluster.appoint(other, 1, BOTH, BOTH, is_new=True)
    answer, answer_fetch = leader.answer, leader.answer_fetch

    async def refusing(body: Any) -> Any:
        made = await answer_fetch(body)
        if any(p["records"] for p in of_partition([made])):
            refused = {"partition_index": 0, "error_code": ErrorCode.OFFSET_OUT_OF_RANGE, "records": b""}
            made["responses"].insert(0, {"topic": other.topic, "partitions": [refused]})
        return made

    async def slowly(request: Any) -> Any:
        if request.api_key == ApiKey.LIST_OFFSETS:
            asked.append(request)
            await asyncio.sleep(0.15)
        return await answer(request)

    leader.answer_fetch, leader.answer = refusing, slowly
    return lambda: bool(asked)


@pytest.mark.parametrize("wait", [on_their_way, at_a_slow_disk, behind_another_partition])
@pytest.mark.parametrize("then", ["a newer epoch", "it is deleted", "it stops", "it leads", "nothing"])
def test_records_that_wait_while_the_follower_hears_of_another_state_are_not_taken(
    tmp_path: Path, then: str, wait: Callable[[Cluster], Callable[[], bool]]
) -> None:
    """Wherever they wait. Nor do they count for its throttle."""

    async def scenario(cluster: Cluster) -> None:
        follower = cluster.nodes[2].manager
        follower.configs.set_throttled_replicas("t", "", "*")
        follower.configs.set_throttle_rates(follower=1_000_000)
        cluster.appoint(TP, 1, BOTH, BOTH, is_new=True)
        do_wait = wait(cluster)
        await cluster.world.sleep(2)
        await cluster.produce(TP, 1, [b"x" * 10_000])
        await cluster.world.until(do_wait, within_s=2, what="records wait")
        before = follower.table.follower_quota.rate(cluster.world.clock.now_ms())
        partition = cluster.nodes[2].partition(TP)
        cluster.nodes[2].paused.add(TP)
        match then:
            case "a newer epoch":
                cluster.appoint(TP, 1, BOTH, BOTH)
            case "it is deleted":
                cluster.stop_replica(TP, 2, delete=True)
            case "it stops":
                cluster.stop_replica(TP, 2, delete=False)
            case "it leads":
                cluster.appoint(TP, 2, BOTH, BOTH, to=(2,))
        log = follower.table.dirs.get(TP)
        await cluster.world.sleep(0.5)
        rate = follower.table.follower_quota.rate(cluster.world.clock.now_ms())
        if then == "nothing":
            assert (log.leo, before, rate > 500) == (1, 0, True)
            return
        assert (before, rate) == (0, 0)
        assert then == "it is deleted" or partition.log.leo == 0
        if then == "a newer epoch":
            cluster.nodes[2].paused.clear()
            await cluster.world.until(lambda: partition.log.leo == 1, within_s=5, what="it asks again")
            (record,) = iterate(b"".join(follower.read_records(TP)))
            assert record.value == b"x" * 10_000

    Cluster.run(tmp_path, scenario, brokers=BOTH)


def test_who_has_no_session_gets_of_each_partition_in_turn(tmp_path: Path) -> None:
    """An answer is full with one batch, and the leader has no slot for a session, which would keep the order."""
    tps = [TopicPartition("t", number) for number in range(3)]

    async def scenario(cluster: Cluster) -> None:
        cluster.nodes[1].sessions = FetchSessionCache(random.Random(1), slots=0)
        cluster.nodes[2].paused.update(tps)
        for tp in tps:
            cluster.appoint(tp, 1, BOTH, BOTH, is_new=True)
            for _ in range(40):
                await cluster.produce(tp, 1, [b"x" * 1_000])
        cluster.nodes[2].paused.clear()
        ends = [0, 0, 0]
        while min(ends) < 40:
            await cluster.world.sleep(0.002)
            ends = [cluster.nodes[2].log_end(tp) for tp in tps]
            assert max(ends) - min(ends) < 4, ends

    Cluster.run(
        tmp_path, scenario, brokers=BOTH, num_replica_fetchers=1, replica_fetch_max_bytes=1_000,
        replica_fetch_response_max_bytes=1_000,
    )  # fmt: skip
