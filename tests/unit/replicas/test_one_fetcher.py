"""One fetcher without a cluster: it cuts a log to what its leader has, whatever either has been through; so does who
moves a log to another dir; and which fetcher has which partition."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker_sim.config import ReplicaSettings
from broker_sim.log.leader_epochs import LeaderEpochs
from broker_sim.log.log import Log
from broker_sim.replicas.fetcher import ReplicaFetcher
from broker_sim.replicas.log_dir_moves import cut_to_current
from broker_sim.replicas.types import LATEST_TIMESTAMP, EpochEnd, FetchResult
from controller.wire import log_events as ev
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition
from controller.world.simulated.loop import run
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)


class PlainLog:
    """The epoch of each record, and the epochs that are known by their start."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.epochs = LeaderEpochs()
        self.log_start_offset = 0
        self.truncate_fully: Callable[[int], None] = lambda start: None

    @property
    def leo(self) -> int:
        return len(self.records)

    def take(self, epochs: list[int]) -> None:
        for epoch in epochs:
            self.epochs.assign(epoch, self.leo)
            self.records.append(epoch)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, leo=self.leo)

    def truncate(self, offset: int) -> int:
        removed = max(0, self.leo - offset)
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)
        return removed


def common(one: list[int], other: list[int]) -> int:
    """How many records both begin with: of one epoch and one offset there is one record."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def histories(chance: random.Random) -> tuple[PlainLog, PlainLog, int]:
    """The logs of a leader and of a replica after some elections, each of either of them or of a third, which copied
    from the other as much as they did; and the epoch in which one leads the other."""
    logs = [PlainLog() for _ in range(3)]
    epoch = chance.choice([0, 0, 1])
    for _ in range(chance.randint(0, 7)):
        leader = chance.randrange(3)
        logs[leader].epochs.assign(epoch, logs[leader].leo)
        logs[leader].take([epoch] * chance.randint(0, 3))
        for each in logs:
            if each is not logs[leader] and chance.random() < 0.6:
                each.truncate(common(each.records, logs[leader].records))
                each.take(logs[leader].records[each.leo : each.leo + chance.randint(0, 4)])
        epoch += chance.randint(1, 2)
    logs[0].epochs.assign(epoch, logs[0].leo)
    return logs[0], logs[1], epoch


class Scene:
    """A fetcher whose client answers from the leader's log, and tells when it is asked for records."""

    def __init__(self, leader: PlainLog, own: PlainLog, hw: int, epoch: int) -> None:
        self.leader, self.own, self.asked = leader, own, list[int]()
        self.due: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        quota = SimpleNamespace(is_exceeded=lambda now_ms: False, is_throttled=lambda tp: False)
        settings = ReplicaSettings(log_dirs=())
        supervisor = SimpleNamespace(keep=lambda name, work: asyncio.get_running_loop().create_task(work()))
        self.told: list[dict[str, Any]] = []
        log = SimpleNamespace(
            info=lambda event, **keys: self.told.append({"event": event} | keys), debug=self.told.append
        )
        self.table: Any = SimpleNamespace(
            settings=settings, supervisor=supervisor, log=log, follower_quota=quota, now_ms=lambda: 0
        )
        client: Any = SimpleNamespace(epoch_ends=self._ends, exchange=self._exchange, close=lambda: None)
        self.fetcher = ReplicaFetcher(self.table, client, lambda tp: False, 1)
        partition: Any = SimpleNamespace(topic_partition=TP, log=own, hw=hw, truncate=own.truncate)
        self.fetcher.add(partition, epoch=epoch, offset=hw)
        self.epoch = epoch

    async def _ends(self, asked: Any) -> Any:
        ((tp, (current, epoch)),) = asked.items()
        assert (tp, current) == (TP, self.epoch)
        self.asked.append(epoch)
        found, end = self.leader.end_offset_for_epoch(epoch)
        return {TP: EpochEnd(error=ErrorCode.NONE, leader_epoch=found, end_offset=end)}

    async def _exchange(self, due: Any, *, max_wait_ms: int) -> Any:
        if not self.due.done():
            self.due.set_result(due)
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("seed", range(3))
def test_a_follower_keeps_what_it_has_in_common_with_its_leader(seed: int) -> None:
    """Of what it does not know the epochs it keeps what is below its high watermark."""

    async def main() -> None:
        chance, seen = random.Random(seed), Counter[str]()
        for _ in range(100):
            leader, own, epoch = histories(chance)
            shared, before = common(leader.records, own.records), list(own.records)
            hw = chance.randint(0, shared)
            if chance.random() < 0.1:
                own.epochs.entries.clear()
            latest = own.epochs.latest
            scene = Scene(leader, own, hw, epoch)
            due = await scene.due
            kept = hw if latest < 0 else shared
            assert own.records == before[:kept]
            assert (due[TP].fetch_offset, due[TP].current_leader_epoch) == (kept, epoch)
            assert scene.asked[:1] == ([] if latest < 0 else [latest])
            assert scene.asked == sorted(set(scene.asked), reverse=True)
            cuts = [row for row in scene.told if row["event"] == ev.LOG_TRUNCATED]
            ends = [len(before), *(row["offset"] for row in cuts)]
            assert ends == sorted({len(before), *ends}, reverse=True) and ends[-1] == kept, "each cut is told"
            assert [row["from_offset"] for row in cuts] == ends[:-1]
            assert sum(row["removed_bytes"] for row in cuts) == len(before) - kept
            await scene.fetcher.stop()
            seen[f"asked {len(scene.asked)}"] += 1
            seen["cut"] += kept < len(before)
            seen["all kept"] += kept == len(before) > 0
            seen["of epoch 0"] += latest == 0 and hw < shared
        assert min(seen[what] for what in ("asked 0", "asked 1", "asked 2", "cut", "all kept", "of epoch 0")) > 0, seen

    run(main())


