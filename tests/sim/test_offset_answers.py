"""What brokers say of offsets is judged in its moment: right answers pass, and each wrong one is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.log.config import LogConfig
from broker_sim.log.leader_epochs import LeaderEpochs
from broker_sim.log.log import Log
from broker_sim.replicas.offsets import Offsets
from broker_sim.replicas.partition import Partition
from broker_sim.replicas.types import DeleteRecordsResult, EpochEnd, ListedOffset
from controller.sim.oracles.offsets import WatchedOffsets, end_of, epoch_at_start, kept_below
from controller.sim.plan import Plan, Step
from controller.sim.play import play
from controller.sim.shape import Shape
from controller.wire.records import build_values
from controller.wire.types import TopicPartition

pytestmark = [pytest.mark.sim, pytest.mark.long]
SHAPE = Shape(brokers=3, controllers=1, partitions=2, side_producers=1, offset_probers=3, batch_records=3)
STEPS = tuple(Step(number, 3.0, kind) for number, kind in enumerate(("create_topic", "kill", "start"), 1))


def asked(seed: int = 4) -> list[str]:
    """A world in which three clients ask for offsets, and a broker dies and comes back."""
    return play(Plan(seed=seed, shape=SHAPE, weights={}, steps=STEPS)).broken


def test_right_answers_of_each_kind_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[tuple[str, object]] = set()
    listed, ended, deleted = (vars(WatchedOffsets)[name] for name in ("list_offset", "epoch_end", "delete_records"))

    def list_offset(self: WatchedOffsets, tp: Any, question: Any) -> ListedOffset:
        found: ListedOffset = listed(self, tp, question)
        seen.add(("list", min(question.timestamp, 0) if found.offset >= 0 else found.error))
        return found

    def epoch_end(self: WatchedOffsets, tp: Any, **more: Any) -> EpochEnd:
        found: EpochEnd = ended(self, tp, **more)
        seen.add(("end", found.error if found.end_offset < 0 else found.end_offset >= 0))
        return found

    async def delete_records(self: WatchedOffsets, offsets: Any, **more: Any) -> dict[Any, DeleteRecordsResult]:
        found: dict[Any, DeleteRecordsResult] = await deleted(self, offsets, **more)
        seen.update(("delete", row.error.value) for row in found.values())
        return found

    for name, watched in (("list_offset", list_offset), ("epoch_end", epoch_end), ("delete_records", delete_records)):
        monkeypatch.setattr(WatchedOffsets, name, watched)
    assert asked() == []
    assert {("list", -1), ("list", -2), ("list", 0), ("end", True), ("delete", 0)} <= seen


def _a_later_record(inner: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, timestamp, bound: inner(self, timestamp + 500, bound=bound)


def _one_less(inner: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *rest: inner(self, *rest) - 1


def _the_log_end(inner: Callable[..., Any]) -> Callable[..., Any]:
    del inner
    return lambda self, epoch, *, leo: (epoch, leo)


def _no_start(inner: Callable[..., Any]) -> Callable[..., Any]:
    del inner
    return lambda self: -1


def _any_start(inner: Callable[..., Any]) -> Callable[..., Any]:
    del inner
    return lambda self: 1 << 40


def _no_fence(inner: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, partition, log, question: inner(
        self, partition, log, question.__class__(timestamp=question.timestamp, replica_id=-2, version=5)
    )


@pytest.mark.parametrize(
    ("owner", "name", "damage", "complaint"),
    [
        (Log, "find_by_time", _a_later_record, "asked for 16"),
        (LeaderEpochs, "epoch_for", _one_less, "asked for -2"),
        (LeaderEpochs, "end_offset_for", _the_log_end, "asked for the end of epoch"),
        (Partition, "low_watermark", _no_start, "deletes records of"),
        (Partition, "low_watermark", _any_start, "deletes records of"),
        (Offsets, "_list", _no_fence, "asked for -1"),
    ],
)
def test_a_wrong_answer_is_seen(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, damage: Callable[..., Any], complaint: str
) -> None:
    monkeypatch.setattr(owner, name, damage(vars(owner)[name]))
    assert any(complaint in line for seed in range(4, 10) for line in asked(seed))


@pytest.mark.parametrize(
    "led",
    [
        ((1, 3), (2, 3), (5, 3)),
        ((0, 3), (1, 0), (3, 3), (4, 0)),
        # A former topic had 4, or 2 and 4; the next one of its name has lower ones, and not of each there are records.
        ((4, 3), (2, 0)),
        ((4, 3), (1, 3), (2, 0)),
        ((4, 3), (1, 3), (3, 3), (5, 0)),
        ((2, 3), (4, 3), (2, 3), (3, 3)),
        # A follower that had records of the next topic already, and then went on with what was kept of the former.
        ((0, 3), (4, 3), (2, 0)),
        ((0, 3), (4, 3), (2, 3), (3, 3)),
        # The records of the former topic have an epoch that the next one's have, too.
        ((3, 3), (2, 0), (3, 3), (4, 0)),
        ((3, 3), (1, 0), (3, 0), (4, 3), (5, 0)),
    ],
)
def test_an_epoch_ends_where_a_later_one_of_the_same_topic_begins(
    tmp_path: Path, led: tuple[tuple[int, int], ...]
) -> None:
    """`led`: an epoch of a leader, and how many records it writes."""
    log = Log(TopicPartition("t", 0), tmp_path / "t-0", LogConfig())
    log.create()
    for epoch, count in led:
        log.assign_epoch(epoch, log.leo)
        for _ in range(count):
            log.append_as_leader(build_values([(b"k", b"v")], timestamp=1), leader_epoch=epoch, now_ms=1)
    last = led[-1][0]
    kept = kept_below(log)
    ends = {epoch: end_of(log, epoch, led=last, kept=kept) for epoch in range(last)}
    assert ends == {epoch: log.end_offset_for_epoch(epoch)[1] for epoch in range(last)}
    assert epoch_at_start(log, kept) == log.epochs.epoch_for(0)


def test_an_end_that_ignores_a_later_epoch_of_the_same_topic_is_wrong(tmp_path: Path) -> None:
    log = Log(TopicPartition("t", 0), tmp_path / "t-0", LogConfig())
    log.create()
    for epoch in (4, 1, 3):
        log.append_as_leader(build_values([(b"k", b"v")] * 3, timestamp=1), leader_epoch=epoch, now_ms=1)
    assert [end_of(log, epoch, led=4) for epoch in range(4)] == [3, 6, 6, 9]


@pytest.mark.parametrize(("future", "lowest"), [(None, 38), (5, 5), (40, 38)])
def test_a_log_that_is_to_replace_another_must_have_deleted_records_too(future: int | None, lowest: int) -> None:
    metadata = SimpleNamespace(alive_brokers=lambda: {1, 2})
    inner: Any = SimpleNamespace(_table=SimpleNamespace(metadata=metadata, broker_id=1))
    log: Any = SimpleNamespace(log_start_offset=38)
    partition: Any = SimpleNamespace(
        future_log=None if future is None else SimpleNamespace(log_start_offset=future),
        assignment=SimpleNamespace(replicas=(1, 2, 3)),
        follower_log_starts={2: 38},
    )
    cluster: Any = None
    assert WatchedOffsets(inner, "broker 1", cluster, []).low_watermark(partition, log) == lowest
