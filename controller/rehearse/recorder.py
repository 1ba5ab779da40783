"""What a rehearsal measures while it runs: samples of the whole cluster, and how far each move is.

Samples are taken at even times; when there are too many, every second one goes and they come half as often, so that an
hour and a month both have a readable number of them. The worst moments are kept apart, since they may lie between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker_sim.fluid.limits import UNLIMITED
from controller.rehearse.ledger import Trouble
from controller.rehearse.stage import Stage
from controller.wire.types import BrokerId, TopicPartition

#: The most samples that are kept, and the time between the first ones.
SAMPLES_MAX: Final = 1_440
FIRST_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The cluster at one moment. Shares are of what a limit lets through (0 to 1); None where nothing limits."""

    at_ms: int
    offline: int
    under_min_isr: int
    under_replicated: int
    moving: int
    left_bytes: float
    at_risk_bytes: float
    link_out: Mapping[BrokerId, float | None]
    link_in: Mapping[BrokerId, float | None]
    disk: Mapping[BrokerId, float | None]
    leader_throttle: Mapping[BrokerId, float | None]
    follower_throttle: Mapping[BrokerId, float | None]
    leaders: Mapping[BrokerId, int]
    used_bytes: Mapping[BrokerId, float]


@dataclass(slots=True)
class Peaks:
    """The most that was seen of each thing, where and when."""

    link: tuple[float, BrokerId | None, int] = (0.0, None, 0)
    offline: tuple[int, int] = (0, 0)
    under_min_isr: tuple[int, int] = (0, 0)
    under_replicated: tuple[int, int] = (0, 0)

    def note(self, name: str, count: int, at_ms: int) -> None:
        """A count of partitions."""
        if count > getattr(self, name)[0]:
            setattr(self, name, (count, at_ms))


@dataclass(slots=True)
class Recorder:
    """Fills `samples` and `peaks` until it is stopped."""

    stage: Stage
    samples: list[Sample] = field(default_factory=list)
    peaks: Peaks = field(default_factory=Peaks)
    #: broker -> when its disks were first fuller than they are large
    disk_full_ms: dict[BrokerId, int] = field(default_factory=dict)
    _every_s: float = FIRST_EVERY_S

    async def run(self) -> None:
        """Samples for ever."""
        while True:
            self.sample()
            if len(self.samples) >= SAMPLES_MAX:
                del self.samples[1::2]
                self._every_s *= 2
            await asyncio.sleep(self._every_s)

    def sample(self) -> Sample:
        """One more sample, of now."""
        stage, now_ms = self.stage, self.stage.now_ms()
        use, counts = stage.plane.use(), stage.ledger.counts
        limits = {broker: stage.plane.limits(broker) for broker in use}
        used = stage.plane.disk_used()
        sample = Sample(
            at_ms=now_ms,
            offline=counts[Trouble.OFFLINE],
            under_min_isr=counts[Trouble.UNDER_MIN_ISR],
            under_replicated=counts[Trouble.UNDER_REPLICATED],
            moving=counts[Trouble.MOVING],
            left_bytes=stage.plane.left_bytes(),
            at_risk_bytes=stage.risk.look(now_ms),
            link_out={b: _share(use[b]["out"], limits[b].link) for b in use},
            link_in={b: _share(use[b]["in"], limits[b].link) for b in use},
            disk={b: _share(use[b]["disk"], limits[b].disk) for b in use},
            leader_throttle={b: _share(use[b]["leader_throttle"], limits[b].leader_throttle) for b in use},
            follower_throttle={b: _share(use[b]["follower_throttle"], limits[b].follower_throttle) for b in use},
            leaders=dict(stage.ledger.leaders),
            used_bytes=used,
        )
        self.samples.append(sample)
        self._note(sample)
        return sample

    def _note(self, sample: Sample) -> None:
        peak = self.stage.plane.peak_link
        self.peaks.link = (peak.share, peak.broker, max(0, round((peak.at_s - self.stage.began_s) * 1000)))
        for name in ("offline", "under_min_isr", "under_replicated"):
            self.peaks.note(name, getattr(sample, name), sample.at_ms)
        for shape in self.stage.scenario.cluster.brokers:
            capacity = sum(d.capacity_bytes or 0 for d in shape.log_dirs)
            broker_id = BrokerId(shape.id)
            if capacity and sample.used_bytes[broker_id] > capacity:
                self.disk_full_ms.setdefault(broker_id, sample.at_ms)


def stuck(stage: Stage) -> list[tuple[TopicPartition, BrokerId]]:
    """Copies that never catch up at the rates of now: they get less than producers write."""
    now_s = stage.plane.now_s
    return sorted(
        (copy.topic_partition, copy.follower) for copy in stage.plane.behind() if copy.catches_up_in(now_s) == UNLIMITED
    )


def _share(use: float, limit: float | None) -> float | None:
    """A limit that lets nothing through, as a throttle of 0, is full."""
    if limit is None or limit == UNLIMITED:
        return None
    return use / limit if limit else 1.0
