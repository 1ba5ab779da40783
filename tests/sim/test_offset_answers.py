"""What brokers say of offsets is judged in its moment: right answers pass, and each wrong one is seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_sim.log.leader_epochs import LeaderEpochs
from broker_sim.log.log import Log
from broker_sim.replicas.offsets import Offsets
from broker_sim.replicas.partition import Partition
from broker_sim.replicas.types import DeleteRecordsResult, EpochEnd, ListedOffset
from controller.sim.oracles.offsets import WatchedOffsets
from controller.sim.plan import Plan, Step
from controller.sim.play import play
from controller.sim.shape import Shape

pytestmark = pytest.mark.sim
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
        (LeaderEpochs, "epoch_for", _one_less, "asked for 16"),
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