@pytest.mark.parametrize("seed", range(2))
def test_a_future_log_keeps_what_it_has_in_common_with_the_current_one(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        now, moving, _ = histories(chance)
        current, future = cast(Log, now), cast(Log, moving)
        shared, before = common(now.records, moving.records), list(moving.records)
        hw = chance.randint(0, shared)
        if chance.random() < 0.1:
            moving.epochs.entries.clear()
        kept = hw if moving.epochs.latest < 0 else shared
        partition: Any = SimpleNamespace(future_hw=hw, future_cut=None)
        cut_to_current(partition, current, future, by_epochs=True)
        assert moving.records == before[:kept]


@pytest.mark.parametrize(
    ("ends", "starts", "cut", "begins", "kept"),
    [
        (5, 0, None, False, 5),  # longer: to the end of the current one
        (9, 0, None, False, 8),
        (9, 0, 3, False, 3),  # what the leader has cut meanwhile
        (9, 0, 30, False, 8),
        (9, 0, 3, True, 2),  # and what it has in common, where it just begins
        (9, 8, None, False, 8),  # it ends where the current one starts
        (9, 9, None, False, "anew at 9"),
        (9, 5, 3, False, "anew at 5"),
    ],
)
def test_a_future_log_is_cut_to_the_current_one(
    ends: int, starts: int, cut: int | None, begins: bool, kept: int | str
) -> None:
    """The future log has eight records, of which two are of an epoch that both know."""
    current, future, began = PlainLog(), PlainLog(), list[int]()
    current.take([1] * 2 + [2] * (ends - 2))
    current.log_start_offset = starts
    future.take([1] * 8)
    partition: Any = SimpleNamespace(future_hw=0, future_cut=cut)
    future.truncate_fully = began.append
    cut_to_current(partition, cast(Log, current), cast(Log, future), by_epochs=begins)
    assert kept == (f"anew at {began[0]}" if began else future.leo)
    assert partition.future_cut is None


def test_only_those_that_have_just_begun_are_asked_of_and_only_those_that_can_be_fetched() -> None:
    """One fetches already, one begins, one has lost its log, one is paused for a while."""

    async def main() -> None:
        scene = Scene(PlainLog(), PlainLog(), 0, 4)
        names = ["fetches", "begins", "lost", "paused"]
        tps = {name: TopicPartition("t", number) for number, name in enumerate(names)}
        paused, ends, fetched = {tps["paused"]}, list[list[str]](), list[list[str]]()

        def named(asked: Any) -> list[str]:
            return [name for name, tp in tps.items() if tp in asked]

        async def epoch_ends(asked: Any) -> Any:
            ends.append(named(asked))
            return {tp: EpochEnd(error=ErrorCode.NONE, leader_epoch=4, end_offset=3) for tp in asked}

        async def exchange(due: Any, *, max_wait_ms: int) -> Any:
            fetched.append(named(due))
            await asyncio.sleep(0.1)
            return {}

        client: Any = SimpleNamespace(epoch_ends=epoch_ends, exchange=exchange, close=lambda: None)
        fetcher = ReplicaFetcher(scene.table, client, paused.__contains__, 1)
        for name in names:
            log = PlainLog()
            log.take([4, 4, 4])
            partition: Any = SimpleNamespace(
                topic_partition=tps[name], log=None if name == "lost" else log, hw=1, truncate=log.truncate
            )
            fetcher.add(partition, epoch=4, offset=1)
            await asyncio.sleep(1)
            if name == "fetches":
                assert (ends, {*map(tuple, fetched)}) == ([["fetches"]], {("fetches",)})
        assert ends == [["fetches"], ["begins"]]
        assert fetched[-1] == ["fetches", "begins"]
        paused.clear()
        await asyncio.sleep(1)
        assert ends == [["fetches"], ["begins"], ["paused"]]
        assert fetched[-1] == ["fetches", "begins", "paused"]
        await asyncio.gather(fetcher.stop(), scene.fetcher.stop())

    run(main())


@pytest.mark.parametrize("end", [-1, -7])
@pytest.mark.parametrize("asked", ["epochs", "offsets"])
def test_a_log_is_not_cut_to_an_offset_that_is_none(end: int, asked: str) -> None:
    """Whatever the leader says; -1 in answer to an epoch is Kafka's word for one that it does not know."""

    async def main() -> None:
        own = PlainLog()
        own.take([4, 4, 4])
        scene = Scene(PlainLog(), PlainLog(), 0, 4)

        async def epoch_ends(epochs: Any) -> Any:
            return {TP: EpochEnd(error=ErrorCode.NONE, leader_epoch=4, end_offset=end if asked == "epochs" else 3)}

        async def exchange(due: Any, *, max_wait_ms: int) -> Any:
            await asyncio.sleep(0.1)
            return {TP: FetchResult(error=ErrorCode.OFFSET_OUT_OF_RANGE)}

        async def list_offset(tp: TopicPartition, **_: Any) -> tuple[ErrorCode, int]:
            return ErrorCode.NONE, end

        client: Any = SimpleNamespace(
            epoch_ends=epoch_ends, exchange=exchange, list_offset=list_offset, close=lambda: None
        )
        scene.table.wait_for_disks = lambda sizes: asyncio.sleep(0)
        scene.table.follower_quota.record = lambda size_bytes, now_ms: None
        fetcher = ReplicaFetcher(scene.table, client, lambda tp: False, 1)
        partition: Any = SimpleNamespace(topic_partition=TP, log=own, hw=2, truncate=own.truncate)
        fetcher.add(partition, epoch=4, offset=2)
        await asyncio.sleep(0.15)
        is_unknown = (asked, end) == ("epochs", -1)
        if not is_unknown:
            assert (own.records, fetcher.failed_partitions) == ([4, 4, 4], 1)
        else:
            assert own.records == [4, 4], "cut to the high watermark"
        await asyncio.gather(fetcher.stop(), scene.fetcher.stop())

    run(main())


@pytest.mark.parametrize("error", [None, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH])
def test_what_a_leader_does_not_say_where_an_epoch_ends_cuts_nothing(error: ErrorCode | None) -> None:
    """None: its answer leaves the partition out. It is asked again after a while, unless the follower is fenced."""

    async def main() -> None:
        own, asked = PlainLog(), list[float]()
        own.take([4, 4, 4])
        scene = Scene(PlainLog(), PlainLog(), 0, 4)

        async def epoch_ends(epochs: Any) -> Any:
            asked.append(asyncio.get_running_loop().time())
            return {} if error is None else {TP: EpochEnd(error=error)}

        client: Any = SimpleNamespace(epoch_ends=epoch_ends, close=lambda: None)
        fetcher = ReplicaFetcher(scene.table, client, lambda tp: False, 1)
        partition: Any = SimpleNamespace(topic_partition=TP, log=own, hw=1, truncate=own.truncate)
        fetcher.add(partition, epoch=4, offset=1)
        await asyncio.sleep(2.5)
        is_fenced = error is ErrorCode.FENCED_LEADER_EPOCH
        assert (own.records, fetcher.failed_partitions) == ([4, 4, 4], is_fenced)
        assert [at - asked[0] for at in asked] == pytest.approx([0] if is_fenced else [0, 1, 2], abs=0.01)
        await asyncio.gather(fetcher.stop(), scene.fetcher.stop())

    run(main())


@pytest.mark.parametrize("asked", ["epochs", "end", "start"])
@pytest.mark.parametrize("meanwhile", ["given up", "begun anew"])
def test_what_was_answered_to_a_replica_that_is_followed_no_more_cuts_nothing(asked: str, meanwhile: str) -> None:
    """It may be a leader by now, or follow another one, with records that the answer knows nothing of."""

    async def main() -> None:
        own, begun, emptied = PlainLog(), list[int](), list[int]()
        own.take([4, 4, 4])
        scene = Scene(PlainLog(), PlainLog(), 0, 4)
        partition: Any = SimpleNamespace(
            topic_partition=TP, log=own, hw=3, truncate=own.truncate, truncate_fully=emptied.append
        )

        def change(what: str) -> bool:
            """Whether this is the answer that comes too late."""
            if asked != what or begun:
                return False
            begun.append(5)
            fetcher.remove(TP) if meanwhile == "given up" else fetcher.add(partition, epoch=5, offset=3)
            return True

        async def epoch_ends(epochs: Any) -> Any:
            return {TP: EpochEnd(error=ErrorCode.NONE, leader_epoch=4, end_offset=1 if change("epochs") else 3)}

        async def exchange(due: Any, *, max_wait_ms: int) -> Any:
            await asyncio.sleep(9 if begun else 0.1)
            return {TP: FetchResult(error=ErrorCode.OFFSET_OUT_OF_RANGE)}

        async def list_offset(tp: TopicPartition, *, timestamp: int, **_: Any) -> tuple[ErrorCode, int]:
            if timestamp == LATEST_TIMESTAMP:
                return ErrorCode.NONE, 1 if change("end") else 90
            return ErrorCode.NONE, 20 if change("start") else 0

        client: Any = SimpleNamespace(
            epoch_ends=epoch_ends, exchange=exchange, list_offset=list_offset, close=lambda: None
        )
        scene.table.wait_for_disks = lambda sizes: asyncio.sleep(0)
        scene.table.follower_quota.record = lambda size_bytes, now_ms: None
        fetcher = ReplicaFetcher(scene.table, client, lambda tp: False, 1)
        fetcher.add(partition, epoch=4, offset=3)
        await asyncio.sleep(5)
        assert begun and (own.records, emptied) == ([4, 4, 4], [])
        await asyncio.gather(fetcher.stop(), scene.fetcher.stop())

    run(main())


def test_who_is_added_while_others_are_asked_about_does_not_wait_for_a_backoff() -> None:
    async def main() -> None:
        loop, logs = asyncio.get_running_loop(), (PlainLog(), PlainLog())
        scene, asked_at, others = Scene(PlainLog(), PlainLog(), 0, 4), list[float](), list[Any]()
        for number, log in enumerate(logs):
            log.take([4])
            others.append(
                SimpleNamespace(topic_partition=TopicPartition("t", number), log=log, hw=1, truncate=log.truncate)
            )

        async def epoch_ends(epochs: Any) -> Any:
            asked_at.append(loop.time())
            await asyncio.sleep(0.1)
            if len(asked_at) == 1:
                fetcher.add(others[1], epoch=4, offset=1)
            return {tp: EpochEnd(error=ErrorCode.UNKNOWN_LEADER_EPOCH) for tp in epochs}

        client: Any = SimpleNamespace(epoch_ends=epoch_ends, close=lambda: None)
        fetcher = ReplicaFetcher(scene.table, client, lambda tp: False, 1)
        fetcher.add(others[0], epoch=4, offset=1)
        await asyncio.sleep(0.5)
        assert [at - asked_at[0] for at in asked_at] == pytest.approx([0, 0.1])
        await asyncio.gather(fetcher.stop(), scene.fetcher.stop())

    run(main())


def test_who_begins_anew_lacks_what_its_leader_has() -> None:
    """It was at the leader's end before: a throttle would not hold it back."""

    async def main() -> None:
        own = PlainLog()
        own.take([4, 4, 4])
        scene = Scene(PlainLog(), PlainLog(), 0, 4)
        results = [FetchResult(), FetchResult(error=ErrorCode.OFFSET_OUT_OF_RANGE)]
        lags: list[Any] = []

        async def epoch_ends(epochs: Any) -> Any:
            return {TP: EpochEnd(error=ErrorCode.NONE, leader_epoch=4, end_offset=3)}

        async def exchange(due: Any, *, max_wait_ms: int) -> Any:
            lags.append(dict(fetcher.lags))
            await asyncio.sleep(0.1 if results else 9)
            return {TP: results.pop(0)}

        async def list_offset(tp: TopicPartition, *, timestamp: int, **_: Any) -> tuple[ErrorCode, int]:
            return ErrorCode.NONE, 90 if timestamp == -1 else 20

        client: Any = SimpleNamespace(
            epoch_ends=epoch_ends, exchange=exchange, list_offset=list_offset, close=lambda: None
        )
        scene.table.wait_for_disks = lambda sizes: asyncio.sleep(0)
        scene.table.follower_quota.record = lambda size_bytes, now_ms: None
        scene.table.broker_id, scene.table.meters = 2, SimpleNamespace(copied_in=lambda size, is_reassigned: None)
        fetcher = ReplicaFetcher(scene.table, client, lambda tp: False, 1)
        partition: Any = SimpleNamespace(
            topic_partition=TP, log=own, hw=3, truncate=own.truncate, follow_watermark=lambda hw: None,
            truncate_fully=lambda start: None, assignment=SimpleNamespace(adding_replicas=()),
        )  # fmt: skip
        own.append_as_follower = lambda data, now_ms: 0  # type: ignore[attr-defined]
        fetcher.add(partition, epoch=4, offset=3)
        await asyncio.sleep(0.25)
        assert lags == [{}, {TP: 0}, {TP: 70}]
        await asyncio.gather(fetcher.stop(), scene.fetcher.stop())

    run(main())


def test_what_is_followed_is_spread_anew_when_the_number_of_fetchers_changes(tmp_path: Path) -> None:
    """`AbstractFetcherManager.getFetcherId` by hand: "t" hashes to 116."""

    async def scenario(cluster: Cluster) -> None:
        manager = cluster.nodes[2].manager
        for number in range(4):
            cluster.appoint(TopicPartition("t", number), 1, (1, 2), (1, 2), is_new=True)
        before = dict(manager.fetchers.fetchers)
        for config, count in (
            ({}, 1), ({"num.replica.fetchers": "3"}, 3), ({"num.replica.fetchers": "2"}, 2),
            ({"num.replica.fetchers": "2", "log.segment.bytes": "99999"}, 2), ({}, 1), ({"log.retention.ms": "7"}, 1),
        ):  # fmt: skip
            manager.configs.set_broker_config(config)
            fetchers = dict(manager.fetchers.fetchers)
            wanted = {(31 * 116 + number) % count for number in range(4)}
            assert set(fetchers) == {(1, number) for number in wanted}
            for number in range(4):
                holding = [key[1] for key, fetcher in fetchers.items() if TopicPartition("t", number) in fetcher]
                assert holding == [(31 * 116 + number) % count]
            assert fetchers == before or len(fetchers) != len(before), "none is begun anew without need"
            before = fetchers

    Cluster.run(tmp_path, scenario, brokers=(1, 2))
