"""An ISR change from its decision to its end, by what was decided and how the write went: all that is told of it."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from broker_sim.isr import IsrChange, IsrChangeKind
from broker_sim.replicas.isr_updates import IsrUpdates
from broker_sim.replicas.types import IsrWriteOutcome, IsrWriteResult
from controller.wire.types import LeaderAndIsr, TopicPartition
from controller.world.simulated.loop import run

TP = TopicPartition("t", 4)
#: kind -> the ISR before and after, who joins or leaves; the event of the decision, that of the end, that of the trace
KINDS = {
    IsrChangeKind.SHRINK: ((1, 2, 3), (1,), (2, 3), "isr.shrink_decided", "isr.shrunk", "ISR_SHRINK"),
    IsrChangeKind.EXPAND: ((1,), (1, 2, 3), (2, 3), "isr.expand_decided", "isr.expanded", "ISR_EXPAND"),
}
#: outcome -> the error, as logs and traces have it
ERRORS = {
    IsrWriteOutcome.WRITTEN: ("NONE", 0),
    IsrWriteOutcome.REFUSED: ("INVALID_UPDATE_VERSION", 95),
    IsrWriteOutcome.NO_NODE: ("UNKNOWN_TOPIC_OR_PARTITION", 3),
}
#: what happened while the write was under way
MEANWHILE = ("nothing", "a newer epoch", "another change", "it follows")


class Scene:
    """A led partition whose rule only notes what it is told, and a write that takes 70 ms."""

    def __init__(self, outcome: IsrWriteOutcome, meanwhile: str, rise: int) -> None:
        self.said: list[Any] = []
        self.now_ms = 1_000
        self.led = SimpleNamespace(
            leader=1, epoch=5, partition_epoch=8, high_watermark=20, log_end_offset=23, pending=None,
            write_succeeded=self._written, write_refused=lambda: self.said.append("rule: refused"),
        )  # fmt: skip
        self.partition: Any = SimpleNamespace(
            topic_partition=TP, controller_epoch=6, led=self.led,
            higher_watermark=SimpleNamespace(wake=lambda: self.said.append("woken")),
        )  # fmt: skip
        self._outcome, self._meanwhile, self._rise = outcome, meanwhile, rise
        table: Any = SimpleNamespace(
            now_ms=lambda: self.now_ms,
            log=SimpleNamespace(info=lambda event, **keys: self.said.append((event, keys))),
            trace=SimpleNamespace(row=lambda event, at, tp, **keys: self.said.append((event.name, at, tp, keys))),
            supervisor=SimpleNamespace(once=lambda name, work: asyncio.get_running_loop().create_task(work())),
        )
        writer: Any = SimpleNamespace(write_isr=self._write_isr)
        self.updates = IsrUpdates(table, writer)

    def _written(self, partition_epoch: int, now_ms: int) -> None:
        self.said.append(("rule: written", partition_epoch, now_ms))
        self.led.high_watermark += self._rise

    async def _write_isr(self, tp: TopicPartition, new: LeaderAndIsr, expected: int) -> IsrWriteResult:
        self.said.append((tp, new, expected))
        await asyncio.sleep(0.07)
        self.now_ms += 70
        match self._meanwhile:
            case "a newer epoch":
                self.led.epoch = 6
            case "another change":
                self.led.pending = "another"
            case "it follows":
                self.partition.led = None
        return IsrWriteResult(outcome=self._outcome, partition_epoch=9)

    async def play(self, change: IsrChange) -> None:
        self.led.pending = change
        self.updates.write(self.partition, change, decided_ms=1_000)
        assert len(self.said) == 1, "it is decided before it is written"
        await asyncio.sleep(1)


def expected(change: IsrChange, outcome: IsrWriteOutcome, *, counts: bool, rise: int) -> list[Any]:
    """All of it, in order."""
    old, new, replicas, decided, done, traced = KINDS[change.kind]
    (error, code), is_written = ERRORS[outcome], outcome is IsrWriteOutcome.WRITTEN
    which = {"topic": "t", "partition": 4, "leader_epoch": 5, "isr_old": list(old), "isr": list(new)}
    caught_up = {"replicas": list(replicas), "last_caught_up_time_ms": [70, 80]}
    state = LeaderAndIsr(leader=1, isr=new, leader_epoch=5, partition_epoch=8, controller_epoch=6)
    rule = ("rule: written", 9, 1_070) if is_written else "rule: refused"
    row = {
        "epoch": 5, "isr_old": list(old), "isr": list(new), "zk_version": 9 if is_written else None, "err": code,
        "done": 1_070,
    }  # fmt: skip
    return [
        (decided, {**which, **caught_up, "hw": 20, "leo": 23}),
        (TP, state, 8),
        *([rule] if counts else []),
        *((traced, 1_000, TP, {**row, "replica": who, "cu": at}) for who, at in zip(replicas, (70, 80), strict=True)),
        (done if is_written else "isr.write_refused", {**which, "error": error}),
        *(["woken"] if counts and is_written and rise else []),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_change_is_told_from_its_decision_to_its_end(kind: IsrChangeKind) -> None:
    async def main() -> None:
        old, new, replicas, *_ = KINDS[kind]
        change = IsrChange(kind=kind, isr_old=old, isr=new, replicas=replicas, last_caught_up_time_ms=(70, 80))
        for outcome, meanwhile, rise in itertools.product(ERRORS, MEANWHILE, (0, 2)):
            scene = Scene(outcome, meanwhile, rise)
            await scene.play(change)
            assert scene.said == expected(change, outcome, counts=meanwhile == "nothing", rise=rise)
            is_written = outcome is IsrWriteOutcome.WRITTEN
            assert scene.updates.written == {each: int(each is kind and is_written) for each in KINDS}
            assert scene.updates.refused == int(not is_written)

    run(main())
