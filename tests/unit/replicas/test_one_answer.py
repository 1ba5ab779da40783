"""What a follower makes of one answer of its leader, by what has happened to its log and what the append says."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.config import ReplicaSettings
from broker_sim.log.errors import StorageFailure
from broker_sim.log.leader_epochs import LeaderEpochs
from broker_sim.log.log import UnexpectedOffset
from broker_sim.replicas.fetcher import ReplicaFetcher
from broker_sim.replicas.types import FetchResult
from controller.wire.errors import ErrorCode
from controller.wire.records import CorruptBatch
from controller.wire.types import TopicPartition
from controller.world.simulated.loop import run

TP = TopicPartition("t", 0)
#: of the follower's log when it asks
START, END = 2, 5
#: what has become of the log's end meanwhile; None: the log is gone, with its dir
MEANWHILE = (-2, -1, 0, 1, None)
FAILURES = {
    "none": None,
    "a gap": UnexpectedOffset(7, END),
    "the disk": StorageFailure(Path("d"), OSError("full")),
    "no batch": CorruptBatch("torn"),
}


class Log:
    """Each byte is a record."""

    def __init__(self, failure: Exception | None) -> None:
        self.log_start_offset, self.leo, self.epochs = START, END, LeaderEpochs()
        self._failure = failure

    def append_as_follower(self, data: bytes, *, now_ms: int) -> None:
        assert now_ms == 77
        if self._failure is not None:
            raise self._failure
        self.leo += len(data)

    def raise_log_start(self, offset: int) -> None:
        self.log_start_offset = offset


class Scene:
    """A fetcher that gets one answer; `asked` has the offsets and the times of its fetches after that."""

    def __init__(self, meanwhile: int | None, failure: Exception | None, answer: FetchResult, is_added: bool) -> None:
        self._meanwhile, self._answer = meanwhile, answer
        self.asked: list[tuple[int, float]] | None = None
        self.log, self.said = Log(failure), list[Any]()
        quota = SimpleNamespace(
            is_exceeded=lambda now_ms: False, is_throttled=lambda tp: is_added,
            record=lambda size, now_ms: self.said.append(("throttled", size, now_ms)),
        )  # fmt: skip
        table: Any = SimpleNamespace(
            broker_id=2, settings=ReplicaSettings(log_dirs=()), follower_quota=quota, now_ms=lambda: 77,
            supervisor=SimpleNamespace(keep=lambda name, work: asyncio.get_running_loop().create_task(work())),
            log=SimpleNamespace(info=lambda event, **keys: None, debug=lambda event, **keys: None),
            wait_for_disks=self._wait,
            note_failure=lambda error: self.said.append(("noted", error)),
            meters=SimpleNamespace(
                copied_in=lambda size, *, is_reassigned: self.said.append(("copied", size, is_reassigned))
            ),
        )  # fmt: skip
        client: Any = SimpleNamespace(exchange=self._exchange, close=lambda: None)
        self.table = table
        self.fetcher = ReplicaFetcher(table, client, lambda tp: False, 1)
        self.partition: Any = SimpleNamespace(
            topic_partition=TP, log=self.log, hw=END, truncate=lambda offset: 0,
            follow_watermark=lambda hw: self.said.append(("watermark", hw)),
            assignment=SimpleNamespace(adding_replicas=(2,) if is_added else (3,)),
        )  # fmt: skip
        self.fetcher.add(self.partition, epoch=4, offset=END)

    async def _wait(self, sizes: Any) -> None:
        assert dict(sizes) == {TP: len(self._answer.records)}

    async def _exchange(self, due: Any, *, max_wait_ms: int) -> Any:
        if self.asked is None:
            self.asked = []
            if self._meanwhile is None:
                self.partition.log = None
            else:
                self.log.leo += self._meanwhile
            return {TP: self._answer}
        self.asked.append((due[TP].fetch_offset, asyncio.get_running_loop().time()))
        return await asyncio.get_running_loop().create_future()

    async def play(self) -> list[Any]:
        """All that came of it: what was said, the failed, the lags, the log's start, the next fetch."""
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(2.5)
        await self.fetcher.stop()
        later = [(offset, round(at - began, 3)) for offset, at in self.asked or ()]
        return [self.said, self.fetcher.failed_partitions, list(self.fetcher.lags), self.log.log_start_offset, later]


