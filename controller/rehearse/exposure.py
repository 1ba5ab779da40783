"""What the loss of each broker or rack would take, at every moment of a rehearsal in which it is not lost. Pure.

Counted from the state znodes as they change: a partition whose whole ISR would be gone goes offline (with unclean
elections: loses what the others lack), one that would keep less than its min ISR goes under it. Of each loss the worst
moment is kept: the one that takes most offline, then most under their min ISR, and of equal ones the longest stretch.
`kwob rehearse sweep` plays these losses then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition

#: Partitions that go offline, and under their min ISR.
_Toll = tuple[int, int]
_NOTHING: Final[_Toll] = (0, 0)


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """A broker (`rack` None) or a whole rack (`broker` None)."""

    rack: str | None = None
    broker: int | None = None

    def __str__(self) -> str:
        return f"broker {self.broker}" if self.rack is None else f"rack {self.rack}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed:
    """What a loss takes at its worst, which is so from `from_ms` to `to_ms`; `at_ms` is the middle."""

    rack: str | None
    broker: int | None
    offline: int
    under_min_isr: int
    at_ms: int
    from_ms: int
    to_ms: int


@dataclass(slots=True)
class _Stretch:
    """What a loss takes now, what it took before the moment of its last change, and the worst until then."""

    now: _Toll = _NOTHING
    changed_ms: int = 0
    before: tuple[_Toll, int] = (_NOTHING, 0)  # what, since when
    worst: tuple[_Toll, int, int] = (_NOTHING, 0, 0)  # what, how long, since when

    def take(self, toll: _Toll, at_ms: int) -> None:
        if at_ms > self.changed_ms:
            self.worst, self.before = self.until(at_ms), (self.now, self._since_ms())
            self.changed_ms = at_ms
        self.now = (self.now[0] + toll[0], self.now[1] + toll[1])

    def _since_ms(self) -> int:
        """Changes of one moment that outweigh each other end nothing."""
        toll, since_ms = self.before
        return since_ms if toll == self.now else self.changed_ms

    def until(self, at_ms: int) -> tuple[_Toll, int, int]:
        """The worst, what is so now included."""
        since_ms = self._since_ms()
        return max(self.worst, (self.now, at_ms - since_ms, since_ms), key=lambda row: row[:2])

    def begin(self) -> None:
        """What was so before does not count; time is 0 now."""
        self.changed_ms, self.before, self.worst = 0, (self.now, 0), (_NOTHING, 0, 0)


@dataclass(slots=True)
class Exposure:
    """`racks`: of every broker that there is or will be."""

    racks: Mapping[BrokerId, str | None]
    _stretches: dict[Loss, _Stretch] = field(default_factory=dict)
    _tolls: dict[TopicPartition, Mapping[Loss, _Toll]] = field(default_factory=dict)
    #: ISR and min ISR -> what each loss takes; large clusters have the same ones again and again
    _of_isr: dict[tuple[tuple[BrokerId, ...], int], Mapping[Loss, _Toll]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        losses = [*(Loss(broker=b) for b in self.racks), *(Loss(rack=r) for r in self.racks.values() if r is not None)]
        self._stretches = {loss: _Stretch() for loss in sorted(set(losses), key=str)}

    def decided(self, topic_partition: TopicPartition, state: LeaderAndIsr | None, min_isr: int, at_ms: int) -> None:
        """The state znode says so; None: it is gone."""
        before = self._tolls.get(topic_partition, {})
        now: Mapping[Loss, _Toll] = {}
        if state is not None and state.leader is not None:
            key = (state.isr, min_isr)
            if (found := self._of_isr.get(key)) is None:
                found = self._of_isr[key] = dict(self._of(state, min_isr))
            now = found
        if now == before:
            return
        for sign, tolls in ((-1, before), (1, now)):
            for loss, (offline, under) in tolls.items():
                self._stretches[loss].take((sign * offline, sign * under), at_ms)
        self._tolls[topic_partition] = now

    def _of(self, state: LeaderAndIsr, min_isr: int) -> Iterator[tuple[Loss, _Toll]]:
        size = len(state.isr)

        def toll(members: int) -> _Toll | None:
            left = size - members
            return (1, 0) if not left else (0, 1) if left < min_isr <= size else None

        if found := toll(1):
            yield from ((Loss(broker=broker), found) for broker in state.isr)
        for rack, members in Counter(self.racks.get(broker) for broker in state.isr).items():
            if rack is not None and (found := toll(members)):
                yield Loss(rack=rack), found

    def begin(self) -> None:
        """What was so before does not count; time is 0 now."""
        for stretch in self._stretches.values():
            stretch.begin()

    def worst(self, end_ms: int) -> tuple[Exposed, ...]:
        """Of each loss the worst moment, in a rehearsal that ended then; racks first, by name."""
        rows = []
        for loss, stretch in sorted(self._stretches.items(), key=lambda row: (row[0].rack is None, row[0].broker or 0)):
            (offline, under), length_ms, since_ms = stretch.until(end_ms)
            rows.append(
                Exposed(
                    rack=loss.rack,
                    broker=loss.broker,
                    offline=offline,
                    under_min_isr=under,
                    at_ms=since_ms + length_ms // 2,
                    from_ms=since_ms,
                    to_ms=since_ms + length_ms,
                )
            )
        return tuple(rows)
