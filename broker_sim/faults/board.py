"""The faults in force at one broker: since when, until when, what each has done, and what the broker must know of them.

Time comes from the clock and the event loop, chance from the generator that is passed in. Each fault is logged when it
starts, when it acts (the first time, then at most once per `ACTED_LOG_MS`, with how often) and when it ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from controller.wire import log_events as ev
from controller.wire.fault_rows import ApiFault, CutLink, Fault, PauseReplication, SlowDisk, SlowLink
from controller.wire.trace import PAUSED_ALL
from controller.wire.types import BrokerId, TopicPartition
from controller.world.ports import Clock

#: A fault that acts all the time is not told more often than this.
ACTED_LOG_MS: Final = 5_000

FaultHandler = Callable[[Fault], None]


@dataclass(slots=True)
class _InForce:
    """What a row has done so far. `seen`: requests counted by `nth` and `every`; `busy_until`: loop time by lane."""

    acted: int = 0
    acted_told: int = 0
    told_ms: int | None = None
    seen: int = 0
    busy_until: dict[str, float] = field(default_factory=dict)


class FaultBoard:
    """The rows of one broker. `replace` decides which; what is asked here is cheap while nothing is in force."""

    def __init__(
        self, broker_id: BrokerId, chance: random.Random, *, clock: Clock, log: Any, rack: str | None = None
    ) -> None:
        self._broker_id, self._rack, self._random = broker_id, rack, chance
        self._clock, self._log = clock, log
        self._rows: tuple[Fault, ...] = ()
        self._in_force: dict[Fault, _InForce] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looked_ms = clock.now_ms()
        self._on_start: list[FaultHandler] = []
        self._on_end: list[FaultHandler] = []
        self._pauses: tuple[PauseReplication, ...] = ()
        self._apis: tuple[ApiFault, ...] = ()
        self._disks: tuple[SlowDisk, ...] = ()
        self._links: tuple[SlowLink | CutLink, ...] = ()

    # -- which rows ----------------------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[Fault, ...]:
        """The rows in force."""
        return tuple(self._in_force)

    def subscribe(self, on_start: FaultHandler, on_end: FaultHandler) -> Callable[[], None]:
        """Is told of each row that starts and ends from now on; what is returned ends that."""
        self._on_start.append(on_start)
        self._on_end.append(on_end)

        def end() -> None:
            self._on_start.remove(on_start)
            self._on_end.remove(on_end)

        return end

    def replace(self, rows: Iterable[Fault]) -> None:
        """From now on these rows are wanted, each in its window, and no others; one that stays keeps its counts."""
        self._rows = tuple(dict.fromkeys(row for row in rows if row.concerns(self._broker_id, self._rack)))
        self._look()

    def close(self) -> None:
        """No more timers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Brings what is in force into line with the rows and the time, and sets the timer for the next change."""
        self.close()
        now_ms = self._clock.now_ms()
        due = {row for row in self._rows if _is_due(row, now_ms)}
        for row in [row for row in self._in_force if row not in due]:
            self._end(row)
        for row in self._rows:
            if row not in self._in_force and (row in due or self._was_missed(row, now_ms)):
                self._start(row)
                if row not in due:
                    self._end(row)
        self._looked_ms = now_ms
        times = [t for row in self._rows for t in (row.from_ms, row.until_ms) if t is not None and t > now_ms]
        if times:
            self._timer = asyncio.get_running_loop().call_later((min(times) - now_ms) / 1000, self._look)

    def _was_missed(self, row: Fault, now_ms: int) -> bool:
        """Whether its whole window lay between the last look and this one, which came late."""
        begin, end = row.from_ms, row.until_ms
        return begin is not None and end is not None and self._looked_ms < begin and end <= now_ms

    def _start(self, row: Fault) -> None:
        self._in_force[row] = _InForce()
        self._sort()
        self._log.info(ev.FAULT_STARTED, fault=row.fault, id=row.id, **_log_keys(row))
        for handler in list(self._on_start):
            handler(row)

    def _end(self, row: Fault) -> None:
        state = self._in_force.pop(row)
        self._sort()
        reason = "time is over" if row in self._rows else "cleared"
        self._log.info(ev.FAULT_ENDED, fault=row.fault, id=row.id, acted=state.acted, reason=reason, **_log_keys(row))
        for handler in list(self._on_end):
            handler(row)

    def _sort(self) -> None:
        self._pauses = tuple(row for row in self._in_force if isinstance(row, PauseReplication))
        self._apis = tuple(row for row in self._in_force if isinstance(row, ApiFault))
        self._disks = tuple(row for row in self._in_force if isinstance(row, SlowDisk))
        self._links = tuple(row for row in self._in_force if isinstance(row, (SlowLink, CutLink)))

    def acted(self, row: Fault, **keys: Any) -> None:
        """The row did something just now."""
        state = self._in_force.get(row)
        if state is None:
            return
        state.acted += 1
        now_ms = self._clock.now_ms()
        if state.told_ms is None or now_ms - state.told_ms >= ACTED_LOG_MS:
            times = state.acted - state.acted_told
            state.told_ms, state.acted_told = now_ms, state.acted
            self._log.info(ev.FAULT_ACTED, fault=row.fault, id=row.id, times=times, **{**_log_keys(row), **keys})

    # -- what they do --------------------------------------------------------------------------------------------

    @property
    def paused_replication(self) -> str | None:
        """What this broker's followers shall not fetch: `PAUSED_ALL`, or topics and partitions; None: nothing."""
        names = {(row.topic, row.partition) for row in self._pauses}
        if any(topic is None for topic, _ in names):
            return PAUSED_ALL
        return ",".join(sorted(f"{t}" if p is None else f"{t}-{p}" for t, p in names)) or None

    def is_replication_paused(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker's follower of that partition shall not fetch."""
        for row in self._pauses:
            if row.pauses(topic_partition):
                self.acted(row, topic=topic_partition.topic, partition=topic_partition.partition)
                return True
        return False

    @property
    def has_apis(self) -> bool:
        """Whether any row is about requests: asked for each of them."""
        return bool(self._apis)

    def strike(self, api_key: int, *, sender: int | None = None, client_id: str | None = None) -> ApiFault | None:
        """The fault that hits a request of this API which arrives now, if any; counts the request."""
        hit: ApiFault | None = None
        for row in self._apis:
            if row.api_key == api_key and row.is_from(sender, client_id):
                state = self._in_force[row]
                state.seen += 1
                if hit is None and self._hits(row, state.seen):
                    hit = row
        if hit is not None:
            self.acted(hit, client_id=client_id)
        return hit

    def _hits(self, row: ApiFault, seen: int) -> bool:
        if row.nth is not None and seen != row.nth:
            return False
        if row.every is not None and seen % row.every:
            return False
        return row.chance >= 1.0 or self._random.random() < row.chance

    def delay_s(self, row: ApiFault | SlowDisk | SlowLink) -> float:
        """How long this row holds something up now, its jitter drawn."""
        jitter_ms = self._random.uniform(0, row.jitter_ms) if row.jitter_ms else 0.0
        return (row.delay_ms + jitter_ms) / 1000

    def disk_wait_s(self, log_dir: str, size_bytes: int) -> float:
        """How long a turn of so many bytes takes longer than the disk itself needs; it takes its place in the queue."""
        wait_s = 0.0
        for row in self._disks:
            if row.log_dir in (None, log_dir):
                wait_s = max(wait_s, self._turn(row, log_dir, size_bytes))
                self.acted(row, log_dir=log_dir, bytes=size_bytes)
        return wait_s

    @property
    def has_links(self) -> bool:
        """Whether any row is about links: asked for every piece of data."""
        return bool(self._links)

    def links(self, peer: BrokerId | None, peer_rack: str | None = None) -> tuple[SlowLink | CutLink, ...]:
        """The rows about a connection to that broker, or, without one, about what comes from outside."""
        if not self._links:
            return ()
        near, rack = self._broker_id, self._rack
        return tuple(row for row in self._links if row.is_between(near, rack, peer, peer_rack))

    def link_wait_s(self, row: SlowLink, lane: str, size_bytes: int) -> float:
        """How long these bytes travel; a lane is a peer and a direction, and shares the row's rate."""
        self.acted(row, bytes=size_bytes)
        return self._turn(row, lane, size_bytes)

    def _turn(self, row: SlowDisk | SlowLink, lane: str, size_bytes: int) -> float:
        """The rate makes turns queue; a delay holds up each of them alone on a link, and the next ones on a disk."""
        now = asyncio.get_running_loop().time()
        state = self._in_force[row]
        begin = max(now, state.busy_until.get(lane, 0.0))
        busy_s = size_bytes / row.bytes_per_second if row.bytes_per_second is not None else 0.0
        delay_s = self.delay_s(row)
        is_disk = isinstance(row, SlowDisk)
        state.busy_until[lane] = begin + busy_s + (delay_s if is_disk else 0.0)
        return begin + busy_s + delay_s - now


def _is_due(row: Fault, now_ms: int) -> bool:
    return (row.from_ms is None or row.from_ms <= now_ms) and (row.until_ms is None or now_ms < row.until_ms)


def _log_keys(row: Fault) -> dict[str, Any]:
    """The columns of a row under names that do not meet the log's own (`broker` is who logs)."""
    return {("brokers" if name == "broker" else name): value for name, value in row.about().items()}