def expected(meanwhile: int | None, failure: Exception | None, answer: FetchResult, is_added: bool) -> list[Any]:
    """The same, by the rules one after another."""
    size = len(answer.records)
    throttled = ("throttled", size if is_added else 0, 77)
    out_of_service = [[throttled], 1, [], START, []]
    later = [[throttled], 0, [], START, [] if meanwhile is None else [(END, 1.0)]]
    if answer.error is not ErrorCode.NONE:
        return out_of_service if answer.error is ErrorCode.FENCED_LEADER_EPOCH else later
    if meanwhile != 0 or isinstance(failure, UnexpectedOffset):
        return out_of_service
    if isinstance(failure, StorageFailure):
        return [[("noted", failure), throttled], *out_of_service[1:]]
    if failure is not None:
        return later
    end = END + size
    start = answer.log_start_offset if START < answer.log_start_offset <= end else START
    said = [("watermark", answer.high_watermark), ("copied", size, is_added), throttled]
    return [said, 0, [(TP, max(0, answer.high_watermark - end))], start, [(end, 0.0)]]


@pytest.mark.parametrize("name", FAILURES)
def test_an_answer(name: str) -> None:
    """Source: Kafka 3.9 `AbstractFetcherThread.processFetchRequest`, `ReplicaFetcherThread.processPartitionData`."""

    async def main() -> None:
        sizes, starts = (0, 2), (-1, START - 1, START + 1, END, END + 1, END + 2, END + 3)
        answers = [
            FetchResult(ErrorCode.NONE, hw, hw, start, b"x" * size)
            for size, start, hw in itertools.product(sizes, starts, (END - 1, END + 1, END + 2, END + 3))
        ]
        answers += [FetchResult(ErrorCode(code)) for code in (6, 56, 74, 75)]
        for number, answer in enumerate(answers if name == "none" else answers[::3]):
            meanwhile, is_added = MEANWHILE[number % len(MEANWHILE)], number % 3 == 0
            for now in {0, meanwhile}:
                scene = Scene(now, FAILURES[name], answer, is_added)
                assert await scene.play() == expected(now, FAILURES[name], answer, is_added), (now, answer)

    run(main())


#: what the leader says when it is asked for the end and for the start of its log; whether the partition is then out of
#: service, else it is asked for again after the backoff
NO_RESETS: dict[str, tuple[list[Exception | ErrorCode], bool]] = {
    "no connection": ([OSError("refused")], False),
    "no connection any more": ([ErrorCode.NONE, OSError("reset")], False),
    "not the leader": ([ErrorCode.NOT_LEADER_OR_FOLLOWER], False),
    "not the leader any more": ([ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER], False),
    "a later epoch": ([ErrorCode.FENCED_LEADER_EPOCH], True),
    "a later epoch now": ([ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH], True),
}


@pytest.mark.parametrize("what", NO_RESETS)
def test_an_offset_that_cannot_be_reset_leaves_the_other_partitions_of_the_answer_alone(what: str) -> None:
    """Source: Kafka 3.9 `AbstractFetcherThread.handleOutOfRangeError`."""

    async def main() -> None:
        answers, is_out_of_service = NO_RESETS[what]
        before, lost, after = tps = [TopicPartition("t", number) for number in range(3)]
        scene, fetches = (
            Scene(0, None, FetchResult(ErrorCode.NONE), is_added=True),
            list[tuple[dict[Any, int], float]](),
        )
        closed, said = list[None](), list(answers)
        await scene.fetcher.stop()

        async def exchange(due: Any, *, max_wait_ms: int) -> Any:
            fetches.append(({tp: ask.fetch_offset for tp, ask in due.items()}, asyncio.get_running_loop().time()))
            if len(fetches) > 1:
                await asyncio.sleep(0.1)
                return {}
            taken = FetchResult(ErrorCode.NONE, END, END, -1, b"xx")
            return {before: taken, lost: FetchResult(ErrorCode.OFFSET_OUT_OF_RANGE), after: taken}

        async def list_offset(tp: TopicPartition, **_: Any) -> tuple[ErrorCode, int]:
            answer = said.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer, END + 9

        async def no_wait(sizes: Any) -> None:
            assert dict(sizes) == {before: 2, lost: 0, after: 2}

        scene.table.wait_for_disks = no_wait
        client: Any = SimpleNamespace(exchange=exchange, list_offset=list_offset, close=lambda: closed.append(None))
        fetcher = ReplicaFetcher(scene.table, client, lambda tp: False, 1)
        for tp in tps:
            partition: Any = SimpleNamespace(**vars(scene.partition) | {"topic_partition": tp, "log": Log(None)})
            fetcher.add(partition, epoch=4, offset=END)
        await asyncio.sleep(2.5)
        assert ("throttled", 4, 77) in scene.said
        (first, began), (second, then), *_ = fetches
        assert (first, then - began) == (dict.fromkeys(tps, END), 0)
        assert second == {before: END + 2, after: END + 2}
        again = [round(at - began, 3) for due, at in fetches[1:] if due.get(lost) == END]
        assert [at >= 1 for at in again[:1]] == ([] if is_out_of_service else [True])
        assert fetcher.failed_partitions == is_out_of_service
        assert len(closed) == isinstance(answers[-1], OSError), "a connection that failed is not used again"
        await fetcher.stop()

    run(main())
